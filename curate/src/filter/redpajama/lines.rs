//! RedPajama's line signals. A line ends with its line feed; scores are in RedPajama's order.

use std::sync::LazyLock;

use super::round::{ratio, rounded};
use super::words::normalize;
use crate::text::unicode::{self, SPACE};
use crate::text::{chars, plain};

/// Lines with their scores.
pub(super) struct Lines {
    /// First and last character of each.
    pub(super) spans: Vec<(usize, usize)>,
    /// javascript, terminal punctuation, words, capitals, numbers, bullets.
    pub(super) scores: [Vec<f64>; 6],
    /// Lines that end in an ellipsis.
    pub(super) ellipses: usize,
}

/// Letters that `str.isnumeric` takes for numbers (Unicode 14).
const NUMERIC_LETTERS: &str = "3405 3483 382a 3b4d 4e00 4e03 4e07 4e09 4e5d 4e8c 4e94 4e96 4ebf-4ec0 4edf 4ee8 4f0d 4f70 \
    5104 5146 5169 516b 516d 5341 5343-5345 534c 53c1-53c4 56db 58f1 58f9 5e7a 5efe-5eff 5f0c-5f0e 5f10 62fe 634c 67d2 \
    6f06 7396 767e 8086 842c 8cae 8cb3 8d30 9621 9646 964c 9678 96f6 f96b f973 f978 f9b2 f9d1 f9d3 f9fd 20001 20064 \
    200e2 20121 2092a 20983 2098c 2099c 20aea 20afd 20b19 22390 22998 23b1b 2626d 2f890";

static NUMERIC: LazyLock<Vec<char>> = LazyLock::new(|| unicode::ranges(NUMERIC_LETTERS).collect());

/// `str.isnumeric` of a character.
fn is_numeric(c: char) -> bool {
    c.is_numeric() || (c >= '\u{3405}' && NUMERIC.binary_search(&c).is_ok())
}

const BULLETS: &str =
    "\u{2022}\u{2023}\u{25b6}\u{25c0}\u{25e6}\u{25a0}\u{25a1}\u{25aa}\u{25ab}\u{2013}";

impl Lines {
    pub(super) fn of(text: &str) -> Lines {
        let mut found = Lines {
            spans: Vec::new(),
            scores: Default::default(),
            ellipses: 0,
        };
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let length = chars(line);
            found.spans.push((at, at + length));
            at += length;
            let end = line.trim_end_matches(|c| unicode::is(c, SPACE));
            let start = line.trim_start_matches(|c| unicode::is(c, SPACE));
            found.ellipses += usize::from(end.ends_with("...") || end.ends_with('\u{2026}'));
            let normal = if end.is_empty() {
                String::new()
            } else {
                normalize(line)
            };
            let words = plain::words(&normal).count();
            let javascript = plain::words(&normal).filter(|w| *w == "javascript").count();
            let capitals = line.chars().filter(|c| c.is_uppercase()).count();
            let numbers = normal.chars().filter(|&c| is_numeric(c)).count();
            let scores = [
                javascript as f64,
                f64::from(u8::from(end.ends_with(['.', '!', '?', '\u{201d}']))),
                words as f64,
                rounded(capitals as f64 / length as f64),
                share(numbers, chars(&normal)),
                f64::from(u8::from(start.starts_with(|c| BULLETS.contains(c)))),
            ];
            for (all, score) in found.scores.iter_mut().zip(scores) {
                all.push(score);
            }
        }
        found
    }
}

/// Rounded share; of nothing 0.
fn share(part: usize, whole: usize) -> f64 {
    ratio(part, whole).unwrap_or(0.0)
}
