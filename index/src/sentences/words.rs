//! Punkt's word tokenizer: lines cut into words, numbers, multi-character punctuation and single marks.
//!
//! Facts: NLTK 3.10's `PunktLanguageVars` and `PunktToken`, whose regular expressions run in the `regex` module, so
//! white space is Unicode's property and a digit is general category Nd. Implemented as scans that visit each byte
//! a few times.

use unicode_normalization::char::is_combining_mark;

/// First code points of the runs of ten decimal digits (general category Nd, Unicode 17).
const DIGIT_RUNS: [u32; 77] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66,
    0xde6, 0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90,
    0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
    0x104a0, 0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0,
    0x11650, 0x116c0, 0x116d0, 0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50,
    0x11da0, 0x11de0, 0x11f50, 0x16130, 0x16a60, 0x16ac0, 0x16b50, 0x16d70, 0x1ccf0, 0x1d7ce,
    0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0,
];

/// General category Nd.
fn is_digit(c: char) -> bool {
    let code = u32::from(c);
    let run = DIGIT_RUNS.partition_point(|first| *first <= code);
    run > 0 && code - DIGIT_RUNS[run - 1] < 10
}

/// A word character that is no digit: letters, marks, connectors and joiners.
fn is_letter(c: char) -> bool {
    let connector = matches!(
        c,
        '_' | '\u{203f}' | '\u{2040}' | '\u{2054}' | '\u{fe33}' | '\u{fe34}' | '\u{fe4d}'
            ..='\u{fe4f}' | '\u{ff3f}' | '\u{200c}' | '\u{200d}'
    );
    (c.is_alphabetic() || connector || is_combining_mark(c)) && !is_digit(c)
}

/// Without white space at the end, as Python's `strip` sees it: the four ASCII separators count too.
pub(super) fn rstrip(text: &str) -> &str {
    text.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}'))
}

/// Marks that no word holds and that may follow a sentence's end at once.
pub(super) fn is_non_word(c: char) -> bool {
    matches!(
        c,
        ')' | '"' | ';' | '}' | ']' | '*' | ':' | '@' | '\'' | '(' | '{' | '[' | '?' | '!'
    ) || is_curly(c)
}

/// Quotation marks beyond ASCII.
pub(super) fn is_curly(c: char) -> bool {
    matches!(
        c,
        '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' | '\u{ab}' | '\u{bb}'
    )
}

/// Bytes of dashes, dots or spaced dots at the start of `text`, 0 if there are none.
fn multi_char(text: &str) -> usize {
    let bytes = text.as_bytes();
    for mark in [b'-', b'.'] {
        let run = bytes.iter().take_while(|b| **b == mark).count();
        if run >= 2 {
            return run;
        }
    }
    // dot, white space, dot, white space, dot: the longest such chain
    let (mut at, mut dots, mut end) = (0, 0, 0);
    while bytes.get(at) == Some(&b'.') {
        at += 1;
        dots += 1;
        end = at;
        match text[at..].chars().next() {
            Some(c) if c.is_whitespace() => at += c.len_utf8(),
            _ => break,
        }
    }
    if dots >= 3 { end } else { 0 }
}

/// Whether a word ends before `rest`.
fn ends_word(rest: &str) -> bool {
    let stops = |rest: &str| match rest.chars().next() {
        None => true,
        Some(c) => c.is_whitespace() || is_non_word(c) || multi_char(rest) > 0,
    };
    stops(rest) || rest.strip_prefix(',').is_some_and(stops)
}

/// Bytes of the word that `text` starts with; `text` does not start with white space.
fn word_len(text: &str) -> usize {
    let several = multi_char(text);
    if several > 0 {
        return several;
    }
    let mut chars = text.char_indices();
    let Some((_, first)) = chars.next() else {
        return 0;
    };
    if matches!(
        first,
        '(' | '"'
            | '`'
            | '{'
            | '['
            | ':'
            | ';'
            | '&'
            | '#'
            | '*'
            | '@'
            | ')'
            | '}'
            | ']'
            | '-'
            | ','
    ) {
        return first.len_utf8();
    }
    chars
        .map(|(at, _)| at)
        .find(|at| ends_word(&text[*at..]))
        .unwrap_or(text.len())
}

