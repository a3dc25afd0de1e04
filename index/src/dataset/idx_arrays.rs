//! The arrays of an `.idx`, read once, verified, and kept in memory in a shorter form.
//!
//! Offsets are the sums of the lengths before them, so only every 64th is kept: a sequence costs 4.125 bytes
//! instead of 12. Document boundaries cost nothing where every document is one sequence, as in most datasets. The
//! cost of reading instead of mapping: processes on one machine do not share the memory. The gain: the verified
//! bytes are the bytes used, even if the file changes afterwards.

use crate::array::Array;
use crate::dataset::idx_format::{HEADER_BYTES, Header};
use crate::dataset::stored::StoredFile;
use crate::error::{Error, Result};
use std::ops::Range;

/// Sequences between two offsets that are kept.
const STRIDE: usize = 64;

/// An index in memory.
pub(crate) struct Index {
    pub(crate) header: Header,
    /// Tokens of each sequence.
    lengths: Array<u32>,
    /// Tokens before every [`STRIDE`]-th sequence.
    before: Array<u64>,
    /// Sequences before the end of each document, from document 0 on; none where document d is sequence d.
    ends: Option<Array<u64>>,
    modes: Vec<u8>,
    pub(crate) tokens: u64,
}

/// Counts of a file that was opened fit `usize`, since its arrays were read to memory.
fn at(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Index {
    /// Reads and verifies `file`.
    ///
    /// # Errors
    /// `Format` with offset, found and wanted; `Io`; `Memory`.
    pub(crate) fn read(file: &StoredFile) -> Result<Index> {
        let mut head = [0; 34];
        let n = at(file.len().min(HEADER_BYTES));
        file.read_at(0, &mut head[..n])?;
        let header = Header::decode(file.path(), &head[..n], file.len())?;
        let (lengths, before, tokens) = sequences(file, &header)?;
        let ends = documents(file, &header)?;
        let mut modes = vec![0; if header.modes { lengths.len() } else { 0 }];
        file.read_at(header.modes_at(), &mut modes)?;
        Ok(Index {
            header,
            lengths,
            before,
            ends,
            modes,
            tokens,
        })
    }

    /// Tokens of each sequence.
    #[inline]
    pub(crate) fn lengths(&self) -> &Array<u32> {
        &self.lengths
    }

    /// Number of the first token of sequence `i` in the `.bin`, and its tokens.
    #[inline]
    pub(crate) fn place(&self, i: usize) -> Option<(u64, u32)> {
        let length = *self.lengths.get(i)?;
        let block = i / STRIDE;
        let inside = &self.lengths[block * STRIDE..i];
        let inside: u64 = inside.iter().map(|n| u64::from(*n)).sum();
        Some((self.before[block] + inside, length))
    }

    /// Sequence numbers of document `d`.
    pub(crate) fn document(&self, d: usize) -> Range<u64> {
        match &self.ends {
            None => d as u64..d as u64 + 1,
            Some(ends) => d.checked_sub(1).map_or(0, |d| ends[d])..ends[d],
        }
    }

    /// Mode of each sequence; empty without modes.
    pub(crate) fn modes(&self) -> &[u8] {
        &self.modes
    }
}

fn wrong<T>(
    file: &StoredFile,
    offset: u64,
    field: &'static str,
    found: String,
    wanted: String,
) -> Result<T> {
    Err(Error::Format {
        path: file.path().to_path_buf(),
        offset,
        field,
        found,
        wanted,
    })
}

/// Lengths, offsets of every [`STRIDE`]-th sequence, tokens in all. Offsets in the file must be the sums.
fn sequences(file: &StoredFile, header: &Header) -> Result<(Array<u32>, Array<u64>, u64)> {
    let mut lengths = Array::<u32>::zeros("sequence lengths", header.sequences)?;
    let bytes = bytemuck::cast_slice_mut::<u32, u8>(lengths.as_mut());
    file.read_at(header.lengths_at(), bytes)?;
    let count = header.sequences.div_ceil(STRIDE as u64);
    let mut before = Array::<u64>::zeros("sequence offsets", count)?;
    let size = header.token_type.bytes();
    let (mut tokens, mut i) = (0u64, 0usize);
    let kept = before.as_mut();
    file.stream(header.offsets_at()..header.documents_at(), |piece| {
        for offset in piece.as_chunks::<8>().0 {
            let (offset, length) = (u64::from_le_bytes(*offset), lengths[i]);
            if length > i32::MAX.unsigned_abs() {
                let offset = header.lengths_at() + 4 * i as u64;
                let found = length.cast_signed().to_string();
                return wrong(file, offset, "sequence length", found, "0 or more".into());
            }
            if offset != tokens * size {
                let wanted = format!(
                    "{}, the sum of the lengths before sequence {i}",
                    tokens * size
                );
                let offset_at = header.offsets_at() + 8 * i as u64;
                return wrong(
                    file,
                    offset_at,
                    "sequence offset",
                    offset.to_string(),
                    wanted,
                );
            }
            if i.is_multiple_of(STRIDE) {
                kept[i / STRIDE] = tokens;
            }
            tokens += u64::from(length);
            i += 1;
        }
        Ok(())
    })?;
    Ok((lengths, before, tokens))
}

/// Ends of documents, or None where each document is one sequence.
fn documents(file: &StoredFile, header: &Header) -> Result<Option<Array<u64>>> {
    let mut ends: Option<Array<u64>> = None;
    let (mut last, mut d) = (0u64, 0u64);
    file.stream(header.documents_at()..header.modes_at(), |piece| {
        for boundary in piece.as_chunks::<8>().0 {
            let boundary = u64::from_le_bytes(*boundary);
            let is_first = d == 0;
            if boundary < last || boundary > header.sequences || (is_first && boundary != 0) {
                let wanted = match is_first {
                    true => "0".into(),
                    false => format!("{last} to {}", header.sequences),
                };
                let offset = header.documents_at() + 8 * d;
                let found = boundary.to_string();
                return wrong(file, offset, "document boundary", found, wanted);
            }
            if ends.is_none() && boundary != d {
                // so far every document was one sequence
                let mut listed = Array::<u64>::zeros("document boundaries", header.documents)?;
                let known = listed.as_mut().iter_mut().take(at(d.saturating_sub(1)));
                (1..).zip(known).for_each(|(end, out)| *out = end);
                ends = Some(listed);
            }
            if let (Some(ends), Some(place)) = (&mut ends, d.checked_sub(1)) {
                ends.as_mut()[at(place)] = boundary;
            }
            last = boundary;
            d += 1;
        }
        Ok(())
    })?;
    if last != header.sequences {
        let offset = header.documents_at() + 8 * header.documents;
        let (found, wanted) = (last.to_string(), header.sequences.to_string());
        return wrong(file, offset, "last document boundary", found, wanted);
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::idx_format::TokenType;
    use crate::dataset::write::DatasetWriter;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_and_documents_are_the_sums_by_hand(
            documents in prop::collection::vec(prop::collection::vec(0u32..5, 0..4), 0..200),
            one_each in any::<bool>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let prefix = dir.path().join("x");
            let mut w = DatasetWriter::create(&prefix, TokenType::U16).unwrap();
            let documents: Vec<Vec<u32>> = match one_each {
                true => documents.iter().map(|d| vec![d.iter().sum()]).collect(),
                false => documents,
            };
            for d in &documents {
                let bytes = vec![1; 2 * d.iter().sum::<u32>() as usize];
                w.append(&bytes, d, &[u32::try_from(d.len()).unwrap()]).unwrap();
            }
            w.finish().unwrap();
            let file = StoredFile::open(&crate::dataset::paths::idx_path(&prefix)).unwrap();
            let index = Index::read(&file).unwrap();
            prop_assert_eq!(index.ends.is_none(), documents.iter().all(|d| d.len() == 1));
            let (mut token, mut sequence) = (0, 0);
            for (d, lengths) in documents.iter().enumerate() {
                let end = sequence + lengths.len();
                prop_assert_eq!(index.document(d), sequence as u64..end as u64);
                for length in lengths {
                    prop_assert_eq!(index.place(sequence), Some((token, *length)));
                    token += u64::from(*length);
                    sequence += 1;
                }
            }
            prop_assert_eq!((index.tokens, index.place(sequence)), (token, None));
        }
    }
}
