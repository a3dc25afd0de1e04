//! Bytes of the fullest rank in mixed precision: weights and gradients of 2 and 4 bytes, Adam's state of 12 (a copy of the
//! weights and two moments in f32; of layers' matrices under Muon one, and 4 more with averages of weights), and activations in 16 bits; in
//! f32 weights of 4, no copy, and activations in 32
//! (Korthikanti et al. 2022, arXiv:2205.05198, section 4, with the terms of grouped queries and gates).

use crate::plan::layout::{ChunkLayers, LayersByKind, Layout, Recompute};
use crate::plan::shape::{Kind, Mixture, Shape};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Bytes of a rank by purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RankBytes {
    pub weights: f64,
    pub gradients: f64,
    pub optimizer: f64,
    pub activations: f64,
}

impl RankBytes {
    /// All of it.
    pub(crate) fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.activations
    }
}

/// Micro-batches that ranks of schedules hold by model chunk (`Layout::held_by_chunk`), kept for layouts that differ in nothing that
/// the schedule depends on.
#[derive(Default)]
pub(crate) struct Schedules {
    held: RefCell<HashMap<ScheduleOfRank, Rc<Vec<Vec<usize>>>>>,
}

/// A rank and all that its schedule depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ScheduleOfRank {
    pp: usize,
    chunks: usize,
    micro_batches: usize,
    stage: usize,
}

impl Schedules {
    fn held_by_chunk(&self, layout: &Layout, stage: usize) -> Rc<Vec<Vec<usize>>> {
        let key = ScheduleOfRank {
            pp: layout.pp,
            chunks: layout.chunks,
            micro_batches: layout.repeated_micro_batches(),
            stage,
        };
        let mut held = self.held.borrow_mut();
        let found = held
            .entry(key)
            .or_insert_with(|| Rc::new(layout.held_by_chunk(stage)));
        Rc::clone(found)
    }
}

/// Memory of the fullest rank.
pub(crate) fn rank_bytes(shape: &Shape, layout: &Layout) -> RankBytes {
    fullest_rank(shape, layout, &Schedules::default())
}

/// Memory of the fullest rank, with the schedules that a search has simulated. The first stage has most micro-batches in flight, the
/// last one the logits; of the stages between them with as many layers of each kind, all else is equal, and the earliest has most
/// micro-batches.
pub(crate) fn fullest_rank(shape: &Shape, layout: &Layout, schedules: &Schedules) -> RankBytes {
    let last = layout.pp - 1;
    let mut numbers = Vec::new();
    let mut stages = Vec::new();
    for stage in 1..last {
        let number = match layout.recompute {
            Recompute::Layers(again) => layout.chunks_with(shape, stage, again),
            Recompute::None | Recompute::Selective | Recompute::Full => {
                vec![ChunkLayers::whole(shape, layout, stage)]
            }
        };
        if !numbers.contains(&number) {
            numbers.push(number);
            stages.push(stage);
        }
        if shape.other_kind().is_none() {
            // of dense stages the earliest has most layers
            break;
        }
    }
    let bytes = |stage| bytes_of_stage(shape, layout, stage, schedules);
    let first = bytes(0);
    let others = stages.into_iter().chain([last]);
    others.map(bytes).fold(first, |fullest, other| {
        match other.total() > fullest.total() {
            true => other,
            false => fullest,
        }
    })
}

/// Memory of a rank of one pipeline stage.
pub(crate) fn stage_bytes(shape: &Shape, layout: &Layout, stage: usize) -> RankBytes {
    bytes_of_stage(shape, layout, stage, &Schedules::default())
}

fn bytes_of_stage(
    shape: &Shape,
    layout: &Layout,
    stage: usize,
    schedules: &Schedules,
) -> RankBytes {
    let one = bytes_of_one_stage(shape, layout, stage, schedules);
    if !layout.is_dual {
        return one;
    }
    // and the stage as far from the other end
    let other = bytes_of_one_stage(shape, layout, layout.pp - 1 - stage, schedules);
    // ZeRO divides by the copies, of which there are twice as many
    let shared = if layout.zero >= 1 { 0.5 } else { 1.0 };
    RankBytes {
        weights: one.weights + other.weights,
        gradients: one.gradients + other.gradients,
        optimizer: shared * (one.optimizer + other.optimizer),
        activations: one.activations + other.activations,
    }
}

