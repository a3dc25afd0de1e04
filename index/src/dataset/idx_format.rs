//! MMIDIDX, the index file format of Megatron-LM datasets; the `.bin` has only tokens.
//!
//! ```text
//! 0   9 bytes  "MMIDIDX" 00 00          17  u8   token width code
//! 9   u64      version, 1               18  u64  S sequences
//!                                       26  u64  D = documents + 1
//! 34          i32[S] sequence lengths in tokens
//! 34 +  4 S   i64[S] byte offset of each sequence in the .bin
//! 34 + 12 S   i64[D] document boundaries as sequence numbers, first 0, last S
//! end         i8[S]  sequence modes, in multimodal files only
//! ```
//! No field indicates modes: their presence follows from the file size.
//! All little-endian, no padding: arrays start at byte 34, so none is aligned and every load here is unaligned.
//! Source: megatron-core `indexed_dataset.py` (0.16.1 and 0.19.2 write the same bytes).
//! We differ: the sizes of both files and every offset are verified on opening; Megatron checks only the last boundary.

use crate::error::{Error, Result};
use std::path::Path;

/// First bytes of every index file.
pub(crate) const MAGIC: [u8; 9] = *b"MMIDIDX\x00\x00";
/// The only version.
pub(crate) const VERSION: u64 = 1;
/// Bytes before the first array.
pub(crate) const HEADER_BYTES: u64 = 34;

/// Type of a stored token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Code 1.
    U8,
    /// Code 2.
    I8,
    /// Code 3.
    I16,
    /// Code 4.
    I32,
    /// Code 5.
    I64,
    /// Code 6. Not ids: such a dataset can be inspected and merged, not sampled.
    F64,
    /// Code 7. As [`TokenType::F64`].
    F32,
    /// Code 8.
    U16,
}

impl TokenType {
    /// Megatron's rule: 16 bits if the vocabulary has fewer than 65 500 entries, else 32.
    pub fn for_vocab(vocab: usize) -> TokenType {
        if vocab < 65_500 {
            TokenType::U16
        } else {
            TokenType::I32
        }
    }

    /// Whether the values are token ids rather than floating-point numbers.
    pub fn holds_ids(self) -> bool {
        !matches!(self, TokenType::F32 | TokenType::F64)
    }

    /// Code in byte 17.
    pub fn from_code(code: u8) -> Option<TokenType> {
        Some(match code {
            1 => TokenType::U8,
            2 => TokenType::I8,
            3 => TokenType::I16,
            4 => TokenType::I32,
            5 => TokenType::I64,
            6 => TokenType::F64,
            7 => TokenType::F32,
            8 => TokenType::U16,
            _ => return None,
        })
    }

    /// Code in byte 17.
    pub fn code(self) -> u8 {
        match self {
            TokenType::U8 => 1,
            TokenType::I8 => 2,
            TokenType::I16 => 3,
            TokenType::I32 => 4,
            TokenType::I64 => 5,
            TokenType::F64 => 6,
            TokenType::F32 => 7,
            TokenType::U16 => 8,
        }
    }

    /// Bytes per token.
    pub fn bytes(self) -> u64 {
        match self {
            TokenType::U8 | TokenType::I8 => 1,
            TokenType::I16 | TokenType::U16 => 2,
            TokenType::I32 | TokenType::F32 => 4,
            TokenType::I64 | TokenType::F64 => 8,
        }
    }

    /// Largest value of a type all of whose values may be ids; none for signed and floating-point types.
    pub(crate) fn largest_id(self) -> Option<u64> {
        match self {
            TokenType::U8 => Some(u8::MAX.into()),
            TokenType::U16 => Some(u16::MAX.into()),
            TokenType::I8
            | TokenType::I16
            | TokenType::I32
            | TokenType::I64
            | TokenType::F32
            | TokenType::F64 => None,
        }
    }

    /// numpy's name.
    pub fn name(self) -> &'static str {
        match self {
            TokenType::U8 => "uint8",
            TokenType::I8 => "int8",
            TokenType::I16 => "int16",
            TokenType::I32 => "int32",
            TokenType::I64 => "int64",
            TokenType::F64 => "float64",
            TokenType::F32 => "float32",
            TokenType::U16 => "uint16",
        }
    }
}

/// The header of an index file, with the offsets of its arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Token width.
    pub(crate) token_type: TokenType,
    /// S.
    pub(crate) sequences: u64,
    /// Documents, that is D - 1.
    pub(crate) documents: u64,
    /// The boundaries are followed by one mode per sequence.
    pub(crate) modes: bool,
}

