//! Splits a WARC or ARC record into header fields and block.

use super::arc;
use super::header::{end_from, header_value, is_start};
use super::record::{Provenance, WarcRecord};
use crate::text::excerpt;

/// Characters of a provenance field that are kept: the known ones are shorter, a hostile header may be 64 KiB.
const MOST_CHARS: usize = 200;

/// Splits a record, also one of an ARC file, into header fields and block; None if its header is broken.
pub(crate) fn parse_record(bytes: &[u8]) -> Option<WarcRecord<'_>> {
    if !is_start(bytes) {
        return arc::parse(bytes);
    }
    let (head, body) = bytes.split_at(end_from(bytes, 0)?);
    let text =
        |name: &[u8]| header_value(head, name).map(|v| String::from_utf8_lossy(v).into_owned());
    let short = |name: &[u8]| {
        let value = text(name)?;
        let value = value.trim_start_matches('<').trim_end_matches('>');
        Some(excerpt(value, MOST_CHARS).to_string()).filter(|v| !v.is_empty())
    };
    Some(WarcRecord {
        kind: text(b"warc-type").unwrap_or_default().to_ascii_lowercase(),
        url: text(b"warc-target-uri")
            .map(|u| u.trim_start_matches('<').trim_end_matches('>').to_string()),
        date: text(b"warc-date"),
        content_type: text(b"content-type"),
        provenance: Provenance {
            record_id: short(b"warc-record-id"),
            refers_to: short(b"warc-refers-to"),
            payload_digest: short(b"warc-payload-digest"),
            truncated: short(b"warc-truncated"),
            identified_payload_type: short(b"warc-identified-payload-type"),
        },
        body,
    })
}
