//! Weights of the norm and their gradients.

use crate::Tensor;

/// One weight for all query heads and one for all key heads: `[width]`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    /// Weight of queries.
    pub q: &'a Tensor,
    /// Weight of keys.
    pub k: &'a Tensor,
}

/// Gradients of the weights by leaf and head, to write.
pub(super) struct Sums<'a> {
    pub(super) q: &'a mut Tensor,
    pub(super) k: &'a mut Tensor,
    /// Rows per leaf.
    pub(super) leaf: usize,
}
