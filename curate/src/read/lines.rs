//! Line reader: lines of a file, or the whole file as one record; of JSON also the objects of an array, or objects that go over
//! several lines (objects.rs).
//!
//! A record longer than allowed is skipped while streaming and becomes a bad record.

use std::io;
use std::ops::Range;

use super::Batch;
use super::compression::Piece;
use super::format::{Mismatch, starts_with};
use super::objects::{Layout, Next, Splitter, TELLING};
use super::storage::Blob;
use super::transcode::TextSource;

/// Reads lines (or one whole text).
pub(crate) struct LineReader {
    source: TextSource,
    buffer: Vec<u8>,
    /// Start of the bytes not yet returned.
    at: usize,
    /// No line feed before this position of the buffer.
    searched: usize,
    /// Offset of `buffer[at]` in the decompressed file.
    offset: u64,
    number: u64,
    max: usize,
    whole: bool,
    /// Finds the records of JSON that are not lines.
    splitter: Option<Splitter>,
    /// Inside a line that is too long: where it started.
    skipping: Option<u64>,
    end: bool,
    consumed: u64,
    /// Lines that start here or later belong to another range of the file.
    stop: u64,
    /// A file without lines is worth a bad record.
    wants_lines: bool,
    /// The piece after the buffered bytes, if known.
    pending: Option<Piece>,
    /// The read that was refused.
    failed: Option<io::Error>,
}

/// Bytes of a file that are searched for lines that may be JSON objects.
const LOOKED_AT: usize = 1 << 20;
/// The byte order mark of UTF-8, which may start a file and is no part of its first line.
const MARK: &[u8] = b"\xef\xbb\xbf";

impl LineReader {
    /// `whole`: the file is one record.
    pub(crate) fn open(blob: Box<dyn Blob>, max: usize, whole: bool) -> io::Result<LineReader> {
        Ok(LineReader {
            source: TextSource::open(blob)?,
            buffer: Vec::new(),
            at: 0,
            searched: 0,
            offset: 0,
            number: 0,
            max,
            whole,
            splitter: None,
            skipping: None,
            end: false,
            consumed: 0,
            stop: u64::MAX,
            wants_lines: true,
            pending: None,
            failed: None,
        })
    }

