//! Splits a WARC or ARC record into header fields and block.

use super::arc;
use super::header::{end_from, header_value, is_start};
use super::record::WarcRecord;

/// Splits a record, also one of an ARC file, into header fields and block; None if its header is broken.
pub(crate) fn parse_record(bytes: &[u8]) -> Option<WarcRecord<'_>> {
    if !is_start(bytes) {
        return arc::parse(bytes);
    }
    let (head, body) = bytes.split_at(end_from(bytes, 0)?);
    let text =
        |name: &[u8]| header_value(head, name).map(|v| String::from_utf8_lossy(v).into_owned());
    Some(WarcRecord {
        kind: text(b"warc-type").unwrap_or_default().to_ascii_lowercase(),
        url: text(b"warc-target-uri")
            .map(|u| u.trim_start_matches('<').trim_end_matches('>').to_string()),
        date: text(b"warc-date"),
        content_type: text(b"content-type"),
        body,
    })
}
