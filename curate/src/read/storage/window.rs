//! Growing buffer over a file: the bytes from the current position on.

use std::io::{self, BufRead, Read};

use super::blob::Blob;

/// Buffered bytes with their position; grows on request.
pub(crate) struct Window {
    blob: Box<dyn Blob>,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes of the buffer that are read.
    filled: usize,
    /// File offset of `buffer[at]`.
    offset: u64,
    end: bool,
}

/// Minimum size of a read.
const STEP: usize = 1 << 20;

impl Window {
    pub(crate) fn new(blob: Box<dyn Blob>) -> Window {
        Window {
            blob,
            buffer: Vec::new(),
            at: 0,
            filled: 0,
            offset: 0,
            end: false,
        }
    }

    /// File offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Buffered bytes.
    pub(crate) fn available(&self) -> &[u8] {
        &self.buffer[self.at..self.filled]
    }

    /// True if the file ends with the buffered bytes.
    pub(crate) fn at_end(&self) -> bool {
        self.end
    }

    /// Reads until `wanted` bytes are buffered or the file ends.
    pub(crate) fn fill_to(&mut self, wanted: usize) -> io::Result<()> {
        while !self.end && self.filled - self.at < wanted {
            if self.at > 0 {
                self.buffer.copy_within(self.at..self.filled, 0);
                self.filled -= self.at;
                self.at = 0;
            }
            let room = wanted.max(self.filled + STEP / 2).max(STEP);
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
            match self.blob.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.end = true,
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.end = true;
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, n: usize) {
        let n = n.min(self.filled - self.at);
        self.at += n;
        self.offset += n as u64;
    }

    /// Goes to a file offset, within the buffer if it is still there.
    pub(crate) fn seek(&mut self, offset: u64) -> io::Result<()> {
        let start = self.offset - self.at as u64;
        if offset >= start && offset - start <= self.filled as u64 {
            self.at = usize::try_from(offset - start).unwrap_or(self.filled);
            self.offset = offset;
            return Ok(());
        }
        self.blob.go_to(offset)?;
        (self.at, self.filled) = (0, 0);
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
