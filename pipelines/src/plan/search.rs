//! All layouts of a model on a cluster, ranked by the time of a step.

use crate::plan::cluster::Cluster;
use crate::plan::layout::{Layout, Recompute};
use crate::plan::memory::{RankBytes, Schedules, fullest_rank};
use crate::plan::rates::Constants;
use crate::plan::shape::Shape;
use crate::plan::time::{StepTime, step_time};
use train::config::Precision;

/// A question to the planner.
pub(crate) struct Asked<'a> {
    pub shape: Shape,
    /// Rates in the job's own precision.
    pub cluster: &'a Cluster,
    /// The job's own.
    pub precision: Precision,
    /// Other precisions of which the cluster has rates.
    pub others: &'a [InPrecision],
    /// Whether layouts in the other precisions are planned as well.
    pub searches_precision: bool,
    /// Devices to use.
    pub devices: usize,
    /// Whether layouts of fewer devices are planned as well: where devices share cores, one rank alone uses all of them.
    pub may_be_fewer: bool,
    /// Sequences of a step.
    pub global_batch: usize,
}

/// A cluster with its rates in a precision.
#[derive(Clone, Debug)]
pub(crate) struct InPrecision {
    pub precision: Precision,
    pub cluster: Cluster,
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
    let per_node = asked.cluster.devices_per_node;
    let schedules = Schedules::default();
    for layout in layouts(asked) {
        if let Some(reason) = layout.contradiction(&asked.shape, layout.devices(), per_node) {
            rejected.push(Rejected {
                layout,
                reason,
                bytes: None,
            });
            continue;
        }
        let memory = fullest_rank(&asked.shape, &layout, &schedules);
        // of ranks that share cores, the bytes that Millrace holds are compared instead
        if memory.total() <= asked.cluster.memory || asked.cluster.cores.is_some() {
            planned.push(asked.planned(layout, memory));
            continue;
        }
        rejected.push(too_large(layout, &memory));
        if layout.recompute == least_recomputation(&asked.shape) {
            let fits = |of: &Layout| {
                fullest_rank(&asked.shape, of, &schedules).total() <= asked.cluster.memory
            };
            let partly = least_layers(&asked.shape, &layout, fits);
            planned.extend(partly.map(|layout| {
                asked.planned(layout, fullest_rank(&asked.shape, &layout, &schedules))
            }));
        }
    }
    sort(&mut planned);
    (planned, rejected)
}

/// The fastest first; equal ones in their order.
pub(crate) fn sort(planned: &mut [Planned]) {
    planned.sort_by(|a, b| a.time.total.total_cmp(&b.time.total));
}

fn too_large(layout: Layout, memory: &RankBytes) -> Rejected {
    Rejected {
        layout,
        reason: "does not fit in a device's memory".into(),
        bytes: Some(memory.total()),
    }
}

impl Planned {
    /// The layout as one whose fullest rank has more bytes than a device.
    pub(crate) fn too_large(&self) -> Rejected {
        too_large(self.layout, &self.memory)
    }
}

#[cfg(test)]
impl<'a> Asked<'a> {
    /// A job in bf16 on all of these devices.
    pub(super) fn of(
        shape: Shape,
        cluster: &'a Cluster,
        devices: usize,
        global_batch: usize,
    ) -> Asked<'a> {
        Asked {
            shape,
            cluster,
            precision: Precision::Bf16,
            others: &[],
            searches_precision: false,
            devices,
            may_be_fewer: false,
            global_batch,
        }
    }
}

impl Asked<'_> {
    /// The cluster with its rates in this precision.
    pub(crate) fn cluster_in(&self, precision: Precision) -> &Cluster {
        let other = self.others.iter().find(|of| of.precision == precision);
        match other {
            Some(of) if precision != self.precision => &of.cluster,
            Some(_) | None => self.cluster,
        }
    }

    /// A layout with its time.
    pub(crate) fn planned(&self, layout: Layout, memory: RankBytes) -> Planned {
        let cluster = self.cluster_in(layout.precision);
        let constants = Constants::of(cluster);
        Planned {
            layout,
            time: step_time(&self.shape, &layout, cluster, &constants),
            memory,
        }
    }
}

