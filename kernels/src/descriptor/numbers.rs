//! Number formats of products.

/// Format to which the factors of a product are rounded; sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// f32, as they are.
    F32,
    /// bf16, to nearest even; subnormals become zero. Sums take pairs of k (`bf16.rs`).
    Bf16,
    /// Like `Bf16`, with sums that take blocks of 32 k (`tiles/`).
    Bf16Tiles,
}

impl Numbers {
    /// Whether a word is two bf16.
    pub(crate) fn are_pairs(self) -> bool {
        self != Numbers::F32
    }
}
