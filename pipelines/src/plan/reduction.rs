//! Sums of gradients over data-parallel ranks, and gathers of weights under ZeRO, but for those of ZeRO-3 on GPUs (`sharded`).

use crate::plan::cluster::Cluster;
use crate::plan::layout::Layout;
use crate::plan::placement::replicas_of_node;
use crate::plan::rates::Rates;
use crate::plan::sharded::{GRADIENT_BYTES, Ring};

/// Parameters of a rank that `ranks` data-parallel ranks hold as well, each `apart` from the next.
pub(super) struct Replicated {
    pub(super) parameters: f64,
    pub(super) ranks: usize,
    pub(super) apart: usize,
    /// Most bytes/s of each rank, by the levels of the network.
    pub(super) bound: f64,
}

impl Replicated {
    /// A rank's share of them.
    pub(super) fn each(&self) -> f64 {
        self.parameters / self.ranks as f64
    }
}

/// The ring of the ranks that sum a group of parameters. Members of a group in a node share its network devices, and exchange over its
/// links what goes through them.
pub(super) fn ring(layout: &Layout, rates: &Rates, of: &Replicated) -> Ring {
    let ranks = (of.ranks * layout.cp) as f64;
    let in_node = replicas_of_node(layout, rates.per_node, of.apart) as f64;
    let in_node = in_node.min(ranks);
    let rate = if in_node < ranks {
        (rates.network * in_node).min(rates.link)
    } else {
        rates.link
    };
    Ring {
        ranks,
        in_node,
        rate: rate.min(of.bound),
    }
}

/// Whether gradients are summed after each micro-batch: shards of them have no room for sums of a rank's own (ZeRO 2 and 3), and
/// Millrace's context-parallel ranks that share cores sum them as well.
fn sums_each_micro_batch(layout: &Layout, rates: &Rates) -> bool {
    layout.zero >= 2 || (rates.shares_cores && layout.cp > 1)
}

/// Seconds of summing gradients over data-parallel ranks, and of gathering weights under ZeRO; on GPUs those of ZeRO-3 are `sharded`'s.
pub(super) fn reduction(
    layout: &Layout,
    rates: &Rates,
    of: &Replicated,
    micro_batches: f64,
) -> f64 {
    let Ring { ranks, rate, .. } = ring(layout, rates, of);
    if ranks < 2.0 {
        return 0.0;
    }
    let sums = match sums_each_micro_batch(layout, rates) {
        true => GRADIENT_BYTES * micro_batches,
        false => GRADIENT_BYTES,
    };
    let bytes = match layout.zero {
        0 => sums + 4.0,
        1 | 2 => sums + rates.added,
        // weights are gathered for both passes of each micro-batch
        _ => sums + 2.0 * rates.added * micro_batches,
    };
    (ranks - 1.0) / ranks * bytes * of.parameters / rate
}

/// Seconds of the reduction that a backward pass of `backward` seconds hides: of the last micro-batch, or of each one whose gradients
/// are summed. Shared cores have no time to spare beside it.
pub(super) fn hidden(layout: &Layout, cluster: &Cluster, reduction: f64, backward: f64) -> f64 {
    if !layout.overlap || cluster.cores.is_some() {
        return 0.0;
    }
    let passes = match layout.zero {
        0 | 1 => 1.0,
        _ => layout.micro_batches() as f64,
    };
    reduction.min(passes * backward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rates::CONSTANTS;

    /// Context-parallel ranks beside a rank have the same experts: both send from their node.
    #[test]
    fn gradients_of_experts_are_summed_over_context_parallel_ranks_too() {
        let cluster = Cluster {
            devices_per_node: 2,
            ..Cluster::load("dgx-a100").unwrap()
        };
        let of = Layout {
            cp: 2,
            dp: 4,
            ep: 2,
            ..Layout::one(16)
        };
        let rates = Rates::of(&of, &cluster, &CONSTANTS);
        let experts = Replicated {
            parameters: 1e9,
            ranks: 2,
            apart: 2,
            bound: rates.sums_of_experts,
        };
        let found = reduction(&of, &rates, &experts, 1.0);
        // four ranks on two nodes, 4 + 4 bytes of each parameter
        let wanted = 3.0 / 4.0 * 8e9 / (2.0 * rates.network);
        assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
    }

    /// Shards of gradients have no room for a rank's own sums: of four micro-batches four are sent, each beside its backward pass.
    #[test]
    fn zero_2_sums_gradients_of_each_micro_batch() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let of = |zero, overlap| Layout {
            dp: 8,
            zero,
            overlap,
            ..Layout::one(32)
        };
        let layout = of(2, true);
        let rates = Rates::of(&layout, &cluster, &CONSTANTS);
        let parameters = Replicated {
            parameters: 1e9,
            ranks: 8,
            apart: 1,
            bound: f64::INFINITY,
        };
        let seconds = |zero| reduction(&of(zero, true), &rates, &parameters, 4.0);
        // seven of eight parts by links of 300 GB/s: 4 bytes a gradient, and 2 a weight
        let byte = 7.0 / 8.0 * 1e9 / 300e9;
        assert!((seconds(1) / (6.0 * byte) - 1.0).abs() < 1e-12);
        assert!((seconds(2) / (18.0 * byte) - 1.0).abs() < 1e-12);
        let hides = |zero, overlap| hidden(&of(zero, overlap), &cluster, 10.0, 1.0);
        assert_eq!(
            [hides(1, true), hides(2, true), hides(2, false)],
            [1.0, 4.0, 0.0]
        );
    }
}
