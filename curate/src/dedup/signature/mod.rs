//! Signature files. `.sig` version 2: exact hash, length, source, quality and bands of each kept document of a
//! shard, in columns; and `.index`, the same for documents that earlier crawls kept (`index.rs`).
//!
//! All numbers little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `MLRSIGN2` |
//! | 8..40 | u32: family (0 no MinHash, 1 datatrove's, 2 ours), kind of shingle (0 words, 1 characters, 2 tokens; above its lowest byte the language of words: 0 English, else 24 bits of the XXH3-64 of `minhash.language`), how many of them, bands, rows, numbers per band, seed, input of the exact hash (0 the text, 1 its words in lower case) |
//! | 40..44 | number of the shard (u32) |
//! | 44..60 | the run: XXH3-128 of the settings that affect documents (u128) |
//! | 60..68 | documents per group (u64) |
//! | then per group | columns one after the other: exact hash (XXH3-128, u128), characters (u64), names of source and subset (u32 each: the lower half of their XXH3-64; no subset: 0), `meta.quality` (f32; none: not a number), then per band its numbers (u64) |
//! | then per group and column | XXH3-64 of the column's bytes (u64) |
//! | last 40 | number of documents (u64), XXH3-128 of header, checksums of columns and number of documents (u128), XXH3-128 of all bytes before this (u128) |
//!
//! A band has one number, a hash of its minima, or all its minima (`keep = "datatrove"`); all ones: the document
//! has no signature. All groups but the last are full, so these numbers determine the position of every column of
//! every group, and one band is read without the others: its bytes are checked against their own checksum.
//!
//! An index differs: magic `MLRINDX1`; at 40..44 the number of crawls in it; at 44..60 zero; one more column, the
//! location of each document: crawl, shard, document (u32 each); after the checksums of columns, and under the same
//! checksum, each crawl (u128: XXH3-128 of the column checksums of all its signature files).

mod layout;
mod write;

pub(crate) use layout::{NO_SIGNATURE, Origin, Signature, source};
pub use layout::{SignatureColumn, SignatureShape};

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::{At, Error, Result, damaged};
use crate::write::{check_digest, verify, word};
use layout::{HEADER, INDEX, Layout, MAGIC, TRAILER};

pub(crate) use write::SignatureWriter;

/// A `.sig` or `.index` file whose header and checksums of columns have been verified. No file is held open.
pub struct SignatureFile {
    path: PathBuf,
    layout: Layout,
    origin: Origin,
    count: u64,
    sums: Vec<u64>,
    crawls: Vec<u128>,
}

impl SignatureFile {
    /// Opens a file and verifies all but the columns, which are verified when they are read.
    ///
    /// # Errors
    /// `Io`, or `Damaged` with the offset of the first thing that is wrong.
    pub fn open(path: &Path) -> Result<SignatureFile> {
        let mut file = File::open(path).at(path)?;
        let size = file.metadata().at(path)?.len();
        let mut header = [0; HEADER];
        let head = usize::try_from(size).unwrap_or(HEADER).min(HEADER);
        file.read_exact(&mut header[..head]).at(path)?;
        let is_index = header[..head].starts_with(INDEX);
        if !is_index && !header[..head].starts_with(MAGIC) {
            let found = String::from_utf8_lossy(&header[..head.min(8)]).into_owned();
            let wanted =
                "the magic MLRSIGN2 or MLRINDX1 (files of version 1 are not read: curate again)";
            return Err(damaged(path, 0, format!("{found:?}"), wanted));
        }
        let least = (HEADER + TRAILER) as u64;
        if size < least {
            let wanted = format!("at least {least} bytes");
            return Err(damaged(path, size, "end of file", wanted));
        }
        let number = |i: usize| u32::from_le_bytes(word(&header, 8 + 4 * i));
        let shape = SignatureShape {
            family: number(0),
            kind: number(1),
            ngram: number(2),
            bands: number(3),
            rows: number(4),
            width: number(5),
            seed: number(6),
            exact: number(7),
        };
        let mut tail = [0; TRAILER];
        file.seek(SeekFrom::Start(size - TRAILER as u64)).at(path)?;
        file.read_exact(&mut tail).at(path)?;
        let count = u64::from_le_bytes(word(&tail, 0));
        let opened = SignatureFile {
            path: path.to_path_buf(),
            layout: Layout { shape, is_index },
            origin: Origin {
                shard: number(8),
                run: u128::from_le_bytes(word(&header, 44)),
            },
            count,
            sums: Vec::new(),
            crawls: Vec::new(),
        };
        let group = u64::from_le_bytes(word(&header, 60));
        let is_sane = shape.bands <= 1024 && shape.width <= 1024 && group == shape.group();
        let frame = is_sane.then(|| opened.expected_size()).flatten();
        if frame != Some(size) {
            let wanted = frame.map_or("a file's numbers".into(), |n| format!("{n} bytes"));
            let found = format!("{size} bytes that end with a count of {count} documents");
            return Err(damaged(path, size - TRAILER as u64, found, wanted));
        }
        opened.with_sums(&mut file, &header, &tail)
    }

