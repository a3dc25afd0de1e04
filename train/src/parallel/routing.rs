//! Routing statistics of a step, over all ranks: losses before their coefficients, expert load, dropped choices.
//! Every rank adds the groups of a layer in order of layers, then of sequences.

use std::sync::Arc;

use kernels::Tensor;
use kernels::comm::Collective;
use serde::{Deserialize, Serialize};

use crate::data::micro_batches::Block;
use crate::dist::mesh::RankCoord;
use crate::model::moe::report::{Known, Report};

/// Statistics of all mixtures in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoutingRecord {
    /// Load balance loss, mean over layers and tokens; 1 when even.
    pub balance_loss: f64,
    /// Router's z-loss, mean over layers and tokens.
    pub z_loss: f64,
    /// Choices of the fullest expert of any layer over an even share.
    pub max_load: f64,
    /// Choices of the emptiest expert of any layer over an even share.
    pub min_load: f64,
    /// Share of all choices that full experts dropped.
    pub dropped: f64,
}

/// A step's routing over all ranks.
#[derive(Clone, Debug)]
pub(crate) struct StepRouting {
    pub record: RoutingRecord,
    pub loads: Vec<Load>,
}

/// Tokens per expert of a layer in a step: choices without the dropped ones, as Megatron's
/// `local_tokens_per_expert` summed over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub layer: usize,
    pub tokens: Vec<u64>,
}

/// Header of one group's numbers, before those of its experts: layer, first sequence, tokens, load balance, z-loss.
/// After them: choices of each expert, and those of them that were dropped.
const HEAD: usize = 5;

/// One rank's reports during a step, which may be on its device still.
#[derive(Default)]
pub(crate) struct Reports(Vec<(Arc<Report>, Block)>);

impl Reports {
    /// Adds a layer's report on a micro-batch.
    pub(crate) fn push(&mut self, report: &Arc<Report>, block: Block) {
        self.0.push((Arc::clone(report), block));
    }

    /// All tensors, for one download of their words.
    pub(crate) fn tensors(&self) -> Vec<&Tensor> {
        self.0
            .iter()
            .flat_map(|(report, _)| report.tensors())
            .collect()
    }

    /// Numbers of all groups, by the words of `tensors`.
    fn numbers(&self, mut words: &[Vec<u32>]) -> kernels::Result<Vec<f64>> {
        let mut numbers = Vec::new();
        for (report, block) in &self.0 {
            let (its, rest) = words.split_at(report.tensors().len().min(words.len()));
            words = rest;
            add_numbers(&mut numbers, &report.read(its)?, *block);
        }
        Ok(numbers)
    }

    /// The routing of all ranks, the same bits on every rank; replicas contribute nothing. `words`: of `tensors`.
    /// # Errors
    /// `Argument` if a router's logit was not finite; those of `Collective::all_gather_f64`.
    pub(crate) fn gather(
        &self,
        words: &[Vec<u32>],
        experts: usize,
        place: &RankCoord,
        world: &dyn Collective,
    ) -> kernels::Result<StepRouting> {
        let is_told = (place.tp_rank, place.cp_rank) == (0, 0);
        let numbers = self.numbers(words)?;
        let mine = if is_told { numbers } else { Vec::new() };
        let all = world.all_gather_f64(&mine)?;
        let groups = all
            .iter()
            .flat_map(|rank| rank.chunks_exact(HEAD + 2 * experts));
        let mut groups: Vec<&[f64]> = groups.collect();
        let order = |a: &[f64], b: &[f64]| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]));
        groups.sort_by(|a, b| order(a, b));
        let sum = |of: &dyn Fn(&[f64]) -> f64| groups.iter().fold(0.0, |sum, g| sum + of(g));
        let tokens = sum(&|group| group[2]);
        let (chosen, dropped) = (HEAD..HEAD + experts, HEAD + experts..HEAD + 2 * experts);
        let choices = sum(&|group| group[chosen.clone()].iter().sum());
        let mut loads = Vec::new();
        let (mut max_load, mut min_load) = (0.0f64, f64::INFINITY);
        for layer in groups.chunk_by(|a, b| a[0] == b[0]) {
            let count = |at: usize| layer.iter().fold(0.0, |sum, g| sum + g[at]);
            let counts: Vec<f64> = chosen.clone().map(count).collect();
            loads.push(Load::of(
                layer[0][0],
                counts.iter().zip(dropped.clone().map(count)),
            ));
            let even = counts.iter().sum::<f64>() / experts as f64;
            for count in counts {
                max_load = max_load.max(count / even);
                min_load = min_load.min(count / even);
            }
        }
        let record = RoutingRecord {
            balance_loss: sum(&|group| group[3] * group[2]) / tokens,
            z_loss: sum(&|group| group[4] * group[2]) / tokens,
            max_load,
            min_load,
            dropped: sum(&|group| group[dropped.clone()].iter().sum()) / choices,
        };
        Ok(StepRouting { record, loads })
    }
}

/// Adds the groups of a layer's report on a micro-batch.
fn add_numbers(numbers: &mut Vec<f64>, report: &Known, block: Block) {
    let each = (block.size / report.groups.len()).max(1);
    let groups = report.groups.iter().zip(&report.dropped).enumerate();
    for (number, (group, dropped)) in groups {
        let first = block.start + number * each;
        numbers.extend([
            report.layer as f64,
            first as f64,
            group.tokens as f64,
            group.balance_loss(),
            group.z_loss(),
        ]);
        let counts = group.choices.iter().chain(dropped);
        numbers.extend(counts.map(|&count| count as f64));
    }
}

impl Load {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole numbers that traveled as f64, exact below 2^53"
    )]
    fn of<'a>(layer: f64, counts: impl Iterator<Item = (&'a f64, f64)>) -> Load {
        Load {
            layer: layer as usize,
            tokens: counts
                .map(|(chosen, dropped)| (chosen - dropped) as u64)
                .collect(),
        }
    }
}
