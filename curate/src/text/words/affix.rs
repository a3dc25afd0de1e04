//! Prefixes, suffixes and infixes of a word: spaCy's regular expressions as plain code.
//!
//! Source: spaCy 3.8 lang/punctuation.py, lang/en/punctuation.py, lang/char_classes.py. A prefix
//! pattern takes the first alternative that matches; a suffix search takes the leftmost start, so
//! the longest suffix; infixes are found left to right without overlap.

use std::ops::Range;

use crate::text::unicode::{
    ALPHA, BEFORE_STOP, ICON, LOWER, PREFIX, QUOTE, SUFFIX, UPPER, flags, is,
};

/// Units that are split from a digit before them.
const UNITS: &str = "km km\u{b2} km\u{b3} m m\u{b2} m\u{b3} dm dm\u{b2} dm\u{b3} cm cm\u{b2} cm\u{b3} mm mm\u{b2} \
    mm\u{b3} ha \u{b5}m nm yd in ft kg g mg \u{b5}g t lb oz m/s km/h kmh mph hPa Pa mbar mb MB kb KB gb GB \
    tb TB T G M K % \u{43a}\u{43c} \u{43a}\u{43c}\u{b2} \u{43a}\u{43c}\u{b3} \u{43c} \u{43c}\u{b2} \u{43c}\u{b3} \
    \u{434}\u{43c} \u{434}\u{43c}\u{b2} \u{434}\u{43c}\u{b3} \u{441}\u{43c} \u{441}\u{43c}\u{b2} \u{441}\u{43c}\u{b3} \
    \u{43c}\u{43c} \u{43c}\u{43c}\u{b2} \u{43c}\u{43c}\u{b3} \u{43d}\u{43c} \u{43a}\u{433} \u{433} \u{43c}\u{433} \
    \u{43c}/\u{441} \u{43a}\u{43c}/\u{447} \u{43a}\u{41f}\u{430} \u{41f}\u{430} \u{43c}\u{431}\u{430}\u{440} \
    \u{41a}\u{431} \u{41a}\u{411} \u{43a}\u{431} \u{41c}\u{431} \u{41c}\u{411} \u{43c}\u{431} \u{413}\u{431} \
    \u{413}\u{411} \u{433}\u{431} \u{422}\u{431} \u{422}\u{411} \u{442}\u{431}\u{643}\u{645} \u{643}\u{645}\u{b2} \
    \u{643}\u{645}\u{b3} \u{645} \u{645}\u{b2} \u{645}\u{b3} \u{633}\u{645} \u{633}\u{645}\u{b2} \u{633}\u{645}\u{b3} \
    \u{645}\u{645} \u{645}\u{645}\u{b2} \u{645}\u{645}\u{b3} \u{643}\u{645} \u{63a}\u{631}\u{627}\u{645} \
    \u{62c}\u{631}\u{627}\u{645} \u{62c}\u{645} \u{643}\u{63a} \u{645}\u{644}\u{63a} \u{643}\u{648}\u{628} \
    \u{627}\u{643}\u{648}\u{627}\u{628}";

/// Bytes of the longest unit.
const LONGEST_UNIT: usize = 12;

/// The units as a list; built once with the tokenizer.
pub(super) fn units() -> Vec<&'static str> {
    UNITS.split_ascii_whitespace().collect()
}

fn is_currency(c: char) -> bool {
    matches!(
        c,
        '$' | '\u{a3}' | '\u{a5}' | '\u{e3f}' | '\u{20a0}'..='\u{20bf}' | '\u{fdfc}'
    )
}

/// Byte length of the prefix to split off, 0 if none.
pub(super) fn prefix(s: &str) -> usize {
    let Some(first) = s.chars().next() else {
        return 0;
    };
    match first {
        '.' => {
            let dots = s.bytes().take_while(|&b| b == b'.').count();
            if dots >= 2 { dots } else { 0 }
        }
        '+' => usize::from(!s.as_bytes().get(1).is_some_and(u8::is_ascii_digit)),
        'U' if s.starts_with("US$") => 3,
        'C' | 'A' if s.as_bytes().get(1) == Some(&b'$') => 2,
        c if is(c, PREFIX) => c.len_utf8(),
        _ => 0,
    }
}

