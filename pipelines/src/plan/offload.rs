//! Layouts with the optimizer's state in the memory of the nodes (ZeRO-Offload, Ren et al. 2021, arXiv:2101.06840): an estimate of
//! memory and time. Millrace does not train so; no layout of the search is one of these.

use crate::plan::host::Host;
use crate::plan::layout::{Layout, Recompute};
use crate::plan::memory::{Schedules, fullest_rank, stage_bytes};
use crate::plan::search::{Asked, Planned, Rejected, least_layers, least_recomputation, sort};
use crate::plan::shape::{OptimizerState, Shape};

/// Bytes of a node's memory: state and gradients of its ranks, as if each were the fullest.
pub(crate) fn host_bytes(shape: &Shape, layout: &Layout, per_node: usize) -> f64 {
    let held = Layout {
        is_offloaded: false,
        // activations are not on the node
        recompute: Recompute::Full,
        ..*layout
    };
    // ZeRO-Offload updates by Adam
    let shape = &Shape {
        state: OptimizerState::default(),
        ..*shape
    };
    let states = (0..layout.pp).map(|stage| stage_bytes(shape, &held, stage).optimizer);
    let state = states.fold(0.0, f64::max);
    // 4 bytes each of two moments, the weights and the gradient; a device in f32 has the weights apart from its state
    let of_state = if layout.number_bytes() < 4.0 {
        12.0
    } else {
        8.0
    };
    let parameters = state / of_state;
    16.0 * parameters * layout.devices().min(per_node) as f64
}

/// The layouts among the rejected ones that would fit with the optimizer's state in host memory, the fastest first: as they are, or
/// with the fewest layers computed again.
pub(crate) fn offloaded(asked: &Asked<'_>, rejected: &[Rejected]) -> Vec<Planned> {
    let per_node = asked.cluster.devices_per_node;
    let host = Host::of(asked.cluster);
    let mut found = Vec::new();
    let schedules = Schedules::default();
    if asked.cluster.cores.is_some() {
        // the memory of the devices is that of the node
        return found;
    }
    for of in rejected.iter().filter(|of| of.bytes.is_some()) {
        let layout = Layout {
            is_offloaded: true,
            ..of.layout
        };
        let fits = |of: &Layout| {
            fullest_rank(&asked.shape, of, &schedules).total() <= asked.cluster.memory
        };
        let fit = match fits(&layout) {
            true => Some(layout),
            false if layout.recompute == least_recomputation(&asked.shape) => {
                least_layers(&asked.shape, &layout, fits)
            }
            false => None,
        };
        let fit = fit.filter(|of| host_bytes(&asked.shape, of, per_node) <= host.memory);
        found.extend(
            fit.map(|layout| {
                asked.planned(layout, fullest_rank(&asked.shape, &layout, &schedules))
            }),
        );
    }
    sort(&mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::memory::rank_bytes;
    use crate::plan::rates::Constants;
    use crate::plan::search::search;
    use crate::plan::time::step_time;
    use std::path::Path;
    use train::config::Precision;

    /// A node of 8 devices with 16 GB each.
    const NODE: &str = "name = 'x'\nnodes = 1\ndevices_per_node = 8\nmatrix_tflops = 100\nmemory_gb = 16\nmemory_gb_s = 1000\nlink_gb_s = 100\nhost_memory_gb = 512\nhost_memory_gb_s = 100\npcie_gb_s = 10\n";

    fn cluster(more: &str) -> Cluster {
        Cluster::parse(&format!("{NODE}{more}"), Path::new("x.toml")).unwrap()
    }

    fn asked<'a>(shape: Shape, cluster: &'a Cluster, devices: usize) -> Asked<'a> {
        Asked::of(shape, cluster, devices, 8)
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
    fn a_node_that_is_too_small_holds_no_state() {
        let shape = Shape::gpt(24, 2304, 24);
        let small = Cluster {
            host_memory: Some(1e9),
            ..cluster("")
        };
        let asked = asked(shape, &small, 4);
        let (_, rejected) = search(&asked);
        assert_eq!(offloaded(&asked, &rejected).len(), 0);
    }
}
