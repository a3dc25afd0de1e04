//! Weights of the norm.

use crate::Tensor;

/// One weight for all query heads and one for all key heads: `[width]`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    /// Of queries.
    pub q: &'a Tensor,
    /// Of keys.
    pub k: &'a Tensor,
}
