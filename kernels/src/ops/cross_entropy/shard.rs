//! The ids of a shard of logits, and the tensors of its ops.

use crate::Tensor;

/// Ids of a shard's columns.
#[derive(Clone, Copy)]
pub(super) struct Shard {
    /// Id of the first column.
    pub(super) first: usize,
    /// Ids from here on are padding.
    pub(super) vocab: usize,
}

impl Shard {
    /// Columns that are not padding, of `rows`.
    pub(super) fn real(self, rows: usize) -> usize {
        self.vocab.saturating_sub(self.first).min(rows)
    }
}

/// Outputs of `statistics`: `[slices, n]` twice and `[n]`.
pub(super) struct Found<'a> {
    pub(super) maxima: &'a mut Tensor,
    pub(super) sums: &'a mut Tensor,
    pub(super) target: &'a mut Tensor,
}

/// Numbers of each row that `losses` reads: `[n]`.
#[derive(Clone, Copy)]
pub(super) struct LossRows<'a> {
    pub(super) max: &'a Tensor,
    pub(super) sum: &'a Tensor,
    pub(super) target: &'a Tensor,
    pub(super) counts: Option<&'a Tensor>,
}

/// Numbers of each row that `backward` reads: `[n]`.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) max: &'a Tensor,
    pub(super) sum: &'a Tensor,
    pub(super) targets: &'a Tensor,
    pub(super) weights: &'a Tensor,
    pub(super) pull: Option<&'a Tensor>,
    /// Bound of the logits; 0: none.
    pub(super) cap: f32,
}

/// Factors of the gradients in `backward`.
#[derive(Clone, Copy)]
pub struct Slopes<'a> {
    /// Weight of each row in the loss: `[n]`.
    pub weights: &'a Tensor,
    /// Derivative of a function of each row's ln sum e^x: `[n]`.
    pub pull: Option<&'a Tensor>,
    /// Cap of the logits; 0: none.
    pub cap: f32,
}

impl<'a> Slopes<'a> {
    /// Those of the loss alone, of logits without a cap.
    pub fn of_loss(weights: &'a Tensor) -> Slopes<'a> {
        Slopes {
            weights,
            pull: None,
            cap: 0.0,
        }
    }
}
