//! Keys and values of a kv head, where the products of its query heads read them.

use super::operand::Operand;

/// Factors of a product from some key on, and their strides.
pub(super) type Factors<'a> = (&'a [f32], (usize, usize));

#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) k: &'a Operand,
    pub(super) v: &'a Operand,
    /// Position of the first key.
    pub(super) first: usize,
}

impl<'a> Source<'a> {
    /// Factors (key, step of width) of the keys from `key` on.
    pub(super) fn keys(self, key: usize) -> Factors<'a> {
        self.k.by_rows(key - self.first)
    }

    /// Factors (number of width, step of keys) of the values from `key` on.
    pub(super) fn values(self, key: usize) -> Factors<'a> {
        self.v.by_columns(key - self.first)
    }
}
