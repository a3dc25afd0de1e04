//! Rates that a step reaches, from those of a cluster and four constants, and the seconds of products and all-to-alls at them.

use crate::plan::cluster::Cluster;
use crate::plan::layout::Layout;
use crate::plan::placement::{expert_ranks_of_node, key_rings_across, rings_across, stages_across};

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

/// Seconds of a ring's collective of large messages (NCCL's protocol Simple) before its first hop, of a hop over NVLink, and of a hop by the
/// network: NCCL's own model (`src/graph/tuning.cc`, `baseLat` and `hwLat` of Ring/Simple), in microseconds 8.4, 3.4 and 14.
const RING_START: f64 = 8.4e-6;
const LINK_HOP: f64 = 3.4e-6;
const NETWORK_HOP: f64 = 14e-6;

/// Rates that a step reaches.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    /// FLOP/s of attention. Its kernels reach as much of the rate of an H100 (FlashAttention-3: up to 0.75, arXiv:2407.08608) as of an A100
    /// (FlashAttention-2: up to 0.73, arXiv:2307.08691), unlike products with weights.
    pub(super) matrix: f64,
    /// FLOP/s of the head and of other products of 16 bits.
    pub(super) of_16_bits: f64,
    /// FLOP/s of products with weights.
    of_weights: f64,
    pub(super) memory: f64,
    pub(super) link: f64,
    pub(super) network: f64,
    /// Bytes/s of each rank to the next pipeline stage.
    pub(super) to_stage: f64,
    /// Bytes/s of each rank to the next one of the context-parallel ranks.
    pub(super) keys: f64,
    /// Most bytes/s at which gradients of matrices and of experts go around their rings, by the levels of the network that they cross.
    pub(super) sums: f64,
    pub(super) sums_of_experts: f64,
    /// Seconds per byte that a rank sends to all that share out the experts, evenly, of what goes by the network.
    exchange: f64,
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
    /// Seconds to start a collective of a ring whose hops are counted, and those of a hop inside a node and between nodes.
    pub(super) ring_start: f64,
    pub(super) link_hop: f64,
    pub(super) network_hop: f64,
    /// Whether the devices are ranks that share the cores of a machine: threads of Millrace itself, of which more is known.
    pub(super) shares_cores: bool,
}

