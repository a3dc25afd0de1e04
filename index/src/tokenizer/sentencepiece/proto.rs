//! Reader of SentencePiece `.model` files: the protocol buffer message `ModelProto`, only the fields that encoding
//! needs.
//!
//! Facts: wire format of Protocol Buffers (tag = field << 3 | wire type; varint, 64-bit, length-delimited, 32-bit);
//! field numbers of sentencepiece 0.2 (`sentencepiece_model.proto`). Unknown fields are skipped, as the format asks.
//! Every length is checked against what is left; errors name the byte.

/// Pieces are shorter than this.
const MOST_BYTES: usize = 8000;

/// Type of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ordinary piece with a score.
    Normal,
    /// The unknown piece.
    Unknown,
    /// Never found in text: `<s>`, `</s>`, `<pad>`.
    Control,
    /// User-defined symbol: always one piece, unnormalised.
    UserDefined,
    /// Kept for its id only.
    Unused,
    /// One byte of a character that the vocabulary lacks.
    Byte,
}

/// One entry of the vocabulary; its id is its place.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: Kind,
}

/// Segmentation algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
}

/// Rules that rewrite text before segmentation (or, for a denormaliser, after decoding).
#[derive(Clone, Debug)]
pub(super) struct NormalizerSpec {
    pub(super) charsmap: Vec<u8>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) escape_whitespaces: bool,
}

impl Default for NormalizerSpec {
    fn default() -> NormalizerSpec {
        NormalizerSpec {
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        }
    }
}

/// The parts of `ModelProto` that matter here.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) pieces: Vec<Piece>,
    pub(super) algorithm: Algorithm,
    pub(super) whitespace_as_suffix: bool,
    pub(super) byte_fallback: bool,
    pub(super) unk_surface: String,
    /// Surface forms of bos, eos and pad, whether or not the vocabulary has them.
    pub(super) bos: String,
    pub(super) eos: String,
    pub(super) pad: String,
    pub(super) normalizer: NormalizerSpec,
    pub(super) denormalizer: Option<NormalizerSpec>,
}

/// Parses a whole file. The error has the byte, the value found and the value wanted.
pub(super) fn parse(bytes: &[u8]) -> Result<Model, String> {
    let mut model = Model {
        pieces: Vec::new(),
        algorithm: Algorithm::Unigram,
        whitespace_as_suffix: false,
        byte_fallback: false,
        unk_surface: " \u{2047} ".into(),
        bos: "<s>".into(),
        eos: "</s>".into(),
        pad: "<pad>".into(),
        normalizer: NormalizerSpec::default(),
        denormalizer: None,
    };
    let mut message = Message::new(bytes, 0);
    while let Some(field) = message.next()? {
        match field.number {
            1 => model.pieces.push(piece(field.message("piece")?)?),
            2 => trainer(field.message("trainer_spec")?, &mut model)?,
            3 => model.normalizer = normalizer(field.message("normalizer_spec")?)?,
            5 => model.denormalizer = Some(normalizer(field.message("denormalizer_spec")?)?),
            _ => {}
        }
    }
    if model.pieces.is_empty() {
        return Err(format!(
            "pieces: found none in {} bytes, wanted a SentencePiece model",
            bytes.len()
        ));
    }
    Ok(model)
}

fn piece(mut message: Message<'_>) -> Result<Piece, String> {
    let start = message.offset;
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: Kind::Normal,
    };
    while let Some(field) = message.next()? {
        match field.number {
            1 => piece.text = field.text("piece")?,
            2 => piece.score = field.float("score")?,
            3 => {
                piece.kind = match field.varint("type")? {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    other => return Err(field.wrong("type", &other.to_string(), "1 to 6")),
                }
            }
            _ => {}
        }
    }
    let len = piece.text.len();
    if len == 0 || len >= MOST_BYTES || piece.text.contains('\0') || !piece.score.is_finite() {
        let shown: String = piece.text.chars().take(40).collect();
        return Err(format!(
            "byte {start}: piece: found {shown:?} ({len} bytes) with score {}, wanted 1 to {} bytes without NUL and a number",
            piece.score,
            MOST_BYTES - 1
        ));
    }
    Ok(piece)
}

fn trainer(mut message: Message<'_>, model: &mut Model) -> Result<(), String> {
    while let Some(field) = message.next()? {
        match field.number {
            3 => {
                model.algorithm = match field.varint("model_type")? {
                    1 => Algorithm::Unigram,
                    2 => Algorithm::Bpe,
                    other => {
                        let found = format!("{other} (3 is word, 4 is char)");
                        return Err(field.wrong("model_type", &found, "1 unigram or 2 bpe"));
                    }
                }
            }
            24 => model.whitespace_as_suffix = field.varint("treat_whitespace_as_suffix")? != 0,
            35 => model.byte_fallback = field.varint("byte_fallback")? != 0,
            44 => model.unk_surface = field.text("unk_surface")?,
            46 => model.bos = field.text("bos_piece")?,
            47 => model.eos = field.text("eos_piece")?,
            48 => model.pad = field.text("pad_piece")?,
            _ => {}
        }
    }
    Ok(())
}

