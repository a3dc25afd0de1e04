//! All layouts of a model on a cluster, ranked by the time of a step.

use crate::plan::cluster::Cluster;
use crate::plan::layout::{Layout, Recompute};
use crate::plan::memory::{RankBytes, rank_bytes};
use crate::plan::rates::Constants;
use crate::plan::shape::Shape;
use crate::plan::time::{StepTime, step_time};

/// A question to the planner.
pub(crate) struct Asked<'a> {
    pub shape: Shape,
    pub cluster: &'a Cluster,
    /// Devices to use.
    pub devices: usize,
    /// Whether layouts of fewer devices are planned as well: where devices share cores, one rank alone uses all of them.
    pub may_be_fewer: bool,
    /// Sequences of a step.
    pub global_batch: usize,
}

/// A layout that can run.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub layout: Layout,
    pub time: StepTime,
    pub memory: RankBytes,
}

/// A layout that cannot.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub layout: Layout,
    pub reason: String,
    /// Bytes of the fullest rank, if they are why.
    pub bytes: Option<f64>,
}

/// Micro-batches that are tried.
const MICRO_BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Most virtual stages that are tried.
const MOST_CHUNKS: usize = 16;

/// Every layout: those that fit, the fastest first (equal ones in the order of the search, smaller axes first), and the others.
pub(crate) fn search(asked: &Asked<'_>) -> (Vec<Planned>, Vec<Rejected>) {
    let (mut planned, mut rejected) = (Vec::new(), Vec::new());
    let constants = Constants::of(asked.cluster);
    for layout in layouts(asked) {
        let per_node = asked.cluster.devices_per_node;
        if let Some(reason) = layout.contradiction(&asked.shape, layout.devices(), per_node) {
            rejected.push(Rejected {
                layout,
                reason,
                bytes: None,
            });
            continue;
        }
        let memory = rank_bytes(&asked.shape, &layout);
        // of ranks that share cores, the bytes that Millrace holds are compared instead
        if memory.total() > asked.cluster.memory && asked.cluster.cores.is_none() {
            rejected.push(Rejected {
                layout,
                reason: "does not fit in a device's memory".into(),
                bytes: Some(memory.total()),
            });
            continue;
        }
        let time = step_time(&asked.shape, &layout, asked.cluster, &constants);
        planned.push(Planned {
            layout,
            time,
            memory,
        });
    }
    planned.sort_by(|a, b| a.time.total.total_cmp(&b.time.total));
    (planned, rejected)
}

/// Layouts whose axes multiply to the devices, or to each number up to them.
fn layouts(asked: &Asked<'_>) -> Vec<Layout> {
    let least = if asked.may_be_fewer { 1 } else { asked.devices };
    let counts = least..=asked.devices;
    counts
        .flat_map(|devices| layouts_of(asked, devices))
        .collect()
}

/// Layouts whose axes multiply to this number of devices.
fn layouts_of(asked: &Asked<'_>, devices: usize) -> Vec<Layout> {
    let mut found = Vec::new();
    let of_node = divisors(devices, asked.cluster.devices_per_node);
    for &tp in &of_node {
        for cp in divisors(devices / tp, 64) {
            for pp in divisors(devices / (tp * cp), asked.shape.blocks()) {
                let dp = devices / (tp * cp * pp);
                let base = Layout {
                    tp,
                    cp,
                    pp,
                    dp,
                    overlap: true,
                    ..Layout::one(asked.global_batch)
                };
                for ep in expert_ranks(&asked.shape, dp) {
                    with_choices(Layout { ep, ..base }, &asked.shape, &mut found);
                }
            }
        }
    }
    found
}

/// Degrees of expert parallelism: those that divide the data-parallel ranks and the experts.
fn expert_ranks(shape: &Shape, dp: usize) -> Vec<usize> {
    let experts = shape.mixture.map_or(1, |mixture| mixture.experts);
    let mut found = divisors(dp, experts);
    found.retain(|ep| experts.is_multiple_of(*ep));
    found
}