    /// Bytes of a file with these documents, unless that is too many to count.
    fn expected_size(&self) -> Option<u64> {
        let sums = self
            .groups()
            .checked_mul(8 * self.layout.columns() as u64)?;
        let body = self.count.checked_mul(self.layout.row())?;
        body.checked_add(sums)?
            .checked_add(16 * self.crawl_count() as u64)?
            .checked_add((HEADER + TRAILER) as u64)
    }

    /// Number of crawls in an index.
    fn crawl_count(&self) -> usize {
        if self.layout.is_index {
            self.origin.shard as usize
        } else {
            0
        }
    }

    /// Reads the checksums of columns and verifies them.
    fn with_sums(mut self, file: &mut File, header: &[u8], tail: &[u8]) -> Result<SignatureFile> {
        let at = HEADER as u64 + self.count * self.layout.row();
        // The file has that many bytes.
        let columns = self.layout.columns();
        let sums = usize::try_from(self.groups()).unwrap_or(0) * columns * 8;
        let length = sums + 16 * self.crawl_count();
        let mut bytes = vec![0; length];
        file.seek(SeekFrom::Start(at)).at(&self.path)?;
        file.read_exact(&mut bytes).at(&self.path)?;
        let mut hash = Xxh3::new();
        [header, &bytes, &tail[..8]]
            .iter()
            .for_each(|b| hash.update(b));
        let (found, stored) = (hash.digest128(), u128::from_le_bytes(word(tail, 8)));
        if found != stored {
            let (found, wanted) = (format!("checksum {found:032x}"), format!("{stored:032x}"));
            let what = "of header, column checksums and count";
            return Err(damaged(&self.path, at, found, format!("{wanted} {what}")));
        }
        let (sums, crawls) = bytes.split_at(sums);
        let sums = sums.as_chunks::<8>().0.iter();
        self.sums = sums.map(|b| u64::from_le_bytes(*b)).collect();
        let crawls = crawls.as_chunks::<16>().0.iter();
        self.crawls = crawls.map(|b| u128::from_le_bytes(*b)).collect();
        Ok(self)
    }

    /// Definition of the numbers.
    pub fn shape(&self) -> SignatureShape {
        self.layout.shape
    }

    /// The crawls of an index, each by the checksum of its signatures; none for the signatures of a shard.
    pub fn crawls(&self) -> &[u128] {
        &self.crawls
    }

