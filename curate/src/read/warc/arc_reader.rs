//! Reader for ARC files, the Internet Archive's format before WARC: a line `URL IP date type length`, `length`
//! bytes, a line end.
//!
//! Burner and Kahle, "The ARC File Format" (Internet Archive, 1996), versions 1 and 2; version 2 has more fields
//! between type and length. A URL with spaces, which the format forbids, is accepted: the other fields are found
//! from the date on.

use super::arc::{MAX_LINE, parse_line};
use super::{Found, WarcReader};

impl WarcReader {
    /// Looks at the record at the current position.
    pub(super) fn find_arc(&mut self) -> Found {
        let Some(header) = self.line() else {
            return Found::Bad {
                why: "no ARC header here".to_string(),
                from: self.at + 1,
            };
        };
        let length = match parse_line(&self.buffer[self.at..self.at + header]) {
            Ok(line) => line.length,
            Err(why) => {
                let from = self.at + header;
                return Found::Bad { why, from };
            }
        };
        if length > self.max as u64 {
            return Found::TooLong { header, length };
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let whole = self.have(header + length);
        let start = self.at + header;
        if !whole {
            let have = self.buffer.len() - start;
            let why = format!("ARC length {length}, but only {have} bytes follow");
            return Found::Bad { why, from: start };
        }
        let end = start + length;
        self.have(header + length + 2);
        let rest = &self.buffer[end..];
        let feeds = rest.iter().take_while(|b| matches!(b, b'\r' | b'\n'));
        let next = end + feeds.count();
        if next == end && !rest.is_empty() {
            let why = format!("no record end after ARC length {length}");
            return Found::Bad { why, from: start };
        }
        let broken = self.damage.as_ref().is_some_and(|d| d.2);
        if next == self.buffer.len() && broken && self.compressed {
            let why = "last record before it".to_string();
            return Found::Bad { why, from: next };
        }
        Found::Record { end, next }
    }

    /// Length of the line at the current position with its line feed.
    fn line(&mut self) -> Option<usize> {
        loop {
            let here = &self.buffer[self.at..];
            if let Some(i) = memchr::memchr(b'\n', here) {
                return Some(i + 1);
            }
            if here.len() > MAX_LINE || !self.more() {
                return None;
            }
        }
    }

    /// Goes to the next line at or after `from` that is a header.
    pub(super) fn resync_arc(&mut self, from: usize) {
        self.at = from.min(self.buffer.len());
        loop {
            self.compact();
            let Some(length) = self.line() else {
                let here = self.buffer.len() - self.at;
                if here <= MAX_LINE {
                    self.at = self.buffer.len();
                    return;
                }
                self.at += here;
                continue;
            };
            let is_header = self.at == 0 || self.buffer[self.at - 1] == b'\n';
            let line = &self.buffer[self.at..self.at + length.min(MAX_LINE)];
            // a broken length is a broken header, but a header all the same
            let is_known = match parse_line(line) {
                Ok(_) => true,
                Err(why) => why.contains("with length"),
            };
            if is_header && is_known {
                return;
            }
            self.at += length;
        }
    }
}
