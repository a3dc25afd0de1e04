//! Stretches of at least `min_bytes` bytes that the corpus has had before: the first copy stays.
//!
//! Paper: Lee et al. 2022, arXiv:2107.06499, sec. 4.2 (50 tokens; their program, google-research/deduplicate-text-datasets
//! 4e9888a, counts 100 bytes). Let n be `min_bytes`. A window is n bytes of one text, and a repeat if an equal window comes
//! before it, by shard, document and byte. What is cut is every byte of every repeat, less the parts of characters at its ends:
//! exactly the bytes that a suffix array of the corpus would show, those of first copies aside.
//!
//! No suffix array is built. Each window names an anchor, the least hash among its parts (`anchors.rs`), so equal
//! windows have equal anchors at the same distance. Sorted by anchor, windows that could be equal lie together:
//! * anchors that nobody else has, most of them, are done;
//! * anchors whose windows all are those of an earlier one are repeats as they stand;
//! * of the rest, text around the anchor that differs, each window is hashed and sorted by itself in a second pass.
//!
//! Equal 128-bit hashes count as equal bytes. Disk: 40 bytes an anchor, of which there is one in n / 4 bytes of text, and 32 a
//! window in the second pass. We differ: their program removes first copies too; a stretch that overlaps its own first
//! copy ("ababab...") keeps the beginning alone; documents are apart, nothing is found across their ends.

mod anchors;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::passes::{Cuts, Passes, Piece, Place, fill, number};
use super::sort::Sorter;
use crate::config::{Problem, range};
use crate::document::{KeptDocuments, kept_documents};
use crate::error::{Result, damaged};
use crate::text::narrow;
use anchors::{Anchor, each_anchor};

/// Deduplication of stretches of bytes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubstringConfig {
    /// Bytes of the shortest stretch. Lee et al.: 100.
    pub min_bytes: usize,
    /// A document that loses a greater share of its bytes is dropped; one that loses all always is.
    pub max_removed_ratio: f64,
}

impl Default for SubstringConfig {
    fn default() -> Self {
        SubstringConfig {
            min_bytes: 100,
            max_removed_ratio: 1.0,
        }
    }
}

impl SubstringConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "min_bytes", self.min_bytes as f64, 32.0, 65536.0);
        range(
            problem,
            "max_removed_ratio",
            self.max_removed_ratio,
            0.0,
            1.0,
        );
    }
}

/// Anchor (u64), its windows' text (u128), shard, document, first window, others << 8.
const ANCHOR: usize = 40;
/// A window (u128), shard, document, first and last byte of whole characters.
const WINDOW: usize = 32;
/// Shard, document, first window, others.
const GROUP: usize = 16;

pub(super) fn run(config: &SubstringConfig, passes: &mut Passes<'_>) -> Result<()> {
    let n = config.min_bytes;
    let mut anchors = passes.sorter::<ANCHOR>("anchors", 2);
    let mut cuts = passes.cuts(4);
    passes.each(
        |document| {
            let mut found = Vec::new();
            let text = document.text.as_bytes();
            each_anchor(text, n, &mut |anchor: Anchor| {
                let windows = &text[anchor.first as usize..anchor.last as usize + n];
                found.push((anchor, xxh3_128(windows), whole(&document.text, &anchor, n)));
            });
            (narrow(text.len()), found)
        },
        |place, (bytes, found)| {
            cuts.size(place, bytes);
            cuts.looked_at += found.len() as u64;
            for (anchor, windows, (start, end)) in &found {
                let mut record = [0; ANCHOR];
                record[..8].copy_from_slice(&anchor.key.to_be_bytes());
                record[8..24].copy_from_slice(&windows.to_be_bytes());
                // what the characters at the ends take away is below 4 bytes
                let others = (anchor.last - anchor.first) << 8;
                let edges = (start - anchor.first) << 4 | (anchor.last + narrow(n) - end);
                let numbers = [place.shard, place.document, anchor.first, others | edges];
                fill(&mut record, 24, &numbers);
                anchors.push(record)?;
            }
            Ok(())
        },
    )?;
    let groups = repeated_anchors(passes, anchors, n, &mut cuts)?;
    repeated_windows(passes, groups, n, &mut cuts)?;
    passes.write_cuts("substring", config.max_removed_ratio, cuts)
}

/// The bytes of an anchor's windows, without parts of characters.
fn whole(text: &str, anchor: &Anchor, n: usize) -> (u32, u32) {
    let (first, last) = (anchor.first as usize, anchor.last as usize + n);
    let start = (first..last).find(|i| text.is_char_boundary(*i));
    let end = (first..=last).rev().find(|i| text.is_char_boundary(*i));
    (narrow(start.unwrap_or(last)), narrow(end.unwrap_or(first)))
}