fn bytes_of_one_stage(
    shape: &Shape,
    layout: &Layout,
    stage: usize,
    schedules: &Schedules,
) -> RankBytes {
    let (tp, dp) = (layout.tp as f64, layout.dp as f64);
    let others = layout.stage_others(shape, stage);
    let dense = (layout.stage_layers(shape, stage) - others) as f64;
    let others = others as f64;
    let kind = shape.other_kind();
    let is_last = stage + 1 == layout.pp;
    let of_dense = shape.weights(&Kind::Dense);
    let of_other = kind.map(|kind| shape.weights(&kind)).unwrap_or_default();
    let own = dense * of_dense.of_rank(tp) + others * of_other.of_rank(tp);
    let ends = end_parameters(shape, layout, stage);
    // the ranks that share out the experts have a copy together
    let ep = layout.ep as f64;
    let experts = others * of_other.experts / (tp * ep);
    let of_layers = |least: u8| match layout.zero >= least {
        true => own / dp + experts / (dp / ep),
        false => own + experts,
    };
    let of_ends = |least: u8| match layout.zero >= least {
        true => ends / dp,
        false => ends,
    };
    let held = |least: u8| of_layers(least) + of_ends(least);
    let samples = layout.micro_batch as f64 / layout.cp as f64;
    let by_kind = |recompute| KeptByKind::of(shape, layout, samples, recompute);
    // the encoder's rows, once for all layers that attend to them
    let shared = match kind.filter(|_| others > 0.0) {
        Some(Kind::Crossed(_)) => {
            layout.number_bytes() * samples * shape.seq_length as f64 * shape.width as f64
        }
        Some(Kind::Dense | Kind::Mixture(_)) | None => 0.0,
    };
    let mut activations = match layout.recompute {
        Recompute::None | Recompute::Selective | Recompute::Full => {
            let each = by_kind(layout.recompute);
            layout.in_flight(stage) * (dense * each.dense + others * each.others + shared)
        }
        Recompute::Layers(number) => {
            let chunks = layout.chunks_with(shape, stage, number);
            let moments = |bytes: &[f64]| match layout.chunks {
                1 => layout.in_flight(stage) * bytes[0],
                _ => most_held(&schedules.held_by_chunk(layout, stage), bytes),
            };
            let of_chunks = partly_kept(&chunks, by_kind, moments);
            layout.in_flight(stage) * shared + of_chunks
        }
    };
    if layout.recompute == Recompute::Full {
        // the layer that is being computed again: of a stage with both kinds, the larger one
        let whole = by_kind(Recompute::None);
        activations += whole.larger(dense > 0.0, others > 0.0);
    }
    if is_last {
        activations += head_bytes(shape, layout);
    }
    let number = layout.number_bytes();
    RankBytes {
        weights: number * held(3),
        gradients: 4.0 * held(2),
        // its state, and a copy of weights of fewer bits
        optimizer: match layout.is_offloaded {
            true => 0.0,
            false => {
                let copy = if number < 4.0 { 4.0 } else { 0.0 };
                let state = &shape.state;
                (copy + state.bytes(true)) * of_layers(1) + (copy + state.bytes(false)) * of_ends(1)
            }
        },
        activations,
    }
}

/// Bytes that one layer of each kind keeps for its backward pass.
#[derive(Clone, Copy)]
struct KeptByKind {
    dense: f64,
    /// Of the model's other kind.
    others: f64,
}

impl KeptByKind {
    fn of(shape: &Shape, layout: &Layout, samples: f64, recompute: Recompute) -> KeptByKind {
        let layout = &Layout {
            recompute,
            ..*layout
        };
        let of_other = shape.other_kind();
        let of_other = of_other.map(|kind| kept(shape, layout, samples, &kind));
        KeptByKind {
            dense: kept(shape, layout, samples, &Kind::Dense),
            others: of_other.unwrap_or(0.0),
        }
    }

    /// Of so many layers.
    fn all(&self, layers: LayersByKind) -> f64 {
        layers.dense as f64 * self.dense + layers.others as f64 * self.others
    }

    /// The larger one of the kinds that are there.
    fn larger(&self, has_dense: bool, has_others: bool) -> f64 {
        let of = |is_there: bool, bytes: f64| if is_there { bytes } else { 0.0 };
        of(has_dense, self.dense).max(of(has_others, self.others))
    }
}

