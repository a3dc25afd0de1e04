//! Decoder for HTML character references.
//!
//! The HTML standard (WHATWG, section 13.2.5.72 and on): longest name wins; a few old names need no semicolon, but
//! in an attribute they do when a letter, digit or "=" follows; invalid numbers become U+FFFD or the intended
//! Windows-1252 character. `entities.txt` lists the names (tests/oracles/html_entities.py). NUL is dropped, as
//! browsers do in a page's body.

use std::sync::LazyLock;

use memchr::memchr2;
use rustc_hash::FxHashMap;

/// Name, with its semicolon if it has one, to characters.
static NAMED: LazyLock<FxHashMap<&'static str, String>> = LazyLock::new(|| {
    let character = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
    include_str!("entities.txt")
        .lines()
        .filter_map(|line| {
            let (name, points) = line.split_once(' ')?;
            Some((name, points.split(' ').filter_map(character).collect()))
        })
        .collect()
});

/// Longest name that needs no semicolon ("frac12", "Aacute", "thorn" are among them).
const LONGEST_BARE: usize = 6;
/// Longest name ("CounterClockwiseContourIntegral;").
const LONGEST: usize = 32;

/// Meaning of 0x80 to 0x9f in a reference: the Windows-1252 characters, 0 where there is none.
const C1: [u16; 32] = [
    0x20ac, 0, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039,
    0x0152, 0, 0x017d, 0, 0, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc,
    0x2122, 0x0161, 0x203a, 0x0153, 0, 0x017e, 0x0178,
];

/// Characters of a named reference, given without "&" and with its semicolon if it has one.
pub(crate) fn named_reference(name: &str) -> Option<&'static str> {
    NAMED.get(name).map(String::as_str)
}

/// Appends `text` with its references resolved and without NUL.
pub(crate) fn push_decoded(out: &mut String, text: &str, in_attribute: bool) {
    let mut rest = text;
    while let Some(i) = memchr2(b'&', 0, rest.as_bytes()) {
        out.push_str(&rest[..i]);
        rest = &rest[i + 1..];
        if text.as_bytes()[text.len() - rest.len() - 1] == b'&' {
            let used = reference(out, rest, in_attribute);
            if used == 0 {
                out.push('&');
            }
            rest = &rest[used..];
        }
    }
    out.push_str(rest);
}

/// Resolves the reference whose "&" precedes `rest`; returns the bytes used, 0 if it is not a reference.
fn reference(out: &mut String, rest: &str, in_attribute: bool) -> usize {
    let bytes = rest.as_bytes();
    if bytes.first() == Some(&b'#') {
        return numeric(out, bytes);
    }
    let run = bytes
        .iter()
        .take(LONGEST)
        .take_while(|b| b.is_ascii_alphanumeric())
        .count();
    if bytes.get(run) == Some(&b';')
        && let Some(found) = NAMED.get(&rest[..=run])
    {
        out.push_str(found);
        return run + 1;
    }
    for end in (2..=run.min(LONGEST_BARE)).rev() {
        if let Some(found) = NAMED.get(&rest[..end]) {
            let next = bytes.get(end);
            if in_attribute && next.is_some_and(|b| *b == b'=' || b.is_ascii_alphanumeric()) {
                return 0;
            }
            out.push_str(found);
            return end;
        }
    }
    0
}

fn numeric(out: &mut String, bytes: &[u8]) -> usize {
    let hex = matches!(bytes.get(1), Some(b'x' | b'X'));
    let (radix, start) = if hex { (16, 2) } else { (10, 1) };
    let mut value = 0u32;
    let mut at = start;
    while let Some(digit) = bytes.get(at).and_then(|&b| char::from(b).to_digit(radix)) {
        // Anything past the last code point stays past it.
        value = (value * radix + digit).min(0x11_0000);
        at += 1;
    }
    if at == start {
        return 0;
    }
    if bytes.get(at) == Some(&b';') {
        at += 1;
    }
    let meant = match value {
        0x80..=0x9f => match C1[value as usize - 0x80] {
            0 => value,
            c => u32::from(c),
        },
        0 => 0xfffd,
        v => v,
    };
    out.push(char::from_u32(meant).unwrap_or('\u{fffd}'));
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str, in_attribute: bool) -> String {
        let mut out = String::new();
        push_decoded(&mut out, text, in_attribute);
        out
    }

    #[test]
    fn references_resolve_as_the_standard_says() {
        // Examples of the standard (13.2.5.73) and its tables.
        assert_eq!(
            decoded("I'm &notit; I tell you", false),
            "I'm \u{ac}it; I tell you"
        );
        assert_eq!(
            decoded("I'm &notin; I tell you", false),
            "I'm \u{2209} I tell you"
        );
        assert_eq!(decoded("&amp;&lt;&quot;&nbsp;", false), "&<\"\u{a0}");
        assert_eq!(
            decoded("&#65;&#x42;&#x80;&#0;&#xd800;&#99999999999;", false),
            "AB\u{20ac}\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(
            decoded("a & b &x; &#; &#x; &", false),
            "a & b &x; &#; &#x; &"
        );
        assert_eq!(
            decoded("?a=1&copy=2&copy;&copy", true),
            "?a=1&copy=2\u{a9}\u{a9}"
        );
        assert_eq!(decoded("nul\0nul &acE;", false), "nulnul \u{223e}\u{333}");
    }

    #[test]
    fn every_name_is_known() {
        assert_eq!(NAMED.len(), 2231);
        assert!(NAMED.keys().all(|n| n.len() <= LONGEST));
        let bare = NAMED.keys().filter(|n| !n.ends_with(';'));
        assert_eq!(bare.map(|n| n.len()).max(), Some(LONGEST_BARE));
    }
}
