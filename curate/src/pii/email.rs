//! E-mail addresses by datatrove 0.10.1's rule: RFC 5322's dot-atoms, a domain with a dot or an address in
//! brackets.
//!
//! Its pattern is `\bATOM(\.ATOM)*@(LABEL\.)+LABEL` or `...@[ADDRESS]`, the leftmost match first. An `@` occurs
//! once in a match, so we search for `@` and extend both ways from there: text without one costs a byte search.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::text::unicode::{self, DIGIT, LETTER};

/// The part after the `@`.
static DOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)";
    const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?";
    let bracketed = format!(r"\[(?:{OCTET}\.){{3}}(?:{OCTET}|[A-Za-z0-9-]*[A-Za-z0-9]:)\]");
    Regex::new(&format!(r"(?-u)\A(?:(?:{LABEL}\.)+{LABEL}|{bracketed})"))
        .expect("the pattern is one")
});

/// Characters of atoms: `A-Za-z0-9!#$%&'*+/=?^_`{|}~-`.
const fn is_atom(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'/' | b'=' | b'?' | b'^'..=b'`' | b'{'..=b'~'
        )
}

/// Python's `\w`.
fn is_word(c: char) -> bool {
    c == '_' || unicode::is(c, LETTER) || unicode::is(c, DIGIT) || c.is_numeric()
}

pub(super) fn find(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let (mut from, mut at) = (range.start, range.start);
    while let Some(next) = memchr::memchr(b'@', &bytes[at..range.end]) {
        let sign = at + next;
        at = sign + 1;
        let Some(start) = local(text, from, sign) else {
            continue;
        };
        if let Some(domain) = DOMAIN.find(&text[at..range.end]) {
            at += domain.end();
            from = at;
            out.push(start..at);
        }
    }
}

/// Start of the longest local part before the `@` at `sign`.
fn local(text: &str, from: usize, sign: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut start = sign;
    while start > from && (is_atom(bytes[start - 1]) || (bytes[start - 1] == b'.' && start < sign))
        // an empty atom ends the way back
        && !(bytes[start - 1] == b'.' && bytes[start] == b'.')
    {
        start -= 1;
    }
    // the first place that starts an atom, at the edge of a word
    (start..sign).find(|&p| {
        let before = text[..p].chars().next_back().is_some_and(is_word);
        is_atom(bytes[p]) && before != is_word(char::from(bytes[p]))
    })
}
