//! Parser for WARC header lines.

use memchr::memmem;

use crate::read::Fault;

/// A header block longer than this counts as garbage.
pub(super) const MAX_HEADER: usize = 64 << 10;

/// Whether a record starts here, as far as the bytes show.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
        && bytes
            .get(MAGIC.len())
            .is_none_or(|b| matches!(b, b'0' | b'1'))
}

/// Length of a header block with its blank line; the first `searched` bytes hold no end.
pub(super) fn end_from(bytes: &[u8], searched: usize) -> Option<usize> {
    // one pass over the line ends: a header has a dozen of them, its body may have none
    let searched = searched.min(bytes.len());
    memchr::memchr_iter(b'\n', &bytes[searched..]).find_map(|i| {
        let after = searched + i + 1;
        match &bytes[after..] {
            [b'\n', ..] => Some(after + 1),
            [b'\r', b'\n', ..] => Some(after + 2),
            _ => None,
        }
    })
}

/// A record after an empty line.
pub(super) const START: &[u8] = b"\r\n\r\nWARC/";

/// Position of a record start that looks like one.
pub(super) fn next_start(bytes: &[u8]) -> Option<usize> {
    memmem::find_iter(bytes, START)
        .find(|&i| {
            bytes[i..]
                .get(START.len() + 3..)
                .is_some_and(|b| b.starts_with(b"\r\nWARC-"))
        })
        .map(|i| i + 4)
}

/// The value of a header field, name in lower case, without surrounding white space.
pub(super) fn header_value<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = head;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        // the name is compared before the colon is searched: most lines have another length
        if line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name) {
            return Some(line[name.len() + 1..].trim_ascii());
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    None
}

pub(super) fn parse_length(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// wget has written it so, by the letter of the grammar in ISO 28500:2009.
const URI_IN_BRACKETS: Fault = Fault {
    name: "warc.uri_in_brackets",
    why: "WARC-Target-URI is in angle brackets",
};

/// `HTTP/1.0 204` and no more.
const STATUS_WITHOUT_REASON: Fault = Fault {
    name: "http.status_without_reason",
    why: "HTTP status line without a reason",
};

/// The standard's annex D: each record is a separate gzip member.
pub(super) const MEMBER_OF_SEVERAL: Fault = Fault {
    name: "warc.member_of_several_records",
    why: "not the first record of its gzip member",
};

/// The fault that does not keep a record from being read, if it has one.
pub(super) fn repair(head: &[u8], body: &[u8]) -> Option<Fault> {
    if memmem::find(head, b"-URI: <").is_some() {
        return Some(URI_IN_BRACKETS);
    }
    let status = body.strip_prefix(b"HTTP/")?;
    let line = &status[..memchr::memchr(b'\n', &status[..status.len().min(256)])?];
    let words = line.split(|b| b.is_ascii_whitespace());
    let words = words.filter(|w| !w.is_empty()).count();
    (words == 2).then_some(STATUS_WITHOUT_REASON)
}

/// Start of every record; a digit follows (drafts before 1.0 said 0.17 or 0.18).
pub(crate) const MAGIC: &[u8] = b"WARC/";
