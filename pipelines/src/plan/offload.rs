//! The optimizer's state in the memory of the nodes, and its update on their processors (ZeRO-Offload, Ren et al. 2021,
//! arXiv:2101.06840): an estimate of memory and time. Millrace does not train so; no layout of the search is one of these.

use crate::plan::cluster::Cluster;
use crate::plan::layout::Layout;
use crate::plan::memory::rank_bytes;
use crate::plan::search::{Asked, Planned, Rejected, least_layers, least_recomputation, sort};
use crate::plan::shape::Shape;
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
        // gradient and weights read, weights written; two moments read and written; and a copy of weights of fewer bits written
        let number = layout.number_bytes();
        let touched = if number < 4.0 { 28.0 + number } else { 28.0 };
        OffloadTime {
            down: 4.0 * parameters / host.pcie,
            update: touched * parameters * ranks / host.memory_rate,
            up: number * parameters / host.pcie,
        }
    }

    pub(crate) fn total(&self) -> f64 {
        self.down + self.update + self.up
    }
}

/// Bytes of a node's memory: state and gradients of its ranks, as if each were the fullest.
pub(crate) fn host_bytes(shape: &Shape, layout: &Layout, per_node: usize) -> f64 {
    let held = Layout {
        is_offloaded: false,
        ..*layout
    };
    let state = rank_bytes(shape, &held).optimizer;
    // two moments and the weights, in f32 as well: there they are no copy, but those of the device are
    let weights = if layout.number_bytes() < 4.0 {
        0.0
    } else {
        4.0 / 8.0
    };
    // a gradient of 4 bytes beside 12 of state
    let all = state * (1.0 + weights) * (16.0 / 12.0);
    all * layout.devices().min(per_node) as f64
}