/// A word with Punkt's annotations.
#[derive(Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// Lower case, numbers all alike.
    kind: String,
    pub(super) ends_sentence: bool,
    pub(super) is_abbreviation: bool,
    pub(super) is_ellipsis: bool,
}

/// The type of every number.
pub(super) const NUMBER: &str = "##number##";

impl<'a> Word<'a> {
    fn new(text: &'a str) -> Word<'a> {
        let kind = if is_number(text) {
            NUMBER.to_string()
        } else {
            text.to_lowercase()
        };
        Word {
            text,
            kind,
            ends_sentence: false,
            is_abbreviation: false,
            is_ellipsis: false,
        }
    }

    pub(super) fn has_final_period(&self) -> bool {
        self.text.ends_with('.')
    }

    /// The kind without its last period, unless it is nothing else.
    pub(super) fn kind_without_period(&self) -> &str {
        match self.kind.strip_suffix('.') {
            Some(rest) if !rest.is_empty() => rest,
            _ => &self.kind,
        }
    }

    /// The same if the period ends a sentence; else the whole kind.
    pub(super) fn kind_in_sentence(&self) -> &str {
        if self.ends_sentence {
            self.kind_without_period()
        } else {
            &self.kind
        }
    }

    pub(super) fn starts_upper(&self) -> bool {
        self.text.starts_with(char::is_uppercase)
    }

    pub(super) fn starts_lower(&self) -> bool {
        self.text.starts_with(char::is_lowercase)
    }

    /// One letter and a period.
    pub(super) fn is_initial(&self) -> bool {
        let mut chars = self.text.chars();
        let both = (chars.next(), chars.next(), chars.next());
        matches!(both, (Some(c), Some('.'), None) if is_letter(c))
    }

    /// Two periods or more and nothing else.
    pub(super) fn is_dots(&self) -> bool {
        self.text.len() >= 2 && self.text.bytes().all(|b| b == b'.')
    }
}

/// `-.5`, `1,000.`, `3-4`: an optional sign, an optional point, a digit, then digits and marks.
fn is_number(text: &str) -> bool {
    let rest = text.strip_prefix('-').unwrap_or(text);
    let rest = rest.strip_prefix(['.', ',']).unwrap_or(rest);
    let mut chars = rest.chars();
    chars.next().is_some_and(is_digit) && chars.all(|c| is_digit(c) || matches!(c, ',' | '.' | '-'))
}

/// Appends the words of `text`; lines are cut apart first.
pub(super) fn words<'a>(text: &'a str, out: &mut Vec<Word<'a>>) {
    for line in text.split('\n').filter(|l| !rstrip(l).is_empty()) {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(word_len(rest));
            out.push(Word::new(word));
            rest = after.trim_start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<&str> {
        let mut out = Vec::new();
        words(text, &mut out);
        out.iter().map(|w| w.text).collect()
    }

    #[test]
    fn words_are_cut_as_nltks_regular_expression_cuts_them() {
        // NLTK 3.10.4: PunktLanguageVars().word_tokenize
        assert_eq!(
            of("Hello, (world)--it's $3.50."),
            ["Hello", ",", "(", "world", ")", "--", "it", "'s", "$3.50."]
        );
        assert_eq!(
            of("etc... a. . . b ,c"),
            ["etc", "...", "a", ". . .", "b", ",", "c"]
        );
        assert_eq!(of(" \t\n"), [""; 0]);
    }

    #[test]
    fn numbers_initials_and_digits_are_told_apart() {
        assert!(
            ["1", "-1,000.5.", ".5", "\u{663}"]
                .iter()
                .all(|t| is_number(t))
        );
        assert!(
            ["", "-", "1a", "$1", "\u{2167}"]
                .iter()
                .all(|t| !is_number(t))
        );
        assert!(DIGIT_RUNS.is_sorted() && is_digit('9') && !is_digit(':') && !is_digit('a'));
        assert!(Word::new("J.").is_initial() && !Word::new("5.").is_initial());
    }
}
