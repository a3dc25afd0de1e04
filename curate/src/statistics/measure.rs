//! Text metrics: datatrove 0.10.1's document, line, paragraph and word statistics with their names.
//!
//! `DocStats`, `LineStats`, `ParagraphStats` and `WordStats` with their default thresholds; words are spaCy's, as in the
//! filters; an empty share is 0. Added: `bytes`. Left out: sentences, and metrics that need a model.

use std::ops::RangeInclusive;

use crate::filter::{duplicates, stop_word};
use crate::text::unicode::{self, DIGIT, LETTER, SPACE, TRANSLATED};
use crate::text::{HashCounts, Scratch, chars};

/// Names of the metrics.
pub const TEXT_METRICS: [&str; 33] = [
    "bytes",
    "length",
    "white_space_ratio",
    "non_alpha_digit_ratio",
    "digit_ratio",
    "uppercase_ratio",
    "elipsis_ratio",
    "punctuation_ratio",
    "n_lines",
    "avg_line_length",
    "short_line_ratio_chars_10",
    "short_line_ratio_chars_30",
    "long_line_ratio_chars_2000",
    "long_line_ratio_chars_10000",
    "lines_ending_with_terminal_mark_ratio",
    "bullet_point_lines_ratio",
    "line_duplicates",
    "line_char_duplicates",
    "n_paragraphs",
    "avg_paragraph_length",
    "short_paragraph_ratio_100",
    "long_paragraph_ratio_1000",
    "paragraph_duplicates",
    "paragraph_char_duplicates",
    "n_words",
    "avg_word_length",
    "avg_words_per_line",
    "short_word_ratio_3",
    "long_word_ratio_7",
    "type_token_ratio",
    "uppercase_word_ratio",
    "capitalized_word_ratio",
    "stop_word_ratio",
];

/// One text's metrics, in the order of [`TEXT_METRICS`].
pub type TextMetrics = [f64; TEXT_METRICS.len()];

/// Characters that Python's `str.isdigit` takes and category Nd does not.
const OTHER_DIGITS: [RangeInclusive<char>; 20] = [
    '\u{b2}'..='\u{b3}',
    '\u{b9}'..='\u{b9}',
    '\u{1369}'..='\u{1371}',
    '\u{19da}'..='\u{19da}',
    '\u{2070}'..='\u{2070}',
    '\u{2074}'..='\u{2079}',
    '\u{2080}'..='\u{2089}',
    '\u{2460}'..='\u{2468}',
    '\u{2474}'..='\u{247c}',
    '\u{2488}'..='\u{2490}',
    '\u{24ea}'..='\u{24ea}',
    '\u{24f5}'..='\u{24fd}',
    '\u{24ff}'..='\u{24ff}',
    '\u{2776}'..='\u{277e}',
    '\u{2780}'..='\u{2788}',
    '\u{278a}'..='\u{2792}',
    '\u{10a40}'..='\u{10a43}',
    '\u{10e60}'..='\u{10e68}',
    '\u{11052}'..='\u{1105a}',
    '\u{1f100}'..='\u{1f10a}',
];
/// Category Lt.
const TITLECASE: [RangeInclusive<char>; 10] = [
    '\u{1c5}'..='\u{1c5}',
    '\u{1c8}'..='\u{1c8}',
    '\u{1cb}'..='\u{1cb}',
    '\u{1f2}'..='\u{1f2}',
    '\u{1f88}'..='\u{1f8f}',
    '\u{1f98}'..='\u{1f9f}',
    '\u{1fa8}'..='\u{1faf}',
    '\u{1fbc}'..='\u{1fbc}',
    '\u{1fcc}'..='\u{1fcc}',
    '\u{1ffc}'..='\u{1ffc}',
];

fn is_in(c: char, ranges: &[RangeInclusive<char>]) -> bool {
    ranges.iter().any(|range| range.contains(&c))
}

/// Measures a text.
pub fn measure(text: &str, scratch: &mut Scratch) -> TextMetrics {
    let mut values = Values {
        values: [0.0; TEXT_METRICS.len()],
        filled: 0,
    };
    characters(text, &mut values);
    lines(text, &mut scratch.set, &mut values);
    paragraphs(text, &mut scratch.set, &mut values);
    words(text, scratch, &mut values);
    debug_assert_eq!(values.filled, TEXT_METRICS.len());
    values.values
}

/// Values in the order in which they are measured.
struct Values {
    values: TextMetrics,
    filled: usize,
}

impl Values {
    fn put(&mut self, value: f64) {
        if let Some(v) = self.values.get_mut(self.filled) {
            *v = value;
        }
        self.filled += 1;
    }

    /// A share, 0 of nothing.
    fn share(&mut self, part: usize, whole: usize) {
        self.put(part as f64 / whole.max(1) as f64);
    }
}

