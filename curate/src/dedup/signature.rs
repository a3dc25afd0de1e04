//! `.sig`: exact hash, length and MinHash signature of each kept document of a shard.
//!
//! All numbers little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `MLRSIGN1` |
//! | 8..12 | buckets (0: no MinHash) |
//! | 12..16 | hashes per bucket |
//! | 16..20 | words per shingle |
//! | 20..24 | seed of the permutations |
//! | then per document | exact XXH3-128 of the text (u128), characters (u64), flags (u64; bit 0: has a signature), buckets * hashes u64 |
//! | last 24 | number of documents (u64), XXH3-128 of all bytes before this checksum (u128) |

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::config::MinhashConfig;
use crate::error::{At, Result, damaged};
use crate::write::{AtomicFile, OutputFile};

const MAGIC: &[u8; 8] = b"MLRSIGN1";
const HEADER: u64 = 24;
const TRAILER: u64 = 24;
const FIXED: usize = 32;

/// Shape of the signatures in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignatureShape {
    /// Bands; 0: no MinHash.
    pub buckets: u32,
    /// Hashes per band.
    pub hashes: u32,
    /// Words per shingle.
    pub ngram: u32,
    /// Seed of the permutations.
    pub seed: u32,
}

impl SignatureShape {
    /// The shape a config asks for.
    pub fn of(config: Option<&MinhashConfig>) -> SignatureShape {
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        config.map_or_else(SignatureShape::default, |c| SignatureShape {
            buckets: narrow(c.buckets),
            hashes: narrow(c.hashes),
            ngram: narrow(c.ngram),
            seed: c.seed,
        })
    }

    /// Numbers per signature.
    pub fn len(self) -> usize {
        self.buckets as usize * self.hashes as usize
    }

    /// True without MinHash.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    fn record(self) -> usize {
        FIXED + 8 * self.len()
    }
}

/// One document's entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// XXH3-128 of the text.
    pub exact: u128,
    /// Characters of the text.
    pub chars: u64,
    /// Minima per permutation; empty if the text has too few words.
    pub minima: Vec<u64>,
}

/// Writes a `.sig` file.
pub(crate) struct SignatureWriter {
    file: AtomicFile,
    shape: SignatureShape,
    count: u64,
    record: Vec<u8>,
}

impl SignatureWriter {
    pub(crate) fn create(
        root: &Path,
        name: &str,
        shape: SignatureShape,
    ) -> Result<SignatureWriter> {
        let mut file = AtomicFile::create(root, name)?;
        let mut header = MAGIC.to_vec();
        for number in [shape.buckets, shape.hashes, shape.ngram, shape.seed] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        file.write_all(&header).at(&file.path())?;
        Ok(SignatureWriter {
            file,
            shape,
            count: 0,
            record: Vec::new(),
        })
    }

    pub(crate) fn write(&mut self, signature: &Signature) -> Result<()> {
        self.record.clear();
        self.record
            .extend_from_slice(&signature.exact.to_le_bytes());
        self.record
            .extend_from_slice(&signature.chars.to_le_bytes());
        let present = u64::from(!signature.minima.is_empty());
        self.record.extend_from_slice(&present.to_le_bytes());
        for value in &signature.minima {
            self.record.extend_from_slice(&value.to_le_bytes());
        }
        self.record.resize(self.shape.record(), 0);
        self.count += 1;
        self.file.write_all(&self.record).at(&self.file.path())
    }

    pub(crate) fn finish(mut self) -> Result<OutputFile> {
        let path = self.file.path();
        self.file.write_all(&self.count.to_le_bytes()).at(&path)?;
        let digest = self.file.digest();
        self.file.write_all(&digest.to_le_bytes()).at(&path)?;
        self.file.finish()
    }
}

/// Reads a `.sig` file whose checksum has been verified.
pub struct SignatureReader {
    file: BufReader<File>,
    path: PathBuf,
    shape: SignatureShape,
    count: u64,
    next: u64,
    record: Vec<u8>,
}

