//! Encoded data in source files: StarCoder 2's three expressions (Lozhkov et al. 2024, arXiv:2402.19173, section 2.1).
//!
//! Runs of 64 or more characters of base64, of eight or more hexadecimal bytes, of eight or more `\u` escapes. Spans
//! equal those of the published expressions under Python's `re.findall`.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::chars;

/// Fewest characters of base64.
const BASE64: usize = 64;
/// Fewest Unicode escapes (backslash, `u`, four digits) in a row.
const ESCAPES: usize = 8;

/// Eight bytes at least, each `0x` or `\x` or nothing, two digits, and a comma or the end of a word.
static HEXADECIMAL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:\b(?:0x|\\x)?[0-9a-fA-F]{2}(?:,|\b\s*)){8,}").expect("the pattern is one")
});

/// Characters of encoded data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Encoded {
    /// Of the longest run.
    pub(super) longest: usize,
    /// Of all runs; those of different kinds may overlap.
    pub(super) all: usize,
}

impl Encoded {
    pub(super) fn of(text: &str) -> Encoded {
        let mut encoded = Encoded::default();
        encoded.base64(text.as_bytes());
        encoded.hexadecimal(text);
        encoded.escapes(text.as_bytes());
        encoded
    }

    fn add(&mut self, length: usize) {
        self.longest = self.longest.max(length);
        self.all += length;
    }

    fn base64(&mut self, bytes: &[u8]) {
        let mut length = 0;
        for b in bytes {
            if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'\n' | b'=') {
                length += 1;
                continue;
            }
            if length >= BASE64 {
                self.add(length);
            }
            length = 0;
        }
        if length >= BASE64 {
            self.add(length);
        }
    }

    /// The expression is matched on stretches that may hold a match: a word boundary beyond ASCII is slow.
    fn hexadecimal(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let part = |b: &u8| {
            b.is_ascii_hexdigit()
                || b.is_ascii_whitespace()
                || matches!(b, b',' | b'x' | b'\\' | 0x0b | 0x1c..=0x1f)
                || *b >= 0x80
        };
        let mut at = 0;
        while at < bytes.len() {
            let run = bytes[at..].iter().take_while(|b| part(b)).count();
            let end = at + run;
            // eight bytes of two digits
            if run >= 16 && pairs(&bytes[at..end]) >= 8 {
                // a character on each side decides whether a word ends there
                let mut from = at.saturating_sub(1);
                while !text.is_char_boundary(from) {
                    from -= 1;
                }
                let mut to = (end + 1).min(bytes.len());
                while !text.is_char_boundary(to) {
                    to += 1;
                }
                for found in HEXADECIMAL.find_iter(&text[from..to]) {
                    self.add(chars(found.as_str()));
                }
            }
            at = end + bytes[end..].iter().take_while(|b| !part(b)).count();
        }
    }

    fn escapes(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(next) = memchr::memmem::find(&bytes[at..], b"\\u") {
            let start = at + next;
            let mut end = start;
            while bytes[end..].starts_with(b"\\u")
                && bytes
                    .get(end + 2..end + 6)
                    .is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
            {
                end += 6;
            }
            if end - start >= 6 * ESCAPES {
                self.add(end - start);
            }
            at = end.max(start + 2);
        }
    }
}

/// Pairs of hexadecimal digits that stand alone, most likely.
fn pairs(bytes: &[u8]) -> usize {
    let mut count = 0;
    for run in bytes.split(|b| !b.is_ascii_hexdigit()) {
        // `0` of `0x` is a run of one
        count += usize::from(run.len() == 2);
        if count >= 8 {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_expressions() {
        let found = |text: &str| {
            let e = Encoded::of(text);
            (e.longest, e.all)
        };
        assert_eq!(found(&"a".repeat(63)), (0, 0));
        assert_eq!(
            found(&format!("({}) {}", "a".repeat(64), "b/".repeat(40))),
            (80, 144)
        );
        assert_eq!(found("{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07}"), (0, 0));
        assert_eq!(found("0x01,0x02,0x03,0x04,0x05,0x06,0x07,0x08"), (39, 39));
        assert_eq!(found(&"\\u00e9".repeat(7)), (0, 0));
        assert_eq!(found(&"\\u00e9".repeat(8)), (48, 48));
    }

    #[test]
    fn counts_equal_pythons() {
        let packed = include_bytes!("../../../tests/data/source.json.zst");
        let all = zstd::decode_all(&packed[..]).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&all).unwrap();
        let rows = all["encodings"].as_array().unwrap();
        let mut found = 0;
        for row in rows {
            let e = Encoded::of(row[0].as_str().unwrap());
            let ours = serde_json::json!([e.longest, e.all]);
            assert_eq!(ours, serde_json::json!([row[1], row[2]]), "{}", row[0]);
            found += usize::from(e.all > 0);
        }
        assert!(found > 50 && found < rows.len(), "{found}");
    }
}