/// Byte length of the suffix to split off, 0 if none.
pub(super) fn suffix(s: &str, units: &[&str]) -> usize {
    let Some(last) = s.chars().next_back() else {
        return 0;
    };
    let head = &s[..s.len() - last.len_utf8()];
    let mut longest = match last {
        '.' => return full_stop(s, head),
        '\u{2026}' if head.ends_with('\u{2026}') => 6,
        's' | 'S' if head.ends_with('\'') => return 2,
        's' | 'S' if head.ends_with('\u{2019}') => return 4,
        '+' if ends_with_digit(head) => 1,
        c if is(c, SUFFIX) => c.len_utf8(),
        _ => 0,
    };
    if is_currency(last) {
        for sign in ["US$", "C$", "A$"] {
            if s.strip_suffix(sign).is_some_and(ends_with_digit) {
                longest = longest.max(sign.len());
            }
        }
        if ends_with_digit(head) {
            longest = longest.max(last.len_utf8());
        }
    }
    // A unit follows a digit and contains none, so only the text after the last digit can be one.
    let near = s.len().saturating_sub(LONGEST_UNIT + 1);
    if let Some(digit) = s.as_bytes()[near..].iter().rposition(u8::is_ascii_digit) {
        let tail = &s[near + digit + 1..];
        if tail.len() > longest && units.contains(&tail) {
            longest = tail.len();
        }
    }
    longest
}

fn ends_with_digit(s: &str) -> bool {
    s.as_bytes().last().is_some_and(u8::is_ascii_digit)
}

/// Suffix length of a word that ends with a full stop.
fn full_stop(s: &str, head: &str) -> usize {
    let dots = s.bytes().rev().take_while(|&b| b == b'.').count();
    if dots >= 2 {
        return dots;
    }
    let mut back = head.chars().rev();
    let Some(before) = back.next() else { return 0 };
    if is(before, BEFORE_STOP) {
        return 1;
    }
    let second = back.next();
    let degrees = second == Some('\u{b0}') && "FfCcKk".contains(before);
    let capitals = is(before, UPPER) && second.is_some_and(|c| is(c, UPPER));
    usize::from(degrees || capitals)
}

/// Pushes the byte ranges of the infixes of `s`. English (and some others) also splits at a hyphen between a digit and a
/// letter: `after_digits`.
pub(super) fn infixes(s: &str, after_digits: bool, found: &mut Vec<Range<usize>>) {
    let mut at = 0;
    let mut before: Option<char> = None;
    while at < s.len() {
        let rest = &s[at..];
        let Some(c) = rest.chars().next() else { return };
        let width = infix_at(c, rest, before, after_digits);
        if width > 0 {
            found.push(at..at + width);
            before = s[at..at + width].chars().next_back();
            at += width;
        } else {
            before = Some(c);
            at += c.len_utf8();
        }
    }
}

/// Byte length of the infix that starts with `c` at the start of `rest`, 0 if none.
fn infix_at(c: char, rest: &str, before: Option<char>, after_digits: bool) -> usize {
    let after = rest[c.len_utf8()..].chars().next();
    let alpha = |c: Option<char>| c.is_some_and(|c| is(c, ALPHA));
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let word_before = || alpha(before) || digit(before);
    match c {
        '.' => {
            let dots = rest.bytes().take_while(|&b| b == b'.').count();
            let low = before.is_some_and(|c| is(c, LOWER | QUOTE));
            let high = after.is_some_and(|c| is(c, UPPER | QUOTE));
            if dots >= 2 {
                dots
            } else {
                usize::from(low && high)
            }
        }
        '\u{2026}' => 3,
        '+' | '*' | '^' => usize::from(digit(before) && (digit(after) || after == Some('-'))),
        ',' => usize::from(alpha(before) && alpha(after)),
        ':' | '<' | '>' | '=' | '/' => usize::from(word_before() && alpha(after)),
        '-' => {
            if digit(before) && (digit(after) || after == Some('-')) {
                return 1;
            }
            hyphen(rest, alpha(before) || (after_digits && digit(before)))
        }
        '\u{2013}' | '\u{2014}' | '~' => {
            hyphen(rest, alpha(before) || (after_digits && digit(before)))
        }
        c if c >= '\u{a6}' && flags(c) & ICON != 0 => c.len_utf8(),
        _ => 0,
    }
}

/// A hyphen run between a letter or digit and a letter.
fn hyphen(rest: &str, word_before: bool) -> usize {
    if !word_before {
        return 0;
    }
    let hyphens = [
        "-",
        "\u{2013}",
        "\u{2014}",
        "--",
        "---",
        "\u{2014}\u{2014}",
        "~",
    ];
    let fits = |h: &&str| {
        rest.strip_prefix(*h)
            .and_then(|r| r.chars().next())
            .is_some_and(|c| is(c, ALPHA))
    };
    hyphens.iter().find(|h| fits(h)).map_or(0, |h| h.len())
}