fn piece(start: u32, end: u32) -> Piece {
    Piece {
        start,
        content_end: end,
        end,
        before: 0,
    }
}

/// Cuts anchors that repeat an earlier one with all its windows; returns those whose windows have to be looked at.
fn repeated_anchors(
    passes: &Passes<'_>,
    anchors: Sorter<ANCHOR>,
    n: usize,
    cuts: &mut Cuts,
) -> Result<Sorter<GROUP>> {
    let mut groups = passes.sorter::<GROUP>("anchor-groups", 4);
    // the last first one of its windows, and whether it has been handed on
    let mut last: Option<([u8; ANCHOR], bool)> = None;
    anchors.drain(&mut |record: &[u8; ANCHOR]| match &mut last {
        Some((first, _)) if first[..24] == record[..24] => {
            let packed = number(record, 36);
            let from = number(record, 32);
            let start = from + (packed >> 4 & 15);
            let end = from + (packed >> 8) + narrow(n) - (packed & 15);
            let place = Place {
                shard: number(record, 24),
                document: number(record, 28),
            };
            cuts.push(place, piece(start, end))
        }
        Some((first, is_told)) if first[..8] == record[..8] => {
            if !*is_told {
                groups.push(group(first))?;
            }
            groups.push(group(record))?;
            last = Some((*record, true));
            Ok(())
        }
        _ => {
            last = Some((*record, false));
            Ok(())
        }
    })?;
    Ok(groups)
}

fn group(record: &[u8; ANCHOR]) -> [u8; GROUP] {
    let mut group = [0; GROUP];
    group[..12].copy_from_slice(&record[24..36]);
    fill(&mut group, 12, &[number(record, 36) >> 8]);
    group
}

/// Hashes each window of some anchors and cuts those that repeat an earlier one.
fn repeated_windows(
    passes: &Passes<'_>,
    groups: Sorter<GROUP>,
    n: usize,
    cuts: &mut Cuts,
) -> Result<()> {
    let mut windows = passes.sorter::<WINDOW>("windows", 2);
    let mut texts = Texts::default();
    groups.drain(&mut |record: &[u8; GROUP]| {
        let place = Place {
            shard: number(record, 0),
            document: number(record, 4),
        };
        let text = texts.go_to(passes, place)?;
        let (first, others) = (number(record, 8), number(record, 12));
        for at in first..=first + others {
            let anchor = Anchor {
                key: 0,
                first: at,
                last: at,
            };
            let (start, end) = whole(text, &anchor, n);
            let window = &text.as_bytes()[at as usize..at as usize + n];
            let mut record = [0; WINDOW];
            record[..16].copy_from_slice(&xxh3_128(window).to_be_bytes());
            fill(&mut record, 16, &[place.shard, place.document, start, end]);
            windows.push(record)?;
        }
        Ok(())
    })?;
    let mut first: Option<[u8; 16]> = None;
    windows.drain(&mut |record: &[u8; WINDOW]| {
        let key = super::signature::word(record, 0);
        if first != Some(key) {
            first = Some(key);
            return Ok(());
        }
        let place = Place {
            shard: number(record, 16),
            document: number(record, 20),
        };
        cuts.push(place, piece(number(record, 24), number(record, 28)))
    })
}

/// Goes through kept texts to places in order.
#[derive(Default)]
struct Texts {
    open: Option<(u32, KeptDocuments)>,
    /// Number of the document whose text this is.
    at: Option<u32>,
    text: String,
}

impl Texts {
    fn go_to(&mut self, passes: &Passes<'_>, place: Place) -> Result<&str> {
        let shard = place.shard as usize;
        let same = self.open.take().filter(|(s, _)| *s == place.shard);
        if same.is_none() {
            self.at = None;
        }
        let mut documents = match same {
            Some((_, documents)) => documents,
            None => kept_documents(passes.out(), shard)?,
        };
        while self.at != Some(place.document) {
            let Some(document) = documents.next() else {
                let path = passes.out().join("clean");
                let found = format!("the end of shard {shard}");
                let wanted = format!("document {}, which was there before", place.document);
                return Err(damaged(&path, 0, found, wanted));
            };
            self.text = document?.text;
            self.at = Some(narrow(documents.number()));
        }
        self.open = Some((place.shard, documents));
        Ok(&self.text)
    }
}
