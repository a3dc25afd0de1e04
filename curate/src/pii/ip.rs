//! IPv4 addresses by datatrove 0.10.1's rule, IPv6 addresses by our own, optionally only global ones.
//!
//! datatrove's pattern for IPv4 has no word boundaries: `1234.5.6.7` contains `234.5.6.7`, and the OID `1.3.6.1.4.1` begins with
//! an address. By default we ask more of a match: no letter, digit or underscore touches it, no further part follows or
//! comes before (`1.2.3.4.5`, `1.2.3.4.el7`, `1.2.3.4-rc1`), and it is no version or section (`version 1.2.3.4`,
//! `Firefox/3.6.0.1`, `section 7.8.2.1`), nor an OID of four parts of X.500 (`2.5.4.3`, `2.5.29.17`) or the internet's (`1.3.6.1`). Global is defined as in
//! Python 3.13's `ipaddress` (IANA's special-purpose registries, RFC 6890), which rejects octets with leading
//! zeros. IPv6: a run of hexadecimal digits and colons that is an address in 2000::/3 and stands alone.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::boundary::ends_word;

static IPV4: LazyLock<Regex> = LazyLock::new(|| {
    const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)";
    Regex::new(&format!(r"(?-u)(?:{OCTET}\.){{3}}{OCTET}")).expect("the pattern is one")
});

/// Words before a number of four parts that is no address: a version, an OID, a section.
const NUMBERED: [&str; 25] = [
    "version",
    "versions",
    "versi\u{f3}n",
    "vers\u{e3}o",
    "versione",
    "versie",
    "wersja",
    "ver",
    "v",
    "release",
    "firmware",
    "build",
    "oid",
    "oids",
    "section",
    "sections",
    "sec",
    "chapter",
    "clause",
    "figure",
    "table",
    "appendix",
    "abschnitt",
    "kapitel",
    "abbildung",
];
/// Bytes of the longest of them, and of signs behind it.
const WORD_BYTES: usize = 16;
/// Beginnings of OIDs of four parts: attributes and extensions of certificates (X.520, X.509), the internet.
const KNOWN_OIDS: [&str; 3] = ["2.5.4.", "2.5.29.", "1.3.6.1"];

/// Which addresses are found.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Only global ones.
    pub(super) public: bool,
    /// Only those of version 4 that stand alone; else datatrove's.
    pub(super) standalone: bool,
}

pub(super) fn find(text: &str, range: Range<usize>, wanted: Wanted, out: &mut Vec<Range<usize>>) {
    let first = out.len();
    let public = wanted.public;
    v4(text, range.clone(), wanted, out);
    if memchr::memchr(b':', &text.as_bytes()[range.clone()]).is_some() {
        let v4s: Vec<Range<usize>> = out[first..].to_vec();
        let mut from = range.start;
        for taken in v4s {
            v6(text, from..taken.start, public, out);
            from = taken.end;
        }
        v6(text, from..range.end, public, out);
        out[first..].sort_by_key(|span| span.start);
    }
}

/// In every run of digits and dots that is long enough.
fn v4(text: &str, range: Range<usize>, wanted: Wanted, out: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let part = |b: &u8| b.is_ascii_digit() || *b == b'.';
    let mut at = range.start;
    while let Some(next) = memchr::memchr(b'.', &bytes[at..range.end]) {
        let dot = at + next;
        at = dot + 1;
        let digit = |i: usize| i < range.end && i >= range.start && bytes[i].is_ascii_digit();
        if dot == range.start || !digit(dot - 1) || !digit(dot + 1) {
            continue;
        }
        let before = bytes[range.start..dot].iter().rev().take_while(|b| part(b));
        let start = dot - before.count();
        let end = dot + bytes[dot..range.end].iter().take_while(|b| part(b)).count();
        let mut from = start;
        while let Some(found) = IPV4.find(&text[from..end]) {
            let address = found.as_str().parse::<Ipv4Addr>();
            let span = from + found.start()..from + found.end();
            if address.is_ok_and(|a| !wanted.public || is_global_v4(a))
                && (!wanted.standalone || stands_alone(text, &span))
            {
                out.push(span);
            }
            from += found.end();
        }
        at = end;
    }
}

