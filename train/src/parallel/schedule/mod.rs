//! Pipeline schedules as data: the ordered actions of one rank in one step. pipeline.rs obeys them;
//! nothing here touches a device or a connection.

mod gpipe;
mod interleaved;
mod one_f_one_b;
#[cfg(test)]
mod simulation;

use crate::layout::{ParallelConfig, PipelineSchedule};

/// One thing a rank does with one micro-batch and one of its pieces of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Receive (or look up) activations, run the piece, send them on.
    Forward { micro: usize, chunk: usize },
    /// Receive (or start) gradients, run the piece backwards, send them back.
    Backward { micro: usize, chunk: usize },
}

fn forward(micro: usize) -> Action {
    Action::Forward { micro, chunk: 0 }
}

fn backward(micro: usize) -> Action {
    Action::Backward { micro, chunk: 0 }
}

/// Actions of pipeline rank `rank` for `microbatches` micro-batches.
pub(crate) fn actions(parallel: &ParallelConfig, rank: usize, microbatches: usize) -> Vec<Action> {
    match parallel.schedule {
        PipelineSchedule::Gpipe => gpipe::gpipe(microbatches),
        PipelineSchedule::OneFOneB if parallel.virtual_stages > 1 => {
            let pieces = (parallel.pp, parallel.virtual_stages);
            interleaved::interleaved(rank, pieces, microbatches)
        }
        PipelineSchedule::OneFOneB => one_f_one_b::one_f_one_b(rank, parallel.pp, microbatches),
    }
}