impl Header {
    /// Byte offset of the sequence lengths.
    pub(crate) fn lengths_at(&self) -> u64 {
        HEADER_BYTES
    }
    /// Byte offset of the sequence offsets.
    pub(crate) fn offsets_at(&self) -> u64 {
        HEADER_BYTES + 4 * self.sequences
    }
    /// Byte offset of the document boundaries.
    pub(crate) fn documents_at(&self) -> u64 {
        HEADER_BYTES + 12 * self.sequences
    }
    /// Byte offset of the sequence modes, and the size of a file without them.
    pub(crate) fn modes_at(&self) -> u64 {
        self.documents_at() + 8 * (self.documents + 1)
    }

    /// The 34 bytes.
    pub(crate) fn encode(&self) -> [u8; 34] {
        let mut out = [0; 34];
        out[..9].copy_from_slice(&MAGIC);
        out[9..17].copy_from_slice(&VERSION.to_le_bytes());
        out[17] = self.token_type.code();
        out[18..26].copy_from_slice(&self.sequences.to_le_bytes());
        out[26..34].copy_from_slice(&(self.documents + 1).to_le_bytes());
        out
    }

    /// Checks the header, `bytes`, against the `size` of the file in bytes.
    ///
    /// # Errors
    /// `Format` with the offset of the first field that is wrong; a truncated file names the size it should have.
    pub(crate) fn decode(path: &Path, bytes: &[u8], size: u64) -> Result<Header> {
        let wrong = |offset: u64, field: &'static str, found: String, wanted: String| {
            Err(Error::Format {
                path: path.to_path_buf(),
                offset,
                field,
                found,
                wanted,
            })
        };
        if size < HEADER_BYTES || (bytes.len() as u64) < HEADER_BYTES {
            return wrong(
                size,
                "header",
                format!("end of file after {size} bytes"),
                format!("{HEADER_BYTES} bytes"),
            );
        }
        if bytes[..9] != MAGIC {
            return wrong(
                0,
                "magic",
                format!("{:02x?}", &bytes[..9]),
                format!("{MAGIC:02x?}"),
            );
        }
        let version = u64_at(bytes, 9);
        if version != VERSION {
            return wrong(9, "version", version.to_string(), VERSION.to_string());
        }
        let Some(token_type) = TokenType::from_code(bytes[17]) else {
            return wrong(17, "token type", bytes[17].to_string(), "1 to 8".into());
        };
        let (sequences, boundaries) = (u64_at(bytes, 18), u64_at(bytes, 26));
        if boundaries == 0 {
            return wrong(
                26,
                "document boundaries",
                "0".into(),
                "documents + 1".into(),
            );
        }
        // Checked arithmetic: a flipped high bit must be a message, not an overflow.
        let wanted = sequences
            .checked_mul(12)
            .and_then(|s| boundaries.checked_mul(8).and_then(|d| s.checked_add(d)))
            .and_then(|n| n.checked_add(HEADER_BYTES));
        let modes = wanted.and_then(|w| w.checked_add(sequences));
        if wanted != Some(size) && modes != Some(size) {
            return wrong(
                size.min(wanted.unwrap_or(u64::MAX)),
                "file size",
                format!("{size} bytes"),
                match wanted {
                    Some(w) => format!(
                        "{w} bytes for {sequences} sequences and {} documents",
                        boundaries - 1
                    ),
                    None => {
                        format!("counts that fit 64 bits, not {sequences} and {boundaries}")
                    }
                },
            );
        }
        Ok(Header {
            token_type,
            sequences,
            documents: boundaries - 1,
            // no sequences: a file with modes and one without are the same bytes
            modes: sequences > 0 && modes == Some(size),
        })
    }
}

/// An unaligned little-endian load; `at` is in the header.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(b)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_are_megatrons() {
        let h = Header {
            token_type: TokenType::U16,
            sequences: 1000,
            documents: 1000,
            modes: false,
        };
        let hex: String = h.encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "4d4d49444944580000010000000000000008e803000000000000e903000000000000"
        );
    }

    #[test]
    fn every_wrong_field_is_named_with_its_offset() {
        let h = Header {
            token_type: TokenType::I32,
            sequences: 2,
            documents: 1,
            modes: false,
        };
        let mut good = h.encode().to_vec();
        good.resize(h.modes_at() as usize, 0);
        let p = Path::new("x.idx");
        let decode = |bytes: &[u8]| Header::decode(p, bytes, bytes.len() as u64);
        assert_eq!(decode(&good).unwrap(), h);
        for (at, field) in [
            (0, "magic"),
            (9, "version"),
            (17, "token type"),
            (25, "file size"),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            match decode(&bad) {
                Err(Error::Format {
                    field: f, offset, ..
                }) => {
                    assert_eq!(f, field);
                    assert!(
                        field == "file size" || offset == at as u64,
                        "{field} at {offset}"
                    );
                }
                other => panic!("{field}: {other:?}"),
            }
        }
        for cut in 0..good.len() {
            assert!(decode(&good[..cut]).is_err(), "cut at {cut} accepted");
        }
    }
}
