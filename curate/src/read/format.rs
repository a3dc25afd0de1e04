//! Whether a file is of the format it is to be read as.
//!
//! Damage in a file costs its records; a file of another kind is an error with what was found and what was wanted, as
//! every one of its records would be lost. Readers look at the first bytes (decompressed); a file without any is empty,
//! and one whose damage comes before anything can be told is damaged.

/// A file of another kind.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// The kind that was wanted, with its article.
    pub(crate) wanted: &'static str,
    /// The first bytes.
    pub(crate) found: String,
    /// How files of that kind start.
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
