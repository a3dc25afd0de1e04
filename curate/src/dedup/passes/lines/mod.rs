//! Line or paragraph deduplication: the first copy of each in the corpus is kept, wherever it is.
//!
//! Paper: Wenzek et al. 2019, arXiv:1911.00359 (CCNet), sec. 3.1; program: facebookresearch/cc_net bda555b,
//! `dedup.py`. A line is normalised (see `normalize.rs`), hashed, and sorted with its place (shard, document,
//! line); of equal hashes the first stays. With `hash = "sha1"` and `min_chars = 0` the texts are those of CCNet's
//! `DuplicatesRemover` over all files in order. We differ: by default XXH3-128 replaces 64 bits of SHA-1 (ten
//! billion lines collide with a chance of 1.5 in 10^19, SHA-1's 64 bits expect 2.7 collisions); blank lines are
//! kept; CCNet forgets lines between groups of shards, we never do; a document with only blank lines left is
//! removed.
//!
//! First copies in a removed document are lost with it. Disk: 40 bytes per line while sorting.

mod normalize;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use xxhash_rust::xxh3::xxh3_128;

use crate::check::{Problem, range};
use crate::dedup::passes::kept::{Cuts, DocumentRef, Passes, Piece, fill, number};
use crate::error::Result;
use crate::text::{chars, narrow, unicode};

pub(crate) use normalize::normalize;

/// Unit of comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineUnit {
    /// Text between line feeds; CCNet's paragraphs.
    #[default]
    Line,
    /// Text between blank lines.
    Paragraph,
}

/// Hash function of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineHash {
    /// 128 bits of XXH3.
    #[default]
    Xxh3,
    /// The first 64 bits of SHA-1, as CCNet.
    Sha1,
}

/// Copies to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKeep {
    /// The first, by shard, document and line.
    #[default]
    First,
    /// No copy of a line that several documents have: CCNet's two passes. A line repeated within one document is
    /// kept once.
    None,
}

/// Deduplication of lines or paragraphs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinesConfig {
    /// Unit of comparison.
    pub unit: LineUnit,
    /// Hash function.
    pub hash: LineHash,
    /// Copies to keep.
    pub keep: LineKeep,
    /// CCNet's normalisation before the hash: case, digits, some punctuation.
    pub normalize: bool,
    /// Lines with fewer characters, normalised, are exempt. CCNet: 0, which also removes blank lines.
    pub min_chars: usize,
    /// A document that loses a greater share of its lines' bytes is dropped; one that loses all always is.
    pub max_removed_ratio: f64,
}

impl Default for LinesConfig {
    fn default() -> Self {
        LinesConfig {
            unit: LineUnit::Line,
            hash: LineHash::Xxh3,
            keep: LineKeep::First,
            normalize: true,
            min_chars: 1,
            max_removed_ratio: 1.0,
        }
    }
}

impl LinesConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(
            problem,
            "max_removed_ratio",
            self.max_removed_ratio,
            0.0,
            1.0,
        );
    }

    /// The hash of a line; None if it is exempt.
    pub(crate) fn key(&self, line: &str, buffer: &mut String) -> Option<[u8; 16]> {
        buffer.clear();
        if self.normalize {
            normalize(line, buffer);
        } else {
            buffer.push_str(unicode::strip(line));
        }
        if self.min_chars > 0 && chars(buffer) < self.min_chars {
            return None;
        }
        Some(match self.hash {
            LineHash::Xxh3 => xxh3_128(buffer.as_bytes()).to_be_bytes(),
            LineHash::Sha1 => {
                let mut key = [0; 16];
                key[..8].copy_from_slice(&Sha1::digest(buffer.as_bytes())[..8]);
                key
            }
        })
    }
}

/// Key, shard, document, and the piece's four numbers.
const RECORD: usize = 40;

/// A document's lines with their hashes, and the bytes of all of them.
struct Hashed {
    lines: Vec<([u8; 16], Piece)>,
    bytes: u32,
}

pub(super) fn run(config: &LinesConfig, passes: &mut Passes<'_>) -> Result<()> {
    let mut sorter = passes.sorter::<RECORD>("lines", 2);
    let mut cuts = passes.cuts(2);
    passes.each(
        |document| hash(config, &document.text),
        |place, hashed: Hashed| {
            cuts.size(place, hashed.bytes);
            cuts.looked_at += hashed.lines.len() as u64;
            hashed
                .lines
                .iter()
                .try_for_each(|(key, piece)| sorter.push(record(key, place, *piece)))
        },
    )?;
    let mut repeats = Repeats {
        keep: config.keep,
        first: None,
        cuts,
    };
    sorter.drain(&mut |r: &[u8; RECORD]| repeats.take(r))?;
    passes.write_cuts("lines", config.max_removed_ratio, repeats.cuts)
}

