//! Plain and compressed files as one stream of pieces, with damage reported in between.
//!
//! The kind is detected from the first bytes, never from the name: gzip `1f 8b`, zstd `28 b5 2f fd` (also behind
//! skippable frames), bzip2 `BZh`, xz `fd 37 7a 58 5a 00`, LZ4 frame `04 22 4d 18`. Damage in a gzip member or zstd
//! frame loses that member: reading continues at the next one that decompresses to something sensible, and after
//! damage in bzip2 at the next stream. In the other kinds it ends the file.
//!
//! A member that expands more than 500 times and past 256 MiB is a bomb and abandoned: no text does that
//! (deflate reaches 1,032 times on a run of one byte, zstd 32,000 times).

mod body;
mod gzip;
mod inflate;
mod members;
mod piece;
mod stream;
mod zstd;

use std::io;

use flate2::bufread::GzDecoder;

use super::storage::{Blob, Failure, Watched, Window};
use inflate::Inflater;
use piece::{CHUNK, LAST_WINDOW};
use stream::Stream;
use zstd::Frames;

pub(crate) use body::decode_body;
pub(crate) use piece::Piece;

enum State {
    Plain(Window),
    /// Between gzip members.
    Gzip(Window),
    /// Inside a member that is streamed.
    Member(Box<Member>),
    Zstd(Box<Frames>),
    Stream(Box<Stream>),
    Done,
}

/// A gzip member being read.
struct Member {
    decoder: GzDecoder<Window>,
    /// File offset of the member.
    offset: u64,
    /// Bytes returned so far.
    made: u64,
}

/// A file's decompressed bytes.
pub(crate) struct Source {
    state: State,
    inflater: Option<Inflater>,
    /// Member after member of records (WARC) rather than one long member.
    records: bool,
    compressed: bool,
    gzip: bool,
    utf_16: bool,
    consumed: u64,
    failure: Failure,
}
/// Number of first bytes that identify the kind.
const HEAD: usize = 6;

impl Source {
    /// All bytes that are left, no more than `max`.
    ///
    /// # Errors
    /// A read that was refused; inside, why there are none: damage, more than `max`.
    pub(crate) fn whole(&mut self, max: usize) -> io::Result<Result<Vec<u8>, String>> {
        let mut bytes = Vec::new();
        loop {
            match self.next(&mut bytes) {
                Piece::Data { .. } if bytes.len() > max => {
                    return Ok(Err(format!("file longer than {max} bytes")));
                }
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                Piece::Damage { offset, why, .. } => {
                    return Ok(Err(format!("{why} (at file byte {offset})")));
                }
                Piece::End => return Ok(Ok(bytes)),
            }
        }
    }

    /// Opens a file; `records`: each gzip member holds about one record.
    pub(crate) fn open(blob: Box<dyn Blob>, records: bool) -> io::Result<Source> {
        let (blob, failure) = Watched::over(blob);
        let mut window = Window::new(blob);
        window.fill_to(HEAD)?;
        let mut head = [0u8; HEAD];
        let n = window.available().len().min(HEAD);
        head[..n].copy_from_slice(&window.available()[..n]);
        let state = match head {
            [0x1f, 0x8b, ..] => State::Gzip(window),
            _ if zstd::is_frame(&head) || zstd::is_skippable(&head) => {
                State::Zstd(Box::new(Frames::open(window, records)?))
            }
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, _] => {
                State::Stream(Box::new(Stream::bzip2(window)))
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0] => State::Stream(Box::new(Stream::xz(window))),
            [0x04, 0x22, 0x4d, 0x18, ..] => State::Stream(Box::new(Stream::lz4(window))),
            _ if records && has_damaged_start(&mut window)? => State::Gzip(window),
            _ => State::Plain(window),
        };
        let inflater = if records { Inflater::new() } else { None };
        Ok(Source {
            compressed: !matches!(state, State::Plain(_)),
            gzip: matches!(state, State::Gzip(_)),
            utf_16: matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]),
            state,
            inflater,
            records,
            consumed: 0,
            failure,
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