    /// Whether the file can be JSON lines: one of its first lines must open an object. The bytes read stay in the
    /// buffer.
    pub(crate) fn expect_objects(&mut self) -> io::Result<Option<Mismatch>> {
        loop {
            let text = self.buffer.strip_prefix(MARK);
            let text = text.unwrap_or(&self.buffer);
            let mut lines = text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii_start);
            if lines.any(|line| line.starts_with(b"{")) {
                return Ok(None);
            }
            if self.pending.is_some() || self.buffer.len() >= LOOKED_AT {
                let is_damaged = matches!(self.pending, Some(Piece::Damage { .. }));
                let is_open = is_damaged && self.buffer.len() < TELLING;
                if is_open || text.trim_ascii_start().is_empty() {
                    return Ok(None);
                }
                return Ok(Some(Mismatch {
                    wanted: "a JSONL file",
                    found: starts_with(text),
                    start: "a line that starts with \"{\"; format = \"auto\" takes each file as what its first bytes show",
                }));
            }
            match self.source.next(&mut self.buffer) {
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                other => self.pending = Some(other),
            }
        }
    }

    /// Like [`LineReader::expect_objects`], of a file that may also be an array of objects, or objects that go over several lines.
    pub(super) fn expect_values(&mut self) -> io::Result<Option<Mismatch>> {
        let start = loop {
            let text = self.buffer.strip_prefix(MARK).unwrap_or(&self.buffer);
            let start = text.trim_ascii_start().first().copied();
            let is_told = start.is_some_and(|byte| !matches!(byte, b'[' | b'{'));
            if is_told || self.pending.is_some() || self.buffer.len() >= TELLING {
                break self.buffer.len() - text.len();
            }
            match self.source.next(&mut self.buffer) {
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                other => self.pending = Some(other),
            }
        };
        let text = &self.buffer[start..];
        let is_array = match Layout::of(&text[..text.len().min(TELLING)]) {
            Layout::Lines => return self.expect_objects(),
            Layout::Array => true,
            Layout::Objects => false,
        };
        let bracket = text.len() - text.trim_ascii_start().len();
        let begin = start + bracket + usize::from(is_array);
        self.splitter = Some(Splitter::new(is_array));
        self.pass(begin);
        Ok(None)
    }

    /// Whether its records are lines, of which each can be found without those before it.
    pub(super) fn has_lines(&self) -> bool {
        self.splitter.is_none()
    }

    /// As it is, but bytes are not converted from UTF-16.
    pub(super) fn keep_bytes(&mut self) {
        self.source.keep_bytes();
    }

    /// As it is, but a file without lines is no error.
    pub(crate) fn may_be_empty(&mut self) {
        self.wants_lines = false;
    }

    /// Only the lines that start in `range` of a plain file: ranges that cover a file give each line once.
    pub(crate) fn keep_to(&mut self, range: &Range<u64>) -> io::Result<()> {
        self.may_be_empty();
        if range.start > 0 {
            // a line starts after a line feed: the byte before the range shows whether its first byte starts one
            self.source.seek(range.start - 1)?;
            self.offset = range.start - 1;
            self.consumed = range.start - 1;
            self.skip_line()?;
        } else if self.source.is_compressed() {
            return Err(io::Error::other("a range of a compressed file"));
        }
        self.stop = range.end;
        Ok(())
    }

    /// Skips to the next line feed (or to the end) without counting a record.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(i) = memchr::memchr(b'\n', &self.buffer[self.at..]) {
                self.at += i + 1;
                self.offset += i as u64 + 1;
                self.searched = self.at;
                return Ok(());
            }
            self.offset += (self.buffer.len() - self.at) as u64;
            self.buffer.clear();
            (self.at, self.searched) = (0, 0);
            match self.source.next(&mut self.buffer) {
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                Piece::Damage { .. } | Piece::End => {
                    self.end = true;
                    return Ok(());
                }
            }
        }
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(crate) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_full() && self.offset < self.stop {
            if let Some(splitter) = self.splitter.take() {
                match self.split(splitter, batch) {
                    true => continue,
                    false if self.end => break,
                    false => self.more(batch),
                }
                continue;
            }
            let found = if self.whole {
                None
            } else {
                memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|i| self.searched + i)
            };
            match found {
                Some(end) => self.take(end, end + 1, batch),
                None if self.end => break,
                None => self.more(batch),
            }
        }
        batch.consumed = self.source.consumed() - self.consumed;
        self.consumed = self.source.consumed();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Goes on to the start or the end of a value; false if the buffer has neither.
    fn split(&mut self, mut splitter: Splitter, batch: &mut Batch) -> bool {
        let next = splitter.next(&self.buffer[self.searched..]);
        let is_between = splitter.is_between();
        self.splitter = Some(splitter);
        match next {
            Next::Start(at) => self.pass(self.searched + at),
            Next::End(at) => self.take(self.searched + at, self.searched + at, batch),
            Next::Closed(at) => {
                // what follows an array is read as lines
                self.splitter = None;
                self.pass(self.searched + at);
            }
            Next::More => {
                if is_between {
                    self.pass(self.buffer.len());
                }
                return false;
            }
        }
        true
    }

    /// Continues at a place of the buffer; what is before it is no record.
    fn pass(&mut self, to: usize) {
        self.offset += (to - self.at) as u64;
        (self.at, self.searched) = (to, to);
    }

    /// Returns `buffer[at..end]` and continues at `next`.
    fn take(&mut self, end: usize, next: usize, batch: &mut Batch) {
        let mut line = &self.buffer[self.at..end];
        let offset = self.offset;
        if offset == 0 && !self.whole {
            line = line.strip_prefix(MARK).unwrap_or(line);
        }
        if let Some(start) = self.skipping.take() {
            batch.push_bad(start, self.number, self.too_long());
            self.number += 1;
        } else if line.len() > self.max {
            batch.push_bad(offset, self.number, self.too_long());
            self.number += 1;
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            batch.push(offset, self.number, line, None);
            self.number += 1;
        }
        self.offset += (next - self.at) as u64;
        self.at = next;
        self.searched = next;
    }

    fn too_long(&self) -> String {
        let what = match (self.whole, &self.splitter) {
            (true, _) => "file",
            (false, Some(_)) => "record",
            (false, None) => "line",
        };
        format!("{what} longer than {} bytes", self.max)
    }

    /// Reads another piece; handles records that cannot be completed.
    fn more(&mut self, batch: &mut Batch) {
        self.searched = self.buffer.len();
        if self.buffer.len() - self.at > self.max {
            self.skipping.get_or_insert(self.offset);
            self.offset += (self.buffer.len() - self.at) as u64;
            self.at = self.buffer.len();
        }
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.searched -= self.at;
            self.at = 0;
        }
        let pending = self.pending.take();
        match pending.unwrap_or_else(|| self.source.next(&mut self.buffer)) {
            Piece::Data { .. } => {}
            Piece::Failed(e) => (self.end, self.failed) = (true, Some(e)),
            Piece::End => {
                self.end = true;
                let is_mark_alone = self.offset == 0 && self.buffer[self.at..] == *MARK;
                if self.skipping.is_some() || self.at < self.buffer.len() {
                    self.take(self.buffer.len(), self.buffer.len(), batch);
                }
                let splitter = self.splitter.as_ref();
                if splitter.is_some_and(Splitter::wants_end) {
                    let why = "the file ends inside a JSON array".to_string();
                    batch.push_bad(self.offset, self.number, why);
                    self.number += 1;
                }
                let is_empty = self.offset == 0 || is_mark_alone;
                if self.wants_lines && self.number == 0 && is_empty {
                    batch.push_bad(0, 0, "the file is empty".to_string());
                    self.number = 1;
                }
            }
            Piece::Damage { offset, why, .. } => {
                // The unfinished line and the damaged part are one bad record.
                let start = self.skipping.take().unwrap_or(self.offset);
                let why = format!("{why} (at file byte {offset})");
                batch.push_bad(start, self.number, why);
                self.number += 1;
                self.pass(self.buffer.len());
                if let Some(splitter) = &mut self.splitter {
                    splitter.lose();
                }
            }
        }
    }
}
