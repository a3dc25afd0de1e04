//! Dataset writer: documents stream to `.bin`, lengths are kept in memory (4 bytes per sequence), the `.idx` is
//! written last.
//!
//! Both files are written under temporary names in the same folder, synced and renamed, the `.idx` last: a reader that
//! finds an `.idx` finds a whole dataset. Bytes equal Megatron's `IndexedDatasetBuilder` (tested against megatron-core).

use crate::dataset::atomic::{folder_of, persist, temporary_in};
use crate::dataset::idx_format::{Header, TokenType};
use crate::dataset::paths::{bin_path, idx_path, with_suffix};
use crate::error::{At, Error, Result};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Streams documents into a new dataset.
pub struct DatasetWriter {
    prefix: PathBuf,
    token_type: TokenType,
    bin: BufWriter<NamedTempFile>,
    lengths: Vec<u32>,
    boundaries: Vec<u64>,
    modes: Vec<u8>,
    tokens: u64,
}

/// Counts of a finished dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Written {
    /// Documents, empty ones included.
    pub documents: u64,
    /// Sequences.
    pub sequences: u64,
    /// Tokens.
    pub tokens: u64,
}

impl DatasetWriter {
    /// Starts a dataset; its folder is made if needed.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(prefix: &Path, token_type: TokenType) -> Result<DatasetWriter> {
        let folder = folder_of(prefix);
        std::fs::create_dir_all(folder).at(folder)?;
        let file = temporary_in(folder).at(folder)?;
        Ok(DatasetWriter {
            prefix: prefix.to_path_buf(),
            token_type,
            bin: BufWriter::with_capacity(1 << 20, file),
            lengths: Vec::new(),
            boundaries: vec![0],
            modes: Vec::new(),
            tokens: 0,
        })
    }

    /// Token width.
    pub fn token_type(&self) -> TokenType {
        self.token_type
    }

    /// Appends documents of one sequence each, already encoded little-endian in this dataset's type.
    /// A document without tokens leaves a repeated boundary and no sequence, as Megatron's preprocessing does.
    ///
    /// # Errors
    /// `Io`.
    pub fn documents(&mut self, bytes: &[u8], lengths: &[u32]) -> Result<()> {
        for &length in lengths {
            if length > 0 {
                self.lengths.push(length);
                self.tokens += u64::from(length);
            }
            self.boundaries.push(self.lengths.len() as u64);
        }
        self.bytes(bytes)
    }

    /// Appends documents of several sequences: document `i` has the next `sequences[i]` of `lengths`.
    ///
    /// # Panics
    /// If `sequences` does not add up to `lengths`: the caller counted both.
    ///
    /// # Errors
    /// `Io`.
    pub fn append(&mut self, bytes: &[u8], lengths: &[u32], sequences: &[u32]) -> Result<()> {
        let before = self.lengths.len() as u64;
        self.lengths.extend_from_slice(lengths);
        self.tokens += lengths.iter().map(|l| u64::from(*l)).sum::<u64>();
        let mut end = before;
        for &n in sequences {
            end += u64::from(n);
            self.boundaries.push(end);
        }
        assert_eq!(end, self.lengths.len() as u64, "sequences of documents");
        self.bytes(bytes)
    }

    /// Appends the modes of sequences that were appended: a multimodal dataset has one for each of its sequences.
    pub fn modes(&mut self, modes: &[u8]) {
        self.modes.extend_from_slice(modes);
    }

    /// Appends a whole dataset of the same type.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn dataset(&mut self, other: &crate::dataset::read::Dataset) -> Result<()> {
        let before = self.lengths.len() as u64;
        for i in 0..usize::try_from(other.sequences()).unwrap_or(usize::MAX) {
            self.lengths.push(other.length(i));
        }
        for d in 0..usize::try_from(other.documents()).unwrap_or(usize::MAX) {
            self.boundaries.push(before + other.document(d).end);
        }
        self.modes(other.modes().unwrap_or_default());
        self.tokens += other.tokens();
        other
            .bin()
            .stream(0..other.bin().len(), |piece| self.bytes(piece))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let path = bin_path(&self.prefix);
        self.bin.write_all(bytes).at(&path)
    }

    /// Writes the index and gives both files their names. An older dataset of this name loses its index (and its
    /// sidecar) first: whenever a kill comes, an existing index always belongs to the tokens beside it.
    ///
    /// # Errors
    /// `Io`; `Mismatch` if some sequences have a mode and others have none.
    pub fn finish(self) -> Result<Written> {
        let (bin_path, idx_path) = (bin_path(&self.prefix), idx_path(&self.prefix));
        let folder = folder_of(&self.prefix).to_path_buf();
        let header = Header {
            token_type: self.token_type,
            sequences: self.lengths.len() as u64,
            documents: self.boundaries.len() as u64 - 1,
            modes: !self.modes.is_empty(),
        };
        if header.modes && self.modes.len() != self.lengths.len() {
            return Err(Error::Mismatch {
                path: idx_path,
                field: "sequence modes",
                found: self.modes.len().to_string(),
                wanted: format!("one for each of {} sequences, or none", self.lengths.len()),
            });
        }
        for old in [&idx_path, &with_suffix(&self.prefix, ".json")] {
            match std::fs::remove_file(old) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at(old),
                _ => {}
            }
        }
        let bin = self
            .bin
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .at(&bin_path)?;
        persist(bin, &bin_path)?;
        let mut idx = BufWriter::with_capacity(1 << 20, temporary_in(&folder).at(&folder)?);
        let mut put = |bytes: &[u8]| idx.write_all(bytes).at(&idx_path);
        put(&header.encode())?;
        for length in &self.lengths {
            put(&length.to_le_bytes())?;
        }
        let mut offset = 0u64;
        for length in &self.lengths {
            put(&offset.to_le_bytes())?;
            offset += u64::from(*length) * self.token_type.bytes();
        }
        for boundary in &self.boundaries {
            put(&boundary.to_le_bytes())?;
        }
        put(&self.modes)?;
        let idx = idx
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .at(&idx_path)?;
        persist(idx, &idx_path)?;
        Ok(Written {
            documents: header.documents,
            sequences: header.sequences,
            tokens: self.tokens,
        })
    }
}

