//! Reader for WARC files, with recovery when records are not where they should be.
//!
//! Format: ISO 28500 (WARC/1.0, 1.1): `WARC/1.x CRLF` header lines, blank line, `Content-Length` bytes, CRLF CRLF.
//! A record is returned only once it is followed by a record start, a gzip member's end, or the end of the file. A
//! wrong length, a broken header or a damaged member loses that record; reading resumes at the next `WARC/` and
//! digit at a line start.
//!
//! A file that starts with `filedesc://` is an ARC file (warc/arc.rs).
//!
//! Nearly every member of a crawl is one sound record: those are decompressed directly into the batch and scanned
//! only once (warc/direct.rs). Ranges of a file: a range owns the records that start at or after the first sound
//! record (member, frame) in it and before the first one in the next range, so that ranges that cover a file give
//! every record once.

mod arc;
mod arc_reader;
mod direct;
mod header;
mod parse;
mod record;

use std::io;

use memchr::memmem;

use super::compression::{Piece, Source};
use super::format::{Mismatch, starts_with};
use super::storage::Blob;
use super::{Batch, Fault};
use header::{MAGIC, MAX_HEADER, header_value, is_start, parse_length};

pub(crate) use parse::parse_record;
pub(crate) use record::Provenance;

/// Reads WARC records.
pub(crate) struct WarcReader {
    source: Source,
    compressed: bool,
    buffer: Vec<u8>,
    at: usize,
    /// (buffer position, file offset, starts a member) of the pieces in the buffer, by position.
    pieces: Vec<(usize, u64, bool)>,
    /// No empty line starts before this position: headers without an end are not searched repeatedly.
    no_blank: usize,
    /// Positions of the members that may start with a record, in order; a hostile file can have any number.
    starts: Vec<usize>,
    /// Damage that comes after the bytes in the buffer, and whether those belong to it.
    damage: Option<(u64, String, bool)>,
    end: bool,
    number: u64,
    max: usize,
    consumed: u64,
    /// Records that start here or later belong to another range of the file.
    stop: u64,
    /// Only a range is read: it may be empty.
    ranged: bool,
    /// An ARC file, the format before WARC.
    arc: bool,
    /// The read that was refused.
    failed: Option<io::Error>,
}

/// A file is searched for its first record no further than this.
const LOOKED_AT: usize = 32 << 20;
/// If damage comes before this many bytes, the file's kind stays undecided.
const TELLING: usize = 64 << 10;

/// Position of a record in the buffer.
enum Found {
    /// Whole, with its end and where the next thing starts.
    Record { end: usize, next: usize },
    /// Unusable, with the reason and where to look for the next record.
    Bad { why: String, from: usize },
    /// Longer than allowed.
    TooLong { header: usize, length: u64 },
    /// Nothing is left.
    Nothing,
}

impl WarcReader {
    pub(super) fn open(source: Source, max: usize) -> WarcReader {
        WarcReader {
            compressed: source.is_compressed(),
            source,
            buffer: Vec::new(),
            at: 0,
            pieces: Vec::new(),
            no_blank: 0,
            starts: Vec::new(),
            damage: None,
            end: false,
            number: 0,
            max,
            consumed: 0,
            stop: u64::MAX,
            ranged: false,
            arc: false,
            failed: None,
        }
    }

    /// Whether the file can be a WARC or ARC file: it must contain a record. The bytes read stay in the buffer.
    pub(super) fn expect_records(&mut self) -> io::Result<Option<Mismatch>> {
        let most = self.max.saturating_add(MAX_HEADER).min(LOOKED_AT);
        let mut searched = 0;
        loop {
            let is_arc = self.buffer.trim_ascii_start().starts_with(arc::START);
            let from = searched.min(self.buffer.len());
            if is_arc || self.record_start(from).is_some() {
                return Ok(None);
            }
            searched = self.buffer.len().saturating_sub(MAGIC.len());
            if self.buffer.len() < most && self.more() {
                continue;
            }
            if let Some(e) = self.failed.take() {
                return Err(e);
            }
            let is_open = self.damage.is_some() && self.buffer.len() < TELLING;
            return Ok(if is_open || self.buffer.trim_ascii().is_empty() {
                None
            } else {
                Some(Mismatch {
                    wanted: "a WARC file",
                    found: starts_with(&self.buffer),
                    start: "\"WARC/1.\", or \"filedesc://\" of an ARC file",
                })
            });
        }
    }

