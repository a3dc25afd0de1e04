//! Who survives of duplicates: the best source first (`priority`), then the first, the longest or the best document.
//!
//! Every document gets a rank, a number; of a set the lowest rank stays, of equal ones the first document. Documents of
//! earlier crawls come before all others: they are not written again. Ranks are made of what the signature files say, in
//! eight bytes a document, and only if the order of documents does not decide alone. We differ from programs that keep
//! whatever comes first, and from those that sort by one score: sources are compared before figures.

use super::numbering::Numbering;
use super::signature::{self, SignatureColumn, SignatureFile, word};
use crate::config::{DedupConfig, KeepPolicy};
use crate::error::Result;
use crate::text::narrow;

/// A named source and subset; no subset: any.
struct Name {
    source: u32,
    subset: Option<u32>,
}

/// Lower and upper half.
fn halves(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

impl Name {
    fn of(name: &str) -> Name {
        let (source, subset) = match name.split_once('/') {
            Some((source, subset)) => (source, Some(subset)),
            None => (name, None),
        };
        let (low, high) = halves(signature::source(source, subset));
        Name {
            source: low,
            subset: subset.map(|_| high),
        }
    }

    fn is(&self, source: u64) -> bool {
        let (low, high) = halves(source);
        self.source == low && self.subset.is_none_or(|subset| subset == high)
    }
}

/// The sources in the order in which their documents are kept.
pub(super) struct Priority(Vec<Name>);

impl Priority {
    pub(super) fn of(config: &DedupConfig) -> Priority {
        Priority(config.priority.iter().map(|n| Name::of(n)).collect())
    }

    /// The place of a source from 1 on; behind all for one that is not named.
    pub(super) fn place(&self, source: u64) -> u32 {
        let found = self.0.iter().position(|name| name.is(source));
        1 + narrow(found.unwrap_or(self.0.len()))
    }
}

/// More figures come first; no number comes last.
fn quality(bytes: [u8; 4]) -> u32 {
    let quality = f32::from_le_bytes(bytes);
    if quality.is_nan() {
        return u32::MAX;
    }
    // Floats sort as their bits do once those of negative ones are turned over; -0 is 0.
    let bits = (quality + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    u32::MAX - 1 - ascending.min(u32::MAX - 1)
}

/// The rank of every document, or none if the first one is always the one to keep.
pub(super) fn ranks(
    config: &DedupConfig,
    files: &[SignatureFile],
    numbering: &Numbering,
) -> Result<Option<Vec<u64>>> {
    let by_figure = matches!(config.keep, KeepPolicy::Longest | KeepPolicy::Quality);
    if !by_figure && config.priority.is_empty() {
        return Ok(None);
    }
    let priority = Priority::of(config);
    let place = |source| u64::from(priority.place(source));
    let mut ranks = vec![0; usize::try_from(numbering.earlier).unwrap_or(usize::MAX)];
    for file in &files[numbering.indexes..] {
        for group in 0..file.groups() {
            let start = ranks.len();
            let sources = file.column(SignatureColumn::Source, group)?;
            let sources = sources.as_chunks::<8>().0.iter();
            ranks.extend(sources.map(|s| place(u64::from_le_bytes(*s)) << 32));
            let own = &mut ranks[start..];
            if config.keep == KeepPolicy::Longest {
                let chars = file.column(SignatureColumn::Chars, group)?;
                for (i, rank) in own.iter_mut().enumerate() {
                    let chars = u64::from_le_bytes(word(&chars, 8 * i));
                    *rank |= u64::from(u32::MAX) - chars.min(u64::from(u32::MAX));
                }
            } else if config.keep == KeepPolicy::Quality {
                let qualities = file.column(SignatureColumn::Quality, group)?;
                for (i, rank) in own.iter_mut().enumerate() {
                    *rank |= u64::from(quality(word(&qualities, 4 * i)));
                }
            }
        }
    }
    Ok(Some(ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualities_sort_from_the_best_to_none_at_all() {
        let falling = [f32::INFINITY, 3.5, 1.0, 0.25, 1e-30, 0.0, -1e-30, -2.0];
        let rank = |q: f32| quality(q.to_le_bytes());
        assert!(falling.windows(2).all(|w| rank(w[0]) < rank(w[1])));
        assert_eq!(rank(0.0), rank(-0.0));
        assert!(rank(f32::NEG_INFINITY) < rank(f32::NAN));
    }

    #[test]
    fn a_name_without_a_subset_is_every_subset() {
        let books = signature::source("pile", Some("Books3"));
        let plain = signature::source("pile", None);
        assert!(Name::of("pile").is(books) && Name::of("pile").is(plain));
        assert!(Name::of("pile/Books3").is(books) && !Name::of("pile/Books3").is(plain));
        assert!(!Name::of("pile/ArXiv").is(books) && !Name::of("crawl").is(plain));
    }
}
