//! bzip2, xz and LZ4: kinds without places to go on at after damage.
//!
//! All are pure Rust: libbz2-rs (bzip2 1.0.8 translated), lzma-rust2, lz4_flex. LZ4 comes as one frame
//! a WARC record (FastWARC writes it so) or one a file.

use std::io::{self, Read};

use bzip2::bufread::MultiBzDecoder;
use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;

use super::{CHUNK, Piece, bomb, cannot_read};
use crate::read::place::Window;

/// Memory for xz's dictionary, KiB: `xz -9` asks for 64 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

enum Codec {
    Bzip2(MultiBzDecoder<Window>),
    Xz(Box<XzReader<Window>>),
    Lz4(FrameDecoder<Window>),
}

/// A decompressor over a file.
pub(super) struct Stream {
    codec: Codec,
    /// Where the frame starts that is being read, and what it has given so far.
    start: u64,
    made: u64,
}

impl Stream {
    pub(super) fn bzip2(window: Window) -> Stream {
        Stream::new(Codec::Bzip2(MultiBzDecoder::new(window)))
    }

    pub(super) fn xz(window: Window) -> Stream {
        let reader = XzReader::new_mem_limit(window, true, XZ_MEMORY_KIB);
        Stream::new(Codec::Xz(Box::new(reader)))
    }

    pub(super) fn lz4(window: Window) -> Stream {
        Stream::new(Codec::Lz4(FrameDecoder::new(window)))
    }

    fn new(codec: Codec) -> Stream {
        Stream {
            codec,
            start: 0,
            made: 0,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        match &self.codec {
            Codec::Bzip2(decoder) => decoder.get_ref().offset(),
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
        let Codec::Lz4(decoder) = &mut self.codec else {
            return Ok(false);
        };
        let window = decoder.get_mut();
        window.fill_to(1)?;
        self.start = window.offset();
        self.made = 0;
        Ok(!window.available().is_empty())
    }

    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Piece {
        loop {
            let before = out.len();
            out.resize(before + CHUNK, 0);
            let read = match &mut self.codec {
                Codec::Bzip2(decoder) => decoder.read(&mut out[before..]),
                Codec::Xz(decoder) => decoder.read(&mut out[before..]),
                Codec::Lz4(decoder) => decoder.read(&mut out[before..]),
            };
            let n = *read.as_ref().unwrap_or(&0);
            out.truncate(before + n);
            let starts_member = self.made == 0 && matches!(self.codec, Codec::Lz4(_));
            self.made += n as u64;
            let why = match read {
                Ok(0) => match self.another_frame() {
                    Ok(true) => continue,
                    Ok(false) => return Piece::End,
                    Err(e) => return cannot_read(self.start, &e),
                },
                Ok(_) => match bomb(self.made, self.offset() - self.start) {
                    Some(why) => why,
                    None => {
                        return Piece::Data {
                            offset: self.start,
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
            return Piece::Damage {
                offset: self.start,
                why,
                inside: true,
            };
        }
    }
}
