//! Statistics of rows, and the tensors of the backward pass.

use crate::Tensor;

/// Statistics of each row to write: `[n]`.
pub(super) struct Kept<'a> {
    pub(super) mean: &'a mut Tensor,
    pub(super) inv_std: &'a mut Tensor,
}

/// Statistics that forward kept of each row: `[n]`.
#[derive(Clone, Copy)]
pub struct Statistics<'a> {
    /// Mean.
    pub mean: &'a Tensor,
    /// 1 / sqrt(variance + eps).
    pub inv_std: &'a Tensor,
}

/// Gradients to add to: `[d]`, or `[parts, d]` for one sum per `n / parts` rows.
pub struct Gradients<'a> {
    /// Gradient of the weight.
    pub dw: &'a mut Tensor,
    /// Gradient of the bias.
    pub db: &'a mut Tensor,
}

/// Weight and bias: `[d]`.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) w: &'a Tensor,
    pub(super) b: &'a Tensor,
}
