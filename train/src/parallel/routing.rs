//! What the routers of a step did, from all ranks: losses before their coefficients, how full the
//! experts were, what was dropped. Numbers of a layer's groups are added in order of layers, then of
//! sequences, on every rank.

use kernels::comm::Collective;
use serde::{Deserialize, Serialize};

use crate::mesh::Place;
use crate::model::moe::router::Report;
use crate::parallel::data::Block;

/// Of all mixtures of a step.
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

/// Numbers of one group before the counts of its experts: layer, first sequence, tokens, dropped,
/// load balance, z-loss.
const HEAD: usize = 6;

/// One rank's groups during a step.
#[derive(Default)]
pub(crate) struct Reports {
    numbers: Vec<f64>,
}

impl Reports {
    /// Takes what a layer told about a micro-batch.
    pub(crate) fn push(&mut self, report: &Report, block: Block) {
        let each = (block.size / report.groups.len()).max(1);
        let groups = report.groups.iter().zip(&report.dropped).enumerate();
        for (number, (group, &dropped)) in groups {
            let first = block.start + number * each;
            self.numbers.extend([
                report.layer as f64,
                first as f64,
                group.tokens as f64,
                dropped as f64,
                group.balance_loss(),
                group.z_loss(),
            ]);
            self.numbers
                .extend(group.counts.iter().map(|&count| count as f64));
        }
    }

    /// The step's record, the same bits on every rank; replicas tell nothing.
    pub(crate) fn gather(
        self,
        experts: usize,
        place: &Place,
        world: &dyn Collective,
    ) -> kernels::Result<RoutingRecord> {
        let is_told = (place.tp_rank, place.cp_rank) == (0, 0);
        let mine = if is_told { self.numbers } else { Vec::new() };
        let all = world.all_gather_f64(&mine)?;
        let groups = all
            .iter()
            .flat_map(|rank| rank.chunks_exact(HEAD + experts));
        let mut groups: Vec<&[f64]> = groups.collect();
        let order = |a: &[f64], b: &[f64]| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]));
        groups.sort_by(|a, b| order(a, b));
        let sum = |of: &dyn Fn(&[f64]) -> f64| groups.iter().fold(0.0, |sum, g| sum + of(g));
        let tokens = sum(&|group| group[2]);
        let choices = sum(&|group| group[HEAD..].iter().sum());
        let (mut max_load, mut min_load) = (0.0f64, f64::INFINITY);
        for layer in groups.chunk_by(|a, b| a[0] == b[0]) {
            let count = |expert: usize| layer.iter().fold(0.0, |sum, g| sum + g[HEAD + expert]);
            let counts: Vec<f64> = (0..experts).map(count).collect();
            let even = counts.iter().sum::<f64>() / experts as f64;
            for count in counts {
                max_load = max_load.max(count / even);
                min_load = min_load.min(count / even);
            }
        }
        Ok(RoutingRecord {
            balance_loss: sum(&|group| group[4] * group[2]) / tokens,
            z_loss: sum(&|group| group[5] * group[2]) / tokens,
            max_load,
            min_load,
            dropped: sum(&|group| group[3]) / choices,
        })
    }
}
