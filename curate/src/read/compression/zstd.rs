//! Decoder for zstd frames (RFC 8878), one per WARC record or one per file, and the dictionary before them.
//!
//! IIPC's "WARC compressed with Zstandard" 1.0: a file may open with a skippable frame of magic
//! 0x184D2A5D that holds the dictionary of all frames, itself perhaps a zstd frame. Other skippable
//! frames (also those of pzstd and of the seekable format) are skipped.

use std::io::{self, Read};

use super::piece::{CHUNK, Piece, bomb};
use crate::read::storage::Window;

use ::zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Magic of the skippable frame with the dictionary, little endian.
const DICTIONARY: [u8; 4] = [0x5d, 0x2a, 0x4d, 0x18];
/// Largest dictionary: trained ones have 100 KB, the draft knows no bound.
const MAX_DICTIONARY: usize = 32 << 20;
/// A frame is returned in pieces of this size.
const PIECE: u64 = 4 << 20;
/// A file with more bombs than this is abandoned: each costs a quarter of a second.
const MAX_BOMBS: u32 = 8;

pub(super) fn is_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&FRAME)
}

pub(super) fn is_skippable(bytes: &[u8]) -> bool {
    matches!(bytes, [first, 0x2a, 0x4d, 0x18, ..] if first >> 4 == 5)
}

/// A file of frames.
pub(super) struct Frames {
    window: Window,
    decoder: Decoder<'static>,
    /// The current frame: its start, and bytes it has produced so far.
    inside: Option<(u64, u64)>,
    /// Start of the previous frame, if the reader is right after it.
    before: Option<u64>,
    dictionary: Vec<u8>,
    /// End of the dictionary: apparent frames before it are not the file's.
    first: u64,
    records: bool,
    /// Bombs found so far.
    bombs: u32,
    done: bool,
}

impl Frames {
    pub(super) fn open(mut window: Window, records: bool) -> io::Result<Frames> {
        let (dictionary, first) = read_dictionary(&mut window)
            .map_err(|e| io::Error::new(e.kind(), format!("its zstd dictionary: {e}")))?;
        Ok(Frames {
            window,
            decoder: Decoder::with_dictionary(&dictionary)?,
            inside: None,
            before: None,
            dictionary,
            first,
            records,
            bombs: 0,
            done: false,
        })
    }

    pub(super) fn offset(&self) -> u64 {
        self.window.offset()
    }

    pub(super) fn is_between(&self) -> bool {
        self.inside.is_none()
    }

    /// Goes to the first sound frame at or after `start`.
    pub(super) fn sync(&mut self, start: u64) -> io::Result<Option<u64>> {
        self.window.seek(start.max(self.first))?;
        Ok(self.find_sound()?.then(|| self.window.offset()))
    }

    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Piece {
        if self.inside.is_none() {
            match self.start() {
                Ok(None) => {}
                Ok(Some(piece)) => return piece,
                Err(e) => return Piece::Failed(e),
            }
        }
        let (offset, given) = self.inside.unwrap_or((self.window.offset(), 0));
        let before = out.len();
        loop {
            let step = self.step(out);
            let here = (out.len() - before) as u64;
            let step = step.and_then(|end| match bomb(given + here, self.offset() - offset) {
                Some(why) => {
                    self.bombs += 1;
                    Err(why)
                }
                None => Ok(end),
            });
            match step {
                Ok(end) if end || here >= PIECE => {
                    self.inside = (!end).then_some((offset, given + here));
                    self.before = end.then_some(offset);
                    return Piece::Data {
                        offset,
                        starts_member: given == 0,
                        ends_member: end,
                    };
                }
                Ok(_) => {}
                Err(why) => {
                    // bytes before the damage are not returned: their record is lost anyway
                    out.truncate(before);
                    return self.skip_damage(offset, why, given > 0);
                }
            }
        }
    }

    /// Goes to the next frame; a piece if there is none.
    fn start(&mut self) -> io::Result<Option<Piece>> {
        loop {
            if self.done {
                return Ok(Some(Piece::End));
            }
            self.window.fill_to(8)?;
            let bytes = self.window.available();
            let offset = self.window.offset();
            if is_frame(bytes) {
                self.inside = Some((offset, 0));
                return Ok(None);
            }
            let zeros = self.window.at_end() && bytes.iter().all(|&b| b == 0);
            if bytes.is_empty() || zeros {
                return Ok(Some(Piece::End));
            }
            if !is_skippable(bytes) || bytes.len() < 8 {
                let why = "not a zstd frame".to_string();
                // a damaged length can take a frame past its end and over the next one
                let from = self.before.filter(|_| self.records).unwrap_or(offset);
                return Ok(Some(self.skip_damage(from, why, false)));
            }
            let size = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            if !skip(&mut self.window, 8 + u64::from(size))? {
                let why = "the file ends inside a skippable zstd frame".to_string();
                return Ok(Some(self.skip_damage(offset, why, false)));
            }
        }
    }

