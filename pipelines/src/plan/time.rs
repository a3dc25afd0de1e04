//! Time of a step: the layers of its stages, the pipeline's fill and drain, the reduction of gradients and the optimizer.

use crate::plan::cluster::Cluster;
use crate::plan::host::{OffloadTime, update_bytes};
use crate::plan::layer_time::{Both, Pass, layer};
use crate::plan::layout::{Layout, Recompute};
use crate::plan::pair::Pair;
use crate::plan::rates::{Constants, Rates};
use crate::plan::reduction::{Replicated, hidden, reduction, ring};
use crate::plan::shape::{Kind, Shape};
use crate::plan::sharded::{Sharded, ShardedModel};

/// Seconds of a step, and of the parts of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepTime {
    pub total: f64,
    /// Forward and backward of a micro-batch by one model chunk.
    pub forward: f64,
    pub backward: f64,
    /// The head for a micro-batch, forward and backward, which the last stage adds; above a layer's, where it counts as one.
    pub head: f64,
    /// Idle time of the pipeline's fill and drain.
    pub bubble: f64,
    /// Tensor-parallel and context-parallel collectives of all micro-batches of a stage.
    pub collectives: f64,
    /// Reduction of gradients (and gathering of weights under ZeRO) that nothing hides.
    pub reduction: f64,
    pub optimizer: f64,
    /// Its parts, if the optimizer's state is in host memory.
    pub offload: Option<OffloadTime>,
}

/// Time of a step by the model of this file.
pub(crate) fn step_time(
    shape: &Shape,
    layout: &Layout,
    cluster: &Cluster,
    constants: &Constants,
) -> StepTime {
    let rates = Rates::of(layout, cluster, constants);
    let (tp, pp) = (layout.tp as f64, layout.pp as f64);
    let samples = layout.micro_batch as f64 / layout.cp as f64;
    let rows = samples * shape.tokens();
    let layers = Layers::of(shape, layout, &rates, samples);
    // a micro-batch's rows to the next stage, and their gradient back
    let message = match layout.pp {
        1 => 0.0,
        _ => rates.collective + rates.added * rows * shape.width as f64 / tp / rates.to_stage,
    };
    let chunk_forward = layers.forward.seconds() + message;
    let chunk_backward =
        layers.backward.seconds() + message + accumulation(&rates, layers.slowest.all());
    let head = head(shape, layout, &rates.of_head());
    let is_short = layout.counts_ends || layout.is_uneven(shape);
    // the last stage has a layer less
    let head = match is_short {
        true => {
            let layer = (chunk_forward + chunk_backward) / layers.count;
            (head - layer).max(0.0)
        }
        false => head,
    };
    let (count, chunks) = (layout.micro_batches() as f64, layout.chunks as f64);
    let both = chunk_forward + chunk_backward;
    let busy = count * (chunks * both + head);
    // ranks that take turns on a core leave it idle only if none of them can run
    let turns = cluster.turns(layout.devices().min(cluster.devices_per_node));
    let work = busy.max(turns * count * (chunks * both + head / pp));
    let bubble = (busy + (pp - 1.0) * both - work).max(0.0);
    let collectives = count * chunks * (layers.forward.collectives + layers.backward.collectives);
    // of pipelines in both directions a rank has the head for every second micro-batch
    let (work, bubble, collectives) = match layout.is_dual {
        true => {
            let pair = Pair::of(&layers.forward, &layers.backward, message);
            let work = count * (pair.seconds + 0.5 * head);
            let bubble = pair.bubble(layout.pp, &layers.backward);
            (work, bubble, count * pair.seen)
        }
        false => (work, bubble, collectives),
    };
    // and the parameters of two stages, in twice as many copies
    let copies = if layout.is_dual { 2 } else { 1 };
    let held = copies as f64;
    // a stage that has both ends has two matrices of the vocabulary, unless they are one
    let ends = if rates.shares_cores && layout.pp == 1 && !shape.is_tied {
        2.0
    } else {
        1.0
    };
    let parameters = Replicated {
        parameters: held * chunks * layers.fullest.matrices + ends * shape.end_parameters() / tp,
        ranks: copies * layout.dp,
        apart: 1,
        bound: rates.sums,
    };
    // ranks with the same experts are `ep` data-parallel ranks apart
    let experts = Replicated {
        parameters: held * chunks * layers.fullest.experts,
        ranks: copies * layout.dp / layout.ep,
        apart: layout.ep,
        bound: rates.sums_of_experts,
    };
    let own = match layout.zero {
        0 => parameters.parameters + experts.parameters,
        _ => parameters.each() + experts.each(),
    };
    let offload = layout
        .is_offloaded
        .then(|| OffloadTime::of(own, layout, cluster));
    let optimizer = match offload {
        Some(of) => of.total(),
        None => {
            turns
                * update(
                    shape,
                    layout,
                    &rates,
                    own,
                    ends * shape.end_parameters() / tp,
                )
        }
    };
    let seen = match layout.zero == 3 && !rates.shares_cores {
        true => {
            let model = sharded(shape, layout, &rates, &layers, [&parameters, &experts]);
            count * ShardedModel { head, ..model }.seen(&rates)
        }
        false => {
            let reduction = turns
                * (reduction(layout, &rates, &parameters, count)
                    + reduction(layout, &rates, &experts, count));
            reduction - hidden(layout, cluster, reduction, chunks * chunk_backward)
        }
    };
    StepTime {
        total: work + bubble + seen + optimizer,
        forward: chunk_forward,
        backward: chunk_backward,
        head,
        bubble,
        collectives,
        reduction: seen,
        optimizer,
        offload,
    }
}

