//! Word boundaries of matches.

/// Whether a word ends before this byte: it is absent, or not a letter, digit or underscore (of any script).
pub(super) fn ends_word(byte: Option<&u8>) -> bool {
    !byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80)
}
