//! Decoders for bzip2, xz and LZ4.
//!
//! All are pure Rust: libbz2-rs (bzip2 1.0.8 translated), lzma-rust2, lz4_flex. LZ4 comes as one frame per WARC
//! record (as FastWARC writes it) or one per file; bzip2 as one stream, or as many (pbzip2, the wikis'
//! `-multistream` dumps). Damage ends a file, except in bzip2, which continues at the next stream: its first ten
//! bytes are known (`BZh`, level, and pi as the magic of a block).

use std::io::{self, Read};

use bzip2::{Decompress, Status};
use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;

use super::piece::{CHUNK, Piece, bomb};
use crate::read::storage::Window;

/// Memory limit for xz's dictionary, KiB: `xz -9` needs 64 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

enum Codec {
    Bzip2(Box<Streams>),
    Xz(Box<XzReader<Window>>),
    Lz4(Box<FrameDecoder<Window>>),
}

/// A bzip2 file's streams.
struct Streams {
    window: Window,
    raw: Decompress,
    /// The stream's last byte has been returned.
    ended: bool,
}

impl Streams {
    fn new(window: Window) -> Streams {
        Streams {
            window,
            raw: Decompress::new(false),
            ended: false,
        }
    }

    /// Prepares for a new stream.
    fn restart(&mut self) {
        self.raw = Decompress::new(false);
        self.ended = false;
    }

    /// Goes to the first stream at or after `from`.
    fn find(&mut self, from: u64) -> io::Result<bool> {
        self.window.seek(from)?;
        loop {
            self.window.fill_to(CHUNK)?;
            let bytes = self.window.available();
            if let Some(i) = find_stream(bytes) {
                self.window.skip(i);
                self.restart();
                return Ok(true);
            }
            if self.window.at_end() || bytes.len() < BLOCK.len() + 4 {
                return Ok(false);
            }
            let kept = BLOCK.len() + 4 - 1;
            let n = bytes.len() - kept;
            self.window.skip(n);
        }
    }
}

impl Read for Streams {
    /// Reads to the end of the stream, no further.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !out.is_empty() {
            self.window.fill_to(1)?;
            let at_end = self.window.available().is_empty();
            let (read, made) = (self.raw.total_in(), self.raw.total_out());
            let status = self.raw.decompress(self.window.available(), out)?;
            let used = usize::try_from(self.raw.total_in() - read).unwrap_or(usize::MAX);
            self.window.skip(used);
            self.ended = status == Status::StreamEnd;
            let made = usize::try_from(self.raw.total_out() - made).unwrap_or(usize::MAX);
            if made > 0 {
                return Ok(made);
            }
            if at_end && !self.ended {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
        Ok(0)
    }
}

/// Magic of a block of bzip2.
const BLOCK: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];

/// Start of the next stream that is followed by its first block.
fn find_stream(bytes: &[u8]) -> Option<usize> {
    let blocks = memchr::memmem::find_iter(bytes, BLOCK);
    let mut starts = blocks.filter_map(|block| block.checked_sub(4));
    let is_start = |at: &usize| matches!(bytes[*at..], [b'B', b'Z', b'h', b'1'..=b'9', ..]);
    starts.find(is_start)
}

/// A decompressor over a file.
pub(super) struct Stream {
    codec: Codec,
    /// Start of the current frame, and bytes it has produced so far.
    start: u64,
    made: u64,
    /// Nothing more is returned.
    done: bool,
}

impl Stream {
    pub(super) fn bzip2(window: Window) -> Stream {
        Stream::new(Codec::Bzip2(Box::new(Streams::new(window))))
    }

    pub(super) fn xz(window: Window) -> Stream {
        let reader = XzReader::new_mem_limit(window, true, XZ_MEMORY_KIB);
        Stream::new(Codec::Xz(Box::new(reader)))
    }

    pub(super) fn lz4(window: Window) -> Stream {
        Stream::new(Codec::Lz4(Box::new(FrameDecoder::new(window))))
    }

    fn new(codec: Codec) -> Stream {
        Stream {
            codec,
            start: 0,
            made: 0,
            done: false,
        }
    }

    /// Goes to the first bzip2 stream at or after `start`; the other kinds have no places to enter them.
    pub(super) fn sync(&mut self, start: u64) -> io::Result<Option<u64>> {
        let Codec::Bzip2(streams) = &mut self.codec else {
            return Ok(None);
        };
        if !streams.find(start)? {
            return Ok(None);
        }
        self.start = streams.window.offset();
        self.made = 0;
        Ok(Some(self.start))
    }

    /// True if a second bzip2 stream starts within the first `bytes`.
    pub(super) fn has_streams(&mut self, bytes: usize) -> io::Result<bool> {
        let Codec::Bzip2(streams) = &mut self.codec else {
            return Ok(false);
        };
        streams.window.fill_to(bytes)?;
        let rest = streams.window.available().get(1..).unwrap_or_default();
        Ok(find_stream(rest).is_some())
    }

    /// True if nothing more will come.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    pub(super) fn offset(&self) -> u64 {
        match &self.codec {
            Codec::Bzip2(streams) => streams.window.offset(),
            Codec::Xz(decoder) => decoder.inner().offset(),
            Codec::Lz4(decoder) => decoder.get_ref().offset(),
        }
    }

    fn name(&self) -> &'static str {
        match &self.codec {
            Codec::Bzip2(_) => "bzip2",
            Codec::Xz(_) => "xz",
            Codec::Lz4(_) => "lz4",
        }
    }

    /// A frame has ended: true if another one follows.
    fn another_frame(&mut self) -> io::Result<bool> {
        let window = match &mut self.codec {
            Codec::Bzip2(streams) => {
                streams.restart();
                &mut streams.window
            }
            Codec::Lz4(decoder) => decoder.get_mut(),
            Codec::Xz(_) => return Ok(false),
        };
        window.fill_to(1)?;
        self.start = window.offset();
        self.made = 0;
        Ok(!window.available().is_empty())
    }

    /// Skips damage in the stream that starts at `start`.
    fn skip_damage(&mut self, start: u64) {
        self.done = !matches!(self.sync(start + 1), Ok(Some(_)));
    }

    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Piece {
        loop {
            let before = out.len();
            out.resize(before + CHUNK, 0);
            let read = match &mut self.codec {
                Codec::Bzip2(streams) => streams.read(&mut out[before..]),
                Codec::Xz(decoder) => decoder.read(&mut out[before..]),
                Codec::Lz4(decoder) => decoder.read(&mut out[before..]),
            };
            let n = *read.as_ref().unwrap_or(&0);
            out.truncate(before + n);
            let starts_member = self.made == 0 && matches!(self.codec, Codec::Lz4(_));
            self.made += n as u64;
            let start = self.start;
            let why = match read {
                Ok(0) => match self.another_frame() {
                    Ok(true) => continue,
                    Ok(false) => {
                        self.done = true;
                        return Piece::End;
                    }
                    Err(e) => {
                        self.done = true;
                        return Piece::Failed(e);
                    }
                },
                Ok(_) => match bomb(self.made, self.offset() - start) {
                    Some(why) => {
                        self.done = true;
                        why
                    }
                    None => {
                        return Piece::Data {
                            offset: start,
                            starts_member,
                            ends_member: false,
                        };
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    format!("the file ends inside its {} data", self.name())
                }
                Err(e) => format!("corrupt {} data: {e}", self.name()),
            };
            if !self.done {
                self.skip_damage(start);
            }
            return Piece::Damage {
                offset: start,
                why,
                inside: true,
            };
        }
    }
}