/// Bytes of the layers of a stage of which the first ones are computed again: the most that any moment of the schedule has, with
/// each chunk's micro-batches, and the layer that is being computed again as far as it is larger than those of its micro-batch that
/// were let go before it.
fn partly_kept(
    chunks: &[ChunkLayers],
    by_kind: impl Fn(Recompute) -> KeptByKind,
    most: impl Fn(&[f64]) -> f64,
) -> f64 {
    let (inputs, whole) = (by_kind(Recompute::Full), by_kind(Recompute::None));
    let of_chunk = |chunk: &ChunkLayers| inputs.all(chunk.again) + whole.all(chunk.kept);
    let bytes: Vec<f64> = chunks.iter().map(of_chunk).collect();
    let running = chunks.iter().map(|chunk| {
        let again = whole.larger(chunk.again.dense > 0, chunk.again.others > 0);
        (again - whole.all(chunk.kept)).max(0.0)
    });
    most(&bytes) + running.fold(0.0, f64::max)
}

/// The most bytes that a rank holds at once, if each micro-batch of a chunk has this many.
fn most_held(held: &[Vec<usize>], bytes: &[f64]) -> f64 {
    let sum = |held: &Vec<usize>| -> f64 {
        let each = held.iter().zip(bytes);
        each.map(|(count, bytes)| *count as f64 * bytes).sum()
    };
    held.iter().map(sum).fold(0.0, f64::max)
}

/// Parameters of the matrices of the vocabulary on a rank of a stage, and of the layer before a masked encoder's head.
fn end_parameters(shape: &Shape, layout: &Layout, stage: usize) -> f64 {
    let has_embedding = stage == 0;
    let has_head = stage + 1 == layout.pp;
    // a stage with both has two, unless they are one
    let ends = match (has_embedding, has_head) {
        (true, true) if !shape.is_tied => 2.0,
        (false, false) => 0.0,
        (true, _) | (_, true) => 1.0,
    };
    let transform = match has_head {
        true => shape.transform_parameters(),
        false => 0.0,
    };
    ends * shape.end_parameters() / layout.tp as f64 + transform
}

/// Bytes of the logits of a micro-batch in f32, and of the head's input.
fn head_bytes(shape: &Shape, layout: &Layout) -> f64 {
    let parts = match shape.predictions {
        Some(_) => 1.0,
        None => layout.cp as f64,
    };
    let rows = layout.micro_batch as f64 * shape.predicted() / parts;
    let (width, number) = (shape.width as f64, layout.number_bytes());
    let mut bytes = rows * (4.0 * shape.vocab as f64 / layout.tp as f64 + 2.0 * number * width);
    if shape.predictions.is_some() {
        // inputs of the transform, of its activation function and of its norm
        bytes += 3.0 * number * rows * width;
    }
    bytes
}

/// Bytes that a layer of a kind keeps for its backward pass. `samples`: sequences of the micro-batch by context-parallel ranks.
fn kept(shape: &Shape, layout: &Layout, samples: f64, kind: &Kind) -> f64 {
    let rows = samples * shape.seq_length as f64;
    match kind {
        Kind::Dense => rows * kept_per_row(shape, layout, None),
        Kind::Mixture(mixture) => rows * kept_per_row(shape, layout, Some(mixture)),
        Kind::Crossed(decoder) => {
            let own = samples * decoder.length as f64;
            let without = kept_per_row(&shape.of_decoder(decoder), layout, None);
            if layout.recompute == Recompute::Full {
                return own * without;
            }
            let tp = layout.tp as f64;
            let shared = if layout.is_sequence_parallel { tp } else { 1.0 };
            // inputs of the norm and of the queries' matrix, and a dropout mask; queries and mixed values; keys and values of the encoder
            let number = layout.number_bytes();
            let whole = (2.0 * number + 1.0) * shape.width as f64 / shared;
            let split = number * (shape.queries() + shape.mixed()) / tp;
            let scores = scores(shape, layout, shape.seq_length) / tp;
            own * (without + whole + split + scores) + number * rows * shape.keys_values() / tp
        }
    }
}

/// Bytes per row of the scores with `keys` keys and of their dropout, where they are kept.
fn scores(shape: &Shape, layout: &Layout, keys: usize) -> f64 {
    match layout.recompute {
        Recompute::None if !shape.is_fused => {
            (2.0 * layout.number_bytes() + 1.0) * shape.heads as f64 * keys as f64
        }
        Recompute::None | Recompute::Selective | Recompute::Layers(_) | Recompute::Full => 0.0,
    }
}

