//! Adjusted counts of all lengths and the discounts that follow from them.
//!
//! The adjusted count of an n-gram that is not among the longest and does not begin with `<s>` is the number of
//! different words before it. Discounts: Chen and Goodman 1998 (TR-10-98), equation 26, D_k = k - (k + 1) Y t_(k+1)
//! / t_k with Y = t_1 / (t_1 + 2 t_2), t_k being the n-grams of adjusted count k. Pruning uses the counts before
//! adjustment. One pass over the longest n-grams in the order of suffixes, in which all n-grams with a suffix are
//! adjacent.
//!
//! As in lmplz, the last n-gram of every length enters the statistics with its own count, not with the adjusted one.

use std::path::Path;

use super::count::{BEGIN, UNKNOWN};
use super::sort::{Gram, MOST, Merge, Sorter};
use crate::error::{Error, Result};

/// Set in the count of an n-gram that is pruned.
const PRUNED: u64 = 1 << 63;
/// Discounts of lmplz's `--discount-fallback`.
const FALLBACK: [f64; 4] = [0.0, 0.5, 1.0, 1.5];

pub(super) fn is_pruned(value: u64) -> bool {
    value & PRUNED != 0
}

pub(super) fn count_of(value: u64) -> u64 {
    value & !PRUNED
}

/// Statistics of one length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Statistics {
    /// N-grams with a count of 0, 1, 2, 3, 4.
    with: [u64; 5],
    pub(super) all: u64,
    pub(super) kept: u64,
}

impl Statistics {
    fn add(&mut self, count: u64, pruned: bool) {
        self.all += 1;
        self.kept += u64::from(!pruned);
        let place = usize::try_from(count).unwrap_or(usize::MAX);
        if let Some(with) = self.with.get_mut(place) {
            *with += 1;
        }
    }

    /// Discounts for counts of 1, 2, and 3 or more, and whether the fallback was used.
    pub(super) fn discounts(&self, order: usize, fallback: bool) -> Result<([f64; 4], bool)> {
        let t = self.with.map(|n| n as f64);
        let y = t[1] / (t[1] + 2.0 * t[2]);
        let discount = |k: usize| k as f64 - (k + 1) as f64 * y * t[k + 1] / t[k];
        let found = [0.0, discount(1), discount(2), discount(3)];
        let fits = |k: usize| self.with[k] > 0 && (0.0..=k as f64).contains(&found[k]);
        if (1..4).all(fits) {
            return Ok((found, false));
        }
        if fallback {
            return Ok((FALLBACK, true));
        }
        Err(Error::Config {
            key: "discount_fallback".into(),
            found: format!(
                "{order}-grams of which {} have an adjusted count of 1, {} of 2, {} of 3, {} of 4",
                self.with[1], self.with[2], self.with[3], self.with[4]
            ),
            wanted: "counts that give Kneser-Ney discounts: more text, fewer repetitions, or the fallback allowed"
                .into(),
        })
    }
}

/// N-grams by length.
pub(super) struct Adjusted {
    /// By number; values are adjusted counts.
    pub(super) unigrams: Vec<Gram>,
    /// N-grams of 2 words and more, in the order of contexts: all words but the last, from right to left, then the
    /// last.
    pub(super) longer: Vec<Merge>,
    pub(super) statistics: Vec<Statistics>,
}

/// The n-grams, shorter than the longest, that are suffixes of the current one.
struct Chain {
    key: [u32; MOST],
    depth: usize,
    adjusted: [u64; MOST],
    actual: [u64; MOST],
}

struct Out<'a> {
    prune: &'a [u64],
    unigrams: Vec<Gram>,
    sorters: Vec<Sorter>,
    statistics: Vec<Statistics>,
}

