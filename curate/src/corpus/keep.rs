//! `.keep` files: whether each document of a shard survives deduplication, and which one it duplicates.
//!
//! All numbers little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `MLRKEEP2` |
//! | 8..16 | number of documents n |
//! | n bytes | 0 kept, 1 exact duplicate, 2 near duplicate, 3 same address, 4 too much of it was cut, 5 repeats an earlier crawl, 6 evaluation texts and little else, 7 similar embedding |
//! | 8 n bytes | kept: cluster size, itself included; 4 and 6: all ones; 5: the number of the document in the indexes, counted through the files in order of their names; else the document it repeats: shard << 32 \| document; all ones if a takedown has removed that one |
//! | 8 bytes | number of documents again |
//! | 16 bytes | XXH3-128 of all bytes before |

use std::io::Write;
use std::path::Path;

use crate::error::{At, Result, damaged};
use crate::write::{AtomicFile, OutputFile, check_digest, verify, word};

const MAGIC: &[u8; 8] = b"MLRKEEP2";
/// `of` of a document that repeats no other one.
pub(crate) const NONE: u64 = u64::MAX;

/// Result of deduplication for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepStatus {
    /// Kept.
    Kept,
    /// Same text as (shard, document).
    Exact(u32, u32),
    /// Near duplicate of (shard, document).
    Fuzzy(u32, u32),
    /// Same address as (shard, document).
    Url(u32, u32),
    /// Embedding nearly that of (shard, document).
    Semantic(u32, u32),
    /// Dropped: cuts of repeated text left too little.
    Hollow,
    /// Dropped: contains evaluation texts and little else, or falls into too many pieces without them.
    Contaminated,
    /// Duplicate of the document with this number in the indexes of earlier crawls.
    Earlier(u64),
}

/// Flag of [`KeepStatus::Url`].
pub(crate) const URL: u8 = 3;
/// Flag of [`KeepStatus::Hollow`].
pub(crate) const HOLLOW: u8 = 4;
/// Flag of [`KeepStatus::Earlier`].
pub(crate) const EARLIER: u8 = 5;
/// Flag of [`KeepStatus::Contaminated`].
pub(crate) const CONTAMINATED: u8 = 6;

/// Flag of [`KeepStatus::Semantic`].
pub(crate) const SEMANTIC: u8 = 7;

/// The status of one shard's documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepList {
    pub(crate) flags: Vec<u8>,
    pub(crate) of: Vec<u64>,
}

impl KeepList {
    pub(crate) fn all_kept(count: usize) -> KeepList {
        KeepList {
            flags: vec![0; count],
            of: vec![1; count],
        }
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.flags.len()
    }

    /// True without documents.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// Number of kept documents.
    pub fn kept(&self) -> usize {
        self.flags.iter().filter(|&&f| f == 0).count()
    }

    /// Result for `document`.
    pub fn status(&self, document: usize) -> KeepStatus {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the two halves of a packed pair"
        )]
        let (shard, number) = ((self.of[document] >> 32) as u32, self.of[document] as u32);
        match self.flags[document] {
            0 => KeepStatus::Kept,
            1 => KeepStatus::Exact(shard, number),
            URL => KeepStatus::Url(shard, number),
            SEMANTIC => KeepStatus::Semantic(shard, number),
            HOLLOW => KeepStatus::Hollow,
            CONTAMINATED => KeepStatus::Contaminated,
            EARLIER => KeepStatus::Earlier(self.of[document]),
            _ => KeepStatus::Fuzzy(shard, number),
        }
    }

    /// Cluster size of a kept document: itself and the documents removed as its duplicates (FineWeb-2's
    /// `minhash_cluster_size`, exact duplicates included). 0 for one that is not kept.
    pub fn cluster_size(&self, document: usize) -> u64 {
        if self.flags[document] == 0 {
            self.of[document]
        } else {
            0
        }
    }

    pub(crate) fn write(&self, root: &Path, name: &str) -> Result<OutputFile> {
        let mut file = AtomicFile::create(root, name)?;
        let path = file.path();
        let count = (self.len() as u64).to_le_bytes();
        file.write_all(MAGIC).at(&path)?;
        file.write_all(&count).at(&path)?;
        file.write_all(&self.flags).at(&path)?;
        for of in &self.of {
            file.write_all(&of.to_le_bytes()).at(&path)?;
        }
        file.write_all(&count).at(&path)?;
        let digest = file.digest();
        file.write_all(&digest.to_le_bytes()).at(&path)?;
        file.finish()
    }

    /// Reads and verifies a `.keep` file.
    ///
    /// # Errors
    /// `Io`, or `Damaged` with the offset of the first thing that is wrong.
    pub fn read(path: &Path) -> Result<KeepList> {
        let (size, digest, tail) = verify(path, 40)?;
        let bytes = std::fs::read(path).at(path)?;
        if bytes.len() < 40 || &bytes[..8] != MAGIC {
            return Err(damaged(
                path,
                0,
                "another magic",
                "the magic MLRKEEP2 (lists of version 1 are not read: run dedup again)",
            ));
        }
        check_digest(path, size, digest, &tail)?;
        let count = u64::from_le_bytes(word(&bytes, 8));
        if u128::from(count) * 9 + 40 != u128::from(size) {
            let found = format!("{count} documents in {size} bytes");
            return Err(damaged(path, 8, found, "9 bytes per document and 40 more"));
        }
        // No overflow: the file holds nine bytes per document.
        let n = usize::try_from(count).unwrap_or(0);
        let flags = bytes[16..16 + n].to_vec();
        if let Some(i) = flags.iter().position(|&f| f > SEMANTIC) {
            return Err(damaged(path, 16 + i as u64, flags[i].to_string(), "0 to 7"));
        }
        let of = bytes[16 + n..16 + 9 * n].as_chunks::<8>().0;
        Ok(KeepList {
            flags,
            of: of.iter().map(|b| u64::from_le_bytes(*b)).collect(),
        })
    }
}