/// Steps of Newton and Schulz's iteration in an update of Muon (Liu et al. 2025, arXiv:2502.16982).
const NEWTON_SCHULZ: f64 = 5.0;

/// Seconds of the update of `own` parameters of a rank, of which the ends of the model have `ends` before ZeRO divides them. Muon
/// iterates over each matrix of a layer: of `a x b` numbers, `a` at most the model's width, `4 a + 2 a^2 / b` FLOP for each, 6 a at most.
fn update(shape: &Shape, layout: &Layout, rates: &Rates, own: f64, ends: f64) -> f64 {
    let number = layout.number_bytes();
    let bytes = |is_of_layer| update_bytes(number, shape.state.bytes(is_of_layer));
    if !shape.state.is_muon {
        return bytes(false) * own / rates.memory;
    }
    let ends = match layout.zero {
        0 => ends,
        _ => ends / layout.dp as f64,
    };
    let of_layers = (own - ends).max(0.0);
    let flop = NEWTON_SCHULZ * 6.0 * shape.width as f64 * of_layers;
    (bytes(true) * of_layers + bytes(false) * ends) / rates.memory + flop / rates.of_16_bits
}

/// Seconds of the head for a micro-batch, forward and backward. The few tokens of a masked encoder's head are on one of the
/// context-parallel ranks.
fn head(shape: &Shape, layout: &Layout, rates: &Rates) -> f64 {
    let (vocab, width) = (shape.vocab as f64 / layout.tp as f64, shape.width as f64);
    let parts = match shape.predictions {
        Some(_) => 1.0,
        None => layout.cp as f64,
    };
    let rows = layout.micro_batch as f64 * shape.predicted() / parts;
    let transform = match shape.predictions {
        Some(_) => 3.0 * rates.product(rows, width, width),
        None => 0.0,
    };
    transform
        + 3.0 * rates.product(rows, vocab, width)
        + 16.0 * rows * vocab / rates.memory
        + accumulation(rates, vocab * width)
}

/// Layers of a model chunk by kind.
#[derive(Clone, Copy)]
struct Kinds {
    dense: f64,
    /// Of the model's other kind.
    others: f64,
    /// Those among them that are computed again, where a number of layers is.
    dense_again: f64,
    others_again: f64,
}

