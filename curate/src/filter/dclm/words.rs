//! Words and pieces of a text, as DCLM's program splits them.

use crate::text::unicode::{self, LETTER, SPACE};

/// `str.split()`.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| unicode::is(c, SPACE))
        .filter(|w| !w.is_empty())
}

/// `str.isalnum` of a character.
pub(super) fn is_alphanumeric(c: char) -> bool {
    unicode::is(c, LETTER) || c.is_numeric()
}

/// Words as fastText's tokenizer cuts them (at ASCII white space and NUL) that start with a letter or a digit.
pub(super) fn plain_words(text: &str) -> usize {
    text.split([' ', '\n', '\r', '\t', '\u{b}', '\u{c}', '\0'])
        .filter(|w| w.chars().next().is_some_and(is_alphanumeric))
        .count()
}

/// Pieces between separators, stripped, without the empty ones.
pub(super) fn pieces<'a>(text: &'a str, separator: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(separator)
        .map(unicode::strip)
        .filter(|p| !p.is_empty())
}
