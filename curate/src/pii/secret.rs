//! Secrets: keys of services in the forms that their vendors publish, private keys, and values assigned to names
//! such as `password`.
//!
//! A key has a fixed prefix, an alphabet and a length: all prefixes are searched at once, the rest is checked. An
//! assigned value counts if it is quoted, has 16 characters or more, letters and digits, and an entropy of at least
//! 3 bits per character, which words and placeholders do not reach.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

use super::boundary::ends_word;

/// Alphabet of a key: letters and digits, and more.
#[derive(Clone, Copy)]
enum Alphabet {
    Plain,
    Underscore,
    Hyphen,
    Both,
    Dotted,
    Capitals,
}

impl Alphabet {
    fn has(self, b: u8) -> bool {
        let more = match self {
            Alphabet::Capitals => return b.is_ascii_uppercase() || b.is_ascii_digit(),
            Alphabet::Plain => false,
            Alphabet::Underscore => b == b'_',
            Alphabet::Hyphen => b == b'-',
            Alphabet::Both => b == b'_' || b == b'-',
            Alphabet::Dotted => matches!(b, b'_' | b'-' | b'.'),
        };
        more || b.is_ascii_alphanumeric()
    }
}

/// Beginning, alphabet, fewest and most characters behind the beginning.
const KEYS: [(&str, Alphabet, usize, usize); 26] = [
    ("AKIA", Alphabet::Capitals, 16, 16),
    ("ASIA", Alphabet::Capitals, 16, 16),
    ("ghp_", Alphabet::Plain, 36, 36),
    ("gho_", Alphabet::Plain, 36, 36),
    ("ghu_", Alphabet::Plain, 36, 36),
    ("ghs_", Alphabet::Plain, 36, 36),
    ("ghr_", Alphabet::Plain, 36, 76),
    ("github_pat_", Alphabet::Underscore, 82, 82),
    ("glpat-", Alphabet::Both, 20, 64),
    ("xoxb-", Alphabet::Hyphen, 20, 120),
    ("xoxp-", Alphabet::Hyphen, 20, 120),
    ("xoxa-", Alphabet::Hyphen, 20, 120),
    ("xoxr-", Alphabet::Hyphen, 20, 120),
    ("xoxs-", Alphabet::Hyphen, 20, 120),
    ("AIza", Alphabet::Both, 35, 35),
    ("ya29.", Alphabet::Both, 20, 400),
    ("sk_live_", Alphabet::Plain, 24, 120),
    ("rk_live_", Alphabet::Plain, 24, 120),
    ("sk-ant-", Alphabet::Both, 20, 160),
    ("sk-proj-", Alphabet::Both, 20, 200),
    ("sk-", Alphabet::Plain, 48, 48),
    ("npm_", Alphabet::Plain, 36, 36),
    ("pypi-AgE", Alphabet::Both, 50, 300),
    ("hf_", Alphabet::Plain, 30, 40),
    ("SG.", Alphabet::Dotted, 60, 72),
    ("eyJ", Alphabet::Dotted, 40, 4000),
];

/// Opens a private key in PEM.
const PEM: &str = "-----BEGIN ";
/// Bytes that a PEM private key may have.
const PEM_BYTES: usize = 16 << 10;
/// Bytes of its first line: labels are of a few words.
const PEM_LINE: usize = 128;

static BEGINNINGS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(KEYS.iter().map(|k| k.0).chain([PEM]))
        .expect("a few short words fit")
});

/// A name, `=` or `:`, a quoted value.
static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    let names = "api_?-?key|secret|passw(?:or)?d|auth_?-?token|access_?-?token|private_?-?key|client_?-?secret";
    Regex::new(&format!(
        r#"(?i-u)(?:{names})[A-Za-z0-9_-]{{0,24}}["']?[ \t]{{0,4}}(?::=|=>|[:=])[ \t]{{0,4}}["']([!-&(-~]{{16,200}})["']"#
    ))
    .expect("the pattern is one")
});

pub(super) fn find(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let first = out.len();
    let bytes = text.as_bytes();
    let mut at = range.start;
    while let Some(hit) = BEGINNINGS.find(aho_corasick::Input::new(bytes).range(at..range.end)) {
        let end = match KEYS.get(hit.pattern().as_usize()) {
            Some(&(head, alphabet, fewest, most)) => {
                let alone = ends_word(hit.start().checked_sub(1).and_then(|i| bytes.get(i)));
                // one character more than fits shows that it is too long
                let rest = bytes[hit.end()..range.end].iter().take(most + 1);
                let length = rest.take_while(|b| alone && alphabet.has(**b)).count();
                let fits = alone && (fewest..=most).contains(&length);
                let end = hit.end() + length;
                (fits && (head != "eyJ" || is_jwt(&bytes[hit.start()..end]))).then_some(end)
            }
            None => private_key(text, hit.start(), range.end),
        };
        at = end.unwrap_or(hit.start() + 1);
        out.extend(end.map(|end| hit.start()..end));
    }
    let mut from = range.start;
    let keys = out[first..].to_vec();
    for key in keys {
        assigned(text, from..key.start, out);
        from = key.end;
    }
    assigned(text, from..range.end, out);
    out[first..].sort_by_key(|span| span.start);
}

/// Three parts, of which the first two are JSON objects in base64.
fn is_jwt(bytes: &[u8]) -> bool {
    let parts: Vec<&[u8]> = bytes.split(|b| *b == b'.').collect();
    parts.len() == 3 && parts[1].starts_with(b"eyJ") && parts.iter().all(|p| p.len() >= 10)
}

/// The end of the PEM block that starts at `start`, if it is a private key.
fn private_key(text: &str, start: usize, end: usize) -> Option<usize> {
    let bytes = &text.as_bytes()[start..end.min(start + PEM_BYTES)];
    let line = &bytes[..bytes.len().min(PEM_LINE)];
    let line = memchr::memchr(b'\n', line).unwrap_or(line.len());
    memchr::memmem::find(&bytes[..line], b"PRIVATE KEY")?;
    let foot = memchr::memmem::find(bytes, b"-----END ")?;
    let close = memchr::memmem::find(&bytes[foot + 9..], b"-----")?;
    Some(start + foot + 9 + close + 5)
}

fn assigned(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let mut from = range.start;
    while let Some(found) = ASSIGNED.captures(&text[from..range.end]) {
        let (Some(whole), Some(value)) = (found.get(0), found.get(1)) else {
            return;
        };
        if is_random(value.as_str().as_bytes()) {
            out.push(from + value.start()..from + value.end());
        }
        from += whole.end();
    }
}

/// Letters and digits, and at least 3 bits a character.
fn is_random(value: &[u8]) -> bool {
    let mut counts = [0u32; 256];
    value.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let n = value.len() as f64;
    let entropy: f64 = counts
        .iter()
        .filter(|c| **c > 0)
        .map(|c| {
            let p = f64::from(*c) / n;
            -p * p.log2()
        })
        .sum();
    value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_alphabetic)
        && entropy >= 3.0
}
