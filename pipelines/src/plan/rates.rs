//! Rates that a step reaches, from those of a cluster and four constants, and the seconds of products and all-to-alls at them.

use crate::plan::cluster::Cluster;
use crate::plan::layout::Layout;
use crate::plan::placement::expert_ranks_of_node;

/// Shares of a cluster's nominal rates that a step reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Constants {
    /// Of the matrix rate, in products that are not bound by memory.
    pub matrix: f64,
    /// Of the memory rate.
    pub memory: f64,
    /// Of the rate between devices of a node.
    pub link: f64,
    /// Of the rate between nodes.
    pub network: f64,
}

/// Fitted on the ten rows of 2104.04473, table 1, alone; `fit.rs` finds them again.
pub(crate) const CONSTANTS: Constants = Constants {
    matrix: 0.6722,
    memory: 1.0,
    link: 1.0,
    network: 1.0,
};

/// Of rates that were measured with the program's own kernels, as `millrace doctor --measure` does.
const MEASURED: Constants = Constants {
    matrix: 1.0,
    memory: 1.0,
    link: 1.0,
    network: 1.0,
};

impl Constants {
    /// Those of a cluster: machines whose devices share cores are described by measured rates, others by nominal ones.
    pub(crate) fn of(cluster: &Cluster) -> Constants {
        match cluster.cores {
            Some(_) => MEASURED,
            None => CONSTANTS,
        }
    }
}

/// Rates that a step reaches.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    /// FLOP/s of attention and of the head.
    pub(super) matrix: f64,
    /// FLOP/s of products with weights.
    of_weights: f64,
    pub(super) memory: f64,
    pub(super) link: f64,
    pub(super) network: f64,
    /// Bytes of a number of activations.
    pub(super) number: f64,
    /// Bytes of a weight that products read.
    pub(super) weight: f64,
    /// Bytes of a number that collectives add.
    pub(super) added: f64,
    /// Devices of a node.
    pub(super) per_node: usize,
    /// Seconds to start an operation.
    pub(super) op: f64,
    /// Seconds to start a collective.
    pub(super) collective: f64,
    /// Whether the devices are ranks that share the cores of a machine: threads of Millrace itself, of which more is known.
    pub(super) shares_cores: bool,
}

impl Rates {
    /// Rates of each rank of a layout. Ranks that share cores share the rates of their node, and add numbers in f32.
    pub(super) fn of(layout: &Layout, cluster: &Cluster, constants: &Constants) -> Rates {
        let ranks = layout.devices().min(cluster.devices_per_node);
        let share = cluster.share(ranks);
        let link = cluster.link * constants.link;
        Rates {
            matrix: share * cluster.matrix * constants.matrix,
            of_weights: share
                * cluster.matrix_of_layers.unwrap_or(cluster.matrix)
                * constants.matrix,
            memory: share * cluster.memory_rate * constants.memory,
            link,
            network: match layout.devices() <= cluster.devices_per_node {
                true => link,
                false => cluster.network * constants.network,
            },
            number: cluster.number_bytes,
            weight: cluster.number_bytes,
            added: match cluster.cores {
                Some(_) => 4.0,
                None => cluster.number_bytes,
            },
            per_node: cluster.devices_per_node,
            op: cluster.op_start(ranks),
            collective: cluster.link_latency,
            shares_cores: cluster.cores.is_some(),
        }
    }

    /// The same with weights of so many bytes.
    pub(super) fn with_weights(self, weight: f64) -> Rates {
        Rates { weight, ..self }
    }

    /// The same for the head, which has products of 16 bits where layers have some of 8.
    pub(super) fn of_head(self) -> Rates {
        Rates {
            of_weights: self.matrix,
            ..self
        }
    }

    /// Seconds of a product of `m` rows with a matrix of `n` rows of `k` weights: its operations or its operands, the longer.
    pub(super) fn product(&self, m: f64, n: f64, k: f64) -> f64 {
        let flop = 2.0 * m * n * k / self.of_weights;
        let bytes = self.number * (m * k + m * n) + self.weight * k * n;
        self.op + flop.max(bytes / self.memory)
    }

    /// Seconds of the two products of its backward pass: with respect to the rows, and to the weights.
    pub(super) fn product_backward(&self, m: f64, n: f64, k: f64) -> f64 {
        self.product(m, k, n) + self.product(n, k, m)
    }

    /// Seconds of attention's backward pass for one of its forward pass: five products for two, of which one is the scores again.
    pub(super) fn backward_of_attention(&self) -> f64 {
        if self.shares_cores { 2.5 } else { 2.0 }
    }

    /// Seconds of the products of `experts` experts with `m` rows each, by matrices of their own, in one operation.
    pub(super) fn grouped(&self, experts: f64, m: f64, n: f64, k: f64) -> f64 {
        self.op + experts * (self.product(m, n, k) - self.op)
    }

    /// Seconds in which each of a layout's ranks that share out the experts sends `bytes` to all of them, itself included, evenly:
    /// over links to those of its node, over the network to the others at the same time.
    pub(super) fn all_to_all(&self, layout: &Layout, bytes: f64) -> f64 {
        if layout.ep < 2 {
            return 0.0;
        }
        let ep = layout.ep as f64;
        // the others wait for the ranks with fewest of the group on their node, which send most by the network
        let near = expert_ranks_of_node(layout, self.per_node) as f64;
        let inside = (near - 1.0) / ep * bytes / self.link;
        let outside = (ep - near) / ep * bytes / self.network;
        self.collective + inside.max(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVIDIA's rates of the H100, 989 and 1,979 TFLOP/s: attention and the head stay at the first.
    #[test]
    fn products_of_8_bits_take_half_the_time_outside_of_attention_and_the_head() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let rates = |cluster: &Cluster| Rates::of(&Layout::one(1), cluster, &CONSTANTS);
        let (wide, narrow) = (rates(&cluster), rates(&cluster.clone().in_fp8()));
        let product = |rates: &Rates| rates.product(8192.0, 8192.0, 8192.0);
        let ratio = product(&wide) / product(&narrow);
        assert!((ratio - 1979.0 / 989.0).abs() < 1e-9, "{ratio}");
        assert_eq!(product(&narrow.of_head()), product(&wide));
        assert_eq!(narrow.matrix, wide.matrix);
    }

    /// Six ranks on nodes of eight: of the second group two are on the first node, and send four sixths to the others.
    #[test]
    fn ranks_of_groups_that_no_node_holds_send_more_by_the_network() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let layout = Layout {
            dp: 24,
            ep: 6,
            ..Layout::one(24)
        };
        let rates = Rates::of(&layout, &cluster, &CONSTANTS);
        let found = rates.all_to_all(&layout, 6e9) - rates.collective;
        assert!((found * cluster.network / 4e9 - 1.0).abs() < 1e-9);
    }
}
