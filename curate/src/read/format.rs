//! Format check: whether a file has the format that it should be read as.
//!
//! Damage in a file loses its records; a file of another kind is an error with the found and the wanted kind, as
//! every one of its records would be lost. Readers check the first bytes (decompressed); a file without any is
//! empty, and one that is damaged before its kind is known is damaged.

/// A file of another kind.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// The kind that was wanted, with its article.
    pub(crate) wanted: &'static str,
    /// The first bytes.
    pub(crate) found: String,
    /// Expected start of files of that kind.
    pub(crate) start: &'static str,
}

/// Bytes that are shown.
const SHOWN: usize = 32;

/// The first bytes of a file for a message.
pub(super) fn starts_with(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("starts with \"{}\"{more}", shown.escape_ascii())
}
