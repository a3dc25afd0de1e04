//! Memory of pipeline stages: the fullest rank of each one, and all its ranks together.
//!
//! Ranks of a stage differ in few ways. Of a tensor-parallel group every rank has rows of the same number, and the first one alone copies
//! whole tensors for checkpoints. Of a context-parallel group the first rank alone makes copies and has losses of masked predictions;
//! only where gradients are held in parts does every rank have parts of its own length. Data-parallel ranks may all differ: in their
//! shards of parameters (ZeRO), experts and sequences. The schedule is simulated once for ranks whose passes keep the same bytes.

use std::collections::HashMap;

use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;
use crate::error::{Error, Result};
use crate::parallel::schedule::{Action, actions};
use crate::trainer::memory::peaks::{Peaks, Step, peaks};
use crate::trainer::memory::rank_memory::RankMemory;
use crate::trainer::memory::{Sharded, memory_with};

/// Memory of the ranks of a pipeline stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageMemory {
    /// The rank that holds most bytes.
    pub fullest: RankMemory,
    /// Bytes of all ranks together.
    pub together: usize,
}

impl StageMemory {
    /// Adds `count` ranks that hold the same bytes.
    fn add(&mut self, rank: RankMemory, count: usize) {
        self.together += count * rank.total();
        if rank.total() > self.fullest.total() {
            self.fullest = rank;
        }
    }
}

/// Memory of the ranks of each pipeline stage by formula, without looking at each of them.
///
/// # Errors
/// A plan that contradicts itself.
pub fn predict_stages(plan: &Plan) -> Result<Vec<StageMemory>> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(Error::Plan(problems));
    }
    let all = Sharded::all(&[plan]);
    let stage = |pp_rank| all.iter().map(move |of| of_stage(of, pp_rank));
    Ok((0..plan.parallel.pp).flat_map(stage).collect())
}

fn of_stage(of: &Sharded<'_>, pp_rank: usize) -> StageMemory {
    let parallel = &of.plan.parallel;
    let first = RankCoord {
        pp_rank,
        ..RankCoord::of(0, parallel)
    };
    let mut simulated = Simulated::default();
    let mut stage = StageMemory::default();
    // ranks with the same experts have the same units
    for ep_rank in 0..first.ep {
        let mut rank = of.rank(RankCoord {
            dp_rank: ep_rank,
            ..first
        });
        for dp_rank in (ep_rank..first.dp).step_by(first.ep) {
            rank.place.dp_rank = dp_rank;
            for context in context_ranks(of.plan) {
                (rank.place.tp_rank, rank.place.cp_rank) = (0, context.rank);
                let step = rank.step();
                let micro_batches = step.micro_batches();
                let peaks = simulated.peaks(step, || actions(parallel, pp_rank, micro_batches));
                let memory = memory_with(std::slice::from_ref(&rank), micro_batches, peaks);
                stage.add(memory, context.count);
                if first.tp > 1 {
                    rank.place.tp_rank = 1;
                    let snapshot = rank.snapshot();
                    let others = RankMemory { snapshot, ..memory };
                    stage.add(others, (first.tp - 1) * context.count);
                }
            }
        }
    }
    stage
}

/// A context-parallel rank that stands for `count` ranks with the same bytes.
struct ContextRank {
    rank: usize,
    count: usize,
}

fn context_ranks(plan: &Plan) -> Vec<ContextRank> {
    let cp = plan.parallel.cp;
    let holds_parts = plan.sum_order().is_tree() && !plan.parallel.is_summed_by_round();
    match (cp, holds_parts) {
        (1, _) | (_, true) => (0..cp).map(|rank| ContextRank { rank, count: 1 }).collect(),
        (_, false) => vec![
            ContextRank { rank: 0, count: 1 },
            ContextRank {
                rank: 1,
                count: cp - 1,
            },
        ],
    }
}

/// Peaks of the steps of a stage that were simulated already, and schedules by their number of micro-batches.
#[derive(Default)]
struct Simulated {
    peaks: HashMap<Step, Peaks>,
    schedules: HashMap<usize, Vec<Action>>,
}

impl Simulated {
    fn peaks(&mut self, step: Step, schedule: impl FnOnce() -> Vec<Action>) -> Peaks {
        if let Some(found) = self.peaks.get(&step) {
            return *found;
        }
        let schedule = (self.schedules)
            .entry(step.micro_batches())
            .or_insert_with(schedule);
        let found = peaks(std::slice::from_ref(&step), schedule);
        self.peaks.insert(step, found);
        found
    }
}
