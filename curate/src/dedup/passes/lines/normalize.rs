//! CCNet's normalization of lines for comparison: lower case, digits as 0, without its list of punctuation and
//! control characters.
//!
//! Program: facebookresearch/cc_net bda555b, `text_normalizer.normalize_for_dedup`, in this order: white space at
//! both ends, case, decimal digits, characters left out. ASCII punctuation stays.

use crate::text::unicode::{self, DIGIT};

/// Appends the normalised line.
pub(crate) fn normalize(line: &str, out: &mut String) {
    let line = unicode::strip(line);
    if line.is_ascii() {
        let kept = line.bytes().filter(|b| (32..127).contains(b));
        out.extend(kept.map(|b| match b {
            b'0'..=b'9' => '0',
            b => char::from(b.to_ascii_lowercase()),
        }));
        return;
    }
    for c in line.to_lowercase().chars() {
        if unicode::is(c, DIGIT) {
            out.push('0');
        } else if !is_left_out(c) {
            out.push(c);
        }
    }
}

/// Controls, and the punctuation of CCNet's table.
fn is_left_out(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ab}' | '\u{b4}' | '\u{bb}' | '\u{2013}' | '\u{2014}' | '\u{2019}' | '\u{201c}'..='\u{201e}'
        | '\u{2026}' | '\u{2236}' | '\u{2501}' | '\u{25ba}' | '\u{3001}' | '\u{3002}' | '\u{3008}'..='\u{300d}'
        | '\u{3010}' | '\u{3011}' | '\u{ff01}' | '\u{ff05}' | '\u{ff08}' | '\u{ff09}' | '\u{ff0c}' | '\u{ff0e}'
        | '\u{ff11}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff1f}' | '\u{ff5e}')
}