impl SignatureReader {
    /// Opens and verifies.
    ///
    /// # Errors
    /// `Io`, or `Damaged` with the offset of the first thing that is wrong.
    pub fn open(path: &Path) -> Result<SignatureReader> {
        let (size, digest, tail) = verify(path, HEADER + TRAILER)?;
        let mut file = BufReader::with_capacity(1 << 18, File::open(path).at(path)?);
        let mut header = [0; 24];
        file.read_exact(&mut header).at(path)?;
        if &header[..8] != MAGIC {
            let found = String::from_utf8_lossy(&header[..8]).into_owned();
            return Err(damaged(path, 0, format!("{found:?}"), "the magic MLRSIGN1"));
        }
        check_digest(path, size, digest, &tail)?;
        let number = |i: usize| u32::from_le_bytes(word(&header, 8 + 4 * i));
        let shape = SignatureShape {
            buckets: number(0),
            hashes: number(1),
            ngram: number(2),
            seed: number(3),
        };
        let count = u64::from_le_bytes(word(&tail, 0));
        let body = u128::from(size - HEADER - TRAILER);
        if u128::from(count) * shape.record() as u128 != body {
            let expected = format!("{count} records of {} bytes", shape.record());
            return Err(damaged(
                path,
                HEADER,
                format!("{body} bytes of records"),
                expected,
            ));
        }
        let record = vec![0; shape.record()];
        Ok(SignatureReader {
            file,
            path: path.to_path_buf(),
            shape,
            count,
            next: 0,
            record,
        })
    }

    /// Shape of the signatures.
    pub fn shape(&self) -> SignatureShape {
        self.shape
    }

    /// Number of documents.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Fills `signature` with the next entry; false at the end.
    pub fn read(&mut self, signature: &mut Signature) -> Result<bool> {
        if self.next == self.count {
            return Ok(false);
        }
        self.next += 1;
        self.file.read_exact(&mut self.record).at(&self.path)?;
        signature.exact = u128::from_le_bytes(word(&self.record, 0));
        signature.chars = u64::from_le_bytes(word(&self.record, 16));
        signature.minima.clear();
        if u64::from_le_bytes(word(&self.record, 24)) & 1 == 1 {
            let values = self.record[FIXED..].as_chunks::<8>().0;
            signature
                .minima
                .extend(values.iter().map(|v| u64::from_le_bytes(*v)));
        }
        Ok(true)
    }
}

/// `N` bytes at `at`; the caller knows they are there.
pub(super) fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Size of a file, XXH3-128 of all but its last 16 bytes, and its last 24 bytes.
pub(super) fn verify(path: &Path, least: u64) -> Result<(u64, u128, [u8; 24])> {
    let mut file = File::open(path).at(path)?;
    let size = file.metadata().at(path)?.len();
    if size < least {
        return Err(damaged(
            path,
            size,
            "end of file",
            format!("at least {least} bytes"),
        ));
    }
    let mut hash = Xxh3::new();
    let mut tail = [0u8; 24];
    let mut left = size - 16;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let want = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        file.read_exact(&mut buffer[..want]).at(path)?;
        hash.update(&buffer[..want]);
        left -= want as u64;
        for &byte in &buffer[want.saturating_sub(8)..want] {
            tail.copy_within(1..8, 0);
            tail[7] = byte;
        }
    }
    file.read_exact(&mut tail[8..]).at(path)?;
    Ok((size, hash.digest128(), tail))
}

/// Compares the checksum in the last 16 bytes.
pub(super) fn check_digest(path: &Path, size: u64, digest: u128, tail: &[u8; 24]) -> Result<()> {
    let stored = u128::from_le_bytes(word(tail, 8));
    if stored != digest {
        let found = format!("checksum {stored:032x}");
        return Err(damaged(
            path,
            size - 16,
            found,
            format!("checksum {digest:032x}"),
        ));
    }
    Ok(())
}
