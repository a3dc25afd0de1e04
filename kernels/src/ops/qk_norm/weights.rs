//! Weights of the norm.

use crate::Tensor;

/// One weight for all query heads and one for all key heads: `[width]`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    /// Weight of queries.
    pub q: &'a Tensor,
    /// Weight of keys.
    pub k: &'a Tensor,
}
