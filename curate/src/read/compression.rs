//! Plain, gzip and zstd files as one stream of pieces, with damage reported in between.
//!
//! The kind is told from the first bytes (`1f 8b`, `28 b5 2f fd`), never from the name. A damaged
//! gzip member costs that member: reading goes on at the next header that inflates to something
//! sensible. A damaged zstd frame ends the file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;

use super::inflate::{Inflated, Inflater};
use super::window::Window;

/// What came next.
pub(super) enum Piece {
    /// Bytes were appended; they start at this file offset (of the member, where compressed).
    Data {
        /// File offset.
        offset: u64,
        /// The first bytes of a gzip member.
        starts_member: bool,
    },
    /// Something could not be read; what follows is not contiguous with what came before.
    Damage {
        /// File offset of the damaged part.
        offset: u64,
        /// What is wrong.
        why: String,
        /// The bytes handed out last belong to the damaged part.
        inside: bool,
    },
    /// The end of the file.
    End,
}

enum State {
    Plain(Window),
    /// Between gzip members.
    Gzip(Window),
    /// Inside a member that is streamed.
    Member(Box<GzDecoder<Window>>, u64, bool),
    Zstd(Box<zstd::stream::read::Decoder<'static, Window>>),
    Done,
}

/// A file's decompressed bytes.
pub(super) struct Source {
    state: State,
    inflater: Option<Inflater>,
    /// Member after member of records (WARC) rather than one long member.
    records: bool,
    consumed: u64,
}

/// Largest member that is inflated in one call, and largest window for it.
const WHOLE: usize = 32 << 20;
const FIRST_WINDOW: usize = 1 << 20;
const CHUNK: usize = 256 << 10;

impl Source {
    /// Opens a file; `records` tells that each gzip member holds about one record.
    pub(super) fn open(path: &Path, records: bool) -> io::Result<Source> {
        let mut window = Window::new(File::open(path)?);
        window.fill_to(4)?;
        let mut head = [0u8; 4];
        let n = window.available().len().min(4);
        head[..n].copy_from_slice(&window.available()[..n]);
        let state = match head {
            [0x1f, 0x8b, ..] => State::Gzip(window),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                State::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(window)?))
            }
            _ if records && has_damaged_start(&mut window)? => State::Gzip(window),
            _ => State::Plain(window),
        };
        let inflater = if records { Inflater::new() } else { None };
        Ok(Source {
            state,
            inflater,
            records,
            consumed: 0,
        })
    }

    /// Goes on at a byte of a plain file.
    ///
    /// # Errors
    /// Compressed files have no such places.
    pub(super) fn seek(&mut self, offset: u64) -> io::Result<()> {
        match &mut self.state {
            State::Plain(window) => {
                self.consumed = offset;
                window.seek(offset)
            }
            _ => Err(io::Error::other("a range of a compressed file")),
        }
    }

    /// True for gzip and zstd.
    pub(super) fn is_compressed(&self) -> bool {
        !matches!(self.state, State::Plain(_))
    }

    /// File bytes consumed so far.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Appends the next piece to `out`.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Piece {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => Piece::End,
            State::Plain(window) => self.plain(window, out),
            State::Gzip(window) => self.gzip(window, out),
            State::Member(decoder, offset, first) => self.stream(decoder, offset, first, out),
            State::Zstd(decoder) => self.zstd(decoder, out),
        }
    }

    fn failed(&mut self, offset: u64, error: &io::Error) -> Piece {
        self.state = State::Done;
        Piece::Damage {
            offset,
            why: format!("cannot read on: {error}"),
            inside: true,
        }
    }

    fn plain(&mut self, mut window: Window, out: &mut Vec<u8>) -> Piece {
        let offset = window.offset();
        if let Err(e) = window.fill_to(1) {
            return self.failed(offset, &e);
        }
        let n = window.available().len();
        if n == 0 {
            return Piece::End;
        }
        out.extend_from_slice(window.available());
        window.skip(n);
        self.consumed = window.offset();
        self.state = State::Plain(window);
        Piece::Data {
            offset,
            starts_member: false,
        }
    }

    fn gzip(&mut self, mut window: Window, out: &mut Vec<u8>) -> Piece {
        let offset = window.offset();
        let mut wanted = FIRST_WINDOW;
        loop {
            if let Err(e) = window.fill_to(wanted) {
                return self.failed(offset, &e);
            }
            let bytes = window.available();
            // Padding with zeros after the last member is common and harmless.
            if bytes.is_empty() || (window.at_end() && bytes.iter().all(|&b| b == 0)) {
                self.consumed = offset + bytes.len() as u64;
                return Piece::End;
            }
            if !is_gzip(bytes) {
                return self.resync(
                    window,
                    offset,
                    offset,
                    ("not a gzip header".to_string(), false),
                );
            }
            let Some(inflater) = self.inflater.as_mut().filter(|_| self.records) else {
                break;
            };
            match inflater.member(bytes, out, WHOLE) {
                Inflated::Member(used) => {
                    window.skip(used);
                    self.consumed = window.offset();
                    self.state = State::Gzip(window);
                    return Piece::Data {
                        offset,
                        starts_member: true,
                    };
                }
                Inflated::Bad if !window.at_end() && wanted < WHOLE => wanted *= 4,
                Inflated::Bad | Inflated::TooLarge => break,
            }
        }
        self.stream(Box::new(GzDecoder::new(window)), offset, true, out)
    }

    /// Streams a member that is long or damaged.
    fn stream(
        &mut self,
        mut decoder: Box<GzDecoder<Window>>,
        offset: u64,
        first: bool,
        out: &mut Vec<u8>,
    ) -> Piece {
        let before = out.len();
        out.resize(before + CHUNK, 0);
        let read = decoder.read(&mut out[before..]);
        let n = *read.as_ref().unwrap_or(&0);
        out.truncate(before + n);
        self.consumed = decoder.get_ref().offset();
        match read {
            Ok(0) => {
                let window = decoder.into_inner();
                self.gzip(window, out)
            }
            Ok(_) => {
                self.state = State::Member(decoder, offset, false);
                Piece::Data {
                    offset,
                    starts_member: first,
                }
            }
            Err(e) => {
                let why = if e.kind() == io::ErrorKind::UnexpectedEof {
                    "the file ends inside a gzip member".to_string()
                } else {
                    format!("corrupt gzip member: {e}")
                };
                self.resync(decoder.into_inner(), offset, offset + 1, (why, !first))
            }
        }
    }

    /// Goes to the next member that looks sound, at or after `from`.
    fn resync(
        &mut self,
        mut window: Window,
        damaged: u64,
        from: u64,
        (why, inside): (String, bool),
    ) -> Piece {
        if window.seek(from).is_err() {
            self.state = State::Done;
            return Piece::Damage {
                offset: damaged,
                why,
                inside,
            };
        }
        loop {
            if window.fill_to(CHUNK).is_err() {
                break;
            }
            let bytes = window.available();
            if bytes.len() < 18 {
                break;
            }
            match memchr::memmem::find(bytes, &[0x1f, 0x8b, 0x08]) {
                Some(i) => {
                    window.skip(i);
                    if window.fill_to(CHUNK).is_err() {
                        break;
                    }
                    if is_gzip(window.available()) && self.looks_sound(window.available()) {
                        self.state = State::Gzip(window);
                        return Piece::Damage {
                            offset: damaged,
                            why,
                            inside,
                        };
                    }
                    window.skip(1);
                }
                None => {
                    let n = bytes.len() - 2;
                    window.skip(n);
                }
            }
        }
        self.consumed = window.offset() + window.available().len() as u64;
        self.state = State::Done;
        Piece::Damage {
            offset: damaged,
            why,
            inside,
        }
    }

    /// The first bytes inflate, and for a WARC they start a record.
    fn looks_sound(&self, bytes: &[u8]) -> bool {
        let mut head = [0u8; 16];
        let mut filled = 0;
        let mut decoder = GzDecoder::new(bytes);
        while filled < head.len() {
            match decoder.read(&mut head[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(_) => return false,
            }
        }
        filled > 0 && (!self.records || head.starts_with(b"WARC/"))
    }

    fn zstd(
        &mut self,
        mut decoder: Box<zstd::stream::read::Decoder<'static, Window>>,
        out: &mut Vec<u8>,
    ) -> Piece {
        let before = out.len();
        let offset = decoder.get_ref().offset();
        out.resize(before + CHUNK, 0);
        let read = decoder.read(&mut out[before..]);
        let n = *read.as_ref().unwrap_or(&0);
        out.truncate(before + n);
        self.consumed = decoder.get_ref().offset();
        match read {
            Ok(0) => Piece::End,
            Ok(_) => {
                self.state = State::Zstd(decoder);
                Piece::Data {
                    offset,
                    starts_member: false,
                }
            }
            Err(e) => Piece::Damage {
                offset,
                why: format!("corrupt zstd frame: {e}"),
                inside: true,
            },
        }
    }
}

