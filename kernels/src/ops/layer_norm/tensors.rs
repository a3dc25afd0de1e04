//! Tensors of the backward pass.

use crate::Tensor;

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
