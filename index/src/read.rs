//! A token dataset on disk: `PREFIX.bin` and `PREFIX.idx`, both mapped.
//!
//! Opening verifies sizes, offsets and boundaries once, in one pass over the index, so that reading needs no checks.

use crate::error::{Error, Result};
use crate::format::{Header, TokenType, i32_at, u64_at};
use crate::ids;
use crate::mmap::Map;
use crate::sidecar::Sidecar;
use rayon::prelude::*;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Tokens that one thread checks at a time.
const CHECKED_AT_ONCE: usize = 1 << 20;

/// `PREFIX.bin`.
pub(crate) fn bin_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".bin")
}

/// `PREFIX.idx`.
pub(crate) fn idx_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".idx")
}

/// Prefixes may hold dots, so `Path::with_extension` would eat part of them.
pub(crate) fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// An opened dataset.
pub struct Dataset {
    prefix: PathBuf,
    header: Header,
    idx: Map,
    bin: Map,
    tokens: u64,
}

impl Dataset {
    /// Maps and verifies both files.
    ///
    /// # Errors
    /// `Io` if one is missing; `Format` with file, offset, found and wanted if they are damaged or do not belong together.
    pub fn open(prefix: &Path) -> Result<Dataset> {
        let idx_file = idx_path(prefix);
        let idx = Map::open(&idx_file)?;
        let header = Header::decode(&idx_file, &idx)?;
        let bin_file = bin_path(prefix);
        let bin = Map::open(&bin_file)?;
        let bytes = verify(&idx_file, &header, &idx)?;
        if bytes != bin.len() as u64 {
            return Err(Error::Format {
                path: bin_file,
                offset: bytes.min(bin.len() as u64),
                field: "file size",
                found: format!("{} bytes", bin.len()),
                wanted: format!("{bytes} bytes, as {} says", idx_file.display()),
            });
        }
        let tokens = bytes / header.token_type.bytes();
        Ok(Dataset {
            prefix: prefix.to_path_buf(),
            header,
            idx,
            bin,
            tokens,
        })
    }

    /// Path without `.bin` and `.idx`.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }
    /// Token width.
    pub fn token_type(&self) -> TokenType {
        self.header.token_type
    }
    /// Sequences (one a document, unless documents were cut in sentences).
    pub fn sequences(&self) -> u64 {
        self.header.sequences
    }
    /// Documents.
    pub fn documents(&self) -> u64 {
        self.header.documents
    }
    /// Tokens in all.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Length of sequence `i` in tokens.
    #[inline]
    pub fn length(&self, i: usize) -> u32 {
        i32_at(&self.idx, at(self.header.lengths_at()) + 4 * i).unsigned_abs()
    }

    /// Bytes of all sequence lengths, i32 little-endian.
    pub(crate) fn lengths_bytes(&self) -> &[u8] {
        &self.idx[at(self.header.lengths_at())..at(self.header.offsets_at())]
    }

    /// Sequence numbers of document `i`.
    pub fn document(&self, i: usize) -> Range<u64> {
        let base = at(self.header.documents_at()) + 8 * i;
        u64_at(&self.idx, base)..u64_at(&self.idx, base + 8)
    }

