//! Exact substring deduplication: removes stretches of at least `min_bytes` bytes, or `min_words` words, that
//! occurred before in the corpus; the first copy is kept.
//!
//! Paper: Lee et al. 2022, arXiv:2107.06499, sec. 4.2; program: google-research/deduplicate-text-datasets 4e9888a.
//! Let n be `min_bytes`. A window is n bytes of one text, and a repeat if an equal window comes before it, by
//! shard, document and byte. Every byte of every repeat is cut, except partial characters at its ends: exactly the
//! bytes that a suffix array of the corpus would find, except for first copies.
//!
//! The paper's 50 tokens are 100 bytes in their program because it reads tokens of 2 bytes each. This crate has no
//! tokens: 50 tokens of GPT-2 are 220 bytes of English Wikipedia and 255 of speeches, 35 words of it and more, so
//! `min_bytes = 100`, which their program's users give for plain text, cuts much shorter stretches. `unit = "word"`
//! with `min_words = 50` requires 50 whole words, with any white space between them (`units.rs`).
//!
//! No suffix array is built. Each window has an anchor, the least hash among its parts (`anchors.rs`), so equal
//! windows have equal anchors at the same distance. Sorted by anchor, windows that could be equal are adjacent:
//! * anchors that occur once, most of them, are done;
//! * anchors whose windows all equal those of an earlier one are repeats as they are;
//! * of the rest, text around the anchor that differs, each window is hashed and sorted by itself in a second pass.
//!
//! Equal 128-bit hashes count as equal bytes. Disk: 40 bytes per anchor, of which there is one in n / 4 bytes of
//! text, and 32 per window in the second pass. We differ: their program removes first copies too; of a stretch that
//! overlaps its own first copy ("ababab...") only the beginning is kept; documents are separate, nothing is found
//! across their ends.

mod anchors;
mod units;

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};
use crate::corpus::{KeptDocuments, kept_documents};
use crate::dedup::passes::kept::{Cuts, DocumentRef, Passes, Piece, fill, number};
use crate::dedup::sort::Sorter;
use crate::error::{Result, damaged};
use crate::text::narrow;
use crate::write::word;
use anchors::Anchor;
use units::{Units, Words};

/// Unit of a stretch's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubstringUnit {
    /// Bytes of UTF-8.
    #[default]
    Byte,
    /// Words; the white space between them is not compared.
    Word,
}

/// Deduplication of stretches of bytes or words.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubstringConfig {
    /// Unit of a stretch's length.
    pub unit: SubstringUnit,
    /// `byte`: bytes of the shortest stretch. 50 tokens are about 220 of English.
    pub min_bytes: usize,
    /// `word`: words of the shortest stretch. 50 tokens are about 35 of English.
    pub min_words: usize,
    /// A document that loses a greater share of its bytes is dropped; one that loses all always is.
    pub max_removed_ratio: f64,
}

impl Default for SubstringConfig {
    fn default() -> Self {
        SubstringConfig {
            unit: SubstringUnit::Byte,
            min_bytes: 100,
            min_words: 50,
            max_removed_ratio: 1.0,
        }
    }
}

impl SubstringConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "min_bytes", self.min_bytes as f64, 32.0, 65536.0);
        range(problem, "min_words", self.min_words as f64, 8.0, 16384.0);
        range(
            problem,
            "max_removed_ratio",
            self.max_removed_ratio,
            0.0,
            1.0,
        );
    }

    /// Units of a window.
    fn window(&self) -> usize {
        match self.unit {
            SubstringUnit::Byte => self.min_bytes,
            SubstringUnit::Word => self.min_words,
        }
    }
}

/// Anchor (u64), its windows' text (u128), shard, document, first window, others << 8.
const ANCHOR: usize = 40;
/// A window (u128), shard, document, first and last byte of whole characters.
const WINDOW: usize = 32;
/// Shard, document, first window, others; the top bit for windows that all are repeats.
const GROUP: usize = 16;
const REPEATS: u32 = 1 << 31;