/// Bytes per row (token of a micro-batch) that a layer keeps for its backward pass: a dense one, or one with a mixture, whose experts
/// are chosen evenly.
fn kept_per_row(shape: &Shape, layout: &Layout, mixture: Option<&Mixture>) -> f64 {
    let (tp, h) = (layout.tp as f64, shape.width as f64);
    let shared = if layout.is_sequence_parallel { tp } else { 1.0 };
    let number = layout.number_bytes();
    if layout.recompute == Recompute::Full {
        return number * h / shared;
    }
    // inputs of two norms and of two groups of matrices, and two dropout masks; then what tensor parallelism splits
    let whole = (4.0 * number + 2.0) * h;
    // latents before and after their norms, on every rank
    let latents = 2.0 * number * shape.latents();
    let attention = number * (shape.packed() + shape.mixed());
    let ffn = number * (1.0 + shape.ffn_inputs()) * shape.inner(mixture);
    // rows as the experts read and write them, and two times the router's probabilities in f32
    let routed = mixture.map_or(0.0, |of| {
        2.0 * number * of.top_k as f64 * h + 8.0 * of.experts as f64
    });
    let scores = scores(shape, layout, shape.seq_length);
    whole / shared + latents + routed + (attention + ffn + scores) / tp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::shape::OptimizerState;

    /// GPT-2 small by its sizes: 12 layers of 12 x 768^2 numbers, and 51,200 rows of 768.
    #[test]
    fn muon_has_one_moment_of_layers_and_averages_are_one_more_of_all() {
        let shape = |is_muon, has_averages| Shape {
            state: OptimizerState {
                is_muon,
                has_averages,
            },
            ..Shape::gpt(12, 768, 12)
        };
        let (layers, ends) = (144.0 * 768.0 * 768.0, 51_200.0 * 768.0);
        let of = |shape: &Shape, zero, precision| {
            let layout = Layout {
                dp: 2,
                zero,
                precision,
                ..Layout::one(2)
            };
            rank_bytes(shape, &layout).optimizer
        };
        let (bf16, f32) = (
            train::config::Precision::Bf16,
            train::config::Precision::F32,
        );
        assert_eq!(of(&shape(false, false), 0, bf16), 12.0 * (layers + ends));
        assert_eq!(of(&shape(false, true), 0, bf16), 16.0 * (layers + ends));
        assert_eq!(of(&shape(true, false), 0, bf16), 8.0 * layers + 12.0 * ends);
        assert_eq!(of(&shape(true, true), 1, f32), 4.0 * layers + 6.0 * ends);
    }
    use train::config::Precision;
    use train::trainer::timeline::{PassTimes, timeline};

    fn layout(tp: usize, pp: usize, recompute: Recompute, is_sequence_parallel: bool) -> Layout {
        Layout {
            tp,
            pp,
            is_sequence_parallel,
            recompute,
            ..Layout::one(64)
        }
    }

    /// 2205.05198, table 2, in units of s b h.
    #[test]
    fn activations_of_a_layer_are_those_of_the_published_table() {
        let shape = Shape::gpt(96, 12_288, 96);
        let (a, s, h, t) = (96.0, 2048.0, 12_288.0, 8.0);
        let cases = [
            (1, Recompute::None, false, 34.0 + 5.0 * a * s / h),
            (
                8,
                Recompute::None,
                false,
                10.0 + 24.0 / t + 5.0 * a * s / (h * t),
            ),
            (8, Recompute::None, true, 34.0 / t + 5.0 * a * s / (h * t)),
            (8, Recompute::Selective, false, 10.0 + 24.0 / t),
            (8, Recompute::Selective, true, 34.0 / t),
            (1, Recompute::Full, false, 2.0),
        ];
        for (tp, recompute, sp, wanted) in cases {
            let found = kept_per_row(&shape, &layout(tp, 1, recompute, sp), None) / h;
            assert!(
                (found - wanted).abs() < 1e-9,
                "{recompute:?} {sp}: {found} {wanted}"
            );
        }
    }

    #[test]
    fn zero_divides_what_it_says() {
        let shape = Shape::gpt(24, 2304, 24);
        let mut of = layout(1, 1, Recompute::Full, false);
        of.dp = 4;
        let whole = rank_bytes(&shape, &of);
        assert!((whole.optimizer / whole.weights - 6.0).abs() < 1e-9);
        for (zero, divided) in [
            (1, [1.0, 1.0, 4.0]),
            (2, [1.0, 4.0, 4.0]),
            (3, [4.0, 4.0, 4.0]),
        ] {
            of.zero = zero;
            let found = rank_bytes(&shape, &of);
            let pairs = [
                (whole.weights, found.weights),
                (whole.gradients, found.gradients),
                (whole.optimizer, found.optimizer),
            ];
            let ratios = pairs.map(|(whole, found)| whole / found);
            assert_eq!(ratios, divided, "ZeRO {zero}");
        }
    }

    /// In f32 a number has 4 bytes instead of 2, a dropout mask stays one byte: 2205.05198, section 4, has 34 s b h of which 31 s b h
    /// are numbers in 16 bits; Adam keeps no copy of the weights.
    #[test]
    fn f32_has_numbers_of_four_bytes_and_no_copy_of_the_weights() {
        let shape = Shape::gpt(24, 2304, 24);
        let of = layout(1, 1, Recompute::Selective, false);
        let in_f32 = Layout {
            precision: Precision::F32,
            ..of
        };
        let h = 2304.0;
        let per_row = |of: &Layout| kept_per_row(&shape, of, None) / h;
        // 32 bytes of numbers, 2 of masks
        assert!((per_row(&of) - 34.0).abs() < 1e-9);
        assert!((per_row(&in_f32) - 66.0).abs() < 1e-9);
        let (half, whole) = (rank_bytes(&shape, &of), rank_bytes(&shape, &in_f32));
        assert_eq!(whole.weights, 2.0 * half.weights);
        assert_eq!(whole.gradients, half.gradients);
        assert_eq!(whole.optimizer, 8.0 / 12.0 * half.optimizer);
    }

    /// The schedule that `train` runs, pass by pass.
    #[test]
    fn micro_batches_in_flight_are_those_of_the_schedule() {
        for (pp, chunks, micro_batches) in [
            (1, 1, 4),
            (4, 1, 8),
            (4, 1, 2),
            (4, 2, 8),
            (4, 2, 4),
            (8, 3, 16),
        ] {
            let of = Layout {
                chunks,
                global_batch: micro_batches,
                ..layout(1, pp, Recompute::None, false)
            };
            let times = PassTimes {
                forward: 1.0,
                backward: 2.0,
                head: 0.0,
            };
            let passes = timeline(&of.parallel(8), micro_batches, times);
            for (stage, passes) in passes.iter().enumerate() {
                let mut held = 0_i64;
                let mut most = 0;
                for pass in passes {
                    held += if pass.is_backward { -1 } else { 1 };
                    most = most.max(held);
                }
                let found = of.in_flight(stage) * chunks as f64;
                assert_eq!(found, most as f64, "pp {pp} x {chunks}, stage {stage}");
            }
        }
    }

    #[test]
    fn the_fullest_rank_is_the_fullest_of_all_stages() {
        // with whole layers computed again and a large vocabulary the logits of the last stage weigh more than what the first keeps
        let llama = Shape {
            layers: 14,
            vocab: 256_000,
            ..Shape::llama3_405b(8192)
        };
        // with a vocabulary that weighs less than a layer
        let mixtral = |layers, every, dense_first| Shape {
            layers,
            vocab: 1024,
            mixture: Shape::mixtral_8x7b().mixture.map(|of| Mixture {
                every,
                dense_first,
                ..of
            }),
            ..Shape::mixtral_8x7b()
        };
        let mut fullest = Vec::new();
        for (shape, recompute, counts_ends) in [
            (Shape::gpt(48, 6144, 48), Recompute::None, false),
            (Shape::gpt(48, 6144, 48), Recompute::Full, false),
            (llama, Recompute::Full, true),
            // mixtures by stage: 0, 0, 8, 8; 0, 0, 1, 1; 0, 1, 1, 1
            (mixtral(32, 1, 16), Recompute::None, false),
            (mixtral(12, 4, 4), Recompute::None, false),
            (mixtral(12, 4, 0), Recompute::None, false),
        ] {
            let of = Layout {
                counts_ends,
                ..layout(8, 4, recompute, true)
            };
            let stages: Vec<f64> = (0..4)
                .map(|stage| stage_bytes(&shape, &of, stage).total())
                .collect();
            let most = stages.iter().copied().fold(0.0, f64::max);
            assert_eq!(rank_bytes(&shape, &of).total(), most);
            fullest.push(stages.iter().position(|bytes| *bytes == most));
        }
        assert_eq!(fullest, [0, 0, 3, 2, 2, 1].map(Some));
    }

    /// A stage with layers of both kinds computes the larger ones again as well.
    #[test]
    fn the_layer_that_is_computed_again_is_the_larger_one() {
        let of = layout(1, 1, Recompute::Full, false);
        let with = |ffn, dense_first| Shape {
            ffn,
            mixture: Shape::mixtral_8x7b()
                .mixture
                .map(|of| Mixture { dense_first, ..of }),
            ..Shape::mixtral_8x7b()
        };
        let activations = |shape: Shape| stage_bytes(&shape, &of, 0).activations;
        // of a token's two experts together 28,672
        for ffn in [14_336, 131_072] {
            let dense = activations(Shape {
                mixture: None,
                ..with(ffn, 0)
            });
            let mixtures = activations(with(ffn, 0));
            assert_eq!(mixtures < dense, ffn == 131_072);
            assert_eq!(activations(with(ffn, 1)), dense.max(mixtures));
        }
    }

    /// All stages together hold every parameter once per replica, and the embedding twice where the head is tied to it.
    #[test]
    fn stages_share_out_the_parameters() {
        let tied = Shape::gpt(48, 6144, 48);
        let llama = Shape::llama3_405b(8192);
        for (shape, counts_ends, copies) in [(tied, false, 1), (llama, true, 0)] {
            let of = Layout {
                counts_ends,
                ..layout(8, 4, Recompute::None, true)
            };
            let weights: f64 = (0..4)
                .map(|stage| stage_bytes(&shape, &of, stage).weights)
                .sum();
            let wanted = shape.parameters() + (copies * shape.vocab * shape.width) as f64;
            assert!((weights * 8.0 / 2.0 / wanted - 1.0).abs() < 1e-12);
        }
    }

    /// Mixtral 8x7B (arXiv:2401.04088): 46.7B parameters, 45.1B of them in experts.
    #[test]
    fn experts_are_divided_by_expert_parallelism_and_then_by_zero() {
        let shape = Shape::mixtral_8x7b();
        let mixture = shape.mixture.unwrap();
        let experts = 32.0 * shape.weights(&Kind::Mixture(mixture)).experts;
        let others = shape.parameters() - experts;
        assert!((experts / 45.1e9 - 1.0).abs() < 0.001, "{experts}");
        let of = Layout {
            dp: 16,
            ep: 8,
            zero: 1,
            global_batch: 256,
            ..layout(1, 1, Recompute::None, false)
        };
        let found = rank_bytes(&shape, &of);
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-9);
        near(found.weights, 2.0 * (others + experts / 8.0));
        near(found.gradients, 4.0 * (others + experts / 8.0));
        // two copies of each expert, 16 of the others
        near(
            found.optimizer,
            12.0 * (others / 16.0 + experts / 8.0 / 2.0),
        );
    }

    #[test]
    fn stages_of_a_model_with_dense_layers_have_their_own_mixtures() {
        let mixture = Mixture {
            dense_first: 3,
            ..Shape::mixtral_8x7b().mixture.unwrap()
        };
        let shape = Shape {
            layers: 14,
            mixture: Some(mixture),
            ..Shape::mixtral_8x7b()
        };
        let mixtures = |chunks, counts_ends| {
            let of = Layout {
                chunks,
                counts_ends,
                ..layout(1, if counts_ends { 4 } else { 2 }, Recompute::None, false)
            };
            (0..of.pp)
                .map(|stage| of.stage_others(&shape, stage))
                .collect::<Vec<_>>()
        };
        // layers 0 to 2 are dense
        assert_eq!(mixtures(1, false), [4, 7]);
        assert_eq!(mixtures(7, false), [5, 6]);
        // with the ends: embedding 0 1 2 | 3 4 5 6 | 7 8 9 10 | 11 12 13 head
        assert_eq!(mixtures(1, true), [0, 4, 4, 3]);
        // two chunks: embedding 0 | 1 2 | 3 4 | 5 6 || 7 8 | 9 10 | 11 12 | 13 head
        assert_eq!(mixtures(2, true), [2, 2, 4, 3]);
    }
}