    /// Mode of each sequence, in multimodal datasets.
    pub fn modes(&self) -> Option<&[u8]> {
        self.header
            .modes
            .then(|| &self.idx[at(self.header.modes_at())..])
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

    /// Refuses a dataset with an id that is negative or not below `vocab`. One read of the `.bin`, at memory speed.
    ///
    /// # Errors
    /// `Format` at the byte of the first such id, or as [`Dataset::expect_ids`].
    pub fn expect_ids_below(&self, vocab: usize) -> Result<()> {
        self.expect_ids()?;
        let width = at(self.token_type().bytes());
        let token_type = self.token_type();
        let chunk = CHECKED_AT_ONCE * width;
        let first = self
            .bin
            .par_chunks(chunk)
            .enumerate()
            .filter_map(|(i, bytes)| {
                let (token, id) = ids::first_beyond(token_type, bytes, vocab)?;
                Some((i * chunk + token * width, id))
            })
            .min();
        match first {
            None => Ok(()),
            Some((byte, id)) => Err(Error::Format {
                path: bin_path(&self.prefix),
                offset: byte as u64,
                field: "token id",
                found: id.to_string(),
                wanted: format!("0 to {}, the vocabulary", vocab as i64 - 1),
            }),
        }
    }

    /// Bytes of the whole `.bin`.
    pub fn bin(&self) -> &[u8] {
        &self.bin
    }

    /// Bytes of the whole `.idx`.
    pub fn idx(&self) -> &[u8] {
        &self.idx
    }

    /// Copies tokens `from .. from + out.len()` of sequence `i`.
    ///
    /// # Panics
    /// If the range leaves the sequence: callers take it from the index.
    pub fn read(&self, i: usize, from: u64, out: &mut [u32]) {
        let size = self.header.token_type.bytes();
        assert!(
            from + out.len() as u64 <= u64::from(self.length(i)),
            "sequence {i} has {} tokens, {from}+{} asked",
            self.length(i),
            out.len()
        );
        let start = u64_at(&self.idx, at(self.header.offsets_at()) + 8 * i) + from * size;
        self.decode(at(start), out);
    }

    /// Bytes of the `.bin` that hold sequence `i`. Sequences lie end to end, which `open` made sure of: the two ends
    /// are one look into the index, where a length and an offset are two.
    #[inline]
    pub(crate) fn place(&self, i: usize) -> Range<usize> {
        let base = at(self.header.offsets_at()) + 8 * i;
        let start = at(u64_at(&self.idx, base));
        let end = if i as u64 + 1 < self.header.sequences {
            at(u64_at(&self.idx, base + 8))
        } else {
            self.bin.len()
        };
        start..end
    }

    /// Copies the tokens from byte `start` of the `.bin` on.
    ///
    /// # Panics
    /// If the range leaves the file.
    #[inline]
    pub(crate) fn decode(&self, start: usize, out: &mut [u32]) {
        let bytes = out.len() * at(self.header.token_type.bytes());
        decode_tokens(self.header.token_type, &self.bin[start..start + bytes], out);
    }
}

/// Offsets in a mapped file fit `usize`, since the map does.
fn at(offset: u64) -> usize {
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

/// Walks the three arrays; returns the bytes that the `.bin` must have.
fn verify(path: &Path, header: &Header, idx: &[u8]) -> Result<u64> {
    let wrong = |offset: u64, field: &'static str, found: String, wanted: String| {
        Err(Error::Format {
            path: path.to_path_buf(),
            offset,
            field,
            found,
            wanted,
        })
    };
    let size = header.token_type.bytes();
    let mut bytes = 0u64;
    for i in 0..header.sequences {
        let (length_at, offset_at) = (header.lengths_at() + 4 * i, header.offsets_at() + 8 * i);
        let length = i32_at(idx, at(length_at));
        let Ok(tokens) = u64::try_from(length) else {
            return wrong(
                length_at,
                "sequence length",
                length.to_string(),
                "0 or more".into(),
            );
        };
        let offset = u64_at(idx, at(offset_at));
        if offset != bytes {
            return wrong(
                offset_at,
                "sequence offset",
                offset.to_string(),
                format!("{bytes}, the sum of the lengths before sequence {i}"),
            );
        }
        bytes += tokens * size;
    }
    let mut last = 0;
    for d in 0..=header.documents {
        let boundary_at = header.documents_at() + 8 * d;
        let boundary = u64_at(idx, at(boundary_at));
        let first_is_zero = d > 0 || boundary == 0;
        if !first_is_zero || boundary < last || boundary > header.sequences {
            return wrong(
                boundary_at,
                "document boundary",
                boundary.to_string(),
                if d == 0 {
                    "0".into()
                } else {
                    format!("{last} to {}", header.sequences)
                },
            );
        }
        last = boundary;
    }
    if last != header.sequences {
        return wrong(
            header.documents_at() + 8 * header.documents,
            "last document boundary",
            last.to_string(),
            header.sequences.to_string(),
        );
    }
    Ok(bytes)
}

/// What `millrace inspect PREFIX.idx --json` prints. `tokens_sha256` is over the ids as little-endian u32 (floating-point
/// values cut to whole numbers).
///
/// # Errors
/// As [`Dataset::open`].
pub fn inspect(prefix: &Path) -> Result<serde_json::Value> {
    use sha2::{Digest, Sha256};
    let data = Dataset::open(prefix)?;
    let sidecar = Sidecar::read(prefix)?;
    if let Some(sidecar) = &sidecar {
        sidecar.check(&data)?;
    }
    let mut hash = Sha256::new();
    let mut tokens = vec![0u32; 1 << 16];
    let mut bytes = Vec::with_capacity(4 << 16);
    for i in 0..at(data.sequences()) {
        let length = u64::from(data.length(i));
        let mut from = 0;
        while from < length {
            let n = at((length - from).min(1 << 16));
            data.read(i, from, &mut tokens[..n]);
            bytes.clear();
            tokens[..n]
                .iter()
                .for_each(|t| bytes.extend_from_slice(&t.to_le_bytes()));
            hash.update(&bytes);
            from += n as u64;
        }
    }
    let show = |d: Option<usize>| {
        let mut shown = Vec::new();
        for s in d.map_or(0..0, |d| data.document(d)) {
            let n = at(u64::from(data.length(at(s))).min(64 - shown.len() as u64));
            let from = shown.len();
            shown.resize(from + n, 0);
            data.read(at(s), 0, &mut shown[from..]);
        }
        shown
    };
    let documents = at(data.documents());
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Ok(serde_json::json!({
        "kind": "token dataset",
        "dtype": data.token_type().name(),
        "sequences": data.sequences(),
        "documents": data.documents(),
        "tokens": data.tokens(),
        "tokens_sha256": hex(&hash.finalize()),
        "bin_sha256": hex(&Sha256::digest(data.bin())),
        "idx_sha256": hex(&Sha256::digest(data.idx())),
        "first": show((documents > 0).then_some(0)),
        "last": show(documents.checked_sub(1)),
        "modes": data.modes().is_some(),
        "sidecar": sidecar,
    }))
}
