//! ARC files, the Internet Archive's format before WARC: a line `URL IP date type length`, `length`
//! bytes, a line end.
//!
//! Burner and Kahle, "The ARC File Format" (Internet Archive, 1996), versions 1 and 2; version 2 has
//! more fields between type and length. A URL with spaces, which the format forbids, is read: the
//! other fields are found from the date on.

use super::header::WarcRecord;
use super::{Found, WarcReader};
use crate::read::Fault;

/// What the first record's line starts with.
pub(super) const START: &[u8] = b"filedesc://";
/// A longer line is garbage.
const MAX_LINE: usize = 16 << 10;

/// The format forbids it, crawlers have written it.
const SPACE_IN_URL: Fault = Fault {
    name: "arc.space_in_url",
    why: "the URL of the ARC header has spaces in it",
};

/// The line before a block.
struct Line<'a> {
    url: &'a str,
    date: &'a str,
    content_type: &'a str,
    length: u64,
}

/// Parses a line; the error says what is wrong with it.
fn parse_line(line: &[u8]) -> Result<Line<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "ARC header is not UTF-8".to_string())?;
    let text = text.trim_end_matches(['\r', '\n']);
    let words: Vec<&str> = text.split(' ').collect();
    let is_date = |w: &str| (8..=17).contains(&w.len()) && w.bytes().all(|b| b.is_ascii_digit());
    let date = (2..words.len()).find(|&i| is_date(words[i]) && words[i - 1].contains(['.', ':']));
    let (Some(date), Some(length)) = (date, words.last()) else {
        return Err("no ARC header here".to_string());
    };
    if date + 2 >= words.len() || !(text.contains("://") || text.starts_with("dns:")) {
        return Err("no ARC header here".to_string());
    }
    let length = length
        .parse()
        .map_err(|_| format!("ARC header with length {length:?}, wanted a number of bytes"))?;
    let url_bytes: usize = words[..date - 1].iter().map(|w| w.len() + 1).sum();
    Ok(Line {
        url: &text[..url_bytes - 1],
        date: words[date],
        content_type: words[date + 1],
        length,
    })
}

/// The fault of a record that did not keep it from being read.
pub(super) fn repair(record: &[u8]) -> Option<Fault> {
    let end = memchr::memchr(b'\n', record)?;
    let line = parse_line(&record[..end]).ok()?;
    line.url.contains(' ').then_some(SPACE_IN_URL)
}

/// Splits a record into fields and block.
pub(super) fn parse(bytes: &[u8]) -> Option<WarcRecord<'_>> {
    let end = memchr::memchr(b'\n', bytes)?;
    let line = parse_line(&bytes[..end]).ok()?;
    let body = &bytes[end + 1..];
    let kind = if line.url.starts_with("filedesc:") {
        "warcinfo"
    } else if body.starts_with(b"HTTP/") {
        "response"
    } else {
        "resource"
    };
    Some(WarcRecord {
        kind: kind.to_string(),
        url: Some(line.url.to_string()),
        date: Some(iso_date(line.date)),
        content_type: Some(line.content_type.to_string()),
        body,
    })
}

/// `20140216050221` as WARC writes it.
fn iso_date(digits: &str) -> String {
    match digits.len() {
        14 => format!(
            "{}-{}-{}T{}:{}:{}Z",
            &digits[..4],
            &digits[4..6],
            &digits[6..8],
            &digits[8..10],
            &digits[10..12],
            &digits[12..14]
        ),
        _ => digits.to_string(),
    }
}

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
            let told = match parse_line(line) {
                Ok(_) => true,
                Err(why) => why.contains("with length"),
            };
            if is_header && told {
                return;
            }
            self.at += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_versions_and_urls_with_spaces_are_parsed() {
        let one =
            parse_line(b"http://x.org/a b?c=d e 1.2.3.4 20140216050221 text/html 1591").unwrap();
        assert_eq!((one.url, one.length), ("http://x.org/a b?c=d e", 1591));
        assert_eq!(iso_date(one.date), "2014-02-16T05:02:21Z");
        let two = b"http://x.org/ 1.2.3.4 20140216050221 text/html 200 - - 1234 f.arc.gz 99\n";
        let two = parse_line(two).unwrap();
        assert_eq!((two.content_type, two.length), ("text/html", 99));
        for (line, want) in [
            (
                &b"http://x.org/ 1.2.3.4 20140216050221 text/html -1"[..],
                "\"-1\"",
            ),
            (
                b"http://x.org/ 1.2.3.4 20140216050221 text/html abc",
                "\"abc\"",
            ),
            (b"<p>20140216050221 is no header 12", "no ARC header"),
            (b"\xff\xfe", "not UTF-8"),
            (b"", "no ARC header"),
        ] {
            let why = parse_line(line).err().unwrap();
            assert!(why.contains(want), "{why}");
        }
    }
}
