//! A file seen through a growing buffer: the bytes from the current position on.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

/// Buffered file that knows its position and can hold as much as asked.
pub(super) struct Window {
    file: File,
    buffer: Vec<u8>,
    at: usize,
    /// File offset of `buffer[at]`.
    offset: u64,
    end: bool,
}

const STEP: usize = 256 << 10;

impl Window {
    pub(super) fn new(file: File) -> Window {
        Window {
            file,
            buffer: Vec::new(),
            at: 0,
            offset: 0,
            end: false,
        }
    }

    /// File offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes at hand.
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// True if the file ends with the bytes at hand.
    pub(super) fn at_end(&self) -> bool {
        self.end
    }

    /// Reads until `wanted` bytes are at hand or the file ends.
    pub(super) fn fill_to(&mut self, wanted: usize) -> io::Result<()> {
        while !self.end && self.buffer.len() - self.at < wanted {
            if self.at > 0 {
                self.buffer.drain(..self.at);
                self.at = 0;
            }
            let len = self.buffer.len();
            let step = (wanted - len).max(STEP);
            self.buffer.resize(len + step, 0);
            let read = self.file.read(&mut self.buffer[len..]);
            let n = *read.as_ref().unwrap_or(&0);
            self.buffer.truncate(len + n);
            match read {
                Ok(0) => self.end = true,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.end = true;
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, n: usize) {
        let n = n.min(self.buffer.len() - self.at);
        self.at += n;
        self.offset += n as u64;
    }

    /// Goes to a file offset.
    pub(super) fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.buffer.clear();
        self.at = 0;
        self.offset = offset;
        self.end = false;
        Ok(())
    }
}

impl Read for Window {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.fill_to(1)?;
        let n = out.len().min(self.available().len());
        out[..n].copy_from_slice(&self.available()[..n]);
        self.skip(n);
        Ok(n)
    }
}

impl BufRead for Window {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill_to(1)?;
        Ok(self.available())
    }

    fn consume(&mut self, amount: usize) {
        self.skip(amount);
    }
}
