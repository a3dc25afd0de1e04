//! Keep policy: which duplicate survives: the best source first (`priority`), then the first, the longest or the
//! best document.
//!
//! Every document gets a rank, a number; of a set the lowest rank stays, of equal ones the first document.
//! Documents of earlier crawls come before all others: they are not written again. Ranks are computed from the
//! signature files, eight bytes per document, and only if the order of documents does not decide alone. We differ
//! from programs that keep the first document, and from those that sort by one score: sources are compared before
//! scores.

use super::numbering::Numbering;
use super::priority::Priority;
use super::signature::{SignatureColumn, SignatureFile};
use crate::dedup::{DedupConfig, KeepPolicy};
use crate::error::Result;
use crate::write::word;

/// Higher scores come first; no number comes last.
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
    let priority = Priority::of(&config.priority);
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
}
