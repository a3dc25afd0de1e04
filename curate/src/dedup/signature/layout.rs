//! Layout of a signature file: positions of its columns.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Kind of the numbers in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SignatureShape {
    /// 0 without MinHash, 1 datatrove's hashes, 2 ours.
    pub family: u32,
    /// 0 words, 1 characters, 2 tokens.
    pub kind: u32,
    /// Words or characters per shingle.
    pub ngram: u32,
    /// Bands; 0 without MinHash.
    pub bands: u32,
    /// Hashes per band.
    pub rows: u32,
    /// Numbers per band in the file: one, or all its minima.
    pub width: u32,
    /// Seed of the permutations.
    pub seed: u32,
    /// Input of the exact hash: 0 the text, 1 its words in lower case.
    pub exact: u32,
}

impl SignatureShape {
    fn fields(self) -> [u32; 8] {
        [
            self.family,
            self.kind,
            self.ngram,
            self.bands,
            self.rows,
            self.width,
            self.seed,
            self.exact,
        ]
    }

    pub(crate) fn group(self) -> u64 {
        GROUP / u64::from(self.width.max(1)).next_power_of_two()
    }
}

/// Columns of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: SignatureShape,
    /// An index says where its documents were.
    pub(crate) is_index: bool,
}

/// Bytes per document of the columns in front of the bands.
const FIXED: [u64; 4] = [16, 8, 8, 4];

/// The same of where it was.
const PLACE: u64 = 12;

impl Layout {
    pub(crate) fn bands(self) -> usize {
        self.shape.bands as usize
    }

    pub(crate) fn columns(self) -> usize {
        FIXED.len() + self.bands() + usize::from(self.is_index)
    }

    /// Bytes per document of a column.
    pub(crate) fn bytes(self, column: usize) -> u64 {
        match FIXED.get(column) {
            Some(bytes) => *bytes,
            None if column < FIXED.len() + self.bands() => 8 * u64::from(self.shape.width),
            None => PLACE,
        }
    }

    /// Bytes per document of all columns in front of `column`.
    pub(crate) fn before(self, column: usize) -> u64 {
        (0..column).map(|c| self.bytes(c)).sum()
    }

    /// Bytes per document.
    pub(crate) fn row(self) -> u64 {
        self.before(self.columns())
    }

    /// The number of a column, unless the file has none such.
    pub(crate) fn index(self, column: SignatureColumn) -> Option<usize> {
        let index = match column {
            SignatureColumn::Exact => 0,
            SignatureColumn::Chars => 1,
            SignatureColumn::Source => 2,
            SignatureColumn::Quality => 3,
            SignatureColumn::Band(band) if (band as usize) < self.bands() => {
                FIXED.len() + band as usize
            }
            SignatureColumn::Place if self.is_index => FIXED.len() + self.bands(),
            _ => return None,
        };
        Some(index)
    }

    pub(crate) fn header(self, number: u32, run: u128) -> Vec<u8> {
        let mut header = if self.is_index { INDEX } else { MAGIC }.to_vec();
        for number in self.shape.fields() {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&number.to_le_bytes());
        header.extend_from_slice(&run.to_le_bytes());
        header.extend_from_slice(&self.shape.group().to_le_bytes());
        header
    }
}

pub(crate) const MAGIC: &[u8; 8] = b"MLRSIGN2";

pub(crate) const INDEX: &[u8; 8] = b"MLRINDX1";

pub(crate) const HEADER: usize = 68;

pub(crate) const TRAILER: usize = 40;

/// Documents per group with one number a band: 9 MB with FineWeb's 14 bands.
pub(super) const GROUP: u64 = 1 << 16;

/// In place of a band's numbers: the text had too few words. No minimum and no hash of a band is this.
pub(crate) const NO_SIGNATURE: u64 = u64::MAX;

/// A column of a `.sig` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureColumn {
    /// XXH3-128 of the texts, 16 bytes each.
    Exact,
    /// Characters of the texts, 8 bytes each.
    Chars,
    /// Hashes of the names of source and subset, 4 bytes each.
    Source,
    /// Qualities, 4 bytes each.
    Quality,
    /// A band's numbers, 8 bytes each.
    Band(u32),
    /// In an index: crawl, shard and document, 4 bytes each.
    Place,
}

/// One document's entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signature {
    /// XXH3-128 of the text.
    pub(crate) exact: u128,
    /// Characters of the text.
    pub(crate) chars: u64,
    /// Names of source and subset, see [`source`].
    pub(crate) source: u64,
    /// `meta.quality`, not a number if there is none.
    pub(crate) quality: f32,
    /// The bands' numbers; empty if the text has too few words.
    pub(crate) keys: Vec<u64>,
}

/// Encoded source of a document: the hash of its name in the lower half; that of the subset's name, or zero, in the
/// upper half.
pub(crate) fn source(name: &str, subset: Option<&str>) -> u64 {
    let low = |name: &str| xxh3_64(name.as_bytes()) & 0xffff_ffff;
    low(name) | subset.map_or(0, low) << 32
}

/// The shard and run that a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) shard: u32,
    pub(crate) run: u128,
}