impl Rates {
    /// Rates of each rank of a layout. Ranks that share cores share the rates of their node, and add numbers in f32.
    pub(super) fn of(layout: &Layout, cluster: &Cluster, constants: &Constants) -> Rates {
        let ranks = layout.devices().min(cluster.devices_per_node);
        let share = cluster.share(ranks);
        let of_16_bits = cluster.matrix * cluster.matrix_reached.unwrap_or(1.0);
        let of_layers = cluster
            .matrix_of_layers
            .map(|rate| rate * cluster.matrix_fp8_reached.unwrap_or(1.0));
        let link = cluster.link * constants.link;
        let network = match layout.devices() <= cluster.devices_per_node {
            true => link,
            false => cluster.network * constants.network,
        };
        let Bounds {
            to_stage,
            keys,
            sums,
            sums_of_experts,
            exchange,
        } = Bounds::of(layout, cluster, network);
        Rates {
            matrix: share * cluster.matrix * constants.matrix,
            of_16_bits: share * of_16_bits * constants.matrix,
            of_weights: share * of_layers.unwrap_or(of_16_bits) * constants.matrix,
            memory: share * cluster.memory_rate * constants.memory,
            link,
            network,
            to_stage,
            keys,
            sums,
            sums_of_experts,
            exchange,
            number: cluster.number_bytes,
            weight: cluster.number_bytes,
            added: match cluster.cores {
                Some(_) => 4.0,
                None => cluster.number_bytes,
            },
            per_node: cluster.devices_per_node,
            op: cluster.op_start(ranks),
            collective: cluster.link_latency,
            ring_start: match cluster.link_latency > 0.0 {
                true => cluster.link_latency,
                false => RING_START,
            },
            link_hop: LINK_HOP,
            network_hop: NETWORK_HOP,
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
            of_weights: self.of_16_bits,
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

    /// Seconds of attention's backward pass for one of its forward pass: four products for two, and where scores are not kept
    /// (fused attention, and Millrace's), a fifth for the scores again (Dao 2023, arXiv:2307.08691, algorithm 2).
    pub(super) fn backward_of_attention(&self, is_fused: bool) -> f64 {
        match is_fused || self.shares_cores {
            true => 2.5,
            false => 2.0,
        }
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
        self.collective + inside.max(bytes * self.exchange)
    }
}

/// Rates of what leaves nodes, by the network and the levels of it that a layout crosses. All devices of a level's group share its links
/// to the rest: their network's rate over its oversubscription.
struct Bounds {
    to_stage: f64,
    keys: f64,
    sums: f64,
    sums_of_experts: f64,
    exchange: f64,
}

impl Bounds {
    fn of(layout: &Layout, cluster: &Cluster, network: f64) -> Bounds {
        let share_outside = |devices: usize| {
            let near = expert_ranks_of_node(layout, devices);
            (layout.ep - near) as f64 / layout.ep as f64
        };
        let mut found = Bounds {
            to_stage: network,
            keys: network,
            sums: f64::INFINITY,
            sums_of_experts: f64::INFINITY,
            exchange: share_outside(cluster.devices_per_node) / network,
        };
        for uplink in cluster.uplinks() {
            let devices = uplink.devices;
            if layout.devices() <= devices {
                break;
            }
            let links = devices as f64 * network / uplink.oversubscription;
            // of so many streams that leave a group at once
            let each = |streams: usize| links / streams as f64;
            found.to_stage = found.to_stage.min(each(stages_across(layout, devices)));
            if layout.cp > 1 {
                found.keys = found.keys.min(each(key_rings_across(layout, devices)));
            }
            found.sums = found.sums.min(each(rings_across(layout, devices, 1)));
            let experts = rings_across(layout, devices, layout.ep);
            found.sums_of_experts = found.sums_of_experts.min(each(experts));
            let exchange = share_outside(devices) * uplink.oversubscription / network;
            found.exchange = found.exchange.max(exchange);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of NVIDIA's rates of the H100, 989 and 1,979 TFLOP/s, products reach 794.5 and 1,402.6: attention and the head stay at the first.
    #[test]
    fn products_of_8_bits_have_their_own_rate_outside_of_attention_and_the_head() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let rates = |cluster: &Cluster| Rates::of(&Layout::one(1), cluster, &CONSTANTS);
        let (wide, narrow) = (rates(&cluster), rates(&cluster.clone().in_fp8()));
        let product = |rates: &Rates| rates.product(8192.0, 8192.0, 8192.0);
        let ratio = product(&wide) / product(&narrow);
        assert!((ratio - 1402.6 / 794.5).abs() < 1e-9, "{ratio}");
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

    /// Leaves of 2 nodes of 8, oversubscribed 4:1, and spines of 4, 2:1 more.
    fn levels() -> Cluster {
        let text = "name = 'x'\nnodes = 16\ndevices_per_node = 8\nmatrix_tflops = 100\nmemory_gb = 80\nmemory_gb_s = 2000\nlink_gb_s = 300\nnetwork_gb_s = 25\n[[level]]\nname = 'leaf'\nnodes = 2\noversubscription = 4\n[[level]]\nname = 'spine'\nnodes = 4\noversubscription = 2\n";
        Cluster::parse(text, std::path::Path::new("x.toml")).unwrap()
    }

    #[test]
    fn what_crosses_a_level_shares_its_links() {
        let cluster = levels();
        let one = Layout {
            dp: 128,
            ..Layout::one(128)
        };
        let of = |layout: Layout| Rates::of(&layout, &cluster, &CONSTANTS);
        // one ring of 128: links of 16 devices at a fourth of 25 GB/s, and of 32 at an eighth
        assert_eq!(of(one).sums, 100e9);
        // with tp 8 eight rings leave each node, leaf and spine; of a spine each has an eighth of 100 GB/s
        let tp = Layout {
            tp: 8,
            dp: 16,
            ..one
        };
        assert_eq!(of(tp).sums, 12.5e9);
        // pipelines of four stages of 32: a spine holds a stage, and all of its devices send to the next
        let pp = Layout { pp: 4, dp: 4, ..tp };
        let found = of(pp);
        // replicas of a stage are in one spine, on two leaves
        assert_eq!((found.to_stage, found.sums), (25e9 / 8.0, 100e9 / 8.0));
        // the other order: pipelines are inside of spines, and cross leaves with 8 of 16 devices
        let inside = of(Layout {
            is_data_outermost: true,
            ..pp
        });
        assert_eq!(inside.to_stage, 100e9 / 8.0);
        // rings of each stage of 8, of which a spine has four
        assert_eq!(inside.sums, 100e9 / 32.0);
        // 16 ranks with experts are on two nodes, one leaf; 64 on two spines, of which half of each rank's bytes leave the spine
        let exchange = |ep| {
            let layout = Layout { ep, ..one };
            let rates = of(layout);
            rates.all_to_all(&layout, 1e9) - rates.collective
        };
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
        };
        near(exchange(16), 0.5 / 25.0);
        near(exchange(64), 0.5 * 8.0 / 25.0);
        // a ring of 32 on two leaves: one of its ranks sends over the links of a leaf, which are faster than its own
        let cp = Layout {
            cp: 32,
            dp: 4,
            ..one
        };
        assert_eq!(of(cp).keys, 25e9);
        // a network without levels, or that no group crosses
        let small = Layout { dp: 16, ..one };
        assert_eq!((of(small).sums, of(small).to_stage), (f64::INFINITY, 25e9));
    }
}
