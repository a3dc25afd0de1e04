//! Attention over a paged key-value cache (PagedAttention, Kwon et al. 2023, arXiv:2309.06180): a batch has rows of
//! several sequences, each with any number of new rows, and every sequence's keys and values are in pages of one cache.
//! Sequences may share pages of what they have in common. A row has the bits of `forward` on its whole sequence.

use super::{Heads, OP_PAGED};
use crate::descriptor::heads::check_rows;
use crate::descriptor::numbers::Numbers;
use crate::error::refuse;
use crate::{DType, Error, Result, Tensor};

/// The new rows of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct PagedRows<'a> {
    /// Rows in the batch, which follow those of the sequence before.
    pub rows: usize,
    /// Position of the first of them.
    pub position: usize,
    /// Numbers of the sequence's pages; page i has its positions from i * page on.
    pub pages: &'a [u32],
}

impl PagedRows<'_> {
    /// Row of the cache that has a position.
    pub(super) fn slot(&self, position: usize, page: usize) -> usize {
        self.pages[position / page] as usize * page + position % page
    }
}

/// Arguments of `forward_paged` beside its tensors. Every row attends to the keys up to its own.
#[derive(Clone, Copy, Debug)]
pub struct Paged<'a> {
    /// Heads and the layout of packed rows.
    pub heads: &'a Heads,
    /// Tokens of a page.
    pub page: usize,
    /// The sequences in the order of their rows.
    pub sequences: &'a [PagedRows<'a>],
    /// First key that each row of the batch sees, as of its document; `None`: 0.
    pub first_keys: Option<&'a [u32]>,
    /// Hides keys `window` or more positions before the row's; 0: none.
    pub window: usize,
    /// As in `Call`.
    pub block: usize,
    /// As in `Call`.
    pub numbers: Numbers,
    /// As in `Call`.
    pub is_scaled: bool,
}

impl Paged<'_> {
    /// Row of the cache for each row of the batch.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().flat_map(|sequence| {
            let positions = sequence.position..sequence.position + sequence.rows;
            positions.map(|position| sequence.slot(position, self.page))
        })
    }

    /// Refuses what does not fit. Rows of the batch, rows of the cache.
    pub(super) fn check(&self, qkv: &Tensor, cache: &Tensor) -> Result<()> {
        self.numbers.expect_on(OP_PAGED, qkv.device())?;
        let heads = self.heads;
        let rows = self.sequences.iter().map(|sequence| sequence.rows).sum();
        check_rows(OP_PAGED, ("qkv", qkv), heads, [rows, heads.packed()])?;
        cache.expect(OP_PAGED, "cache", DType::F32)?;
        let held = match *cache.dims() {
            [held, width] if width == heads.kv_width() && self.page > 0 => held,
            _ => {
                return Err(Error::Shape {
                    op: OP_PAGED,
                    name: "cache",
                    found: cache.dims().to_vec(),
                    wanted: format!("[pages * {}, {}]", self.page, heads.kv_width()),
                });
            }
        };
        if let Some(keys) = self.first_keys
            && keys.len() != rows
        {
            let wanted = format!("{rows}, one per row");
            return refuse(OP_PAGED, "first_keys", keys.len().to_string(), wanted);
        }
        for sequence in self.sequences {
            let positions = sequence.position.saturating_add(sequence.rows);
            if sequence.pages.len() < positions.div_ceil(self.page) {
                let found = format!("{} pages", sequence.pages.len());
                let wanted = format!("{} for {positions} positions", positions.div_ceil(self.page));
                return refuse(OP_PAGED, "pages", found, wanted);
            }
            let limit = held / self.page;
            if let Some(page) = sequence.pages.iter().find(|&&page| page as usize >= limit) {
                return refuse(OP_PAGED, "pages", page.to_string(), format!("below {limit}"));
            }
        }
        Ok(())
    }
}
