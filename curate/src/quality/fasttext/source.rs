//! Reader for numbers and arrays of a model file, in order, each with its offset.
//!
//! All numbers are little-endian. Sizes that the file claims are compared with the remaining bytes before anything
//! is allocated, so a damaged size gives an error and takes no memory.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::error::{At, Result, damaged};

/// A model file being read from its start to its end.
pub(super) struct Source<R = BufReader<File>> {
    path: PathBuf,
    reader: R,
    offset: u64,
    length: u64,
    hasher: Xxh3,
}

/// Longest word or label of a dictionary. fastText's own tokens end at white space; real models stay
/// below a few hundred bytes.
const MAX_WORD: usize = 1 << 16;

impl Source {
    pub(super) fn open(path: &Path) -> Result<Source> {
        let file = File::open(path).at(path)?;
        let length = file.metadata().at(path)?.len();
        Ok(Source::over(
            path,
            BufReader::with_capacity(1 << 18, file),
            length,
        ))
    }
}

impl<R: Read> Source<R> {
    pub(super) fn over(path: &Path, reader: R, length: u64) -> Source<R> {
        Source {
            path: path.to_path_buf(),
            reader,
            offset: 0,
            length,
            hasher: Xxh3::new(),
        }
    }

    /// An error `back` bytes before the current position.
    pub(super) fn wrong(
        &self,
        back: u64,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> crate::Error {
        damaged(&self.path, self.offset.saturating_sub(back), found, wanted)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<()> {
        let left = self.length.saturating_sub(self.offset);
        if (bytes.len() as u64) > left {
            return Err(self.wrong(0, format!("{left} bytes left"), what));
        }
        match self.reader.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                self.hasher.update(bytes);
                Ok(())
            }
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.wrong(0, "the end of the file", what))
            }
            Err(e) => Err(e).at(&self.path),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn i32(&mut self, what: &str) -> Result<i32> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self, what: &str) -> Result<i64> {
        self.array(what).map(i64::from_le_bytes)
    }

    pub(super) fn f64(&mut self, what: &str) -> Result<f64> {
        self.array(what).map(f64::from_le_bytes)
    }

    /// A byte that must be 0 or 1.
    pub(super) fn flag(&mut self, what: &str) -> Result<bool> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(self.wrong(1, n.to_string(), format!("{what}: 0 or 1"))),
        }
    }

    /// A 32-bit number between `low` and `high`.
    pub(super) fn count(&mut self, what: &str, low: i32, high: i32) -> Result<usize> {
        let n = self.i32(what)?;
        match usize::try_from(n) {
            Ok(size) if n >= low && n <= high => Ok(size),
            _ => Err(self.wrong(4, n.to_string(), format!("{what}: {low} to {high}"))),
        }
    }

    /// A 64-bit number that must be `wanted`.
    pub(super) fn exactly(&mut self, what: &str, wanted: u64) -> Result<()> {
        let n = self.i64(what)?;
        if u64::try_from(n) == Ok(wanted) {
            return Ok(());
        }
        Err(self.wrong(8, n.to_string(), format!("{what}: {wanted}")))
    }

    /// Fails unless `count` items of `size` bytes are left; returns `count`.
    pub(super) fn room(&self, count: usize, size: usize, what: &str) -> Result<usize> {
        let left = self.length.saturating_sub(self.offset);
        let need = (count as u64).checked_mul(size as u64);
        if need.is_some_and(|n| n <= left) {
            return Ok(count);
        }
        let wanted = format!("{what}: {count} x {size} bytes");
        Err(self.wrong(0, format!("{left} bytes left"), wanted))
    }

    /// Bytes up to a zero, which is dropped.
    pub(super) fn word(&mut self, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        loop {
            match self.u8("a zero byte after a word")? {
                0 => return Ok(()),
                byte => into.push(byte),
            }
            if into.len() > MAX_WORD {
                let found = format!("a word of more than {MAX_WORD} bytes");
                return Err(self.wrong(MAX_WORD as u64, found, "a shorter word"));
            }
        }
    }

    pub(super) fn bytes(&mut self, count: usize, what: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.room(count, 1, what)?];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    pub(super) fn floats(&mut self, count: usize, what: &str) -> Result<Vec<f32>> {
        let mut floats = Vec::with_capacity(self.room(count, 4, what)?);
        let mut block = [0; 4096];
        let mut left = count;
        while left > 0 {
            let n = left.min(block.len() / 4);
            self.fill(&mut block[..4 * n], what)?;
            let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            floats.extend(block[..4 * n].chunks_exact(4).map(number));
            left -= n;
        }
        Ok(floats)
    }

    /// Fails if bytes are left; returns a hash of all that was read.
    pub(super) fn end(&self) -> Result<u64> {
        let left = self.length.saturating_sub(self.offset);
        if left == 0 {
            return Ok(self.hasher.digest());
        }
        Err(self.wrong(0, format!("{left} more bytes"), "the end of the file"))
    }
}
