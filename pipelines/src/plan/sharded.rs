//! Traffic of ZeRO-3 (Rajbhandari et al. 2020, arXiv:1910.02054): each micro-batch gathers the weights of every layer before its forward
//! pass, before its backward pass, and once more where the layer is computed again, and sums its gradients into the ranks' shards.
//!
//! As DeepSpeed does it, a collective has one matrix; norms and biases stay on every rank (`stage3_param_persistence_threshold`). The
//! gather of a layer travels beside the work of the layer before it, one ahead (Zhao et al. 2023, arXiv:2304.11277, section 3.3.2), and the
//! sum of a layer's gradients beside the one after it; what a layer's work does not cover is seen. A ring of n ranks has n - 1 hops,
//! each with a latency (`Rates`).

use crate::plan::rates::Rates;

/// Ranks that hold shards of the same parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ring {
    pub ranks: f64,
    /// Of them on a node.
    pub in_node: f64,
    /// Bytes/s of each rank.
    pub rate: f64,
}

impl Ring {
    /// Seconds of `count` all-gathers or reduce-scatters of so many bytes together: as NCCL's model of them, `lat + bytes / bw`
    /// (`src/graph/tuning.cc`).
    fn seconds(&self, rates: &Rates, count: f64, bytes: f64) -> f64 {
        if self.ranks < 2.0 || bytes == 0.0 {
            return 0.0;
        }
        let across = (self.ranks / self.in_node).ceil() - 1.0;
        let inside = self.ranks - 1.0 - across;
        let latency = rates.ring_start + inside * rates.link_hop + across * rates.network_hop;
        count * latency + (self.ranks - 1.0) / self.ranks * bytes / self.rate
    }
}

/// Parameters that a ring holds in shards, by layer, and the matrices that they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sharded {
    pub ring: Ring,
    /// Of a layer, on the mean of all layers.
    pub parameters: f64,
    pub matrices: f64,
}

impl Sharded {
    fn gather(&self, rates: &Rates) -> f64 {
        let bytes = rates.added * self.parameters;
        self.ring.seconds(rates, self.matrices, bytes)
    }

    fn sum(&self, rates: &Rates) -> f64 {
        let bytes = GRADIENT_BYTES * self.parameters;
        self.ring.seconds(rates, self.matrices, bytes)
    }
}

/// Bytes of a gradient that is summed.
pub(super) const GRADIENT_BYTES: f64 = 4.0;

/// The shards of a rank's model, and the work of a micro-batch beside which they travel.
pub(super) struct ShardedModel {
    /// Of each layer: its matrices, and its experts.
    pub of_layer: [Sharded; 2],
    /// The embedding or the head.
    pub of_end: Sharded,
    /// Matrices of the vocabulary.
    pub ends: f64,
    pub layers: f64,
    /// Share of the layers that are computed again.
    pub again: f64,
    /// Seconds of a layer's passes.
    pub forward: f64,
    pub backward: f64,
    /// Seconds of the head's both passes.
    pub head: f64,
    /// Whether anything travels beside work.
    pub overlap: bool,
}

impl ShardedModel {
    /// Seconds of a micro-batch in which the traffic is seen.
    pub(super) fn seen(&self, rates: &Rates) -> f64 {
        let all = |of: &dyn Fn(&Sharded) -> f64| self.of_layer.iter().map(of).sum::<f64>();
        let gather = all(&|of| of.gather(rates));
        let sum = all(&|of| of.sum(rates));
        let end = self.of_end.gather(rates);
        let sum_of_ends = self.ends * self.of_end.sum(rates);
        let back = (1.0 + self.again) * gather + sum;
        if !self.overlap {
            return 2.0 * end + self.layers * (gather + back) + sum_of_ends;
        }
        let beside = |work: f64, traffic: f64| (traffic - work).max(0.0);
        // before the first layer there is no work, and the head is there when its backward pass begins
        let forward = end + gather + (self.layers - 1.0).max(0.0) * beside(self.forward, gather);
        let head = beside(self.forward, end) + beside(self.head, gather);
        let others = (self.layers - 1.0).max(0.0);
        let backward = others * beside(self.backward, back);
        // nothing follows the last sums
        forward + head + backward + sum + sum_of_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::layout::Layout;
    use crate::plan::rates::CONSTANTS;

    fn rates(cluster: &Cluster) -> Rates {
        Rates::of(&Layout::one(1), cluster, &CONSTANTS)
    }

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
    }

    /// 16 ranks on two nodes: 15 hops, one of them by the network; 15 of 16 shards come from others.
    #[test]
    fn a_collective_takes_its_hops_and_its_bytes() {
        let cluster = Cluster {
            link_latency: 0.0,
            ..Cluster::load("dgx-a100").unwrap()
        };
        let rates = rates(&cluster);
        let ring = Ring {
            ranks: 16.0,
            in_node: 8.0,
            rate: 100e9,
        };
        let latency = 8.4e-6 + 14.0 * 3.4e-6 + 14e-6;
        near(
            ring.seconds(&rates, 4.0, 16e9),
            4.0 * latency + 15e9 / 100e9,
        );
        // a latency that the cluster's file has is taken in place of NCCL's
        let measured = Cluster {
            link_latency: 50e-6,
            ..cluster
        };
        let more = ring.seconds(&self::rates(&measured), 1.0, 16e9);
        near(more, 50e-6 + latency - 8.4e-6 + 15e9 / 100e9);
        let alone = Ring { ranks: 1.0, ..ring };
        assert_eq!(alone.seconds(&rates, 4.0, 16e9), 0.0);
    }

    /// Layers of a gather of 1 s and a sum of 2 s, ends that take nothing: beside work of 3 and 6 s only the first gather and the last
    /// sum are seen; beside half of it, each layer's backward pass lacks 4 - 3 s where it is computed again.
    #[test]
    fn what_a_layers_work_does_not_cover_is_seen() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let mut rates = rates(&cluster);
        (rates.ring_start, rates.link_hop, rates.network_hop) = (0.0, 0.0, 0.0);
        let ring = Ring {
            ranks: 2.0,
            in_node: 2.0,
            rate: 1e9,
        };
        let of = |parameters| Sharded {
            ring,
            parameters,
            matrices: 4.0,
        };
        let model = |work: f64, again, overlap| ShardedModel {
            of_layer: [of(1e9), of(0.0)],
            of_end: of(0.0),
            ends: 2.0,
            layers: 5.0,
            again,
            forward: work,
            backward: 2.0 * work,
            head: 100.0,
            overlap,
        };
        near(model(3.0, 0.0, true).seen(&rates), 1.0 + 2.0);
        near(model(1.5, 1.0, true).seen(&rates), 1.0 + 4.0 * 1.0 + 2.0);
        // none of it beside work: three gathers and a sum of each layer
        near(model(3.0, 1.0, false).seen(&rates), 5.0 * (3.0 + 2.0));
        near(model(3.0, 0.0, false).seen(&rates), 5.0 * (2.0 + 2.0));
    }
}
