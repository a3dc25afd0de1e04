//! Text of a file as UTF-8: a file that starts with UTF-16's byte order mark is converted while it is read.
//!
//! The WHATWG Encoding Standard's decoders (`encoding_rs`) convert piece by piece, so that memory is bounded by a piece. Half of
//! a surrogate pair is no text: a byte that is no UTF-8 takes its place, and the record that has it is a bad one.

use std::io;

use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE};

use super::compression::{Piece, Source};
use super::storage::Blob;

/// Bytes of UTF-16's byte order mark.
const MARK: usize = 2;
/// A byte that UTF-8 does not have.
const NO_TEXT: u8 = 0xff;

/// A file's text in pieces.
pub(super) struct TextSource {
    source: Source,
    /// The mark was looked for.
    has_started: bool,
    decoder: Option<Decoder>,
    /// Bytes not yet converted.
    raw: Vec<u8>,
    has_ended: bool,
}

impl TextSource {
    /// The text of a file.
    pub(super) fn open(blob: Box<dyn Blob>) -> io::Result<TextSource> {
        Ok(TextSource {
            source: Source::open(blob, false)?,
            has_started: false,
            decoder: None,
            raw: Vec::new(),
            has_ended: false,
        })
    }

    /// Leaves the bytes as they are.
    pub(super) fn keep_bytes(&mut self) {
        self.has_started = true;
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.source.is_compressed()
    }

    pub(super) fn consumed(&self) -> u64 {
        self.source.consumed()
    }

    /// Goes on at a byte of a plain file in UTF-8.
    ///
    /// # Errors
    /// Compressed files have no such places.
    pub(super) fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.has_started |= offset > 0;
        self.source.seek(offset)
    }

    /// Appends the next piece to `out`.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Piece {
        if self.has_ended {
            return Piece::End;
        }
        if self.has_started && self.decoder.is_none() {
            return self.source.next(out);
        }
        let piece = self.read();
        match &piece {
            Piece::Data { .. } | Piece::Failed(_) => self.convert(out, false),
            // what follows damage is a new beginning
            Piece::Damage { .. } => {
                self.convert(out, false);
                let encoding = self.decoder.as_ref().map(Decoder::encoding);
                self.decoder = encoding.map(|encoding| encoding.new_decoder_without_bom_handling());
            }
            Piece::End => {
                let before = out.len();
                self.convert(out, true);
                self.has_ended = true;
                if out.len() > before {
                    return Piece::Data {
                        offset: self.source.consumed(),
                        starts_member: false,
                        ends_member: false,
                    };
                }
            }
        }
        piece
    }

    /// Reads a piece, of a file's start enough to see the mark.
    fn read(&mut self) -> Piece {
        loop {
            let piece = self.source.next(&mut self.raw);
            let is_short = !self.has_started && self.raw.len() < MARK;
            match piece {
                Piece::Data { .. } if is_short => {}
                piece => {
                    if !self.has_started {
                        self.start();
                    }
                    return piece;
                }
            }
        }
    }

    fn start(&mut self) {
        self.has_started = true;
        let encoding = match self.raw[..] {
            [0xff, 0xfe, ..] => UTF_16LE,
            [0xfe, 0xff, ..] => UTF_16BE,
            _ => return,
        };
        self.raw.drain(..MARK);
        self.decoder = Some(encoding.new_decoder_without_bom_handling());
    }

    /// Appends what was read as UTF-8.
    fn convert(&mut self, out: &mut Vec<u8>, is_last: bool) {
        let Some(decoder) = &mut self.decoder else {
            return out.append(&mut self.raw);
        };
        let mut raw = &self.raw[..];
        loop {
            let start = out.len();
            let most = decoder.max_utf8_buffer_length_without_replacement(raw.len());
            out.resize(start + most.unwrap_or(raw.len()), 0);
            let (result, read, written) =
                decoder.decode_to_utf8_without_replacement(raw, &mut out[start..], is_last);
            out.truncate(start + written);
            raw = &raw[read..];
            match result {
                DecoderResult::InputEmpty => break,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => out.push(NO_TEXT),
            }
        }
        self.raw.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text as a file, and what is read of it.
    fn read(bytes: Vec<u8>) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let blob = Box::new(std::fs::File::open(file.path()).unwrap());
        let mut source = TextSource::open(blob).unwrap();
        let mut out = Vec::new();
        while let Piece::Data { .. } = source.next(&mut out) {}
        assert!(matches!(source.next(&mut out), Piece::End));
        out
    }

    fn utf_16(text: &str, is_big: bool) -> Vec<u8> {
        let units = format!("\u{feff}{text}");
        let bytes = |unit: u16| match is_big {
            true => unit.to_be_bytes(),
            false => unit.to_le_bytes(),
        };
        units.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn utf_16_with_a_mark_is_converted_and_other_bytes_stay() {
        // longer than pieces are, with pairs of surrogates at all places
        let long = "a\u{e9}\u{1f600}\u{4e2d}".repeat(200_000);
        for text in ["", "a", "a\u{e9}\u{1f600}\n", &long] {
            for is_big in [false, true] {
                assert_eq!(read(utf_16(text, is_big)), text.as_bytes());
            }
            assert_eq!(read(text.as_bytes().to_vec()), text.as_bytes());
        }
        for bytes in [&b"\xff"[..], b"\xef\xbb\xbfa", b"\xff\xffa", b"\xfe"] {
            assert_eq!(read(bytes.to_vec()), bytes);
        }
    }

    #[test]
    fn halves_of_pairs_and_of_units_are_no_text() {
        let mut half = utf_16("a", false);
        half.extend([0x00, 0xd8]);
        half.extend(b"b\0");
        assert_eq!(read(half), b"a\xffb");
        let mut odd = utf_16("a", true);
        odd.push(0);
        assert_eq!(read(odd), b"a\xff");
    }
}
