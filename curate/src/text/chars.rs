//! Lengths in characters, and the start of a text.

/// Number of characters (code points), as Python's `len`.
#[inline]
pub(crate) fn chars(s: &str) -> usize {
    s.as_bytes().iter().filter(|&&b| b & 0xc0 != 0x80).count()
}

/// Texts are shorter than 4 GiB, see `CurateConfig::max_record_bytes`.
#[inline]
pub(crate) fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The first `count` characters, for excerpts.
pub(crate) fn excerpt(text: &str, count: usize) -> &str {
    text.char_indices()
        .nth(count)
        .map_or(text, |(i, _)| &text[..i])
}