    /// The first record start at or after `from` of the buffer.
    fn record_start(&self, from: usize) -> Option<usize> {
        let mut search = from;
        while let Some(i) = memmem::find(&self.buffer[search..], MAGIC) {
            let hit = search + i;
            let line_start = hit == 0 || matches!(self.buffer[hit - 1], b'\n' | b'\r');
            if is_start(&self.buffer[hit..]) && (line_start || self.piece_at(hit)) {
                return Some(hit);
            }
            search = hit + 1;
        }
        None
    }

    /// Restricts the reader to records that start in a range of the file; `next` is the same file again, to find
    /// the start of the next range. An empty range has none: the one at the file's start would otherwise have the
    /// damaged bytes before the first sound record, which belong to the range that follows it.
    pub(super) fn keep_to(
        &mut self,
        range: &std::ops::Range<u64>,
        next: Box<dyn Blob>,
    ) -> io::Result<()> {
        self.ranged = true;
        if range.is_empty() {
            self.end = true;
            return Ok(());
        }
        self.stop = Source::open(next, true)?
            .sync(range.end)?
            .unwrap_or(u64::MAX);
        if range.start > 0 {
            let start = self.source.sync(range.start)?;
            self.end = start.is_none_or(|start| start >= self.stop);
            self.consumed = self.source.consumed();
        }
        Ok(())
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_full() {
            if self.direct(batch) {
                continue;
            }
            self.compact();
            let found = self.find();
            if !matches!(found, Found::Nothing) && self.is_past(batch) {
                break;
            }
            match found {
                Found::Nothing => match self.damage.take() {
                    Some((offset, _, _)) if offset >= self.stop => self.end = true,
                    Some((offset, why, _)) => self.bad(offset, why, batch),
                    None => break,
                },
                Found::Record { end, next } => {
                    let offset = self.offset_of(self.at);
                    let repaired = self.repaired(end);
                    batch.push(offset, self.number, &self.buffer[self.at..end], repaired);
                    self.number += 1;
                    self.at = next;
                }
                Found::Bad { why, from } => {
                    let offset = self.offset_of(self.at);
                    self.resync(from);
                    let why = self.with_damage(why);
                    self.bad(offset, why, batch);
                }
                Found::TooLong { header, length } => {
                    let offset = self.offset_of(self.at);
                    let why = format!("record of {length} bytes, longer than {}", self.max);
                    self.skip_body(header, length);
                    let why = self.with_damage(why);
                    self.bad(offset, why, batch);
                }
            }
        }
        if self.end && !self.ranged && self.number == 0 && batch.records.is_empty() {
            self.bad(0, "the file is empty".to_string(), batch);
        }
        batch.consumed = self.source.consumed().saturating_sub(self.consumed);
        self.consumed = self.source.consumed();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// True if the record at the current position belongs to the next range; reading is over then.
    fn is_past(&mut self, batch: &mut Batch) -> bool {
        let offset = self.offset_of(self.at);
        if offset < self.stop {
            return false;
        }
        if offset > self.stop {
            let why =
                "a range of the file was cut inside a record; split it elsewhere or not at all";
            self.bad(self.stop, why.to_string(), batch);
        }
        self.finish();
        true
    }

    /// Nothing more is returned.
    fn finish(&mut self) {
        self.end = true;
        self.damage = None;
        self.at = self.buffer.len();
    }

    /// Damage reached while looking for the next record belongs to the record that was lost.
    fn with_damage(&mut self, why: String) -> String {
        if self.at < self.buffer.len() {
            return why;
        }
        match self.damage.take() {
            Some((_, damage, _)) => format!("{damage} ({why})"),
            None => why,
        }
    }

    /// The fault of the record up to `end` that did not keep it from being read.
    fn repaired(&self, end: usize) -> Option<Fault> {
        let record = &self.buffer[self.at..end];
        if self.arc {
            return arc::repair(record);
        }
        let (head, body) = record.split_at(header::end_from(record, 0)?);
        let fault = header::repair(head, body);
        let gzip = self.source.is_gzip() && !self.piece_at(self.at);
        fault.or(gzip.then_some(header::MEMBER_OF_SEVERAL))
    }

    fn bad(&mut self, offset: u64, why: String, batch: &mut Batch) {
        batch.push_bad(offset, self.number, why);
        self.number += 1;
    }

    /// Drops bytes already returned.
    fn compact(&mut self) {
        if self.at < (1 << 20) && self.at < self.buffer.len() {
            return;
        }
        let at = self.at;
        self.buffer.drain(..at);
        let last = self.pieces.iter().rposition(|p| p.0 <= at).unwrap_or(0);
        self.pieces.drain(..last);
        self.no_blank = self.no_blank.saturating_sub(at);
        let gone = self.starts.partition_point(|start| *start < at);
        self.starts.drain(..gone);
        self.starts.iter_mut().for_each(|start| *start -= at);
        for piece in &mut self.pieces {
            if piece.0 < at && !self.compressed {
                piece.1 += (at - piece.0) as u64;
            }
            // a member that started before the remaining bytes does not start in them
            piece.2 &= piece.0 >= at;
            piece.0 = piece.0.saturating_sub(at);
        }
        self.at = 0;
    }

    /// File offset of a buffer position.
    fn offset_of(&self, at: usize) -> u64 {
        let behind = self.pieces.partition_point(|p| p.0 <= at);
        let piece = behind.checked_sub(1).map(|last| self.pieces[last]);
        piece.map_or(0, |p| {
            if self.compressed {
                p.1
            } else {
                p.1 + (at - p.0) as u64
            }
        })
    }

    /// Gets one more piece; false if there is none before damage or the end.
    fn more(&mut self) -> bool {
        if self.end || self.damage.is_some() {
            return false;
        }
        let before = self.buffer.len();
        let piece = self.source.next(&mut self.buffer);
        self.note(piece, before)
    }

    /// Records the origin of a piece that is at `at` of the buffer.
    fn note(&mut self, piece: Piece, at: usize) -> bool {
        match piece {
            Piece::Data {
                offset,
                starts_member,
                ..
            } => {
                self.pieces.push((at, offset, starts_member));
                let head = &self.buffer[at..];
                if starts_member && (is_start(head) || head.len() <= MAGIC.len()) {
                    self.starts.push(at);
                }
                true
            }
            Piece::Damage {
                offset,
                why,
                inside,
            } => {
                self.damage = Some((offset, why, inside));
                false
            }
            Piece::Failed(e) => {
                (self.end, self.failed) = (true, Some(e));
                false
            }
            Piece::End => {
                self.end = true;
                false
            }
        }
    }

    /// True once `n` bytes from the current position are buffered.
    fn have(&mut self, n: usize) -> bool {
        while self.buffer.len() - self.at < n {
            if !self.more() {
                return false;
            }
        }
        true
    }

    /// A member that starts inside `from..to` with its own record.
    fn member_inside(&mut self, from: usize, to: usize) -> Option<usize> {
        let first = self.starts.partition_point(|start| *start <= from);
        let (mut next, mut found) = (first, None);
        while let Some(&start) = self.starts.get(next).filter(|start| **start < to) {
            if is_start(&self.buffer[start..]) {
                found = Some(start);
                break;
            }
            next += 1;
        }
        // a member that was too short to decide on arrival is checked once more
        self.starts.drain(first..next);
        found
    }

    /// Looks at the record at the current position.
    fn find(&mut self) -> Found {
        while self.have(1) && matches!(self.buffer[self.at], b'\r' | b'\n') {
            self.at += 1;
        }
        if !self.have(1) {
            return Found::Nothing;
        }
        self.have(arc::START.len());
        if self.number == 0 && self.buffer[self.at..].starts_with(arc::START) {
            self.arc = true;
        }
        if self.arc {
            return self.find_arc();
        }
        if !is_start(&self.buffer[self.at..]) {
            return Found::Bad {
                why: "no WARC record here".to_string(),
                from: self.at + 1,
            };
        }
        let Some(header) = self.header_end() else {
            let why = match self.buffer.len() - self.at > MAX_HEADER {
                true => format!("WARC header does not end within {MAX_HEADER} bytes"),
                false => "the file ends inside a WARC header".to_string(),
            };
            return Found::Bad {
                why,
                from: self.at + MAGIC.len(),
            };
        };
        // a record of the next range can start in that member
        if let Some(member) = self.member_inside(self.at, self.at + header) {
            let why = "WARC header runs past its gzip member or zstd frame".to_string();
            return Found::Bad { why, from: member };
        }
        let head = &self.buffer[self.at..self.at + header];
        let Some(length) = header_value(head, b"content-length").and_then(parse_length) else {
            let why = "WARC header without a usable Content-Length".to_string();
            return Found::Bad {
                why,
                from: self.at + header,
            };
        };
        if length > self.max as u64 {
            return Found::TooLong { header, length };
        }
        self.body(header, usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Length of the header block with its blank line.
    fn header_end(&mut self) -> Option<usize> {
        let mut searched = self.no_blank.saturating_sub(self.at);
        loop {
            let head = &self.buffer[self.at..];
            if let Some(end) = header::end_from(head, searched) {
                return Some(end);
            }
            searched = head.len().saturating_sub(3);
            self.no_blank = self.no_blank.max(self.at + searched);
            if head.len() > MAX_HEADER || !self.more() {
                return None;
            }
        }
    }

    /// Checks that a body of `length` bytes ends where a record may end.
    fn body(&mut self, header: usize, length: usize) -> Found {
        let start = self.at + header;
        let whole = self.have(header + length);
        let end = start + length;
        if let Some(member) = self.member_inside(start - 1, end) {
            let why = format!("Content-Length {length} runs past its gzip member");
            return Found::Bad { why, from: member };
        }
        if !whole {
            let have = self.buffer.len() - start;
            let why = format!("Content-Length {length}, but only {have} bytes follow");
            return Found::Bad { why, from: start };
        }
        if self.buffer[end..] == *b"\r\n\r\n" && self.source.is_between_members() {
            // the member ends with the record: the next one can be read directly into a batch
            return Found::Record { end, next: end + 4 };
        }
        // Look one byte beyond the separator, so that damage right after shows.
        self.have(header + length + 5);
        let rest = &self.buffer[end..];
        let feeds = rest
            .iter()
            .take_while(|b| matches!(b, b'\r' | b'\n'))
            .count();
        let after = &rest[feeds..];
        let first = self.pieces.partition_point(|p| p.0 < end);
        let near = self.pieces[first..]
            .iter()
            .take_while(|p| p.0 <= end + feeds);
        let at_member_end = { near }.any(|p| p.2);
        let starts = after.starts_with(&MAGIC[..after.len().min(MAGIC.len())]);
        let separated = feeds > 0 || at_member_end || after.is_empty();
        // Two line ends are proof enough even if the next record is broken.
        let sound = (starts && separated) || rest.starts_with(b"\r\n\r\n");
        if !sound {
            let why = format!("no record end after Content-Length {length}");
            return Found::Bad { why, from: start };
        }
        if after.is_empty() && self.damage.as_ref().is_some_and(|d| d.2) && self.compressed {
            return Found::Bad {
                why: "last record before it".to_string(),
                from: end + feeds,
            };
        }
        Found::Record {
            end,
            next: end + feeds,
        }
    }

    /// Goes to the next record start at or after `from`.
    fn resync(&mut self, from: usize) {
        if self.arc {
            return self.resync_arc(from);
        }
        let mut from = from;
        loop {
            let from_here = from.min(self.buffer.len());
            if let Some(hit) = self.record_start(from_here) {
                self.at = hit;
                return;
            }
            // Keep bytes that could be the start of the magic.
            from = self.buffer.len().saturating_sub(MAGIC.len()).max(from_here);
            self.at = from;
            let before = self.buffer.len();
            self.compact();
            from -= before - self.buffer.len();
            if !self.more() {
                self.at = self.buffer.len();
                return;
            }
        }
    }

    fn piece_at(&self, at: usize) -> bool {
        let first = self.pieces.partition_point(|p| p.0 < at);
        let here = self.pieces[first..].iter().take_while(|p| p.0 == at);
        { here }.any(|p| p.2)
    }

    /// Drops a body too long to keep, without buffering it. A record start behind an empty line, with
    /// a header field after it, ends the body early: a wrong length must not swallow the file.
    fn skip_body(&mut self, header: usize, length: u64) {
        let mut left = length;
        self.at += header;
        loop {
            let here = self.buffer.len() - self.at;
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(here);
            let end = self.at + most;
            if let Some(member) = self.member_inside(self.at.saturating_sub(1), end) {
                self.at = member;
                return;
            }
            if let Some(i) = header::next_start(&self.buffer[self.at..end]) {
                self.at += i;
                return;
            }
            if here as u64 >= left {
                self.at += most;
                return self.resync(self.at);
            }
            // Bytes that could be the first half of a record start are kept.
            let step = here.saturating_sub(header::START.len() + 16);
            left -= step as u64;
            self.at += step;
            self.compact();
            if !self.more() {
                self.at = self.buffer.len();
                return;
            }
        }
    }
}