impl Out<'_> {
    /// `words` words of a key, the last word of the n-gram first.
    fn emit(&mut self, key: &[u32; MOST], words: usize, count: u64, pruned: bool) -> Result<()> {
        let value = if pruned { count | PRUNED } else { count };
        let mut gram = Gram {
            key: [0; MOST],
            value,
        };
        if words == 1 {
            gram.key[0] = key[0];
            self.unigrams.push(gram);
            return Ok(());
        }
        gram.key[..words - 1].copy_from_slice(&key[1..words]);
        gram.key[words - 1] = key[0];
        self.sorters[words - 2].push(gram)
    }

    fn close(&mut self, chain: &Chain, words: usize, is_end: bool) -> Result<()> {
        let (adjusted, actual) = (chain.adjusted[words - 1], chain.actual[words - 1]);
        let pruned = actual <= self.prune[words - 1];
        let counted = if is_end { actual } else { adjusted };
        self.statistics[words - 1].add(counted, pruned);
        self.emit(&chain.key, words, adjusted, pruned)
    }
}

/// `full` are the longest n-grams in the order of suffixes, `prune` the greatest counts to be left out, by length.
pub(super) fn adjust(folder: &Path, full: Merge, prune: &[u64], bytes: usize) -> Result<Adjusted> {
    let order = prune.len();
    let sorters = (2..=order).map(|n| Sorter::new(folder, n, false, bytes / order));
    let mut out = Out {
        prune,
        unigrams: Vec::new(),
        sorters: sorters.collect(),
        statistics: vec![Statistics::default(); order],
    };
    for mark in [UNKNOWN, BEGIN] {
        let mut key = [0; MOST];
        key[0] = mark;
        out.statistics[0].add(0, false);
        out.emit(&key, 1, 0, false)?;
    }
    let mut chain = Chain {
        key: [0; MOST],
        depth: 0,
        adjusted: [0; MOST],
        actual: [0; MOST],
    };
    for gram in full {
        let Gram { key, value: count } = gram?;
        let equal = chain.key.iter().zip(&key);
        let same = equal.take(chain.depth).take_while(|(a, b)| a == b).count();
        for words in (same + 1..=chain.depth).rev() {
            out.close(&chain, words, false)?;
        }
        chain.actual[..same].iter_mut().for_each(|n| *n += count);
        if same > 0 {
            chain.adjusted[same - 1] += 1;
        }
        chain.key = key;
        chain.depth = order - 1;
        let mut is_full = true;
        for (place, word) in key.iter().enumerate().take(order - 1).skip(same) {
            let begins = *word == BEGIN;
            chain.adjusted[place] = if begins { count } else { 1 };
            chain.actual[place] = count;
            if begins {
                (chain.depth, is_full) = (place + 1, false);
                break;
            }
        }
        if is_full {
            let pruned = count <= prune[order - 1];
            out.statistics[order - 1].add(count, pruned);
            out.emit(&key, order, count, pruned)?;
        }
    }
    for words in 1..=chain.depth {
        out.close(&chain, words, true)?;
    }
    let longer = out.sorters.into_iter().map(Sorter::finish);
    Ok(Adjusted {
        longer: longer.collect::<Result<_>>()?,
        unigrams: out.unigrams,
        statistics: out.statistics,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discounts_are_equation_26() {
        let statistics = Statistics {
            with: [0, 100, 40, 20, 10],
            all: 170,
            kept: 170,
        };
        // by hand: Y = 100 / 180
        let y = 100.0 / 180.0;
        let wanted = [
            0.0,
            1.0 - 2.0 * y * 0.4,
            2.0 - 3.0 * y * 0.5,
            3.0 - 4.0 * y * 0.5,
        ];
        let (found, fell) = statistics.discounts(2, false).unwrap();
        assert!(!fell);
        for (a, b) in found.iter().zip(wanted) {
            assert!((a - b).abs() < 1e-15, "{a} {b}");
        }
        let none = Statistics::default();
        assert_eq!(none.discounts(3, true).unwrap(), (FALLBACK, true));
        let message = none.discounts(3, false).unwrap_err().to_string();
        assert!(
            message.starts_with("discount_fallback: found 3-grams of which 0"),
            "{message}"
        );
    }
}
