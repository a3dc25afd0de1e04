//! datatrove's `simplify_text`: the normalization of texts before MinHash.
//!
//! In this order: lower case; each number `\p{Nd}+([.,]\p{Nd}+)?` (and five more decimal signs)
//! becomes "0"; each punctuation character becomes a space; white space is stripped and runs become
//! one space; canonical decomposition without non-spacing marks; strip. Source: datatrove 0.10.1
//! utils/text.py. We do it in one pass per stage over bytes, with a table for ASCII.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

use crate::text::unicode::{self, DIGIT, MARK, SPACE, TRANSLATED};

/// Decimal signs allowed inside a number.
const DECIMAL: [char; 7] = [
    '.', ',', '\u{60c}', '\u{66b}', '\u{2396}', '\u{2397}', '\u{2398}',
];

/// Replaces `out` by the simplified text.
pub(crate) fn simplify(text: &str, out: &mut String) {
    out.clear();
    if text.is_ascii() {
        ascii(text.as_bytes(), out);
    } else if text.contains('\u{3a3}') {
        // Final sigma depends on its neighbours; the standard library knows the rule.
        wide(&text.to_lowercase(), out);
    } else {
        wide(text, out);
    }
}

/// Result for an ASCII byte: itself in lower case, or a space.
const ASCII: [u8; 128] = {
    let mut table = [b' '; 128];
    let mut i = 0u8;
    while i < 128 {
        if i.is_ascii_alphanumeric() {
            table[i as usize] = i.to_ascii_lowercase();
        }
        i += 1;
    }
    table
};

fn ascii(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len());
    let mut at = 0;
    let mut gap = false;
    while at < bytes.len() {
        let b = bytes[at];
        let mapped = ASCII[usize::from(b & 0x7f)];
        if mapped == b' ' {
            gap = true;
            at += 1;
            continue;
        }
        if gap && !out.is_empty() {
            out.push(' ');
        }
        gap = false;
        if b.is_ascii_digit() {
            out.push('0');
            at = number_end(bytes, at);
        } else {
            out.push(char::from(mapped));
            at += 1;
        }
    }
}

/// End of the number that starts at `at` in ASCII bytes.
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    at = digits(at);
    let sign = matches!(bytes.get(at), Some(b'.' | b','));
    if sign && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at = digits(at + 1);
    }
    at
}

/// Any text; lower-casing one character at a time.
fn wide(text: &str, out: &mut String) {
    out.reserve(text.len());
    let table = unicode::table();
    let mut reorder = false;
    let mut number = Number::Outside;
    let mut gap = false;
    let mut emit = |c: char, out: &mut String| {
        let flags = table[c as usize];
        if flags & (TRANSLATED | SPACE) != 0 {
            gap = true;
            return;
        }
        if gap && !out.is_empty() {
            out.push(' ');
        }
        gap = false;
        if c.is_ascii() {
            out.push(c);
        } else {
            decompose_canonical(c, |d| {
                if unicode::flags(d) & MARK == 0 {
                    reorder |= d >= '\u{300}' && canonical_combining_class(d) != 0;
                    out.push(d);
                }
            });
        }
    };
    let mut each = |c: char, out: &mut String| number.next(c, table, &mut |c| emit(c, out));
    for c in text.chars() {
        if c.is_ascii() {
            each(c.to_ascii_lowercase(), out);
        } else {
            c.to_lowercase().for_each(|c| each(c, out));
        }
    }
    number.finish(&mut |c| emit(c, out));
    if reorder {
        // Marks that stay may have to change places; rare enough to do again in full.
        *out = out.nfd().filter(|&c| !unicode::is(c, MARK)).collect();
    }
    let stripped = unicode::strip(out);
    if stripped.len() != out.len() {
        *out = stripped.to_string();
    }
}

/// State of the scan within a number.
#[derive(Clone, Copy)]
enum Number {
    Outside,
    /// In the digits before a decimal sign.
    Whole,
    /// After a decimal sign that may or may not belong to the number.
    Sign(char),
    /// In the digits after the sign.
    Fraction,
}

impl Number {
    /// Passes on text outside numbers, and "0" for each number.
    #[inline]
    fn next(&mut self, c: char, table: &[u16], pass: &mut dyn FnMut(char)) {
        let digit = table[c as usize] & DIGIT != 0;
        match *self {
            Number::Outside if digit => {
                pass('0');
                *self = Number::Whole;
            }
            Number::Outside => pass(c),
            Number::Whole if digit => {}
            Number::Whole if DECIMAL.contains(&c) => *self = Number::Sign(c),
            Number::Sign(_) if digit => *self = Number::Fraction,
            Number::Sign(sign) => {
                pass(sign);
                pass(c);
                *self = Number::Outside;
            }
            Number::Fraction if digit => {}
            Number::Whole | Number::Fraction => {
                pass(c);
                *self = Number::Outside;
            }
        }
    }

    fn finish(&mut self, pass: &mut dyn FnMut(char)) {
        if let Number::Sign(sign) = *self {
            pass(sign);
        }
        *self = Number::Outside;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(text: &str) -> String {
        let mut out = String::new();
        simplify(text, &mut out);
        out
    }

    #[test]
    fn rules_by_hand() {
        assert_eq!(
            simple("The QUICK, brown\t\nfox's 3.14!"),
            "the quick brown fox s 0"
        );
        assert_eq!(simple("1.2.3 and 4, 5"), "0 0 and 0 0");
        assert_eq!(simple("Caf\u{e9} \u{c5}ngstr\u{f6}m"), "cafe angstrom");
        assert_eq!(simple("  !  "), "");
        assert_eq!(
            simple("\u{39f}\u{394}\u{39f}\u{3a3}"),
            "\u{3bf}\u{3b4}\u{3bf}\u{3c2}"
        );
    }

    #[test]
    fn the_ascii_path_equals_the_general_one() {
        let text = "Mixed: 10,000.5 items -- cost $3. 7.! end 8,\u{7f}x";
        let mut general = String::new();
        wide(text, &mut general);
        assert_eq!(simple(text), general);
    }
}
