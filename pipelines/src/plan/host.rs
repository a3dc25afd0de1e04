//! The host side of a cluster: figures of its nodes' own memory, and the time in which it updates weights (ZeRO-Offload, Ren et al.
//! 2021, arXiv:2101.06840). An estimate: Millrace does not train so.

use crate::plan::cluster::Cluster;
use crate::plan::layout::Layout;
use serde_json::{Value, json};

/// The side of a cluster's nodes that holds and updates the optimizer's state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    /// Bytes of a node.
    pub memory: f64,
    /// Bytes/s of a node's memory: the update reads and writes its state at this rate.
    pub memory_rate: f64,
    /// Bytes/s between a device and its node, in one direction.
    pub pcie: f64,
    /// Figures that the cluster has not, with the ones in their place.
    pub assumed: Vec<&'static str>,
}

/// A terabyte, 8 channels of DDR4-3200 (8 x 25.6 GB/s), and PCIe 4.0 with 16 lanes (16 GT/s each, 128 of 130 bits).
const ASSUMED: [f64; 3] = [1e12, 204.8e9, 31.5e9];

impl Host {
    pub(crate) fn of(cluster: &Cluster) -> Host {
        let given = [
            (
                cluster.host_memory,
                "1,000 GB of memory of a node: the cluster has no host_memory_gb",
            ),
            (
                cluster.host_memory_rate,
                "204.8 GB/s of a node's memory: the cluster has no host_memory_gb_s",
            ),
            (
                cluster.pcie,
                "31.5 GB/s between a device and its node: the cluster has no pcie_gb_s",
            ),
        ];
        let [memory, memory_rate, pcie] =
            std::array::from_fn(|at| given[at].0.unwrap_or(ASSUMED[at]));
        let missing = given.iter().filter(|(figure, _)| figure.is_none());
        Host {
            memory,
            memory_rate,
            pcie,
            assumed: missing.map(|(_, text)| *text).collect(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "host_memory_gb": self.memory / 1e9, "host_memory_gb_s": self.memory_rate / 1e9, "pcie_gb_s": self.pcie / 1e9,
            "assumed": self.assumed,
        })
    }
}

/// Bytes that an update reads and writes per parameter, on a device or on a node's processors, with weights of `number` bytes and `state`
/// bytes of moments and averages: those and the weights in f32 read and written, the gradient read, and a copy of weights of fewer bits
/// written.
pub(super) fn update_bytes(number: f64, state: f64) -> f64 {
    let copy = if number < 4.0 { number } else { 0.0 };
    2.0 * (state + 4.0) + 4.0 + copy
}

/// Bytes of Adam's two moments.
const ADAM: f64 = 8.0;

/// Seconds of an update on the processors of the nodes, one part after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OffloadTime {
    /// Gradients to the node, 4 bytes each, as the device adds them.
    pub down: f64,
    /// Adam.
    pub update: f64,
    /// Weights to the device, in the bytes that its products read.
    pub up: f64,
}

impl OffloadTime {
    /// The time in which each rank's `parameters` are updated. The ranks of a node share its memory's rate. Nothing hides them: the
    /// norm of all gradients is known once the last backward pass ends, and clips them.
    pub(super) fn of(parameters: f64, layout: &Layout, cluster: &Cluster) -> OffloadTime {
        let host = Host::of(cluster);
        let ranks = layout.devices().min(cluster.devices_per_node) as f64;
        let number = layout.number_bytes();
        OffloadTime {
            down: 4.0 * parameters / host.pcie,
            update: update_bytes(number, ADAM) * parameters * ranks / host.memory_rate,
            up: number * parameters / host.pcie,
        }
    }

    pub(crate) fn total(&self) -> f64 {
        self.down + self.update + self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use train::config::Precision;

    /// A node of 8 devices with 16 GB each.
    const NODE: &str = "name = 'x'\nnodes = 1\ndevices_per_node = 8\nmatrix_tflops = 100\nmemory_gb = 16\nmemory_gb_s = 1000\nlink_gb_s = 100\nhost_memory_gb = 512\nhost_memory_gb_s = 100\npcie_gb_s = 10\n";

    fn cluster(more: &str) -> Cluster {
        Cluster::parse(&format!("{NODE}{more}"), Path::new("x.toml")).unwrap()
    }

    /// 1e9 parameters of a rank over PCIe of 10 GB/s: 4 bytes each down in 0.4 s, 2 up in 0.2 s; Adam reads and writes 30 bytes of
    /// each at a node's 100 GB/s, which 2 ranks share: 0.6 s. In f32 4 bytes up, and 28 of Adam.
    #[test]
    fn the_time_of_an_update_is_that_of_its_bytes() {
        let cluster = cluster("");
        let layout = Layout {
            dp: 2,
            is_offloaded: true,
            ..Layout::one(8)
        };
        let of = |layout: &Layout| OffloadTime::of(1e9, layout, &cluster);
        let near = |found: f64, wanted: f64| {
            assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
        };
        let found = of(&layout);
        near(found.down, 0.4);
        near(found.update, 0.6);
        near(found.up, 0.2);
        near(found.total(), 1.2);
        let in_f32 = of(&Layout {
            precision: Precision::F32,
            ..layout
        });
        near(in_f32.up, 0.4);
        near(in_f32.update, 0.56);
    }

    #[test]
    fn figures_that_a_cluster_has_not_are_named_with_those_in_their_place() {
        let none = Cluster {
            host_memory: None,
            host_memory_rate: None,
            pcie: None,
            ..cluster("")
        };
        let host = Host::of(&none);
        assert_eq!(
            (host.memory, host.memory_rate, host.pcie),
            (1e12, 204.8e9, 31.5e9)
        );
        for (text, key) in
            host.assumed
                .iter()
                .zip(["host_memory_gb", "host_memory_gb_s", "pcie_gb_s"])
        {
            assert!(text.ends_with(key), "{text}");
        }
        assert_eq!(Host::of(&cluster("")).assumed.len(), 0);
    }
}
