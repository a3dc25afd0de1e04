//! Bytes of the fullest rank in mixed precision: weights and gradients of 2 and 4 bytes, Adam's state of 12 (a copy of the
//! weights and two moments in f32), and activations in 16 bits (Korthikanti et al. 2022, arXiv:2205.05198, section 4, with the
//! terms of grouped queries and gates).

use crate::plan::layout::{Layout, Recompute};
use crate::plan::shape::Shape;

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

/// Memory of a rank of the first pipeline stage, which has the embedding and most micro-batches in flight; with one stage, with
/// the head.
pub(crate) fn rank_bytes(shape: &Shape, layout: &Layout) -> RankBytes {
    let (tp, dp) = (layout.tp as f64, layout.dp as f64);
    let layers = layout.rank_layers(shape);
    let ends = match (layout.pp, shape.is_tied) {
        (1, false) => 2,
        _ => 1,
    };
    let own = layers * shape.layer_parameters() + (ends * shape.vocab * shape.width) as f64;
    let parameters = own / tp;
    let over = |least: u8| if layout.zero >= least { dp } else { 1.0 };
    let rows = (layout.micro_batch * shape.seq_length) as f64 / layout.cp as f64;
    let (pp, chunks) = (layout.pp as f64, layout.chunks as f64);
    // 1F1B keeps pp micro-batches on the first stage; interleaved (pp - 1) chunks more
    let most = layout.micro_batches() as f64;
    let in_flight = match layout.chunks {
        1 => pp.min(most),
        _ => pp + (pp - 1.0) / chunks,
    };
    let mut activations = in_flight * layers * rows * kept_per_row(shape, layout);
    if layout.recompute == Recompute::Full {
        // the layer that is being computed again
        let whole = Layout {
            recompute: Recompute::None,
            ..*layout
        };
        activations += rows * kept_per_row(shape, &whole);
    }
    if layout.pp == 1 {
        // logits in f32, and the input of the head
        activations += rows * (4.0 * shape.vocab as f64 / tp + 4.0 * shape.width as f64);
    }
    RankBytes {
        weights: 2.0 * parameters / over(3),
        gradients: 4.0 * parameters / over(2),
        optimizer: 12.0 * parameters / over(1),
        activations,
    }
}

/// Bytes per row (token of a micro-batch) that a layer keeps for its backward pass.
fn kept_per_row(shape: &Shape, layout: &Layout) -> f64 {
    let (tp, h) = (layout.tp as f64, shape.width as f64);
    let shared = if layout.is_sequence_parallel { tp } else { 1.0 };
    if layout.recompute == Recompute::Full {
        return 2.0 * h / shared;
    }
    // inputs of two norms and of two groups of matrices, and two dropout masks; then what tensor parallelism splits
    let whole = 10.0 * h;
    let attention = 2.0 * (shape.packed() + shape.queries()) as f64;
    let ffn = 2.0 * ((1 + shape.ffn_inputs()) * shape.ffn) as f64;
    let scores = 5.0 * (shape.heads * shape.seq_length) as f64;
    let scores = match layout.recompute {
        Recompute::None if !shape.is_fused => scores,
        _ => 0.0,
    };
    whole / shared + (attention + ffn + scores) / tp
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(tp: usize, pp: usize, recompute: Recompute, is_sequence_parallel: bool) -> Layout {
        Layout {
            tp,
            cp: 1,
            pp,
            chunks: 1,
            dp: 1,
            micro_batch: 1,
            global_batch: 64,
            is_sequence_parallel,
            recompute,
            zero: 0,
            overlap: false,
            counts_ends: false,
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
            let found = kept_per_row(&shape, &layout(tp, 1, recompute, sp)) / h;
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
}
