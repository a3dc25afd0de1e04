//! DCLM-baseline's heuristics: page rules, repetition rules, line edits, and a limit on the text that edits may remove.
//!
//! Paper: Li et al. 2024, arXiv:2406.11794, after RefinedWeb (Penedo et al. 2023, arXiv:2306.01116). Definitions:
//! the repository's `dclm_baseline_refinedweb.yaml` and `baselines/mappers` at commit 361714b, in its order. The
//! names are Gopher's but the rules are not: words are split at white space, stop words count with repeats, a
//! duplicate line is every copy, n-grams are over Unicode words without punctuation. Address lists and language are
//! separate steps. We differ: repeated items are compared by 64-bit hashes.

mod addresses;
mod lines;
mod repetition;
mod words;

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::unicode::{self, LETTER};
use crate::text::{Scratch, chars};
use crate::verdict::{Judge, KEEP, Verdict, broken};
use words::{pieces, plain_words, words};

/// DCLM-baseline.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dclm {
    /// Take addresses out of the text first.
    pub remove_urls: bool,
    /// Minimum number of words that start with a letter or a digit.
    pub min_words: usize,
    /// Maximum number of such words.
    pub max_words: usize,
    /// Minimum mean length of words in characters.
    pub min_mean_word_length: f64,
    /// Greatest mean length.
    pub max_mean_word_length: f64,
    /// Most `#` and ellipses to a word.
    pub max_symbol_ratio: f64,
    /// Greatest share of lines that start with a bullet.
    pub max_bullet_ratio: f64,
    /// Greatest share of lines that end with an ellipsis.
    pub max_ellipsis_ratio: f64,
    /// Greatest share of words without a letter.
    pub max_non_alphabetic_ratio: f64,
    /// Minimum number of occurrences of eight English stop words.
    pub min_stop_words: usize,
    /// Apply the repetition rules of Gopher's table A1.
    pub repetition: bool,
    /// Edit lines: capitals, numbers, counters, single words, three phrases of shops and readers.
    pub edit_lines: bool,
    /// Greatest share of words that the edits may remove.
    pub max_removed_ratio: f64,
}

impl Default for Dclm {
    fn default() -> Self {
        Dclm {
            remove_urls: true,
            min_words: 50,
            max_words: 100_000,
            min_mean_word_length: 3.0,
            max_mean_word_length: 10.0,
            max_symbol_ratio: 0.1,
            max_bullet_ratio: 0.9,
            max_ellipsis_ratio: 0.3,
            max_non_alphabetic_ratio: 0.2,
            min_stop_words: 2,
            repetition: true,
            edit_lines: true,
            max_removed_ratio: 0.05,
        }
    }
}

const STOP_WORDS: [&str; 8] = ["the", "be", "to", "of", "and", "that", "have", "with"];

