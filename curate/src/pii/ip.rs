//! IPv4 addresses by datatrove 0.10.1's rule, IPv6 addresses by our own, optionally only global ones.
//!
//! datatrove's pattern for IPv4 has no word boundaries: `1234.5.6.7` contains `234.5.6.7`. Global is defined as in
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

pub(super) fn find(text: &str, range: Range<usize>, public: bool, out: &mut Vec<Range<usize>>) {
    let first = out.len();
    v4(text, range.clone(), public, out);
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
fn v4(text: &str, range: Range<usize>, public: bool, out: &mut Vec<Range<usize>>) {
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
            if address.is_ok_and(|a| !public || is_global_v4(a)) {
                out.push(from + found.start()..from + found.end());
            }
            from += found.end();
        }
        at = end;
    }
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