impl Kinds {
    /// Those of a chunk of a stage, on the mean over its chunks; where embedding and head count as layers, they are dense ones.
    fn of(shape: &Shape, layout: &Layout, stage: usize) -> Kinds {
        let others = layout.stage_others(shape, stage) as f64;
        let chunks = layout.chunks as f64;
        let slots = layout.stage_slots(shape, stage);
        let (mut dense_again, mut others_again) = (0.0, 0.0);
        if let Recompute::Layers(number) = layout.recompute {
            let of_chunks = layout.chunks_with(shape, stage, number);
            let others: usize = of_chunks.iter().map(|chunk| chunk.again.others).sum();
            others_again = others as f64 / chunks;
            dense_again = number.min(slots).saturating_sub(others) as f64 / chunks;
        }
        Kinds {
            dense: (slots as f64 - others) / chunks,
            others: others / chunks,
            dense_again,
            others_again,
        }
    }
}

/// Passes of a layer of one kind, and of one that is computed again where a number of layers is.
struct Times {
    plain: Both,
    again: Option<Both>,
}

impl Times {
    fn of(shape: &Shape, layout: &Layout, rates: &Rates, samples: f64, kind: &Kind) -> Times {
        let full = Layout {
            recompute: Recompute::Full,
            ..*layout
        };
        let is_partly = layout.recompute.layers().is_some();
        Times {
            plain: layer(shape, layout, rates, samples, kind),
            again: is_partly.then(|| layer(shape, &full, rates, samples, kind)),
        }
    }

    /// One of the passes of `count` layers of which `again` are computed again.
    fn pass(&self, count: f64, again: f64, of: fn(&Both) -> &Pass) -> Pass {
        match &self.again {
            None => of(&self.plain).times(count),
            Some(both) => (of(&self.plain).times(count - again)).plus(of(both).times(again)),
        }
    }

    /// Seconds of both passes.
    fn seconds(&self, count: f64, again: f64) -> f64 {
        match &self.again {
            None => count * self.plain.seconds(),
            Some(both) => (count - again) * self.plain.seconds() + again * both.seconds(),
        }
    }
}

/// Parameters of a rank in the layers of a model chunk.
struct Held {
    /// Of all matrices but the experts'.
    matrices: f64,
    experts: f64,
}

impl Held {
    fn of(shape: &Shape, layout: &Layout, layers: Kinds) -> Held {
        let (tp, ep) = (layout.tp as f64, layout.ep as f64);
        let dense = shape.weights(&Kind::Dense);
        let other = shape.other_kind().map(|kind| shape.weights(&kind));
        let other = other.unwrap_or_default();
        Held {
            matrices: layers.dense * dense.of_rank(tp) + layers.others * other.of_rank(tp),
            experts: layers.others * other.experts / (tp * ep),
        }
    }

    fn all(&self) -> f64 {
        self.matrices + self.experts
    }

    /// Those of so many such chunks.
    fn times(&self, count: f64) -> Held {
        Held {
            matrices: count * self.matrices,
            experts: count * self.experts,
        }
    }
}

/// The layers of a model chunk of the slowest stage, and parameters of a rank.
struct Layers {
    /// Layers of the chunk.
    count: f64,
    forward: Pass,
    backward: Pass,
    /// Parameters of the slowest stage.
    slowest: Held,
    /// Those of the stage with most of them, which is the last to sum and to update them.
    fullest: Held,
}

impl Layers {
    fn of(shape: &Shape, layout: &Layout, rates: &Rates, samples: f64) -> Layers {
        let chunks = layout.chunks as f64;
        let dense = Times::of(shape, layout, rates, samples, &Kind::Dense);
        let other = shape.other_kind();
        let other = other.map(|kind| Times::of(shape, layout, rates, samples, &kind));
        let seconds = |of: &Kinds| {
            dense.seconds(of.dense, of.dense_again)
                + other
                    .as_ref()
                    .map_or(0.0, |times| times.seconds(of.others, of.others_again))
        };
        let held = |of: &Kinds| Held::of(shape, layout, *of);
        // stages without a second kind have fewer layers the later they are
        let stages = match &other {
            None => 1,
            Some(_) => layout.pp,
        };
        let first = Kinds::of(shape, layout, 0);
        let (mut slowest, mut fullest) = (first, first);
        for stage in 1..stages {
            let of = Kinds::of(shape, layout, stage);
            if seconds(&of) > seconds(&slowest) {
                slowest = of;
            }
            if held(&of).all() > held(&fullest).all() {
                fullest = of;
            }
        }
        let pass = |of: fn(&Both) -> &Pass| {
            let passes = dense.pass(slowest.dense, slowest.dense_again, of);
            let others = other
                .as_ref()
                .map(|times| times.pass(slowest.others, slowest.others_again, of));
            others.map_or(passes, |others| passes.plus(others))
        };
        Layers {
            count: layout.stage_slots(shape, 0) as f64 / chunks,
            forward: pass(|both| &both.forward),
            backward: pass(|both| &both.backward),
            slowest: held(&slowest),
            fullest: held(&fullest),
        }
    }
}