impl Dclm {
    /// Judges a text; `out` receives the edited page.
    pub fn judge(&self, text: &str, scratch: &mut Scratch, out: &mut String) -> Verdict {
        self.measure(text, scratch, out, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text; `out` receives the edited page.
    pub fn measure(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut String,
        judge: &mut Judge,
    ) -> Verdict {
        out.clear();
        if self.remove_urls {
            let without = addresses::without(text);
            if without.is_empty() {
                return Verdict::Break(broken("dclm.empty", 0.0, 1.0));
            }
            lines::at_most_two_newlines(&without, out);
        } else {
            lines::at_most_two_newlines(text, out);
        }
        let page = std::mem::take(out);
        self.page(&page, judge)?;
        if self.repetition {
            repetition::measure(&page, scratch, judge)?;
        }
        if !self.edit_lines {
            *out = page;
            return KEEP;
        }
        let before = plain_words(&page);
        *out = page;
        for edit in lines::EDITS {
            let edited = edit(out);
            *out = edited;
            if out.is_empty() {
                return Verdict::Break(broken("dclm.empty", 0.0, 1.0));
            }
        }
        let after = plain_words(out);
        if before == 0 {
            return Verdict::Break(broken("dclm.removed_ratio", 1.0, self.max_removed_ratio));
        }
        // words may also become more: an edit can uncover one
        let removed = (before as f64 - after as f64) / before as f64;
        judge.at_most("dclm.removed_ratio", removed, self.max_removed_ratio)
    }

    /// The rules that judge the page as a whole.
    fn page(&self, text: &str, judge: &mut Judge) -> Verdict {
        let words = plain_words(text) as f64;
        judge.at_least("dclm.min_words", words, self.min_words as f64)?;
        judge.at_most("dclm.max_words", words, self.max_words as f64)?;
        let counts = Counts::of(text);
        let words = counts.words as f64;
        if counts.words == 0 {
            return Verdict::Break(broken("dclm.min_words", 0.0, 1.0));
        }
        let mean = counts.chars as f64 / words;
        judge.at_least("dclm.min_mean_word_length", mean, self.min_mean_word_length)?;
        judge.at_most("dclm.max_mean_word_length", mean, self.max_mean_word_length)?;
        let symbols: usize = ["#", "...", ". . .", "\u{2026}"]
            .iter()
            .map(|s| memchr::memmem::find_iter(text.as_bytes(), s).count())
            .sum();
        judge.at_most(
            "dclm.symbol_ratio",
            symbols as f64 / words,
            self.max_symbol_ratio,
        )?;
        let share = |count: usize| {
            if counts.lines == 0 {
                0.0
            } else {
                count as f64 / counts.lines as f64
            }
        };
        judge.at_most(
            "dclm.bullet_ratio",
            share(counts.bullets),
            self.max_bullet_ratio,
        )?;
        judge.at_most(
            "dclm.ellipsis_ratio",
            share(counts.ellipses),
            self.max_ellipsis_ratio,
        )?;
        let other = counts.non_alphabetic as f64 / words;
        judge.at_most(
            "dclm.non_alphabetic_ratio",
            other,
            self.max_non_alphabetic_ratio,
        )?;
        let stops = counts.stop_words as f64;
        judge.at_least("dclm.stop_words", stops, self.min_stop_words as f64)
    }
}

/// Counts of the page rules.
#[derive(Default)]
struct Counts {
    words: usize,
    chars: usize,
    non_alphabetic: usize,
    stop_words: usize,
    lines: usize,
    bullets: usize,
    ellipses: usize,
}

impl Counts {
    fn of(text: &str) -> Counts {
        let mut counts = Counts::default();
        for word in words(text) {
            counts.words += 1;
            counts.chars += chars(word);
            let alphabetic = word.chars().any(|c| unicode::is(c, LETTER));
            counts.non_alphabetic += usize::from(!alphabetic);
            // the Kelvin sign is no letter of a stop word: lower case in ASCII is enough
            let is_stop = STOP_WORDS.iter().any(|s| s.eq_ignore_ascii_case(word));
            counts.stop_words += usize::from(is_stop);
        }
        for line in pieces(text, "\n") {
            counts.lines += 1;
            counts.bullets += usize::from(line.starts_with(['\u{25cf}', '\u{2022}', '*', '-']));
            let ends =
                line.ends_with("...") || line.ends_with(". . .") || line.ends_with('\u{2026}');
            counts.ellipses += usize::from(ends);
        }
        counts
    }
}

impl StepConfig for Dclm {
    fn name(&self) -> &'static str {
        "dclm"
    }

    fn check(&self, problem: Problem<'_>) {
        for (key, value, most) in [
            ("min_mean_word_length", self.min_mean_word_length, 1e6),
            ("max_mean_word_length", self.max_mean_word_length, 1e6),
            ("max_symbol_ratio", self.max_symbol_ratio, 1e6),
            ("max_bullet_ratio", self.max_bullet_ratio, 1.0),
            ("max_ellipsis_ratio", self.max_ellipsis_ratio, 1.0),
            (
                "max_non_alphabetic_ratio",
                self.max_non_alphabetic_ratio,
                1.0,
            ),
            ("max_removed_ratio", self.max_removed_ratio, 1.0),
        ] {
            range(problem, key, value, 0.0, most);
        }
        if self.min_words > self.max_words {
            let found = format!("{} above max_words {}", self.min_words, self.max_words);
            problem("min_words", found, "at most max_words");
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Dclm {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(
            &draft.text,
            &mut scratch.text,
            &mut scratch.rewritten,
            judge,
        )?;
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }
}
