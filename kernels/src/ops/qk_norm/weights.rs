//! Weights of the norms and their gradients, and what the joint norm knows of other ranks.

use crate::Tensor;

/// One weight for all query heads and one for all key heads: `[width]`; of the joint norm, whose heads have weights of their
/// own, `[heads * width]` and `[kv_heads * width]`.
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

/// Sums over the query heads and over the key heads of each row, of all ranks.
#[derive(Clone, Copy)]
pub struct Totals<'a> {
    /// `[n, 1]`
    pub q: &'a Tensor,
    /// `[n, 1]`
    pub k: &'a Tensor,
    /// Query features of a row on all ranks.
    pub q_width: usize,
    /// Key features of a row on all ranks.
    pub k_width: usize,
}

/// Input of the norm with the totals of its squares.
#[derive(Clone, Copy)]
pub struct Normed<'a> {
    /// `[n, packed]`
    pub qkv: &'a Tensor,
    /// Totals of `squares`.
    pub squares: Totals<'a>,
    /// Added to the means.
    pub eps: f32,
}