/// Seconds of adding a micro-batch's gradients of these parameters to those before it: written once, and in the binary tree of
/// `determinism = "layout"` read twice and written once for every second micro-batch. Of GPUs it is a part of the constants.
fn accumulation(rates: &Rates, parameters: f64) -> f64 {
    match rates.shares_cores {
        true => 10.0 * parameters / rates.memory,
        false => 0.0,
    }
}

/// Matrices of a dense layer that ZeRO-3 gathers one by one: of queries, keys and values, of their result, and the two of the network.
const MATRICES: f64 = 4.0;
/// Those of a mixture's experts.
const EXPERT_MATRICES: f64 = 2.0;

/// The shards of ZeRO-3, of matrices and of experts, without the head's time.
fn sharded(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    layers: &Layers,
    [matrices, experts]: [&Replicated; 2],
) -> ShardedModel {
    let chunks = layout.chunks as f64;
    let number = chunks * layers.count;
    let held = layers.fullest.times(chunks / number);
    let mixtures = match shape.mixture {
        Some(_) => layout.stage_others(shape, 0) as f64 / number,
        None => 0.0,
    };
    let of = |of: &Replicated, parameters, matrices| Sharded {
        ring: ring(layout, rates, of),
        parameters,
        matrices,
    };
    let again = match layout.recompute {
        Recompute::None | Recompute::Selective => 0.0,
        Recompute::Full => 1.0,
        Recompute::Layers(again) => (again as f64 / number).min(1.0),
    };
    let end = shape.end_parameters() / layout.tp as f64;
    ShardedModel {
        of_layer: [
            of(matrices, held.matrices, MATRICES),
            of(experts, held.experts, mixtures * EXPERT_MATRICES),
        ],
        of_end: of(matrices, end, 1.0),
        ends: if shape.is_tied { 1.0 } else { 2.0 },
        layers: number,
        again,
        forward: layers.forward.seconds() / layers.count,
        backward: layers.backward.seconds() / layers.count,
        head: 0.0,
        overlap: layout.overlap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::layer_time::OTHER_OPS;
    use crate::plan::memory::rank_bytes;
    use crate::plan::rates::CONSTANTS;
    use crate::plan::shape::Mixture;

    fn layout() -> Layout {
        Layout {
            tp: 8,
            pp: 8,
            chunks: 3,
            recompute: Recompute::Full,
            ..Layout::one(64)
        }
    }

    fn time(layout: &Layout) -> StepTime {
        let cluster = Cluster::load("dgx-a100").unwrap();
        step_time(&Shape::gpt(96, 12_288, 96), layout, &cluster, &CONSTANTS)
    }

    #[test]
    fn parts_of_a_step_grow_as_they_should() {
        let full = time(&layout());
        let selective = time(&Layout {
            recompute: Recompute::Selective,
            ..layout()
        });
        assert!(selective.total < full.total * 0.85);
        let plain = time(&Layout {
            chunks: 1,
            ..layout()
        });
        // (pp - 1) / chunks micro-batches of idle time
        assert!(
            (plain.bubble / full.bubble - 3.0).abs() < 0.05,
            "{plain:?} {full:?}"
        );
        let more = time(&Layout {
            global_batch: 128,
            ..layout()
        });
        assert!(more.total > 1.8 * full.total && more.total < 2.0 * full.total);
    }

    /// Ranks that share cores compute no faster together than one rank with all cores, and fill each other's idle time.
    #[test]
    fn ranks_that_share_cores_divide_their_rates_and_take_turns() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 8\ncores = 2\nmatrix_tflops = 0.2\nmatrix_f32_tflops = 0.1\nmemory_gb = 16\nmemory_gb_s = 1000000\nlink_gb_s = 1000000\n";
        let cluster = Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let shape = Shape {
            is_fused: true,
            vocab: 512,
            ..Shape::gpt(8, 256, 8)
        };
        let of = |cluster: &Cluster, pp, dp| {
            let layout = Layout {
                tp: 1,
                pp,
                dp,
                chunks: 1,
                global_batch: 8,
                recompute: Recompute::None,
                ..layout()
            };
            step_time(&shape, &layout, cluster, &Constants::of(cluster))
        };
        let one = of(&cluster, 1, 1).total;
        for dp in [2, 4, 8] {
            let ratio = of(&cluster, 1, dp).total / one;
            assert!((ratio - 1.0).abs() < 0.01, "dp {dp}: {ratio}");
        }
        // two stages on two cores idle at the start and the end; of four, others run then
        let (two, four) = (of(&cluster, 2, 1), of(&cluster, 4, 1));
        assert!(two.bubble > 0.0 && two.total > one, "{two:?}");
        assert_eq!(four.bubble, 0.0, "{four:?}");
        // f32: half the rate
        let single = of(&cluster.clone().in_f32().unwrap(), 1, 1).total;
        assert!((single / one - 2.0).abs() < 0.01, "{single} {one}");
    }

    /// Threads of one machine have nothing that could carry collectives beside their products.
    #[test]
    fn ranks_that_share_cores_hide_nothing_and_sum_for_each_micro_batch() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 8\ncores = 8\nmatrix_tflops = 0.2\nmemory_gb = 16\nmemory_gb_s = 100\nlink_gb_s = 10\n";
        let cpu = Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let gpu = Cluster::load("dgx-a100").unwrap();
        let shape = Shape {
            is_fused: true,
            vocab: 512,
            ..Shape::gpt(8, 256, 8)
        };
        let one = Layout {
            tp: 1,
            pp: 1,
            chunks: 1,
            global_batch: 4,
            recompute: Recompute::None,
            ..layout()
        };
        let two = Layout {
            dp: 2,
            global_batch: 8,
            ..one
        };
        let cut = Layout { cp: 2, ..one };
        let of = |cluster: &Cluster, layout: Layout| {
            step_time(&shape, &layout, cluster, &Constants::of(cluster))
        };
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
        };
        // four micro-batches: 4 * 4 + 4 bytes for each parameter instead of 4 + 4
        let reduction = |layout, zero| of(&cpu, Layout { zero, ..layout }).reduction;
        let once = reduction(two, 1);
        near(reduction(two, 2), 2.5 * once);
        near(reduction(cut, 0), 2.5 * once);
        assert_eq!(of(&gpu, cut).collectives, 0.0);
        assert!(of(&cpu, cut).collectives > 0.0);
        // of a sequence's second half, rows see three quarters of the keys
        assert!(of(&cpu, cut).forward > 0.5 * of(&cpu, one).forward);
        // sequence parallelism gathers inputs and gradients once more: 1 + 1.5 instead of 1 + 1
        let split = Layout { tp: 2, ..one };
        let sequence = Layout {
            is_sequence_parallel: true,
            ..split
        };
        let plain = of(&cpu, split).collectives;
        near(of(&cpu, sequence).collectives, 1.25 * plain);
    }

    #[test]
    fn only_ranks_of_several_threads_wait_for_them_at_each_operation() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 2\ncores = 2\nmatrix_tflops = 1\nmemory_gb = 16\nmemory_gb_s = 100\nlink_gb_s = 10\nop_latency_us = 1\n";
        let parse = |text: &str| Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let plain = parse(text);
        let slow = parse(&format!("{text}shared_op_latency_us = 3\n"));
        assert_eq!(plain.op_start(1), 1e-6);
        assert_eq!([slow.op_start(1), slow.op_start(2)], [3e-6, 1e-6]);
    }

    #[test]
    fn each_start_of_an_operation_takes_its_time() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let slow = Cluster {
            op_latency: 1.0,
            link_latency: 1000.0,
            ..cluster.clone()
        };
        let one = Layout {
            tp: 1,
            pp: 1,
            chunks: 1,
            global_batch: 1,
            recompute: Recompute::None,
            ..layout()
        };
        let shape = Shape::gpt(1, 1024, 16);
        let of = |cluster: &Cluster, layout: &Layout| {
            step_time(&shape, layout, cluster, &CONSTANTS).total
        };
        // products: 4 forward, 8 backward, 3 of the head; 7 other operations forward, and twice as many backward
        let more = of(&slow, &one) - of(&cluster, &one);
        assert!(
            (more - (4.0 + 8.0 + 3.0 + 3.0 * OTHER_OPS)).abs() < 1e-6,
            "{more}"
        );
        let two = Layout { tp: 2, ..one };
        // two collectives in each direction
        let more = of(&slow, &two) - of(&cluster, &two) - more;
        assert!((more - 4000.0).abs() < 1e-3, "{more}");
    }

    #[test]
    fn overlap_hides_the_reduction_behind_one_backward_pass() {
        let of = Layout {
            dp: 2,
            global_batch: 128,
            ..layout()
        };
        let seen = time(&of);
        let hidden = time(&Layout {
            overlap: true,
            ..of
        });
        let backward = of.chunks as f64 * seen.backward;
        let left = (seen.reduction - backward).max(0.0);
        assert!((hidden.reduction - left).abs() < 1e-12 && left < seen.reduction);
        assert!((seen.total - seen.reduction + left - hidden.total).abs() < 1e-9);
    }

    /// GPT-2 small on one device: of AdamW's update of 30 bytes a parameter, averages add 8, and Muon saves 8 of layers' matrices and adds
    /// five iterations of 6 x 768 FLOP for each of their numbers.
    #[test]
    fn an_update_has_the_bytes_of_what_the_optimizer_keeps() {
        use crate::plan::shape::OptimizerState;
        let cluster = Cluster::load("dgx-a100").unwrap();
        let of = |is_muon, has_averages| {
            let shape = Shape {
                state: OptimizerState {
                    is_muon,
                    has_averages,
                },
                ..Shape::gpt(12, 768, 12)
            };
            step_time(&shape, &Layout::one(1), &cluster, &CONSTANTS).optimizer
        };
        let (layers, ends) = (144.0 * 768.0 * 768.0, 51_200.0 * 768.0);
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
        };
        let seconds = |bytes: f64| bytes / cluster.memory_rate;
        near(of(false, false), seconds(30.0 * (layers + ends)));
        near(of(false, true), seconds(38.0 * (layers + ends)));
        let products = 30.0 * 768.0 * layers / (CONSTANTS.matrix * cluster.matrix);
        near(
            of(true, false),
            seconds(22.0 * layers + 30.0 * ends) + products,
        );
    }

    fn mixtral(ep: usize) -> Layout {
        Layout {
            tp: 1,
            pp: 1,
            chunks: 1,
            dp: 16,
            ep,
            global_batch: 16,
            recompute: Recompute::None,
            ..layout()
        }
    }

    #[test]
    fn the_optimizer_waits_for_the_stage_with_most_parameters() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        // a token passes four experts of half a layer's width, of which a rank has one: slow, but few parameters
        let mixture = Mixture {
            top_k: 4,
            ffn: 7168,
            dense_first: 16,
            ..Shape::mixtral_8x7b().mixture.unwrap()
        };
        let shape = Shape {
            mixture: Some(mixture),
            ..Shape::mixtral_8x7b()
        };
        let dense = Shape {
            mixture: None,
            ..shape
        };
        let of = Layout {
            pp: 2,
            dp: 8,
            ..mixtral(8)
        };
        let time = |shape: &Shape| step_time(shape, &of, &cluster, &CONSTANTS);
        let (found, dense) = (time(&shape), time(&dense));
        assert!(found.forward > dense.forward);
        // 30 bytes of each parameter of 16 dense layers and an embedding
        let parameters = 16.0 * shape.weights(&Kind::Dense).all() + 32_000.0 * 4096.0;
        let wanted = 30.0 * parameters / cluster.memory_rate;
        assert!((found.optimizer / wanted - 1.0).abs() < 1e-12);
        assert_eq!(found.reduction, dense.reduction);
    }

    #[test]
    fn sizes_of_any_job_are_planned() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let huge = usize::MAX / 2;
        let mixture = Mixture {
            experts: huge,
            top_k: huge,
            ffn: huge,
            shared: huge,
            every: 2,
            dense_first: 1,
        };
        let shape = Shape {
            layers: huge,
            width: huge,
            heads: huge,
            kv_heads: huge,
            head_dim: huge,
            value_dim: huge,
            ffn: huge,
            is_gated: true,
            vocab: huge,
            mixture: Some(mixture),
            is_tied: false,
            seq_length: huge,
            ..Shape::deepseek_v2()
        };
        let of = Layout {
            micro_batch: 32,
            dp: 1,
            pp: 2,
            chunks: 4,
            global_batch: huge,
            ..mixtral(1)
        };
        let time = step_time(&shape, &of, &cluster, &CONSTANTS);
        let bytes = rank_bytes(&shape, &of).total();
        // 18 bytes of each of the three matrices of the experts of half of the layers
        let experts = 18.0 * 3.0 * 2_f64.powi(62 + 3 * 63);
        assert!(time.total.is_finite() && time.total > 0.0);
        assert!(bytes.is_finite() && bytes >= experts);
    }

    /// A mixture whose tokens all pass one expert of a layer's width is that layer, but for its router.
    #[test]
    fn a_mixture_of_one_expert_takes_the_time_of_a_dense_layer() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let dense = Shape {
            mixture: None,
            ..Shape::mixtral_8x7b()
        };
        let one = Mixture {
            experts: 1,
            top_k: 1,
            ..Shape::mixtral_8x7b().mixture.unwrap()
        };
        let mixture = Shape {
            mixture: Some(one),
            ..dense
        };
        let of = |shape: &Shape| step_time(shape, &mixtral(1), &cluster, &CONSTANTS);
        let (dense, mixture) = (of(&dense), of(&mixture));
        // rows are put in order: each is read and written four times in three passes; a router of one column is read with its rows
        let rows = 4096.0 * 32.0;
        let moved = 3.0 * 2.0 * (4.0 * rows * 4096.0) / cluster.memory_rate;
        let router = 3.0 * 2.0 * rows * 4096.0 / cluster.memory_rate;
        let more = mixture.total - dense.total - moved;
        assert!(
            (0.9 * router..1.5 * router).contains(&more),
            "{more} {router}"
        );
    }

    /// Experts of other nodes are reached by the network, which is slower than the links of a node.
    #[test]
    fn rows_travel_to_the_experts_of_other_ranks_by_links_or_by_the_network() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let shape = Shape::mixtral_8x7b();
        let of = |layout: &Layout| step_time(&shape, layout, &cluster, &CONSTANTS).collectives;
        assert_eq!(of(&mixtral(1)), 0.0);
        // there and back in both passes of 32 layers: 7 of 8 rows of two experts a token, 16 bits each
        let bytes = 4.0 * 32.0 * 2.0 * 2.0 * 4096.0 * 4096.0;
        let wanted = bytes * 7.0 / 8.0 / cluster.link;
        assert!((of(&mixtral(8)) / wanted - 1.0).abs() < 1e-9);
        // with tp 8 each expert is on another node
        let apart = Layout {
            tp: 8,
            ..mixtral(8)
        };
        let whole = 1.0 / 8.0;
        let tp = of(&Layout { ep: 1, ..apart });
        let exchange = of(&apart) - tp;
        let wanted = bytes * (1.0 - whole) / cluster.network;
        assert!(
            (exchange / wanted - 1.0).abs() < 1e-9,
            "{exchange} {wanted}"
        );
    }
}