pub(super) fn run(config: &SubstringConfig, passes: &mut Passes<'_>) -> Result<()> {
    let (unit, n) = (config.unit, config.window());
    let mut anchors = passes.sorter::<ANCHOR>("anchors", 2);
    let mut cuts = passes.cuts(4);
    passes.each(
        |document| {
            let mut found = Vec::new();
            let words = (unit == SubstringUnit::Word).then(|| Words::of(&document.text));
            let units = Units::of(&document.text, words.as_ref());
            units.each_anchor(n, &mut |anchor: Anchor| {
                let end = anchor.last + narrow(n);
                let bytes = match unit {
                    SubstringUnit::Byte => units.bytes(anchor.first, end),
                    SubstringUnit::Word => (anchor.first, end),
                };
                found.push((anchor, units.hash(anchor.first, end), bytes));
            });
            (narrow(document.text.len()), found)
        },
        |place, (bytes, found)| {
            cuts.size(place, bytes);
            cuts.looked_at += found.len() as u64;
            for (anchor, windows, (start, end)) in &found {
                let mut record = [0; ANCHOR];
                record[..8].copy_from_slice(&anchor.key.to_be_bytes());
                record[8..24].copy_from_slice(&windows.to_be_bytes());
                // partial characters at the ends are below 4 bytes
                let others = (anchor.last - anchor.first) << 8;
                let edges = (start - anchor.first) << 4 | (anchor.last + narrow(n) - end);
                let numbers = [place.shard, place.document, anchor.first, others | edges];
                fill(&mut record, 24, &numbers);
                anchors.push(record)?;
            }
            Ok(())
        },
    )?;
    let groups = repeated_anchors(passes, anchors, config, &mut cuts)?;
    repeated_windows(passes, groups, config, &mut cuts)?;
    passes.write_cuts("substring", config.max_removed_ratio, cuts)
}

fn piece(start: u32, end: u32) -> Piece {
    Piece {
        start,
        content_end: end,
        end,
        before: 0,
    }
}

/// Cuts anchors that repeat an earlier one with all its windows; returns those whose windows have to be checked. Where
/// words are in a text is not known here, so of words the former are among the latter, marked.
fn repeated_anchors(
    passes: &Passes<'_>,
    anchors: Sorter<ANCHOR>,
    config: &SubstringConfig,
    cuts: &mut Cuts,
) -> Result<Sorter<GROUP>> {
    let n = config.window();
    let mut groups = passes.sorter::<GROUP>("anchor-groups", 4);
    // the last first one of its windows, and whether it has been passed on
    let mut last: Option<([u8; ANCHOR], bool)> = None;
    anchors.drain(&mut |record: &[u8; ANCHOR]| match &mut last {
        Some((first, _)) if first[..24] == record[..24] && config.unit == SubstringUnit::Word => {
            groups.push(group(record, REPEATS))
        }
        Some((first, _)) if first[..24] == record[..24] => {
            let packed = number(record, 36);
            let from = number(record, 32);
            let start = from + (packed >> 4 & 15);
            let end = from + (packed >> 8) + narrow(n) - (packed & 15);
            let place = DocumentRef {
                shard: number(record, 24),
                document: number(record, 28),
            };
            cuts.push(place, piece(start, end))
        }
        Some((first, is_told)) if first[..8] == record[..8] => {
            if !*is_told {
                groups.push(group(first, 0))?;
            }
            groups.push(group(record, 0))?;
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

fn group(record: &[u8; ANCHOR], mark: u32) -> [u8; GROUP] {
    let mut group = [0; GROUP];
    group[..12].copy_from_slice(&record[24..36]);
    fill(&mut group, 12, &[number(record, 36) >> 8 | mark]);
    group
}

/// Hashes each window of some anchors and cuts those that repeat an earlier one.
fn repeated_windows(
    passes: &Passes<'_>,
    groups: Sorter<GROUP>,
    config: &SubstringConfig,
    cuts: &mut Cuts,
) -> Result<()> {
    let n = narrow(config.window());
    let mut windows = passes.sorter::<WINDOW>("windows", 2);
    let mut texts = Texts::default();
    // the words of the last document
    let mut known: Option<(DocumentRef, Words)> = None;
    groups.drain(&mut |record: &[u8; GROUP]| {
        let place = DocumentRef {
            shard: number(record, 0),
            document: number(record, 4),
        };
        let text = texts.go_to(passes, place)?;
        let (first, others) = (number(record, 8), number(record, 12));
        if config.unit == SubstringUnit::Word && known.as_ref().is_none_or(|k| k.0 != place) {
            known = Some((place, Words::of(text)));
        }
        let units = Units::of(text, known.as_ref().map(|k| &k.1));
        if others & REPEATS != 0 {
            let (start, end) = units.bytes(first, first + (others & !REPEATS) + n);
            return cuts.push(place, piece(start, end));
        }
        for at in first..=first + others {
            let (start, end) = units.bytes(at, at + n);
            let mut record = [0; WINDOW];
            record[..16].copy_from_slice(&units.hash(at, at + n).to_be_bytes());
            fill(&mut record, 16, &[place.shard, place.document, start, end]);
            windows.push(record)?;
        }
        Ok(())
    })?;
    let mut first: Option<[u8; 16]> = None;
    windows.drain(&mut |record: &[u8; WINDOW]| {
        let key = word(record, 0);
        if first != Some(key) {
            first = Some(key);
            return Ok(());
        }
        let place = DocumentRef {
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
    fn go_to(&mut self, passes: &Passes<'_>, place: DocumentRef) -> Result<&str> {
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
