//! Pipeline schedules as data: the ordered actions of one rank in one step. pipeline.rs executes them; nothing here
//! touches a device or a connection.

mod action;
mod gpipe;
mod interleaved;
mod one_f_one_b;
#[cfg(test)]
mod simulation;

pub(crate) use action::Action;

use crate::config::parallel::{ParallelConfig, PipelineSchedule};

/// Actions of pipeline rank `rank` for `microbatches` micro-batches.
pub(crate) fn actions(parallel: &ParallelConfig, rank: usize, microbatches: usize) -> Vec<Action> {
    match parallel.schedule {
        PipelineSchedule::Gpipe => gpipe::gpipe(microbatches),
        PipelineSchedule::OneFOneB if parallel.virtual_stages > 1 => {
            interleaved::interleaved(rank, parallel.pp, parallel.virtual_stages, microbatches)
        }
        PipelineSchedule::OneFOneB => one_f_one_b::one_f_one_b(rank, parallel.pp, microbatches),
    }
}
