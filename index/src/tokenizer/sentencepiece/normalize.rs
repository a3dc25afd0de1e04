//! SentencePiece's text normaliser: the longest matching rule of a compiled map at each position, then white space.
//!
//! Facts (sentencepiece 0.2): the map is `u32 size`, a darts-clone double array of that many bytes, then replacement
//! texts ended by NUL; a unit holds label (bits 0-7 and 31), leaf flag (8), offset (10-30, shifted by 8 more if bit 9).
//! User-defined symbols pass unchanged; a blank becomes U+2581; runs of blanks may shrink to one, none at either end.

use super::proto::NormalizerSpec;
use super::trie::{Key, Trie};

/// U+2581, which represents a blank inside pieces.
pub(super) const SPACE: &str = "\u{2581}";

/// The compiled map.
#[derive(Debug)]
struct CharsMap {
    units: Vec<u32>,
    texts: Vec<u8>,
}

impl CharsMap {
    fn parse(blob: &[u8]) -> Result<CharsMap, String> {
        let wrong = |found: String| format!("precompiled_charsmap: found {found}");
        let Some((size, rest)) = blob.split_first_chunk::<4>() else {
            return Err(wrong(format!("{} bytes, wanted 5 or more", blob.len())));
        };
        let size = u32::from_le_bytes(*size) as usize;
        if size >= rest.len() + 4 || size > rest.len() || !size.is_multiple_of(4) {
            return Err(wrong(format!(
                "a double array of {size} bytes in {}, wanted a multiple of 4 inside",
                rest.len()
            )));
        }
        let (array, texts) = rest.split_at(size);
        if texts.last().is_some_and(|b| *b != 0) || std::str::from_utf8(texts).is_err() {
            return Err(wrong(
                "replacement texts that are not UTF-8 ended by NUL".into(),
            ));
        }
        let units = array
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        Ok(CharsMap {
            units,
            texts: texts.to_vec(),
        })
    }

    fn offset(unit: u32) -> u32 {
        (unit >> 10) << ((unit & (1 << 9)) >> 6)
    }

    /// Node below the root, and the value that ends there, after `byte`. `node` is an index already moved by its offset.
    fn step(&self, node: u32, byte: u8) -> Option<(u32, Option<u32>)> {
        let place = node ^ u32::from(byte);
        let unit = *self.units.get(place as usize)?;
        if unit & ((1 << 31) | 0xff) != u32::from(byte) {
            return None;
        }
        let next = place ^ CharsMap::offset(unit);
        let value = if unit & (1 << 8) == 0 {
            None
        } else {
            Some(self.units.get(next as usize)? & !(1 << 31))
        };
        Some((next, value))
    }

    fn root(&self) -> u32 {
        self.units.first().map_or(0, |u| CharsMap::offset(*u))
    }

    /// Length of the longest rule that `text` starts with, and its replacement.
    fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let (mut node, mut found) = (self.root(), None);
        for (depth, byte) in text.iter().enumerate() {
            let Some((next, value)) = self.step(node, *byte) else {
                break;
            };
            if let Some(value) = value {
                found = Some((depth + 1, value));
            }
            node = next;
        }
        let (len, value) = found?;
        let text = self.texts.get(value as usize..)?;
        let end = text.iter().position(|b| *b == 0)?;
        Some((len, &text[..end]))
    }
}

/// A normaliser ready to run. Shared by threads.
#[derive(Debug)]
pub(super) struct Normalizer {
    map: Option<CharsMap>,
    user_defined: Option<Trie>,
    /// ASCII bytes that no rule or symbol touches when an ASCII byte (or nothing) follows.
    plain: [bool; 128],
    add_dummy_prefix: bool,
    remove_extra: bool,
    escape: bool,
    suffix: bool,
}

