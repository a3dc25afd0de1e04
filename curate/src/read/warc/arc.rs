//! Parser for the header line of an ARC record.

use super::record::{Provenance, WarcRecord};
use crate::read::Fault;

/// Start of the first record's line.
pub(super) const START: &[u8] = b"filedesc://";

/// A longer line is garbage.
pub(crate) const MAX_LINE: usize = 16 << 10;

/// The format forbids it, crawlers have written it.
const SPACE_IN_URL: Fault = Fault {
    name: "arc.space_in_url",
    why: "the URL of the ARC header has spaces in it",
};

/// The line before a block.
pub(super) struct Line<'a> {
    pub(super) url: &'a str,
    pub(super) date: &'a str,
    pub(super) content_type: &'a str,
    pub(crate) length: u64,
}

/// Parses a line; the error describes the problem.
pub(crate) fn parse_line(line: &[u8]) -> Result<Line<'_>, String> {
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
        provenance: Provenance::default(),
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