/// The last choice before whole layers are computed again: a layout with it that lacks memory may fit with some of its layers
/// computed again, and needs no number of layers otherwise.
pub(crate) fn least_recomputation(shape: &Shape) -> Recompute {
    match shape.is_fused {
        true => Recompute::None,
        false => Recompute::Selective,
    }
}

/// The layout with the fewest layers of each pipeline rank computed again with which it fits; `None` if it fits with no number of
/// them that leaves a layer its activations. `layout` itself does not fit. With each layer the bytes become fewer, but not always with
/// the last ones of a stage: the layer that is being computed again is there beside its input, and of two kinds it may be the larger.
/// So the highest four numbers are tried one by one, and those below the first that fits by halves.
pub(crate) fn least_layers(
    shape: &Shape,
    layout: &Layout,
    fits: impl Fn(&Layout) -> bool,
) -> Option<Layout> {
    let with = |number| Layout {
        recompute: Recompute::Layers(number),
        ..*layout
    };
    let layers = (0..layout.pp).map(|stage| layout.stage_layers(shape, stage));
    let most = layers.max().unwrap_or(0);
    let mut fit = (1..most)
        .rev()
        .take(4)
        .find(|number| fits(&with(*number)))?;
    let mut lacks = 0;
    while fit - lacks > 1 {
        let middle = lacks + (fit - lacks) / 2;
        match fits(&with(middle)) {
            true => fit = middle,
            false => lacks = middle,
        }
    }
    Some(with(fit))
}

