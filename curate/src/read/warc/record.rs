//! A WARC or ARC record: its header fields and its block.

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
    /// The block.
    pub(crate) body: &'a [u8],
}
