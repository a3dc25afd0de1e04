//! Keys and values of a kv head, where the products of its query heads read them: in copies (`Operand`), or in the pages
//! of a cache.

use super::operand::Operand;
use crate::cpu::Isa;
use crate::cpu::simd::{Kernel, LANES, Lanes, run};
use crate::ops::attention::pages::PagedRows;
use std::ops::Range;

/// Factors of a product from some key on, and their strides.
pub(super) type Factors<'a> = (&'a [f32], (usize, usize));

#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Copied {
        k: &'a Operand,
        v: &'a Operand,
        /// Position of the first key.
        first: usize,
    },
    /// Of f32 products, which need no words of pairs.
    Pages(Pages<'a>),
}

/// Keys and values of one kv head in the pages of its sequence.
#[derive(Clone, Copy)]
pub(super) struct Pages<'a> {
    pub(super) cache: &'a [f32],
    /// Floats of a row of the cache.
    pub(super) row: usize,
    /// Where the head's key starts in a row; its value follows.
    pub(super) column: usize,
    pub(super) width: usize,
    pub(super) sequence: &'a PagedRows<'a>,
    /// Tokens of a page.
    pub(super) page: usize,
}

impl<'a> Source<'a> {
    /// Splits keys into runs that a product can read with one stride.
    pub(super) fn runs(self, keys: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let mut next = keys.start;
        std::iter::from_fn(move || {
            let run = next..self.run_end(next, keys.end);
            next = run.end;
            (!run.is_empty()).then_some(run)
        })
    }

    /// Prefetches these keys and their values, if they are in pages: a row of the cache has all kv heads, so that a head's
    /// lines are too far apart for the processor to see a stream in them.
    pub(super) fn prefetch(self, isa: Isa, keys: Range<usize>) {
        if let Source::Pages(pages) = self {
            run::<PrefetchKeys, _>(isa, (pages, keys));
        }
    }

    /// End of the run from `key` on, at most `end`.
    fn run_end(self, key: usize, end: usize) -> usize {
        match self {
            Source::Copied { .. } => end,
            Source::Pages(of) => {
                let number = |key: usize| of.sequence.pages[key / of.page] as usize;
                let mut run_end = (key / of.page + 1) * of.page;
                // pages that follow each other in the cache are one run
                while run_end < end && number(run_end) == number(run_end - 1) + 1 {
                    run_end += of.page;
                }
                run_end.min(end)
            }
        }
    }

    /// Factors (key, step of width) of a run of keys that starts at `key`.
    pub(super) fn keys(self, key: usize) -> Factors<'a> {
        match self {
            Source::Copied { k, first, .. } => k.by_rows(key - first),
            Source::Pages(of) => (of.from(key, 0), (of.row, 1)),
        }
    }

    /// Factors (number of width, step of keys) of the values of a run of keys that starts at `key`.
    pub(super) fn values(self, key: usize) -> Factors<'a> {
        match self {
            Source::Copied { v, first, .. } => v.by_columns(key - first),
            Source::Pages(of) => (of.from(key, of.width), (1, of.row)),
        }
    }
}

struct PrefetchKeys;

impl Kernel<(Pages<'_>, Range<usize>)> for PrefetchKeys {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>((pages, keys): (Pages<'_>, Range<usize>)) {
        for key in keys {
            let both = pages.from(key, 0);
            for line in both[..2 * pages.width].chunks(LANES) {
                L::prefetch_to_l2(line.as_ptr());
            }
        }
    }
}

impl<'a> Pages<'a> {
    fn from(self, key: usize, after: usize) -> &'a [f32] {
        let slot = self.sequence.slot(key, self.page);
        &self.cache[slot * self.row + self.column + after..]
    }
}