/// A WARC file whose first bytes are neither a record nor gzip, with gzip members further on.
fn has_damaged_start(window: &mut Window) -> io::Result<bool> {
    window.fill_to(FIRST_WINDOW)?;
    let bytes = window.available();
    let plain = memchr::memmem::find(bytes, b"WARC/").is_some();
    Ok(!plain && memchr::memmem::find(bytes, &[0x1f, 0x8b, 0x08]).is_some())
}

/// Magic, method deflate, no reserved flag.
fn is_gzip(bytes: &[u8]) -> bool {
    matches!(bytes, [0x1f, 0x8b, 0x08, flags, ..] if flags & 0xe0 == 0)
}

/// Inflates a whole buffer of gzip members, a zlib stream or a raw deflate stream, up to `most`.
pub(crate) fn decode_body(encoding: &str, body: &[u8], most: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let read = match encoding {
        "gzip" | "x-gzip" => flate2::read::MultiGzDecoder::new(body)
            .take(most + 1)
            .read_to_end(&mut out),
        "deflate" => {
            let zlib = flate2::read::ZlibDecoder::new(body)
                .take(most + 1)
                .read_to_end(&mut out);
            zlib.or_else(|_| {
                out.clear();
                flate2::read::DeflateDecoder::new(body)
                    .take(most + 1)
                    .read_to_end(&mut out)
            })
        }
        _ => return None,
    };
    // What was inflated before an error is still text: browsers show it too.
    let usable = read.is_ok() || !out.is_empty();
    (usable && out.len() as u64 <= most).then_some(out)
}
