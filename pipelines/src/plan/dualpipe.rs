//! DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1): micro-batches enter a pipeline from both ends, and the forward pass of one is run
//! beside the backward pass of another, so that the all-to-alls and messages of each travel behind the computation of the other. An
//! estimate of memory and time: Millrace does not train so; no layout of the search is one of these.

use crate::plan::layout::{Layout, Recompute};
use crate::plan::memory::{Schedules, fullest_rank};
use crate::plan::search::{Asked, Planned, Rejected, sort};

/// The layouts of the search, and those that lacked memory, that would fit with DualPipe: two stages of a rank, all experts' rows
/// hidden as far as computation lasts. The fastest first.
pub(crate) fn dualpipe(
    asked: &Asked<'_>,
    planned: &[Planned],
    rejected: &[Rejected],
) -> Vec<Planned> {
    let schedules = Schedules::default();
    let lacking = rejected.iter().filter(|of| of.bytes.is_some());
    let all = planned.iter().map(|of| of.layout);
    let all = all.chain(lacking.map(|of| of.layout));
    let per_node = asked.cluster.devices_per_node;
    let mut found = Vec::new();
    for layout in all.filter(|of| of.ep > 1 && !matches!(of.recompute, Recompute::Layers(_))) {
        let layout = Layout {
            is_dual: true,
            ..layout
        };
        let reason = layout.contradiction(&asked.shape, layout.devices(), per_node);
        if reason.is_some() {
            continue;
        }
        let memory = fullest_rank(&asked.shape, &layout, &schedules);
        if memory.total() <= asked.cluster.memory {
            found.push(asked.planned(layout, memory));
        }
    }
    sort(&mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::memory::stage_bytes;
    use crate::plan::rates::{CONSTANTS, Rates};
    use crate::plan::search::search;
    use crate::plan::shape::{Kind, Shape};
    use crate::plan::time::step_time;

    /// Mixtral on 64 H100: 4 stages of 8 layers, 16 replicas that share out 8 experts.
    fn layout() -> Layout {
        Layout {
            pp: 4,
            dp: 16,
            ep: 8,
            zero: 1,
            is_dual: true,
            ..Layout::one(256)
        }
    }

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
    }

    /// A step is 16 pairs and (4/2 - 1) (F&B + B - 3W), with passes that a plain pipeline of the same layout has.
    #[test]
    fn a_step_has_the_pairs_and_the_bubble_of_the_published_formula() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let shape = Shape::mixtral_8x7b();
        // links that nothing waits for, and such that all waits for them
        for (link, hides_all) in [(450e9, true), (5e9, false)] {
            let cluster = Cluster {
                link,
                ..cluster.clone()
            };
            let of = |is_dual| {
                let layout = Layout {
                    is_dual,
                    ..layout()
                };
                step_time(&shape, &layout, &cluster, &CONSTANTS)
            };
            let (dual, plain) = (of(true), of(false));
            let rates = Rates::of(&layout(), &cluster, &CONSTANTS);
            // rows of two experts there and back in 8 layers, in each direction
            let rows = 8.0 * 2.0 * rates.all_to_all(&layout(), 2.0 * 2.0 * 4096.0 * 4096.0);
            let message = 2.0 * 4096.0 * 4096.0 / cluster.network;
            let (forward, backward) = (plain.forward - message, plain.backward - message);
            let computed = (forward + backward - 2.0 * rows) * 132.0 / 112.0;
            let pair = computed.max(2.0 * (rows + message));
            assert_eq!(pair == computed, hides_all);
            // products with respect to weights are half of a backward pass's
            let kind = shape.other_kind().unwrap();
            let mixture = shape.mixture.unwrap();
            let Kind::Mixture(_) = kind else { panic!() };
            let chosen = 2.0 * 3.0 * 4096.0 * 14_336.0;
            let others = shape.weights(&kind).split + shape.weights(&kind).whole;
            assert_eq!(mixture.top_k, 2);
            let weights = 8.0 * 2.0 * 4096.0 * (chosen + others) / rates.of_16_bits;
            let bubble = pair + backward - 3.0 * weights;
            assert!(
                (dual.bubble / bubble - 1.0).abs() < 0.02,
                "{dual:?} {bubble}"
            );
            let rest = dual.reduction + dual.optimizer + dual.bubble;
            near(dual.total - rest, 16.0 * (pair + 0.5 * dual.head));
            // what carries rows does not compute: where links are fast, nothing is gained
            assert_eq!(dual.total < plain.total, !hides_all);
        }
    }

    /// Table 2: twice the parameters, and PP + 1 micro-batches of a stage's activations.
    #[test]
    fn a_rank_holds_two_stages_and_one_micro_batch_more_than_there_are_stages() {
        let shape = Shape::mixtral_8x7b();
        let plain = Layout {
            is_dual: false,
            ..layout()
        };
        for stage in 0..4 {
            let found = stage_bytes(&shape, &layout(), stage);
            let both = [stage, 3 - stage].map(|stage| stage_bytes(&shape, &plain, stage));
            near(found.weights, both[0].weights + both[1].weights);
            near(found.gradients, both[0].gradients + both[1].gradients);
            // of twice as many copies ZeRO leaves each rank half
            near(
                found.optimizer,
                0.5 * (both[0].optimizer + both[1].optimizer),
            );
        }
        // of a middle stage three micro-batches are in flight in a plain pipeline
        let of_stage = stage_bytes(&shape, &plain, 1).activations / 3.0;
        near(
            stage_bytes(&shape, &layout(), 1).activations,
            5.0 * of_stage,
        );
    }

    #[test]
    fn layouts_with_experts_and_even_pipelines_are_planned_with_it() {
        let cluster = Cluster {
            nodes: 8,
            ..Cluster::load("dgx-h100").unwrap()
        };
        let asked = Asked::of(Shape::mixtral_8x7b(), &cluster, 64, 256);
        let (planned, rejected) = search(&asked);
        assert!(planned.iter().all(|of| !of.layout.is_dual));
        let found = dualpipe(&asked, &planned, &rejected);
        assert!(!found.is_empty());
        for of in &found {
            let Layout { pp, ep, .. } = of.layout;
            assert!(
                of.layout.is_dual && pp % 2 == 0 && ep > 1,
                "{:?}",
                of.layout
            );
            assert!(of.layout.micro_batches() >= 2 * pp && of.memory.total() <= cluster.memory);
        }
        assert!(
            found
                .windows(2)
                .all(|two| two[0].time.total <= two[1].time.total)
        );
        let dense = Asked::of(Shape::gpt(24, 2048, 16), &cluster, 64, 256);
        let (planned, rejected) = search(&dense);
        assert!(dualpipe(&dense, &planned, &rejected).is_empty());
    }
}
