//! Metrics of a line for conditions.

use crate::expression::Metrics;
use crate::text::unicode::{self, DIGIT, LETTER, PUNCT, SPACE};
use crate::text::{chars, plain};

/// Names of numbers.
pub(super) const NAMES: [&str; 11] = [
    "words",
    "chars",
    "letters",
    "upper",
    "digits",
    "spaces",
    "punctuation",
    "alphabetic_words",
    "number",
    "lines",
    "mark",
];

/// Names of texts.
pub(super) const TEXTS: [&str; 1] = ["line"];

/// A line as conditions see it.
pub(super) struct LineMetrics<'a> {
    pub(super) line: &'a str,
    pub(super) number: usize,
    pub(super) lines: usize,
}

impl Metrics for LineMetrics<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        let of = |is: &dyn Fn(char) -> bool| {
            plain::share(
                self.line.chars().filter(|&c| is(c)).count(),
                chars(self.line),
            )
        };
        let class = |flags: u16| of(&|c| unicode::is(c, flags));
        let words = || plain::words(self.line);
        Some(match name {
            "words" => words().count() as f64,
            "chars" => chars(self.line) as f64,
            "letters" => class(LETTER),
            "upper" => of(&char::is_uppercase),
            "digits" => class(DIGIT),
            "spaces" => class(SPACE),
            "punctuation" => class(PUNCT),
            "alphabetic_words" => {
                let has = |w: &&str| w.chars().any(|c| unicode::is(c, LETTER));
                plain::share(words().filter(has).count(), words().count())
            }
            "number" => self.number as f64,
            "lines" => self.lines as f64,
            "mark" => {
                let end = unicode::strip(self.line);
                f64::from(u8::from(end.ends_with(['.', '?', '!', '"'])))
            }
            _ => return None,
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        (name == "line").then_some(self.line)
    }
}