fn hash(config: &LinesConfig, text: &str) -> Hashed {
    let mut hashed = Hashed {
        lines: Vec::new(),
        bytes: 0,
    };
    let mut buffer = String::new();
    each_piece(text, config.unit, |piece| {
        hashed.bytes += piece.content_end - piece.start;
        let content = &text[piece.start as usize..piece.content_end as usize];
        if let Some(key) = config.key(content, &mut buffer) {
            hashed.lines.push((key, piece));
        }
    });
    hashed
}

/// Calls `each` for every line or paragraph.
fn each_piece(text: &str, unit: LineUnit, mut each: impl FnMut(Piece)) {
    let least = match unit {
        LineUnit::Line => 1,
        LineUnit::Paragraph => 2,
    };
    let bytes = text.as_bytes();
    let (mut start, mut before) = (0, 0);
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'\n', &bytes[from..]) {
        let content_end = from + at;
        let rest = &bytes[content_end..];
        // a line ends with one line feed, a paragraph with all that follow each other
        let feeds = match unit {
            LineUnit::Line => 1,
            LineUnit::Paragraph => rest.iter().take_while(|b| **b == b'\n').count(),
        };
        from = content_end + feeds;
        if feeds < least {
            continue;
        }
        each(Piece {
            start: narrow(start),
            content_end: narrow(content_end),
            end: narrow(from),
            before: narrow(before),
        });
        (start, before) = (from, feeds);
    }
    each(Piece {
        start: narrow(start),
        content_end: narrow(text.len()),
        end: narrow(text.len()),
        before: narrow(before),
    });
}

fn record(key: &[u8; 16], place: DocumentRef, piece: Piece) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..16].copy_from_slice(key);
    fill(&mut record, 16, &piece.numbers(place));
    record
}

/// Distinguishes repeats from first copies in sorted records.
struct Repeats {
    keep: LineKeep,
    /// The first of the current hash, and whether it has been cut.
    first: Option<([u8; RECORD], bool)>,
    cuts: Cuts,
}

impl Repeats {
    fn take(&mut self, record: &[u8; RECORD]) -> Result<()> {
        let mut also = None;
        match &mut self.first {
            Some((first, is_cut)) if first[..16] == record[..16] => {
                let is_elsewhere = first[16..24] != record[16..24];
                if self.keep == LineKeep::None && is_elsewhere && !*is_cut {
                    *is_cut = true;
                    also = Some(*first);
                }
            }
            _ => {
                self.first = Some((*record, false));
                return Ok(());
            }
        }
        if let Some(first) = also {
            self.cut(&first)?;
        }
        self.cut(record)
    }

    fn cut(&mut self, record: &[u8; RECORD]) -> Result<()> {
        let place = DocumentRef {
            shard: number(record, 16),
            document: number(record, 20),
        };
        let piece = Piece {
            start: number(record, 24),
            content_end: number(record, 28),
            end: number(record, 32),
            before: number(record, 36),
        };
        self.cuts.push(place, piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, unit: LineUnit) -> Vec<(&str, u32, u32)> {
        let mut found = Vec::new();
        each_piece(text, unit, |p| {
            let content = &text[p.start as usize..p.content_end as usize];
            found.push((content, p.end - p.content_end, p.before));
        });
        found
    }

    #[test]
    fn pieces_and_separators_are_the_whole_text() {
        let text = "a\n\nb\nc\n\n\nd";
        let lines = ["a", "", "b", "c", "", "", "d"];
        let found = pieces(text, LineUnit::Line);
        assert_eq!(found.iter().map(|p| p.0).collect::<Vec<_>>(), lines);
        assert_eq!(
            pieces(text, LineUnit::Paragraph),
            [("a", 2, 0), ("b\nc", 3, 2), ("d", 0, 3)]
        );
        assert_eq!(pieces("x\n", LineUnit::Line), [("x", 1, 0), ("", 0, 1)]);
        assert_eq!(pieces("x\n", LineUnit::Paragraph), [("x\n", 0, 0)]);
        assert_eq!(pieces("", LineUnit::Line), [("", 0, 0)]);
    }

    #[test]
    fn short_lines_are_left_alone() {
        let config = LinesConfig {
            min_chars: 3,
            ..LinesConfig::default()
        };
        let mut buffer = String::new();
        assert!(config.key(" ab ", &mut buffer).is_none());
        let (one, other) = ("ABC 12", "abc 34");
        let key = config.key(one, &mut buffer);
        assert!(key.is_some());
        assert_eq!(config.key(other, &mut buffer), key);
        let exact = LinesConfig {
            normalize: false,
            ..config
        };
        assert_ne!(exact.key(one, &mut buffer), exact.key(other, &mut buffer));
    }
}
