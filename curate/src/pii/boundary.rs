//! Where a match may begin and end.

/// Whether `text[at..]` is at the end of a word: nothing before it or behind it that could go on.
pub(super) fn ends_word(byte: Option<&u8>) -> bool {
    !byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80)
}
