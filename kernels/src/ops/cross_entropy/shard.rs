//! The ids of a shard of logits.

/// Ids of a shard's columns.
#[derive(Clone, Copy)]
pub(super) struct Shard {
    /// Id of the first column.
    pub(super) first: usize,
    /// Ids from here on are padding.
    pub(super) vocab: usize,
}

impl Shard {
    /// Columns that are not padding, of `rows`.
    pub(super) fn real(self, rows: usize) -> usize {
        self.vocab.saturating_sub(self.first).min(rows)
    }
}
