//! A WARC or ARC record: its header fields and its block.

use serde::Serialize;

/// The header fields by which a page is found again in its archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Provenance {
    /// `WARC-Record-ID` without angle brackets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record_id: Option<String>,
    /// `WARC-Refers-To` without angle brackets: of a conversion, the record that was converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refers_to: Option<String>,
    /// `WARC-Payload-Digest`, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_digest: Option<String>,
    /// `WARC-Truncated`: why the crawler stopped before the end of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated: Option<String>,
    /// `WARC-Identified-Payload-Type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identified_payload_type: Option<String>,
}

/// The fields of a record that the pipeline uses.
pub(crate) struct WarcRecord<'a> {
    /// `WARC-Type` in lower case.
    pub(crate) kind: String,
    /// `WARC-Target-URI` without angle brackets.
    pub(crate) url: Option<String>,
    /// `WARC-Date`.
    pub(crate) date: Option<String>,
    /// `Content-Type` of the block.
    pub(crate) content_type: Option<String>,
    /// Where the record can be found again; empty in ARC files.
    pub(crate) provenance: Provenance,
    /// The block.
    pub(crate) body: &'a [u8],
}