/// Whether four numbers are no part of a word or of a number with more parts, and no version.
fn stands_alone(text: &str, span: &Range<usize>) -> bool {
    let bytes = text.as_bytes();
    let before = |n: usize| span.start.checked_sub(n).and_then(|i| bytes.get(i));
    // scripts without blanks between words touch numbers: only ASCII counts
    let is_word = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let (next, second) = (bytes.get(span.end), bytes.get(span.end + 1));
    let goes_on = match next {
        Some(b'.') => is_word(second),
        Some(b'-') => second.is_some_and(u8::is_ascii_alphabetic),
        other => is_word(other),
    };
    let begins_before = is_word(before(1)) || (before(1) == Some(&b'.') && is_word(before(2)));
    let is_oid = KNOWN_OIDS
        .iter()
        .any(|oid| text[span.clone()].starts_with(oid));
    !goes_on && !begins_before && !is_oid && !is_numbered(text, span.start)
}

/// Whether the number that starts here is a version or section: behind a word for it, or behind a product's name and `/`.
fn is_numbered(text: &str, start: usize) -> bool {
    let mut from = start.saturating_sub(WORD_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let before = &text[from..start];
    if let Some(name) = before.strip_suffix('/') {
        let word = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        // a word of an address has a slash, a dot or a hyphen before it
        return name.len() > word.len() + 1 && !word.ends_with(['/', '.', '-', '_']);
    }
    let before = before.trim_end_matches([' ', ':', '=', '"', '\'', '.', '\u{a0}']);
    let rest = before.trim_end_matches(char::is_alphabetic);
    let word = before[rest.len()..].to_lowercase();
    !word.is_empty() && NUMBERED.contains(&word.as_str())
}

/// Python's `IPv4Address.is_global`.
fn is_global_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    let private = match a {
        0 | 10 | 127 | 240..=255 => true,
        169 => b == 254,
        172 => (16..32).contains(&b),
        // of 192.0.0.0/24 two anycast addresses are global
        192 => (b, c) == (0, 2) || b == 168 || ((b, c) == (0, 0) && !matches!(d, 9 | 10)),
        198 => b == 18 || b == 19 || (b, c) == (51, 100),
        203 => (b, c) == (0, 113),
        _ => false,
    };
    let shared = a == 100 && (64..128).contains(&b);
    !private && !shared
}

/// In every run of hexadecimal digits and colons with at least two colons.
fn v6(text: &str, range: Range<usize>, public: bool, out: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let part = |b: &u8| b.is_ascii_hexdigit() || *b == b':';
    let mut at = range.start;
    while let Some(next) = memchr::memchr(b':', &bytes[at..range.end]) {
        let colon = at + next;
        let before = bytes[at..colon]
            .iter()
            .rev()
            .take_while(|b| part(b))
            .count();
        let start = colon - before;
        let mut end = colon
            + bytes[colon..range.end]
                .iter()
                .take_while(|b| part(b))
                .count();
        at = end;
        // a colon behind an address is punctuation
        if end - start > 2 && bytes[end - 1] == b':' && bytes[end - 2] != b':' {
            end -= 1;
        }
        let alone =
            ends_word(start.checked_sub(1).and_then(|i| bytes.get(i))) && ends_word(bytes.get(end));
        let Some(address) = alone
            .then(|| text[start..end].parse::<Ipv6Addr>().ok())
            .flatten()
        else {
            continue;
        };
        let [first, second, ..] = address.segments();
        let assigned = first & 0xe000 == 0x2000;
        let documentation = (first, second) == (0x2001, 0x0db8) || first == 0x3fff;
        if assigned && !(public && documentation) {
            out.push(start..end);
        }
    }
}