    /// Goes to the first member, frame, bzip2 stream or (in a plain file) WARC record that starts at or after
    /// `start` and returns where that is; None if there is none.
    pub(super) fn sync(&mut self, start: u64) -> io::Result<Option<u64>> {
        let records = self.records;
        let found = match &mut self.state {
            State::Gzip(window) => {
                window.seek(start)?;
                gzip::find_sound(window, records)?.then(|| window.offset())
            }
            State::Zstd(frames) => frames.sync(start)?,
            State::Plain(window) => plain_record(window, start)?,
            State::Stream(stream) => stream.sync(start)?,
            State::Member(_) | State::Done => None,
        };
        match found {
            Some(offset) => self.consumed = offset,
            None => self.state = State::Done,
        }
        Ok(found)
    }

    /// True if a bzip2 file has a second stream within its first `bytes`.
    pub(super) fn has_streams(&mut self, bytes: usize) -> io::Result<bool> {
        match &mut self.state {
            State::Stream(stream) => stream.has_streams(bytes),
            _ => Ok(false),
        }
    }

    /// True for anything but plain files.
    pub(crate) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// True if a plain file starts with UTF-16's byte order mark.
    pub(super) fn is_utf_16(&self) -> bool {
        self.utf_16
    }

    /// True for gzip.
    pub(super) fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// True if the next bytes start a member.
    pub(super) fn is_between_members(&self) -> bool {
        match &self.state {
            State::Gzip(_) => true,
            State::Zstd(frames) => frames.is_between(),
            _ => false,
        }
    }

    /// File bytes consumed so far.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Appends the next piece to `out`.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Piece {
        let piece = self.next_piece(out);
        // a decompressor takes a refused read for damage
        match self.failure.take() {
            Some(error) => {
                self.state = State::Done;
                Piece::Failed(error)
            }
            None => piece,
        }
    }

    fn next_piece(&mut self, out: &mut Vec<u8>) -> Piece {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => Piece::End,
            State::Plain(window) => self.plain(window, out),
            State::Gzip(window) => self.gzip(window, out),
            State::Member(member) => self.member(member, out),
            State::Zstd(mut frames) => {
                let piece = frames.next(out);
                self.consumed = frames.offset();
                if !matches!(piece, Piece::End) {
                    self.state = State::Zstd(frames);
                }
                piece
            }
            State::Stream(mut stream) => {
                let piece = stream.next(out);
                self.consumed = stream.offset();
                if !stream.is_done() {
                    self.state = State::Stream(stream);
                }
                piece
            }
        }
    }

    fn plain(&mut self, mut window: Window, out: &mut Vec<u8>) -> Piece {
        let offset = window.offset();
        if let Err(e) = window.fill_to(1) {
            return Piece::Failed(e);
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
            ends_member: false,
        }
    }
}

/// A WARC file whose first bytes are neither a record nor gzip, with gzip members further on.
fn has_damaged_start(window: &mut Window) -> io::Result<bool> {
    window.fill_to(LAST_WINDOW)?;
    let bytes = window.available();
    let plain = memchr::memmem::find(bytes, b"WARC/").is_some() || bytes.starts_with(b"filedesc:");
    Ok(!plain && memchr::memmem::find(bytes, &[0x1f, 0x8b, 0x08]).is_some())
}

/// Fixed part of the bytes between two records of a plain file.
const BETWEEN: &[u8] = b"\r\n\r\nWARC/1.";

/// Goes to the first record of a plain WARC file at or after `start`.
fn plain_record(window: &mut Window, start: u64) -> io::Result<Option<u64>> {
    let before = 4;
    window.seek(start.saturating_sub(before))?;
    if start < before {
        window.fill_to(5)?;
        if start == 0 && window.available().starts_with(b"WARC/") {
            return Ok(Some(0));
        }
    }
    loop {
        window.fill_to(CHUNK)?;
        let bytes = window.available();
        // the digit behind the dot and the line end are checked as well
        let found = memchr::memmem::find_iter(bytes, BETWEEN).find(|i| {
            let rest = &bytes[i + BETWEEN.len()..];
            matches!(rest, [b'0'..=b'9', b'\r' | b'\n', ..])
        });
        if let Some(i) = found {
            window.skip(i + 4);
            return Ok(Some(window.offset()));
        }
        let kept = BETWEEN.len() + 2;
        if window.at_end() || bytes.len() <= kept {
            return Ok(None);
        }
        window.skip(bytes.len() - kept);
    }
}