/// The layouts among the rejected ones that would fit with the optimizer's state in host memory, the fastest first: as they are, or
/// with the fewest layers computed again.
pub(crate) fn offloaded(asked: &Asked<'_>, rejected: &[Rejected]) -> Vec<Planned> {
    let per_node = asked.cluster.devices_per_node;
    let host = Host::of(asked.cluster);
    let mut found = Vec::new();
    if asked.cluster.cores.is_some() {
        // the memory of the devices is that of the node
        return found;
    }
    for of in rejected.iter().filter(|of| of.bytes.is_some()) {
        let layout = Layout {
            is_offloaded: true,
            ..of.layout
        };
        if host_bytes(&asked.shape, &layout, per_node) > host.memory {
            continue;
        }
        let fits = |of: &Layout| rank_bytes(&asked.shape, of).total() <= asked.cluster.memory;
        let fit = match fits(&layout) {
            true => Some(layout),
            false if layout.recompute == least_recomputation(&asked.shape) => {
                least_layers(&asked.shape, &layout, fits)
            }
            false => None,
        };
        found.extend(fit.map(|layout| asked.planned(layout, rank_bytes(&asked.shape, &layout))));
    }
    sort(&mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::layout::Recompute;
    use crate::plan::memory::stage_bytes;
    use crate::plan::rates::Constants;
    use crate::plan::search::search;
    use crate::plan::time::step_time;
    use std::path::Path;
    use train::config::Precision;

    /// A billion numbers of weights, of which each of 2 ranks has the halves; 16 GB devices in nodes of 8.
    const NODE: &str = "name = 'x'\nnodes = 1\ndevices_per_node = 8\nmatrix_tflops = 100\nmemory_gb = 16\nmemory_gb_s = 1000\nlink_gb_s = 100\nhost_memory_gb = 512\nhost_memory_gb_s = 100\npcie_gb_s = 10\n";

    fn cluster(more: &str) -> Cluster {
        Cluster::parse(&format!("{NODE}{more}"), Path::new("x.toml")).unwrap()
    }

    fn asked<'a>(shape: Shape, cluster: &'a Cluster, devices: usize) -> Asked<'a> {
        Asked {
            shape,
            cluster,
            precision: Precision::Bf16,
            others: &[],
            searches_precision: false,
            devices,
            may_be_fewer: false,
            global_batch: 8,
        }
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

    /// A step differs by its optimizer alone: of 24 layers of 12 h^2 numbers and an embedding, divided by ZeRO or not.
    #[test]
    fn a_step_has_the_update_of_the_host_instead_of_the_device() {
        let cluster = cluster("");
        let shape = Shape::gpt(24, 1024, 16);
        let parameters = 24.0 * 12.0 * 1024.0 * 1024.0 + 51_200.0 * 1024.0;
        for (zero, own) in [(0, parameters), (1, parameters / 4.0)] {
            let on_device = Layout {
                dp: 4,
                zero,
                ..Layout::one(8)
            };
            let layout = Layout {
                is_offloaded: true,
                ..on_device
            };
            let time = |of: &Layout| step_time(&shape, of, &cluster, &Constants::of(&cluster));
            let (found, device) = (time(&layout), time(&on_device));
            // 6 bytes over PCIe, 30 at a fourth of the node's rate
            let wanted = own * (6.0 / 10e9 + 30.0 / 25e9);
            assert!((found.optimizer / wanted - 1.0).abs() < 1e-12);
            assert!((device.optimizer / (30.0 * own / 1000e9) - 1.0).abs() < 1e-12);
            let rest = found.total - found.optimizer;
            assert!((rest / (device.total - device.optimizer) - 1.0).abs() < 1e-12);
            assert_eq!(found.offload.map(|of| of.total()), Some(found.optimizer));
            assert_eq!(device.offload, None);
            // on the device 2 + 4 bytes, on the node 12 + 4 of each of four ranks
            let bytes = rank_bytes(&shape, &layout);
            assert_eq!(
                (bytes.weights, bytes.gradients),
                (2.0 * parameters, 4.0 * parameters)
            );
            assert_eq!(bytes.optimizer, 0.0);
            let host = host_bytes(&shape, &layout, 8);
            assert!((host / (4.0 * 16.0 * own) - 1.0).abs() < 1e-12, "{host}");
            // f32: two moments, weights and gradient as well
            let in_f32 = host_bytes(
                &shape,
                &Layout {
                    precision: Precision::F32,
                    ..layout
                },
                8,
            );
            assert!((in_f32 / host - 1.0).abs() < 1e-12);
            assert_eq!(stage_bytes(&shape, &layout, 0), bytes);
        }
    }

    /// The layouts are those that a search one by one over all of the rejected ones finds, and none that fits without.
    #[test]
    fn layouts_that_lack_memory_fit_with_the_state_on_the_host() {
        let cluster = cluster("");
        let shape = Shape {
            is_fused: true,
            ..Shape::gpt(24, 2304, 24)
        };
        let asked = asked(shape, &cluster, 4);
        let (planned, rejected) = search(&asked);
        assert!(planned.iter().all(|of| !of.layout.is_offloaded));
        let found = offloaded(&asked, &rejected);
        let mut wanted = Vec::new();
        for of in rejected.iter().filter(|of| of.bytes.is_some()) {
            let base = Layout {
                is_offloaded: true,
                ..of.layout
            };
            let fits = |of: &&Layout| {
                rank_bytes(&shape, of).total() <= 16e9 && host_bytes(&shape, of, 8) <= 512e9
            };
            let mut choices = vec![base];
            if base.recompute == Recompute::None {
                choices.extend((1..24 / base.pp).map(|number| Layout {
                    recompute: Recompute::Layers(number),
                    ..base
                }));
            }
            wanted.extend(choices.iter().find(fits).copied());
        }
        let mut layouts: Vec<Layout> = found.iter().map(|of| of.layout).collect();
        let key = |of: &Layout| format!("{of:?}");
        layouts.sort_by_key(key);
        wanted.sort_by_key(key);
        assert!(!wanted.is_empty());
        assert_eq!(layouts, wanted);
        assert!(
            found
                .windows(2)
                .all(|pair| pair[0].time.total <= pair[1].time.total)
        );
    }

    #[test]
    fn a_node_that_is_too_small_holds_no_state_and_missing_figures_are_named() {
        let shape = Shape::gpt(24, 2304, 24);
        let small = Cluster {
            host_memory: Some(1e9),
            ..cluster("")
        };
        let asked = asked(shape, &small, 4);
        let (_, rejected) = search(&asked);
        assert_eq!(offloaded(&asked, &rejected).len(), 0);
        let none = Cluster {
            host_memory: None,
            host_memory_rate: None,
            pcie: None,
            ..small
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
