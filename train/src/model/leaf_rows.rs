//! The rows of virtual tokens, once for each leaf of tokens (`virtual_rows.rs`).

use kernels::{Tensor, embedding};

/// Rows of l leaves of v virtual tokens each.
pub(super) struct LeafRows {
    /// `[l * v]`: the virtual token of each row.
    pub numbers: Tensor,
    /// v
    pub count: usize,
}

impl LeafRows {
    /// `[v, in]` -> the same for each leaf: `[l * v, in]`
    pub(super) fn repeated(&self, x: &Tensor) -> kernels::Result<Tensor> {
        embedding::forward(x, &self.numbers, 0)
    }
}