impl Normalizer {
    /// From a model's settings; `user_defined` are texts that no rule may touch.
    pub(super) fn new(
        spec: &NormalizerSpec,
        suffix: bool,
        user_defined: &[&str],
    ) -> Result<Normalizer, String> {
        let map = match spec.charsmap.as_slice() {
            [] => None,
            blob => Some(CharsMap::parse(blob)?),
        };
        let mut plain = [true; 128];
        for (byte, plain) in (0u8..).zip(&mut plain) {
            let begins = |s: &&str| s.as_bytes().first() == Some(&byte);
            let rule = map.as_ref().is_some_and(|m| match m.step(m.root(), byte) {
                None => false,
                Some((_, Some(_))) => true,
                Some((next, None)) => (0..128).any(|b| m.step(next, b).is_some()),
            });
            *plain = byte != b' ' && !rule && !user_defined.iter().any(begins);
        }
        let symbols = (0u32..).zip(user_defined).map(|(i, s)| Key {
            bytes: s.as_bytes(),
            value: i,
            score: 0.0,
        });
        let user_defined = match user_defined {
            [] => None,
            _ => Some(Trie::new(symbols)?),
        };
        Ok(Normalizer {
            map,
            user_defined,
            plain,
            add_dummy_prefix: spec.add_dummy_prefix,
            remove_extra: spec.remove_extra_whitespaces,
            escape: spec.escape_whitespaces,
            suffix,
        })
    }

    /// Replacement of the start of `input`, and how many bytes it replaces. `input` is not empty.
    fn prefix<'a>(&'a self, input: &'a str) -> (&'a [u8], usize) {
        let bytes = input.as_bytes();
        if let Some((len, _)) = self.user_defined.as_ref().and_then(|t| t.longest(bytes)) {
            return (&bytes[..len], len);
        }
        if let Some((len, text)) = self.map.as_ref().and_then(|m| m.longest(bytes)) {
            return (text, len);
        }
        let len = input.chars().next().map_or(1, char::len_utf8);
        (&bytes[..len], len)
    }

    /// Appends the normal form of `input` to `out`, which is empty.
    pub(super) fn normalize(&self, mut input: &str, out: &mut Vec<u8>) {
        if self.remove_extra {
            while !input.is_empty() {
                let (text, len) = self.prefix(input);
                if text != b" " {
                    break;
                }
                input = after(input, len);
            }
        }
        if input.is_empty() {
            return;
        }
        let space = if self.escape { SPACE.as_bytes() } else { b" " };
        if self.add_dummy_prefix && !self.suffix {
            out.extend_from_slice(space);
        }
        let mut after_space = self.remove_extra;
        while !input.is_empty() {
            let run = self.plain_run(input.as_bytes());
            if run > 0 {
                out.extend_from_slice(&input.as_bytes()[..run]);
                after_space = false;
                input = after(input, run);
                continue;
            }
            let (mut text, len) = self.prefix(input);
            while let (true, [b' ', rest @ ..]) = (after_space, text) {
                text = rest;
            }
            for byte in text {
                if *byte == b' ' {
                    out.extend_from_slice(space);
                } else {
                    out.push(*byte);
                }
            }
            if !text.is_empty() {
                after_space = text.ends_with(b" ");
            }
            after_space &= self.remove_extra;
            input = after(input, len);
        }
        if self.remove_extra {
            while out.ends_with(space) {
                out.truncate(out.len() - space.len());
            }
        }
        if self.add_dummy_prefix && self.suffix {
            out.extend_from_slice(space);
        }
    }

    /// Leading bytes that stay as they are: plain ASCII, each followed by ASCII or the end.
    fn plain_run(&self, bytes: &[u8]) -> usize {
        let stop = bytes
            .iter()
            .position(|b| !matches!(self.plain.get(usize::from(*b)), Some(true)))
            .unwrap_or(bytes.len());
        // a character beyond ASCII may belong to a rule that starts with the byte before it
        match bytes.get(stop) {
            Some(next) if !next.is_ascii() && self.map.is_some() => stop.saturating_sub(1),
            _ => stop,
        }
    }
}

/// `input` without its first `len` bytes; to the next character if a corrupt map's rule ends inside one.
fn after(input: &str, len: usize) -> &str {
    let len = (len..=input.len())
        .find(|i| input.is_char_boundary(*i))
        .unwrap_or(input.len());
    &input[len..]
}
