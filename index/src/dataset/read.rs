//! A token dataset on disk: `PREFIX.idx`, read into memory (`index_file.rs`), and `PREFIX.bin`, read on demand.
//!
//! Opening reads and verifies only the index, so its time does not depend on the size of the `.bin`. Tokens are
//! verified as they are read: a truncated `.bin`, or an id outside the vocabulary, is an error of that read.

use crate::dataset::ids;
use crate::dataset::idx_arrays::Index;
use crate::dataset::idx_format::TokenType;
use crate::dataset::paths::{bin_path, idx_path};
use crate::dataset::stored::StoredFile;
use crate::error::{Error, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// An opened dataset.
pub struct Dataset {
    prefix: PathBuf,
    index: Index,
    idx: StoredFile,
    bin: StoredFile,
    /// Ids that are read must be below this; `u64::MAX` until a vocabulary is known.
    limit: AtomicU64,
}

impl Dataset {
    /// Opens both files, reads and verifies the index.
    ///
    /// # Errors
    /// `Io` if one is missing; `Format` with file, offset, found and wanted if they are damaged or do not belong together;
    /// `Memory` if the index does not fit.
    pub fn open(prefix: &Path) -> Result<Dataset> {
        let idx = StoredFile::open(&idx_path(prefix))?;
        let index = Index::read(&idx)?;
        let bin = StoredFile::open(&bin_path(prefix))?;
        let bytes = index.tokens * index.header.token_type.bytes();
        if bytes != bin.len() {
            return Err(Error::Format {
                path: bin.path().to_path_buf(),
                offset: bytes.min(bin.len()),
                field: "file size",
                found: format!("{} bytes", bin.len()),
                wanted: format!("{bytes} bytes, as {} says", idx.path().display()),
            });
        }
        Ok(Dataset {
            prefix: prefix.to_path_buf(),
            index,
            idx,
            bin,
            limit: AtomicU64::new(u64::MAX),
        })
    }

    /// Path without `.bin` and `.idx`.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }
    /// Token width.
    pub fn token_type(&self) -> TokenType {
        self.index.header.token_type
    }
    /// Sequences (one per document, unless documents were split into sentences).
    pub fn sequences(&self) -> u64 {
        self.index.header.sequences
    }
    /// Documents.
    pub fn documents(&self) -> u64 {
        self.index.header.documents
    }
    /// Tokens in all.
    pub fn tokens(&self) -> u64 {
        self.index.tokens
    }

    /// Length of sequence `i` in tokens.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[inline]
    pub fn length(&self, i: usize) -> u32 {
        self.index.lengths()[i]
    }

    /// Tokens of each sequence.
    pub(crate) fn lengths(&self) -> &[u32] {
        self.index.lengths()
    }

    /// Bytes of all sequence lengths, i32 little-endian.
    pub(crate) fn lengths_bytes(&self) -> &[u8] {
        self.index.lengths().bytes()
    }

    /// Sequence numbers of document `i`.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn document(&self, i: usize) -> Range<u64> {
        self.index.document(i)
    }

    /// Mode of each sequence, in multimodal datasets.
    pub fn modes(&self) -> Option<&[u8]> {
        self.index.header.modes.then(|| self.index.modes())
    }

    /// Refuses a dataset of floating-point numbers where ids are needed.
    ///
    /// # Errors
    /// `Format` at the type's byte of the `.idx`.
    pub fn expect_ids(&self) -> Result<()> {
        if self.token_type().holds_ids() {
            return Ok(());
        }
        Err(Error::Format {
            path: idx_path(&self.prefix),
            offset: 17,
            field: "token type",
            found: self.token_type().name().into(),
            wanted: "an integer type: floating-point numbers are not token ids".into(),
        })
    }

    /// Makes every later read of an id that is negative or not below `vocab` an error, so that no such id reaches a model.
    ///
    /// A sample is checked now: the whole `.bin` up to 1 MiB, else 16 blocks of 64 KiB spread over it, so that most
    /// datasets of another tokenizer are refused before the first step. The cost does not grow with the dataset.
    ///
    /// # Errors
    /// `Format` at the byte of such an id, or as [`Dataset::expect_ids`]; `Io`.
    pub fn expect_ids_below(&self, vocab: usize) -> Result<()> {
        self.expect_ids()?;
        self.limit.store(vocab as u64, Ordering::Relaxed);
        let mut block = vec![0; LOOKED_AT_BYTES];
        let apart = (self.bin.len() / LOOKS)
            .next_multiple_of(8)
            .max(LOOKED_AT_BYTES as u64);
        for look in 0..=LOOKS {
            // the last block ends with the file
            let last = self.bin.len().saturating_sub(LOOKED_AT_BYTES as u64);
            let from = (look * apart).min(last.next_multiple_of(8));
            let n = at((self.bin.len() - from.min(self.bin.len())).min(LOOKED_AT_BYTES as u64));
            self.bin.read_at(from, &mut block[..n])?;
            self.refuse_beyond(from, &block[..n])?;
            if from + n as u64 == self.bin.len() {
                break;
            }
        }
        Ok(())
    }

    /// Refuses `bytes`, read from byte `from` of the `.bin`, if an id is not below the limit.
    fn refuse_beyond(&self, from: u64, bytes: &[u8]) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let token_type = self.token_type();
        if limit == u64::MAX || token_type.largest_id().is_some_and(|id| id < limit) {
            return Ok(());
        }
        match ids::first_beyond(token_type, bytes, limit) {
            None => Ok(()),
            Some((token, id)) => Err(Error::Format {
                path: self.bin.path().to_path_buf(),
                offset: from + token as u64 * token_type.bytes(),
                field: "token id",
                found: id.to_string(),
                wanted: format!("0 to {}, the vocabulary", limit.cast_signed() - 1),
            }),
        }
    }

    /// `PREFIX.bin`.
    pub(crate) fn bin(&self) -> &StoredFile {
        &self.bin
    }

    /// `PREFIX.idx`.
    pub(crate) fn idx(&self) -> &StoredFile {
        &self.idx
    }

    /// Copies tokens `from .. from + out.len()` of sequence `i`.
    ///
    /// # Errors
    /// `Range` if the dataset has no such sequence or this has fewer tokens; `Format` for an id that
    /// [`Dataset::expect_ids_below`] excludes, or if the `.bin` has been cut since it was opened; `Io`.
    pub fn read(&self, i: usize, from: u64, out: &mut [u32]) -> Result<()> {
        let (first, length) = self.place(i as u64)?;
        let end = from.saturating_add(out.len() as u64);
        if end > u64::from(length) {
            return Err(Error::Range {
                what: "tokens of a sequence up to",
                index: end,
                len: length.into(),
            });
        }
        self.tokens_at(first + from, out)
    }

    /// Number of the first token of sequence `i` in the `.bin`, and its length.
    ///
    /// # Errors
    /// `Range`.
    #[inline]
    pub(crate) fn place(&self, i: u64) -> Result<(u64, u32)> {
        let place = usize::try_from(i).ok().and_then(|i| self.index.place(i));
        place.ok_or(Error::Range {
            what: "sequence",
            index: i,
            len: self.sequences(),
        })
    }

    /// Copies the tokens from token `first` of the `.bin` on.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    pub(crate) fn tokens_at(&self, first: u64, out: &mut [u32]) -> Result<()> {
        let token_type = self.token_type();
        let width = at(token_type.bytes());
        let mut block = [0; BLOCK_BYTES];
        let mut from = first * token_type.bytes();
        for out in out.chunks_mut(BLOCK_BYTES / width) {
            let bytes = &mut block[..out.len() * width];
            self.bin.read_at(from, bytes)?;
            self.refuse_beyond(from, bytes)?;
            decode_tokens(token_type, bytes, out);
            from += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Bytes that a read takes from the file at once, on the stack: 8,192 tokens of 16 bits.
const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of one block checked by [`Dataset::expect_ids_below`].
const LOOKED_AT_BYTES: usize = 64 << 10;
/// Blocks checked by [`Dataset::expect_ids_below`], besides the one at the end.
const LOOKS: u64 = 16;

/// Counts of an index in memory fit `usize`.
pub(super) fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Little-endian tokens to u32. Negative and 64-bit values keep their low 32 bits: ids have neither, which
/// `statistics` verifies. Floating-point numbers are cut to whole ones; [`Dataset::expect_ids`] keeps them out.
fn decode_tokens(token_type: TokenType, bytes: &[u8], out: &mut [u32]) {
    match token_type {
        TokenType::U8 | TokenType::I8 => {
            out.iter_mut()
                .zip(bytes)
                .for_each(|(o, b)| *o = u32::from(*b));
        }
        TokenType::U16 | TokenType::I16 => {
            let (pairs, _) = bytes.as_chunks::<2>();
            out.iter_mut()
                .zip(pairs)
                .for_each(|(o, b)| *o = u32::from(u16::from_le_bytes(*b)));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "documented above"
        )]
        TokenType::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            out.iter_mut()
                .zip(words)
                .for_each(|(o, b)| *o = f32::from_le_bytes(*b) as u32);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "documented above"
        )]
        TokenType::F64 => {
            let (words, _) = bytes.as_chunks::<8>();
            out.iter_mut()
                .zip(words)
                .for_each(|(o, b)| *o = f64::from_le_bytes(*b) as u32);
        }
        TokenType::I32 => {
            let (words, _) = bytes.as_chunks::<4>();
            out.iter_mut()
                .zip(words)
                .for_each(|(o, b)| *o = u32::from_le_bytes(*b));
        }
        TokenType::I64 => {
            let (words, _) = bytes.as_chunks::<8>();
            for (o, b) in out.iter_mut().zip(words) {
                *o = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::inspect::inspect;
    use crate::dataset::write::{DatasetWriter, put_tokens};
    use crate::samples::{GptSamples, Request};
    use crate::split::Part;
    use std::fs::OpenOptions;
    use std::sync::Arc;
    use std::time::Instant;

    fn written(token_type: TokenType, documents: &[&[u32]]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("x");
        let mut w = DatasetWriter::create(&prefix, token_type).unwrap();
        for d in documents {
            let mut bytes = Vec::new();
            put_tokens(token_type, d, &mut bytes).unwrap();
            w.documents(&bytes, &[u32::try_from(d.len()).unwrap()])
                .unwrap();
        }
        w.finish().unwrap();
        (dir, prefix)
    }

    #[test]
    fn a_bin_that_is_cut_while_it_is_in_use_is_an_error_of_the_read() {
        let ids: Vec<u32> = (0..50_000).collect();
        let (_dir, prefix) = written(TokenType::I32, &[&ids, &ids]);
        let data = Arc::new(Dataset::open(&prefix).unwrap());
        let request = Request::of(1000, None, 1);
        let samples = GptSamples::new(data.clone(), Part::Train, (0.0, 1.0), &request, None);
        let samples = samples.unwrap();
        let bin = OpenOptions::new()
            .write(true)
            .open(bin_path(&prefix))
            .unwrap();
        bin.set_len(40_000).unwrap();
        let mut out = vec![0; 1001];
        let read: Vec<_> = (0..samples.len())
            .map(|k| samples.read(k, &mut out))
            .collect();
        assert_eq!(
            read.iter().filter(|r| r.is_ok()).count(),
            9,
            "of 10,000 tokens that are left"
        );
        let why = read.into_iter().find_map(Result::err).unwrap().to_string();
        assert!(
            why.contains("x.bin: file size at byte 40000: found 40000 bytes, wanted the 400000"),
            "{why}"
        );
        assert!(data.read(0, 0, &mut out).is_ok());
        assert!(data.read(1, 0, &mut out).is_err());
        assert!(
            inspect(&prefix).is_err() && crate::dataset::stats::statistics(&data, 50_000).is_err()
        );
        // the index was read when the dataset was opened
        std::fs::write(idx_path(&prefix), b"").unwrap();
        assert_eq!(data.length(1), 50_000);
    }

    #[test]
    fn an_id_beyond_the_vocabulary_is_an_error_of_the_read_in_every_type() {
        for (t, ids) in [
            (TokenType::U8, [5u32, 90, 7]),
            (TokenType::I8, [5, 90, 7]),
            (TokenType::I16, [5, 30_000, 7]),
            (TokenType::U16, [5, 60_000, 7]),
            (TokenType::I32, [5, 0x7fff_ffff, 7]),
            (TokenType::I64, [5, 0x7fff_ffff, 7]),
        ] {
            let (_dir, prefix) = written(t, &[&ids]);
            let data = Dataset::open(&prefix).unwrap();
            let mut out = [0; 3];
            data.read(0, 0, &mut out).unwrap();
            assert_eq!(out, ids, "{t:?} without a vocabulary");
            data.expect_ids_below(ids[1] as usize + 1).unwrap();
            data.read(0, 0, &mut out).unwrap();
            let why = data
                .expect_ids_below(ids[1] as usize)
                .unwrap_err()
                .to_string();
            let at = format!("token id at byte {}: found {}", t.bytes(), ids[1]);
            assert!(why.contains(&at), "{t:?}: {why}");
            assert!(data.read(0, 1, &mut out[..1]).is_err(), "{t:?}");
            assert!(data.read(0, 2, &mut out[..1]).is_ok(), "{t:?}");
        }
        let (_dir, prefix) = written(TokenType::I64, &[&[1, 2]]);
        let mut bytes = std::fs::read(bin_path(&prefix)).unwrap();
        bytes[12] = 1; // 2 + 2^32: its low half is an id
        std::fs::write(bin_path(&prefix), &bytes).unwrap();
        let data = Dataset::open(&prefix).unwrap();
        let why = data.expect_ids_below(100).unwrap_err().to_string();
        assert!(why.contains("found 4294967298"), "{why}");
    }

    /// A sparse file of a terabyte of zeros: opening, bounding and blending it must not read it.
    #[test]
    fn a_bin_of_a_terabyte_opens_in_less_time_than_reading_a_thousandth_takes() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("x");
        let (count, length) = (128u32, i32::MAX.unsigned_abs());
        let mut w = DatasetWriter::create(&prefix, TokenType::I32).unwrap();
        w.append(&[], &vec![length; 128], &[1; 128]).unwrap();
        w.finish().unwrap();
        let bytes = u64::from(count) * u64::from(length) * 4;
        assert!(bytes > 1_000_000_000_000);
        let bin = OpenOptions::new()
            .write(true)
            .open(bin_path(&prefix))
            .unwrap();
        bin.set_len(bytes).unwrap();
        let start = Instant::now();
        let data = Arc::new(Dataset::open(&prefix).unwrap());
        data.expect_ids_below(50_000).unwrap();
        let print = crate::dataset::fingerprint(&data).unwrap();
        let request = Request::of(1 << 20, None, 1);
        let samples = GptSamples::new(data.clone(), Part::Train, (0.0, 1.0), &request, None);
        let samples = samples.unwrap();
        let mut out = vec![1; (1 << 20) + 1];
        samples.read(0, &mut out).unwrap();
        let took = start.elapsed().as_secs_f64();
        assert!(out.iter().all(|id| *id == 0) && samples.len() > 200_000);
        assert!(took < 60.0, "{took} s; reading it all takes minutes");
        // an id that the sampled blocks miss is found when its sample is read; the other samples are intact
        use std::os::unix::fs::FileExt;
        bin.write_all_at(&70_000u32.to_le_bytes(), bytes / 32 * 5)
            .unwrap();
        data.expect_ids_below(50_000).unwrap();
        let mut out = [0; 4];
        let at = bytes / 32 * 5 / 4;
        let why = data.tokens_at(at - 1, &mut out).unwrap_err().to_string();
        assert!(why.contains("found 70000, wanted 0 to 49999"), "{why}");
        data.tokens_at(at + 1, &mut out).unwrap();
        // the last bytes are checked
        bin.write_all_at(&70_000u32.to_le_bytes(), bytes - 4)
            .unwrap();
        assert!(data.expect_ids_below(50_000).is_err());
        assert_ne!(crate::dataset::fingerprint(&data).unwrap(), print);
    }
}