    /// True for an index.
    pub fn is_index(&self) -> bool {
        self.layout.is_index
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checksums of all columns, in order.
    pub(super) fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Refuses a file whose numbers mean something else.
    pub(super) fn expect_shape(&self, shape: SignatureShape) -> Result<()> {
        if self.layout.shape == shape {
            return Ok(());
        }
        let found = format!("signatures of {:?}", self.layout.shape);
        let wanted = format!("{shape:?}, as the job says");
        Err(damaged(&self.path, 8, found, wanted))
    }

    /// Number of documents.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of groups of documents.
    pub fn groups(&self) -> u64 {
        self.count.div_ceil(self.layout.shape.group())
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// First document of a group and number of its documents.
    pub(crate) fn documents(&self, group: u64) -> (u64, u64) {
        let size = self.layout.shape.group();
        let first = group * size;
        (first, (self.count - first).min(size))
    }

    /// The bytes of a column for the documents of a group, verified.
    ///
    /// # Errors
    /// `Io`; `Damaged` if they are not as written; `Config` for a column or group that the file does not have.
    pub fn column(&self, column: SignatureColumn, group: u64) -> Result<Vec<u8>> {
        let index = self.layout.index(column).filter(|_| group < self.groups());
        let Some(index) = index else {
            let (bands, groups) = (self.layout.bands(), self.groups());
            return Err(Error::Config {
                key: self.path.display().to_string(),
                found: format!("{column:?} of group {group}"),
                wanted: format!("{bands} bands, {groups} groups"),
            });
        };
        let (first, documents) = self.documents(group);
        let (from, to) = (self.layout.before(index), self.layout.before(index + 1));
        let at = HEADER as u64 + first * self.layout.row() + documents * from;
        let mut bytes = vec![0; usize::try_from(documents * (to - from)).unwrap_or(0)];
        let mut file = File::open(&self.path).at(&self.path)?;
        file.seek(SeekFrom::Start(at)).at(&self.path)?;
        file.read_exact(&mut bytes).at(&self.path)?;
        let found = xxh3_64(&bytes);
        let place = usize::try_from(group).unwrap_or(0) * self.layout.columns() + index;
        let stored = self.sums[place];
        if found != stored {
            let found = format!("checksum {found:016x} of {column:?} of group {group}");
            return Err(damaged(&self.path, at, found, format!("{stored:016x}")));
        }
        Ok(bytes)
    }

    /// All columns of a group, where the documents were among them if the file is an index.
    pub(crate) fn columns(&self, group: u64) -> Result<Vec<Vec<u8>>> {
        let bands = (0..self.shape().bands).map(SignatureColumn::Band);
        [
            SignatureColumn::Exact,
            SignatureColumn::Chars,
            SignatureColumn::Source,
            SignatureColumn::Quality,
        ]
        .into_iter()
        .chain(bands)
        .chain(self.is_index().then_some(SignatureColumn::Place))
        .map(|column| self.column(column, group))
        .collect()
    }

    /// Reads all and compares the checksum of the whole file.
    ///
    /// # Errors
    /// `Io`, or `Damaged`.
    pub fn verify(&self) -> Result<()> {
        let (size, digest, tail) = verify(&self.path, (HEADER + TRAILER) as u64)?;
        check_digest(&self.path, size, digest, &tail)
    }
}

#[cfg(test)]
mod tests {
    use super::layout::GROUP;
    use super::*;

    fn shape(bands: u32, width: u32) -> SignatureShape {
        SignatureShape {
            family: 2,
            bands,
            rows: 8,
            width,
            ..SignatureShape::default()
        }
    }

    fn document(i: u64, shape: SignatureShape) -> Signature {
        let numbers = u64::from(shape.bands * shape.width);
        let keys = 0..if i.is_multiple_of(7) { 0 } else { numbers };
        Signature {
            exact: u128::from(i) << 70 | 5,
            chars: i * 3,
            source: source("crawl", (i % 2 == 1).then_some("news")),
            quality: 0.5,
            keys: keys.map(|k| i * 1000 + k).collect(),
        }
    }

    fn write(root: &Path, shape: SignatureShape, count: u64) -> PathBuf {
        let origin = Origin { shard: 3, run: 99 };
        let mut writer = SignatureWriter::create(root, "a.sig", shape, origin).unwrap();
        (0..count).for_each(|i| writer.write(&document(i, shape)).unwrap());
        let file = writer.finish().unwrap();
        root.join(file.path)
    }

    #[test]
    fn columns_of_every_group_come_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        for (shape, count) in [
            (shape(2, 1), GROUP + 100),
            (shape(3, 8), 2 * GROUP / 8),
            (shape(2, 1), 0),
            (SignatureShape::default(), 10),
        ] {
            let file = SignatureFile::open(&write(folder.path(), shape, count)).unwrap();
            file.verify().unwrap();
            assert_eq!((file.count(), file.shape()), (count, shape));
            assert_eq!(file.origin(), Origin { shard: 3, run: 99 });
            let mut seen = 0;
            for group in 0..file.groups() {
                let (first, documents) = file.documents(group);
                assert_eq!(first, seen);
                seen += documents;
                let exact = file.column(SignatureColumn::Exact, group).unwrap();
                let chars = file.column(SignatureColumn::Chars, group).unwrap();
                let sources = file.column(SignatureColumn::Source, group).unwrap();
                let qualities = file.column(SignatureColumn::Quality, group).unwrap();
                let bands: Vec<Vec<u8>> = (0..shape.bands)
                    .map(|b| file.column(SignatureColumn::Band(b), group).unwrap())
                    .collect();
                for i in 0..documents {
                    let wanted = document(first + i, shape);
                    let at = usize::try_from(i).unwrap();
                    assert_eq!(word(&exact, 16 * at), wanted.exact.to_le_bytes());
                    assert_eq!(word(&chars, 8 * at), wanted.chars.to_le_bytes());
                    assert_eq!(word(&sources, 8 * at), wanted.source.to_le_bytes());
                    assert_eq!(word(&qualities, 4 * at), 0.5f32.to_le_bytes());
                    for b in 0..(shape.bands * shape.width) as usize {
                        let (band, j) = (b / shape.width as usize, b % shape.width as usize);
                        let number = u64::from_le_bytes(word(
                            &bands[band],
                            8 * (at * shape.width as usize + j),
                        ));
                        let key = wanted.keys.get(b).copied().unwrap_or(NO_SIGNATURE);
                        assert_eq!(number, key);
                    }
                }
            }
            assert_eq!(seen, count);
            let beyond = file.column(SignatureColumn::Band(shape.bands), 0);
            assert!(matches!(beyond, Err(Error::Config { .. })));
        }
    }

    #[test]
    fn a_column_that_was_changed_or_moved_is_refused_when_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), shape(2, 1), GROUP * 2);
        let sound = std::fs::read(&path).unwrap();
        let row = 36 + 16;
        let group = usize::try_from(GROUP).unwrap();
        let read = |column, group| SignatureFile::open(&path).unwrap().column(column, group);
        // the two groups change places
        let mut bytes = sound.clone();
        bytes[HEADER..HEADER + 2 * group * row].rotate_left(group * row);
        std::fs::write(&path, &bytes).unwrap();
        for column in [SignatureColumn::Exact, SignatureColumn::Band(1)] {
            assert!(matches!(read(column, 0), Err(Error::Damaged { .. })));
        }
        // one bit of band 1: band 0 can still be read
        let mut bytes = sound.clone();
        bytes[HEADER + group * 44 + 77] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        read(SignatureColumn::Band(0), 0).unwrap();
        let message = read(SignatureColumn::Band(1), 0).unwrap_err().to_string();
        assert!(
            message.contains("a.sig") && message.contains("Band(1)"),
            "{message}"
        );
        assert!(SignatureFile::open(&path).unwrap().verify().is_err());
    }

    #[test]
    fn headers_and_ends_that_lie_are_refused_before_anything_is_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), shape(2, 1), 40);
        let sound = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            match SignatureFile::open(&path).err() {
                Some(Error::Damaged { expected, .. }) => expected,
                other => panic!("{other:?}"),
            }
        };
        for end in [0, 7, 8, 63, 64, 103, 104, sound.len() - 1] {
            refused(&sound[..end]);
        }
        let mut longer = sound.clone();
        longer.push(0);
        refused(&longer);
        for at in (0..HEADER).chain(sound.len() - 72..sound.len() - 16) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x40;
            refused(&bytes);
        }
        let mut bytes = sound.clone();
        let count = sound.len() - TRAILER;
        bytes[count..count + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        refused(&bytes);
        let mut bytes = sound;
        bytes[..8].copy_from_slice(b"MLRSIGN1");
        assert!(refused(&bytes).contains("version 1"));
    }
}