fn normalizer(mut message: Message<'_>) -> Result<NormalizerSpec, String> {
    let mut spec = NormalizerSpec::default();
    while let Some(field) = message.next()? {
        match field.number {
            2 => spec.charsmap = field.bytes("precompiled_charsmap")?.to_vec(),
            3 => spec.add_dummy_prefix = field.varint("add_dummy_prefix")? != 0,
            4 => spec.remove_extra_whitespaces = field.varint("remove_extra_whitespaces")? != 0,
            5 => spec.escape_whitespaces = field.varint("escape_whitespaces")? != 0,
            _ => {}
        }
    }
    Ok(spec)
}

/// A message being read; `offset` is the place of `rest` in the file.
struct Message<'a> {
    rest: &'a [u8],
    offset: usize,
}

/// One field in wire format.
struct Field<'a> {
    number: u64,
    offset: usize,
    value: Value<'a>,
}

enum Value<'a> {
    Varint(u64),
    Bits64,
    Bytes(&'a [u8], usize),
    Bits32([u8; 4]),
}

impl<'a> Message<'a> {
    fn new(rest: &'a [u8], offset: usize) -> Message<'a> {
        Message { rest, offset }
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], String> {
        let taken = usize::try_from(len)
            .ok()
            .and_then(|n| self.rest.split_at_checked(n));
        let Some((head, rest)) = taken else {
            return Err(format!(
                "byte {}: {what}: found {} bytes left, wanted {len}",
                self.offset,
                self.rest.len()
            ));
        };
        self.rest = rest;
        self.offset += head.len();
        Ok(head)
    }

    fn varint(&mut self, what: &str) -> Result<u64, String> {
        let start = self.offset;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1, what)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(format!(
            "byte {start}: {what}: found more than 10 bytes, wanted a varint"
        ))
    }

    fn next(&mut self) -> Result<Option<Field<'a>>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let offset = self.offset;
        let tag = self.varint("field tag")?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint("varint")?),
            1 => {
                self.take(8, "64-bit value")?;
                Value::Bits64
            }
            2 => {
                let len = self.varint("length")?;
                let at = self.offset;
                Value::Bytes(self.take(len, "length-delimited value")?, at)
            }
            5 => {
                let bits = self.take(4, "32-bit value")?;
                Value::Bits32([bits[0], bits[1], bits[2], bits[3]])
            }
            other => {
                return Err(format!(
                    "byte {offset}: wire type: found {other}, wanted 0, 1, 2 or 5 (not a SentencePiece model?)"
                ));
            }
        };
        if tag >> 3 == 0 {
            return Err(format!(
                "byte {offset}: field number: found 0, wanted 1 or more"
            ));
        }
        Ok(Some(Field {
            number: tag >> 3,
            offset,
            value,
        }))
    }
}

impl<'a> Field<'a> {
    fn wrong(&self, name: &str, found: &str, wanted: &str) -> String {
        format!(
            "byte {}: {name}: found {found}, wanted {wanted}",
            self.offset
        )
    }

    fn mismatch(&self, name: &str, wanted: &str) -> String {
        let found = match self.value {
            Value::Varint(_) => "a varint",
            Value::Bits64 => "a 64-bit value",
            Value::Bytes(..) => "bytes",
            Value::Bits32(_) => "a 32-bit value",
        };
        self.wrong(name, found, wanted)
    }

    fn varint(&self, name: &str) -> Result<u64, String> {
        match self.value {
            Value::Varint(v) => Ok(v),
            _ => Err(self.mismatch(name, "a varint")),
        }
    }

    fn float(&self, name: &str) -> Result<f32, String> {
        match self.value {
            Value::Bits32(bits) => Ok(f32::from_le_bytes(bits)),
            _ => Err(self.mismatch(name, "a 32-bit value")),
        }
    }

    fn bytes(&self, name: &str) -> Result<&'a [u8], String> {
        match self.value {
            Value::Bytes(bytes, _) => Ok(bytes),
            _ => Err(self.mismatch(name, "bytes")),
        }
    }

    fn text(&self, name: &str) -> Result<String, String> {
        let bytes = self.bytes(name)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_string()),
            Err(e) => Err(self.wrong(name, &e.to_string(), "UTF-8")),
        }
    }

    fn message(&self, name: &str) -> Result<Message<'a>, String> {
        match self.value {
            Value::Bytes(bytes, offset) => Ok(Message::new(bytes, offset)),
            _ => Err(self.mismatch(name, "a message")),
        }
    }
}
