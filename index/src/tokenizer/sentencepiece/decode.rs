//! SentencePiece decoding: ids to text, as sentencepiece's `decode`.
//!
//! Facts (sentencepiece 0.2): control pieces vanish, the unknown piece becomes the model's surface for it, U+2581 a
//! blank; the first piece that is not empty loses its leading blank if the model adds or removes such; runs of byte
//! pieces are read as UTF-8, each invalid byte becoming U+FFFD; a denormaliser, if any, runs last.

use super::SentencePiece;
use super::normalize::SPACE;
use super::proto::Kind;
use super::sink::byte_of;

impl SentencePiece {
    /// Text of `ids`; the error names an id that the vocabulary does not have.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, String> {
        let spec = &self.model.normalizer;
        let strips = spec.add_dummy_prefix || spec.remove_extra_whitespaces;
        let (mut text, mut bytes) = (String::new(), Vec::new());
        let (mut at_start, mut space_seen) = (true, false);
        for id in ids {
            let Some(piece) = self.model.pieces.get(*id as usize) else {
                let len = self.model.pieces.len();
                return Err(format!("id: found {id}, wanted less than {len}"));
            };
            if let (Kind::Byte, Some(byte)) = (piece.kind, byte_of(&piece.text)) {
                bytes.push(byte);
                continue;
            }
            flush(&mut bytes, &mut text);
            if space_seen || !text.is_empty() {
                at_start = false;
            }
            space_seen = false;
            match piece.kind {
                Kind::Control => {}
                Kind::Unknown => text.push_str(&self.model.unk_surface),
                _ => {
                    let mut surface = piece.text.as_str();
                    if let (true, true, Some(rest)) =
                        (at_start, strips, surface.strip_prefix(SPACE))
                    {
                        surface = rest;
                        space_seen = !spec.remove_extra_whitespaces;
                    }
                    text.extend(
                        surface
                            .chars()
                            .map(|c| if c == '\u{2581}' { ' ' } else { c }),
                    );
                }
            }
        }
        flush(&mut bytes, &mut text);
        let Some(denormalizer) = &self.denormalizer else {
            return Ok(text);
        };
        let mut changed = Vec::new();
        denormalizer.normalize(&text, &mut changed);
        Ok(String::from_utf8_lossy(&changed).into_owned())
    }
}

/// Appends `bytes` as UTF-8, U+FFFD for each byte that starts no character.
fn flush(bytes: &mut Vec<u8>, text: &mut String) {
    let mut rest = bytes.as_slice();
    while let Some((_, after_one)) = rest.split_first() {
        match std::str::from_utf8(rest) {
            Ok(good) => {
                text.push_str(good);
                break;
            }
            Err(e) if e.valid_up_to() > 0 => {
                let (good, bad) = rest.split_at(e.valid_up_to());
                text.push_str(&String::from_utf8_lossy(good));
                rest = bad;
            }
            Err(_) => {
                text.push('\u{fffd}');
                rest = after_one;
            }
        }
    }
    bytes.clear();
}
