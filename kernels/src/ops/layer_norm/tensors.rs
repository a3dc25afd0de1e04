//! Tensors of the backward pass.

use crate::Tensor;

/// What forward kept of each row: `[n]`.
#[derive(Clone, Copy)]
pub struct Statistics<'a> {
    /// Mean.
    pub mean: &'a Tensor,
    /// 1 / sqrt(variance + eps).
    pub inv_std: &'a Tensor,
}

/// Gradients to add to: `[d]`, or `[parts, d]` for one sum per `n / parts` rows.
pub struct Gradients<'a> {
    /// Of the weight.
    pub dw: &'a mut Tensor,
    /// Of the bias.
    pub db: &'a mut Tensor,
}