    /// Decompresses some; true at the end of the frame.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, String> {
        self.window
            .fill_to(1)
            .map_err(|e| format!("cannot read on: {e}"))?;
        out.reserve(CHUNK);
        let before = out.len();
        let (used, left) = {
            let mut input = InBuffer::around(self.window.available());
            let mut output = OutBuffer::around_pos(out, before);
            let left = self.decoder.run(&mut input, &mut output);
            let left = left.map_err(|e| format!("corrupt zstd frame: {e}"))?;
            (input.pos(), left)
        };
        self.window.skip(used);
        if left == 0 {
            return Ok(true);
        }
        if used == 0 && out.len() == before && self.window.available().is_empty() {
            return Err("the file ends inside a zstd frame".to_string());
        }
        Ok(false)
    }

    /// Skips damage at `offset`.
    fn skip_damage(&mut self, offset: u64, why: String, inside: bool) -> Piece {
        // the session is broken, the dictionary stays
        if self.decoder.reinit().is_err()
            && let Ok(decoder) = Decoder::with_dictionary(&self.dictionary)
        {
            self.decoder = decoder;
        }
        (self.inside, self.before) = (None, None);
        let sought = self.window.seek(offset + 1);
        if self.bombs > MAX_BOMBS {
            let end = "; the rest of the file is not read";
            return self.finish(offset, why + end, inside);
        }
        if !matches!(sought.and_then(|()| self.find_sound()), Ok(true)) {
            return self.finish(offset, why, inside);
        }
        Piece::Damage {
            offset,
            why,
            inside,
        }
    }

    /// Nothing comes after this damage.
    fn finish(&mut self, offset: u64, why: String, inside: bool) -> Piece {
        self.done = true;
        Piece::Damage {
            offset,
            why,
            inside,
        }
    }

    /// Goes to the next frame that looks sound; false at the end of the file.
    fn find_sound(&mut self) -> io::Result<bool> {
        loop {
            self.window.fill_to(CHUNK)?;
            let bytes = self.window.available();
            match memchr::memmem::find(bytes, &FRAME) {
                Some(i) => {
                    self.window.skip(i);
                    self.window.fill_to(CHUNK)?;
                    if self.looks_sound() {
                        return Ok(true);
                    }
                    self.window.skip(1);
                }
                None if self.window.at_end() || bytes.len() < FRAME.len() => return Ok(false),
                None => {
                    let n = bytes.len() - (FRAME.len() - 1);
                    self.window.skip(n);
                }
            }
        }
    }

    /// Whether the first bytes decompress and, for a WARC, start a record.
    fn looks_sound(&self) -> bool {
        let Ok(mut decoder) = Decoder::with_dictionary(&self.dictionary) else {
            return false;
        };
        let mut head = [0u8; 16];
        match decoder.run_on_buffers(self.window.available(), &mut head) {
            Ok(status) => {
                let head = &head[..status.bytes_written];
                !head.is_empty() && (!self.records || head.starts_with(b"WARC/"))
            }
            Err(_) => false,
        }
    }
}

/// Skips `n` bytes; false if the file ends before.
fn skip(window: &mut Window, n: u64) -> io::Result<bool> {
    let mut left = n;
    while left > 0 {
        window.fill_to(1)?;
        let here = window.available().len();
        if here == 0 {
            return Ok(false);
        }
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(here);
        window.skip(step);
        left -= step as u64;
    }
    Ok(true)
}

/// The dictionary at the start of the file and where it ends; empty if there is none.
fn read_dictionary(window: &mut Window) -> io::Result<(Vec<u8>, u64)> {
    window.fill_to(8)?;
    let bytes = window.available();
    if !bytes.starts_with(&DICTIONARY) || bytes.len() < 8 {
        return Ok((Vec::new(), 0));
    }
    let size = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
    let too_large =
        |size: usize| io::Error::other(format!("{size} bytes, more than {MAX_DICTIONARY}"));
    if size > MAX_DICTIONARY {
        return Err(too_large(size));
    }
    window.fill_to(8 + size)?;
    let Some(content) = window.available().get(8..8 + size) else {
        return Err(io::Error::other("the file ends inside it"));
    };
    let end = 8 + size as u64;
    if !is_frame(content) {
        return Ok((content.to_vec(), end));
    }
    let mut dictionary = Vec::new();
    let most = MAX_DICTIONARY as u64 + 1;
    ::zstd::stream::read::Decoder::with_buffer(content)?
        .take(most)
        .read_to_end(&mut dictionary)?;
    if dictionary.len() > MAX_DICTIONARY {
        return Err(too_large(dictionary.len()));
    }
    Ok((dictionary, end))
}