/// Appends ids in `token_type`'s width.
///
/// # Errors
/// The first id that does not fit; nothing is appended then.
pub(crate) fn put_tokens(token_type: TokenType, ids: &[u32], out: &mut Vec<u8>) -> Result<(), u32> {
    let most = match token_type {
        TokenType::U8 => 0xff,
        TokenType::I8 => 0x7f,
        TokenType::U16 => 0xffff,
        TokenType::I16 => 0x7fff,
        TokenType::I32 => i32::MAX.unsigned_abs(),
        TokenType::I64 => u32::MAX,
        TokenType::F32 | TokenType::F64 => 0,
    };
    // the maximum of a slice is one pass of vector instructions; the search runs on a bad one alone
    if ids.iter().fold(0, |a, b| a.max(*b)) > most {
        return Err(ids.iter().copied().find(|id| *id > most).unwrap_or(0));
    }
    match token_type.bytes() {
        1 => out.extend(ids.iter().map(|id| id.to_le_bytes()[0])),
        2 => {
            let start = out.len();
            out.resize(start + 2 * ids.len(), 0);
            let (pairs, _) = out[start..].as_chunks_mut::<2>();
            for (pair, id) in pairs.iter_mut().zip(ids) {
                let [a, b, ..] = id.to_le_bytes();
                *pair = [a, b];
            }
        }
        4 => ids
            .iter()
            .for_each(|id| out.extend_from_slice(&id.to_le_bytes())),
        _ => ids
            .iter()
            .for_each(|id| out.extend_from_slice(&u64::from(*id).to_le_bytes())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::read::Dataset;

    fn dataset(documents: &[&[u32]], token_type: TokenType) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("a.b");
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
    fn what_is_written_is_read_back_in_every_width() {
        for t in [
            TokenType::U8,
            TokenType::I16,
            TokenType::U16,
            TokenType::I32,
            TokenType::I64,
        ] {
            let (_dir, prefix) = dataset(&[&[1, 2, 3], &[], &[100]], t);
            let d = Dataset::open(&prefix).unwrap();
            assert_eq!((d.documents(), d.sequences(), d.tokens()), (3, 2, 4));
            let mut out = [0; 2];
            d.read(0, 1, &mut out).unwrap();
            assert_eq!(out, [2, 3]);
            assert_eq!(d.document(1), 1..1);
            assert_eq!(d.document(2), 1..2);
        }
    }

    #[test]
    fn an_id_that_does_not_fit_is_refused() {
        let mut out = Vec::new();
        for (t, id) in [
            (TokenType::U16, 65_536),
            (TokenType::I32, 1 << 31),
            (TokenType::I8, 128),
            (TokenType::F32, 1),
        ] {
            assert_eq!(put_tokens(t, &[0, id, 0], &mut out), Err(id));
        }
        assert!(out.is_empty());
    }

    #[test]
    fn any_flipped_byte_of_the_index_arrays_is_found_or_harmless() {
        let (_dir, prefix) = dataset(&[&[1, 2, 3], &[7], &[100, 5]], TokenType::U16);
        let good = std::fs::read(idx_path(&prefix)).unwrap();
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 0x81;
            std::fs::write(idx_path(&prefix), &bad).unwrap();
            // Only a document boundary may move inside its neighbours and still describe a dataset.
            let boundary = i >= good.len() - 8 * 3 && i < good.len() - 8;
            assert!(
                Dataset::open(&prefix).is_err() || boundary,
                "flipped byte {i} accepted"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn a_cut_spliced_or_overwritten_index_is_refused_or_can_be_read(
            cut in 0usize..200,
            at in 0usize..200,
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
            inserts in proptest::bool::ANY,
        ) {
            let (_dir, prefix) = dataset(&[&[1, 2, 3], &[7], &[100, 5], &[]], TokenType::U16);
            let mut idx = std::fs::read(idx_path(&prefix)).unwrap();
            let at = at.min(idx.len());
            let end = if inserts { at } else { (at + bytes.len()).min(idx.len()) };
            idx.splice(at..end, bytes);
            // half of the cases keep their length
            idx.truncate(if cut < 100 { idx.len() } else { cut });
            std::fs::write(idx_path(&prefix), &idx).unwrap();
            if let Ok(d) = Dataset::open(&prefix) {
                let mut out = Vec::new();
                for i in 0..usize::try_from(d.sequences()).unwrap() {
                    out.resize(d.length(i) as usize, 0);
                    d.read(i, 0, &mut out).unwrap();
                }
                let ends = (0..usize::try_from(d.documents()).unwrap()).map(|i| d.document(i).end);
                proptest::prop_assert!(ends.into_iter().all(|e| e <= d.sequences()));
            }
        }
    }

    #[test]
    fn a_short_bin_is_refused_with_both_sizes() {
        let (_dir, prefix) = dataset(&[&[1, 2, 3]], TokenType::U16);
        std::fs::write(bin_path(&prefix), [0; 5]).unwrap();
        let message = Dataset::open(&prefix).err().unwrap().to_string();
        assert!(
            message.contains("5 bytes") && message.contains("6 bytes"),
            "{message}"
        );
    }
}