fn characters(text: &str, values: &mut Values) {
    let table = unicode::table();
    let (mut all, mut spaces, mut others, mut digits) = (0, 0, 0, 0);
    let (mut uppers, mut marks) = (0, 0);
    for c in text.chars() {
        all += 1;
        let flags = table[c as usize];
        spaces += usize::from(flags & SPACE != 0);
        marks += usize::from(flags & TRANSLATED != 0);
        let is_digit = flags & DIGIT != 0 || (!c.is_ascii() && is_in(c, &OTHER_DIGITS));
        digits += usize::from(is_digit);
        uppers += usize::from(c.is_uppercase());
        others += usize::from(!is_digit && flags & LETTER == 0);
    }
    let dots = memchr::memmem::find_iter(text.as_bytes(), "...").count();
    let ellipses = memchr::memmem::find_iter(text.as_bytes(), "\u{2026}").count();
    values.put(text.len() as f64);
    values.put(all as f64);
    for part in [spaces, others, digits, uppers, 3 * dots + ellipses, marks] {
        values.share(part, all);
    }
}

fn lines(text: &str, set: &mut HashCounts, values: &mut Values) {
    let (mut all, mut total, mut ended, mut bullets) = (0, 0, 0, 0);
    let (mut within, mut beyond) = ([0; 2], [0; 2]);
    for line in text.split('\n') {
        let length = chars(line);
        all += 1;
        total += length;
        for (count, most) in within.iter_mut().zip([10, 30]) {
            *count += usize::from(length <= most);
        }
        for (count, least) in beyond.iter_mut().zip([2000, 10_000]) {
            *count += usize::from(length >= least);
        }
        ended += usize::from(line.ends_with(['.', '?', '!', '"', '\'']));
        bullets += usize::from(unicode::strip(line).starts_with(['-', '*', '\u{2022}']));
    }
    values.put(all as f64);
    values.share(total, all);
    for part in within.into_iter().chain(beyond).chain([ended, bullets]) {
        values.share(part, all);
    }
    let (_, repeated, repeated_chars) = duplicates(text.split('\n'), text.len(), set);
    values.put(repeated / all as f64);
    values.put(repeated_chars / total.max(1) as f64);
}

fn paragraphs(text: &str, set: &mut HashCounts, values: &mut Values) {
    let pieces = || text.split("\n\n").filter(|p| !unicode::strip(p).is_empty());
    let (mut all, mut total, mut short, mut long) = (0, 0, 0, 0);
    for piece in pieces() {
        let length = chars(piece);
        all += 1;
        total += length;
        short += usize::from(length <= 100);
        long += usize::from(length >= 1000);
    }
    values.put(all as f64);
    for part in [total, short, long] {
        values.share(part, all);
    }
    let (_, repeated, repeated_chars) = duplicates(pieces(), text.len(), set);
    values.put(repeated / all.max(1) as f64);
    values.put(repeated_chars / total.max(1) as f64);
}

fn words(text: &str, scratch: &mut Scratch, values: &mut Values) {
    scratch.measure(text);
    let all = scratch.words.len();
    let (mut total, mut short, mut long) = (0usize, 0, 0);
    for length in &scratch.word_chars {
        total += *length as usize;
        short += usize::from(*length <= 3);
        long += usize::from(*length >= 7);
    }
    let (mut uppers, mut capitals, mut stops) = (0, 0, 0);
    for word in &scratch.words {
        let word = word.of(text);
        let (is_upper, is_title) = cases(word);
        uppers += usize::from(is_upper);
        capitals += usize::from(is_title);
        stops += usize::from(stop_word(word.as_bytes()) != 0);
    }
    scratch.set.clear(all);
    let hashes = scratch.word_hashes.iter();
    let different = hashes.filter(|h| scratch.set.add(**h) == 0).count();
    let lines = unicode::split_lines(text).count();
    values.put(all as f64);
    values.share(total, all);
    // nothing if there are no lines, as all shares
    values.put(if lines == 0 {
        0.0
    } else {
        all as f64 / lines as f64
    });
    for part in [short, long, different, uppers, capitals, stops] {
        values.share(part, all);
    }
}

/// Python's `str.isupper` and `str.istitle`.
fn cases(word: &str) -> (bool, bool) {
    let (mut has_upper, mut has_other, mut is_title) = (false, false, true);
    let (mut is_cased, mut after_cased) = (false, false);
    for c in word.chars() {
        let (upper, lower) = (c.is_uppercase(), c.is_lowercase());
        let title = !c.is_ascii() && is_in(c, &TITLECASE);
        has_upper |= upper;
        has_other |= lower || title;
        if upper || title {
            is_title &= !after_cased;
        } else if lower {
            is_title &= after_cased;
        }
        after_cased = upper || lower || title;
        is_cased |= after_cased;
    }
    (has_upper && !has_other, is_title && is_cased)
}