/// Layouts whose axes multiply to the devices, or to each number up to them.
fn layouts(asked: &Asked<'_>) -> Vec<Layout> {
    let least = if asked.may_be_fewer { 1 } else { asked.devices };
    let counts = least..=asked.devices;
    let found: Vec<Layout> = counts
        .flat_map(|devices| layouts_of(asked, devices))
        .collect();
    let others = match asked.searches_precision {
        true => asked.others,
        false => &[],
    };
    let mut all = found.clone();
    for other in others {
        let precision = other.precision;
        all.extend(found.iter().map(|layout| Layout {
            precision,
            ..*layout
        }));
    }
    all
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
                    precision: asked.precision,
                    ..Layout::one(asked.global_batch)
                };
                // where all nodes reach each other alike, Megatron's order is as good as any
                let is_order_free = asked.cluster.levels.is_empty() || pp == 1 || dp == 1;
                let orders: &[bool] = if is_order_free {
                    &[false]
                } else {
                    &[false, true]
                };
                for ep in expert_ranks(&asked.shape, dp) {
                    for &is_data_outermost in orders {
                        let base = Layout {
                            ep,
                            is_data_outermost,
                            ..base
                        };
                        with_choices(base, &asked.shape, &mut found);
                    }
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
    use crate::plan::cluster::Level;
    use crate::plan::memory::rank_bytes;

    #[test]
    fn the_fastest_layout_that_fits_comes_first_and_every_other_has_a_reason() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let asked = Asked::of(Shape::gpt(40, 6144, 48), &cluster, 256, 1024);
        let (planned, rejected) = search(&asked);
        // those of which some layers are computed again are there beside the same layout without
        let is_whole = |of: &&Planned| of.layout.recompute.layers().is_none();
        let whole = planned.iter().filter(is_whole).count();
        assert_eq!(whole + rejected.len(), layouts(&asked).len());
        assert!(planned.len() > whole);
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

    /// Dense models, fused and not, stages that differ by a layer or have the ends of the model, mixtures and decoders.
    fn shapes() -> Vec<Shape> {
        let mixtral = Shape::mixtral_8x7b();
        vec![
            Shape::gpt(24, 6144, 48),
            Shape {
                is_fused: true,
                ..Shape::gpt(26, 6144, 48)
            },
            Shape {
                is_fused: true,
                vocab: 256_000,
                ..Shape::gpt(14, 8192, 64)
            },
            Shape {
                layers: 12,
                mixture: mixtral.mixture.map(|of| crate::plan::shape::Mixture {
                    dense_first: 3,
                    every: 2,
                    ..of
                }),
                ..mixtral
            },
            Shape {
                is_fused: true,
                ..Shape::t5_11b()
            },
        ]
    }

    /// Every number of layers one by one gives the number that the search finds by halves.
    #[test]
    fn the_fewest_layers_are_those_of_a_search_one_by_one() {
        let mut found_of_chunks = 0;
        for shape in shapes() {
            for gigabytes in [10.0, 24.0, 48.0] {
                let cluster = Cluster {
                    memory: 1e9 * gigabytes,
                    ..Cluster::load("dgx-a100").unwrap()
                };
                let asked = Asked::of(shape, &cluster, 16, 32);
                let (planned, rejected) = search(&asked);
                let fits = |of: &Layout| rank_bytes(&shape, of).total() <= cluster.memory;
                let mut wanted = Vec::new();
                for of in &rejected {
                    let layout = of.layout;
                    if of.bytes.is_none() || layout.recompute != least_recomputation(&shape) {
                        continue;
                    }
                    let all = shape.blocks().div_ceil(layout.pp) + 1;
                    let with = |number| Layout {
                        recompute: Recompute::Layers(number),
                        ..layout
                    };
                    let most = (0..layout.pp).map(|stage| layout.stage_layers(&shape, stage));
                    let most = most.max().unwrap();
                    assert!(most <= all);
                    wanted.extend((1..most).map(with).find(fits));
                }
                let is_partly = |of: &&Planned| of.layout.recompute.layers().is_some();
                let mut found: Vec<Layout> = planned
                    .iter()
                    .filter(is_partly)
                    .map(|of| of.layout)
                    .collect();
                found_of_chunks += found.iter().filter(|of| of.chunks > 1).count();
                let key = |of: &Layout| format!("{of:?}");
                found.sort_by_key(key);
                wanted.sort_by_key(key);
                assert_eq!(found, wanted);
                assert!(
                    planned
                        .windows(2)
                        .all(|pair| { pair[0].time.total <= pair[1].time.total })
                );
            }
        }
        assert!(found_of_chunks > 20, "{found_of_chunks}");
    }

    /// A layout that fits with some layers computed again is faster than with all of them, and slower than it would be with none.
    #[test]
    fn each_layer_that_is_computed_again_takes_its_share_of_the_time() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let asked = Asked::of(Shape::llama3_405b(8192), &cluster, 144, 72);
        let layout = Layout {
            tp: 8,
            pp: 18,
            is_sequence_parallel: true,
            ..Layout::one(72)
        };
        let time = |recompute| {
            let of = Layout {
                recompute,
                ..layout
            };
            asked.planned(of, rank_bytes(&asked.shape, &of)).time
        };
        let (none, full) = (time(Recompute::None), time(Recompute::Full));
        for layers in 0..=7 {
            let found = time(Recompute::Layers(layers));
            // of 7 layers of a stage
            let share = layers as f64 / 7.0;
            for (found, none, full) in [
                (found.total, none.total, full.total),
                (found.bubble, none.bubble, full.bubble),
                (found.collectives, none.collectives, full.collectives),
                (found.backward, none.backward, full.backward),
                (found.forward, none.forward, full.forward),
            ] {
                let wanted = none + share * (full - none);
                assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
            }
        }
    }

    #[test]
    fn fewer_devices_are_planned_where_they_share_cores() {
        let cluster = Cluster {
            cores: Some(8),
            ..Cluster::load("dgx-a100").unwrap()
        };
        let mut asked = Asked::of(Shape::gpt(4, 512, 8), &cluster, 4, 8);
        let counts = |asked: &Asked<'_>| {
            let found = layouts(asked).into_iter().map(|of| of.devices());
            found.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(counts(&asked), [4].into());
        asked.may_be_fewer = true;
        assert_eq!(counts(&asked), [1, 2, 3, 4].into());
    }

    /// Layouts in other precisions are those of the job's own, once more with the other rates, in one ranking.
    #[test]
    fn precisions_are_ranked_together() {
        let file = Cluster::load("dgx-h100").unwrap();
        let others = [
            InPrecision {
                precision: Precision::Fp8,
                cluster: file.clone().in_fp8(),
            },
            InPrecision {
                precision: Precision::F32,
                cluster: file.clone().in_f32().unwrap(),
            },
        ];
        let mut asked = Asked {
            others: &others,
            ..Asked::of(Shape::gpt(24, 4096, 32), &file, 16, 64)
        };
        let (own, own_rejected) = search(&asked);
        assert!(own.iter().all(|of| of.layout.precision == Precision::Bf16));
        asked.searches_precision = true;
        let (all, rejected) = search(&asked);
        let in_precision = |precision| -> Vec<&Planned> {
            let found = all.iter();
            found
                .filter(|of| of.layout.precision == precision)
                .collect()
        };
        let same = in_precision(Precision::Bf16);
        assert_eq!(same.len(), own.len());
        for (one, other) in same.into_iter().zip(&own) {
            assert_eq!((one.layout, one.time), (other.layout, other.time));
        }
        assert!(
            all.windows(2)
                .all(|pair| pair[0].time.total <= pair[1].time.total)
        );
        assert!(rejected.len() > own_rejected.len());
        // fp8 has the memory of 16 bits and twice their rate, f32 has more bytes and fewer FLOP/s
        let (fp8, f32) = (in_precision(Precision::Fp8), in_precision(Precision::F32));
        assert_eq!(fp8.len(), own.len());
        assert!(fp8[0].time.total < 0.8 * own[0].time.total);
        assert!(f32.len() < own.len() && f32[0].time.total > 5.0 * own[0].time.total);
        assert_eq!(all[0].layout.precision, Precision::Fp8);
    }

    /// Leaves of 4 nodes with a sixteenth of their rate to the others: the layouts are the same, twice where the order of axes is free, and no
    /// other one is as fast as the best.
    #[test]
    fn oversubscription_changes_the_best_layout_and_the_order_of_its_axes() {
        let flat = Cluster {
            nodes: 32,
            ..Cluster::load("dgx-a100").unwrap()
        };
        let level = Level {
            name: "leaf".into(),
            nodes: 4,
            oversubscription: 16.0,
        };
        let levels = Cluster {
            levels: vec![level],
            ..flat.clone()
        };
        let shape = Shape::gpt(40, 6144, 48);
        let on = |cluster| Asked::of(shape, cluster, 256, 1024);
        let (before, after) = (search(&on(&flat)).0, search(&on(&levels)).0);
        assert!(before.iter().all(|of| !of.layout.is_data_outermost));
        let best = &before[0];
        // the best without levels, at its place among the others
        let same = after.iter().find(|of| of.layout == best.layout).unwrap();
        assert!(same.time.total > best.time.total);
        println!("{best:?}\n{same:?}\n{:?}", after[0]);
        assert_ne!(after[0].layout, best.layout);
        assert!(after[0].time.total < same.time.total);
        let outermost = after.iter().filter(|of| of.layout.is_data_outermost);
        let other_order = |of: &&Planned| {
            let other = Layout {
                is_data_outermost: false,
                ..of.layout
            };
            after.iter().any(|of| of.layout == other)
        };
        assert!(outermost.clone().count() > 0);
        assert_eq!(
            outermost.clone().filter(other_order).count(),
            outermost.count()
        );
    }

    #[test]
    fn a_model_that_fits_nowhere_leaves_the_smallest_bytes() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let asked = Asked::of(Shape::gpt(128, 25_600, 160), &cluster, 16, 64);
        let (planned, rejected) = search(&asked);
        assert!(planned.is_empty());
        let least = rejected.iter().filter_map(|of| of.bytes);
        assert!(least.fold(f64::INFINITY, f64::min) > cluster.memory);
    }
}