/// The layouts of one mesh. Embedding and head count as layers where layers alone do not divide evenly; where that does not help,
/// stages are uneven.
fn with_choices(base: Layout, shape: &Shape, found: &mut Vec<Layout>) {
    let blocks = shape.blocks();
    let counts_ends =
        !blocks.is_multiple_of(base.pp) && blocks.saturating_add(2).is_multiple_of(base.pp);
    let base = Layout {
        counts_ends,
        ..base
    };
    let layers = blocks.saturating_add(2 * usize::from(counts_ends)) / base.pp;
    let chunks = match base.pp {
        _ if base.is_uneven(shape) => 1..=1,
        1 => 1..=1,
        _ => 1..=MOST_CHUNKS.min(layers),
    };
    let zeros: &[u8] = match (base.dp, base.pp) {
        (1, _) => &[0],
        // sharded gradients and weights would be reduced and gathered for each micro-batch of a pipeline
        (_, 2..) => &[0, 1],
        _ => &[0, 1, 2, 3],
    };
    let sequence: &[bool] = if base.tp > 1 {
        &[false, true]
    } else {
        &[false]
    };
    for chunks in chunks.filter(|chunks| layers.is_multiple_of(*chunks)) {
        for micro_batch in MICRO_BATCHES {
            for &zero in zeros {
                for &is_sequence_parallel in sequence {
                    for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
                        if shape.is_fused && recompute == Recompute::Selective {
                            continue; // fused attention keeps no scores
                        }
                        found.push(Layout {
                            chunks,
                            micro_batch,
                            zero,
                            is_sequence_parallel,
                            recompute,
                            ..base
                        });
                    }
                }
            }
        }
    }
}

fn divisors(number: usize, most: usize) -> Vec<usize> {
    (1..=most.min(number))
        .filter(|by| number.is_multiple_of(*by))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_layout_that_fits_comes_first_and_every_other_has_a_reason() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let asked = Asked {
            shape: Shape::gpt(40, 6144, 48),
            cluster: &cluster,
            devices: 256,
            may_be_fewer: false,
            global_batch: 1024,
        };
        let (planned, rejected) = search(&asked);
        assert_eq!(planned.len() + rejected.len(), layouts(&asked).len());
        assert!(planned.len() > 100 && rejected.len() > 100);
        for pair in planned.windows(2) {
            assert!(pair[0].time.total <= pair[1].time.total);
        }
        for of in &planned {
            assert_eq!(of.layout.devices(), 256);
            assert!(of.memory.total() <= cluster.memory);
        }
        assert!(rejected.iter().all(|of| !of.reason.is_empty()));
        let too_large = rejected.iter().filter_map(|of| of.bytes);
        assert!(too_large.clone().count() > 0);
        assert!(too_large.into_iter().all(|bytes| bytes > cluster.memory));
    }

    #[test]
    fn fewer_devices_are_planned_where_they_share_cores() {
        let cluster = Cluster {
            cores: Some(8),
            ..Cluster::load("dgx-a100").unwrap()
        };
        let mut asked = Asked {
            shape: Shape::gpt(4, 512, 8),
            cluster: &cluster,
            devices: 4,
            may_be_fewer: false,
            global_batch: 8,
        };
        let counts = |asked: &Asked<'_>| {
            let found = layouts(asked).into_iter().map(|of| of.devices());
            found.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(counts(&asked), [4].into());
        asked.may_be_fewer = true;
        assert_eq!(counts(&asked), [1, 2, 3, 4].into());
    }

    #[test]
    fn a_model_that_fits_nowhere_leaves_the_smallest_bytes() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let asked = Asked {
            shape: Shape::gpt(128, 25_600, 160),
            cluster: &cluster,
            devices: 16,
            may_be_fewer: false,
            global_batch: 64,
        };
        let (planned, rejected) = search(&asked);
        assert!(planned.is_empty());
        let least = rejected.iter().filter_map(|of| of.bytes);
        assert!(least.fold(f64::INFINITY, f64::min) > cluster.memory);
    }
}
