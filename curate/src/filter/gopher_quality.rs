//! Gopher quality rules: word count, word length, symbols, bullets, alphabetic words, stop words.
//!
//! Paper: Rae et al. 2021, arXiv:2112.11446, app. A. Definitions: datatrove 0.10.1
//! `GopherQualityFilter`: words are spaCy tokens, a symbol word has only punctuation, mean length
//! counts non-symbol words, ratios are over all words, lines are `str.splitlines`. Rules run in
//! datatrove's order; limits are strict (`<`, `>`). A limit of 0 switches a rule off, as there.
//! `language` and `stop_words` are the parameters of these names there.
//! We differ: a text without a single word drops as too short even with `min_doc_words = 0`, where
//! datatrove divides by zero.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::languages::{MOST_STOP_WORDS, bits, check_language, in_language};
use super::profile::Profile;
use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::unicode::{self, LETTER, SPACE, TERMINAL, TRANSLATED};
use crate::text::{Scratch, chars};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// A bit for each of the words of which some must occur; 0 for any other word.
pub(crate) fn stop_word(word: &[u8]) -> u128 {
    match word {
        b"the" => 1,
        b"be" => 2,
        b"to" => 4,
        b"of" => 8,
        b"and" => 16,
        b"that" => 32,
        b"have" => 64,
        b"with" => 128,
        _ => 0,
    }
}

/// Gopher quality.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GopherQuality {
    /// Whose definition.
    pub profile: Profile,
    /// Minimum number of non-symbol words. Paper: 50.
    pub min_doc_words: usize,
    /// Maximum number of non-symbol words. Paper: 100 000.
    pub max_doc_words: usize,
    /// Minimum mean word length in characters. Paper: 3.
    pub min_avg_word_length: f64,
    /// Greatest mean word length in characters. Paper: 10.
    pub max_avg_word_length: f64,
    /// Most `#`, and most ellipses, per word. Paper: 0.1.
    pub max_symbol_word_ratio: f64,
    /// Greatest share of lines that start with a bullet. Paper: 0.9.
    pub max_bullet_lines_ratio: f64,
    /// Greatest share of lines that end with an ellipsis. Paper: 0.3.
    pub max_ellipsis_lines_ratio: f64,
    /// Minimum share of words with a letter. Paper: 0.8.
    pub min_alpha_words_ratio: f64,
    /// Minimum number of distinct stop words. Paper: 2.
    pub min_stop_words: usize,
    /// Stop words; empty: the paper's eight English ones, for any language.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop_words: Vec<String>,
    /// Language by which words are split, as datatrove names it, for example `swh_Latn` or `de`; `document`: the one that
    /// the step `language` found; empty: English.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub language: String,
}

impl Default for GopherQuality {
    fn default() -> Self {
        GopherQuality {
            profile: Profile::Datatrove,
            min_doc_words: 50,
            max_doc_words: 100_000,
            min_avg_word_length: 3.0,
            max_avg_word_length: 10.0,
            max_symbol_word_ratio: 0.1,
            max_bullet_lines_ratio: 0.9,
            max_ellipsis_lines_ratio: 0.3,
            min_alpha_words_ratio: 0.8,
            min_stop_words: 2,
            stop_words: Vec::new(),
            language: String::new(),
        }
    }
}

/// The rules with other stop words.
struct WithStopWords {
    rules: GopherQuality,
    /// Word to its bit.
    stop_words: FxHashMap<Box<[u8]>, u8>,
}

/// Number of the paper's English stop words.
const STOP_WORDS: usize = 8;

impl GopherQuality {
    /// Judges a text by English words and the paper's stop words, as a step without `language` and `stop_words` does.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text, as [`GopherQuality::judge`] does.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        self.measure_with(&stop_word, text, scratch, judge)
    }

    /// The same with other stop words: a bit for each.
    pub(super) fn measure_with(
        &self,
        stop_word: &impl Fn(&[u8]) -> u128,
        text: &str,
        scratch: &mut Scratch,
        judge: &mut Judge,
    ) -> Verdict {
        scratch.split(text);
        let counts = WordCounts::of(stop_word, text, scratch);
        let (all, real) = (scratch.words().len() as f64, counts.real as f64);
        if scratch.words().is_empty() {
            let least = self.min_doc_words as f64;
            return Verdict::Break(broken("gopher_quality.short_doc", 0.0, least));
        }
        if self.min_doc_words != 0 {
            judge.at_least("gopher_quality.short_doc", real, self.min_doc_words as f64)?;
        }
        if self.max_doc_words != 0 {
            judge.at_most("gopher_quality.long_doc", real, self.max_doc_words as f64)?;
        }
        let mean = counts.chars as f64 / real;
        if self.min_avg_word_length != 0.0 {
            judge.at_least(
                "gopher_quality.below_avg_threshold",
                mean,
                self.min_avg_word_length,
            )?;
        }
        if self.max_avg_word_length != 0.0 {
            judge.at_most(
                "gopher_quality.above_avg_threshold",
                mean,
                self.max_avg_word_length,
            )?;
        }
        if self.max_symbol_word_ratio != 0.0 {
            let limit = self.max_symbol_word_ratio;
            let hashes = memchr::memchr_iter(b'#', text.as_bytes()).count() as f64;
            judge.at_most("gopher_quality.too_many_hashes", hashes / all, limit)?;
            judge.at_most(
                "gopher_quality.too_many_ellipsis",
                ellipses(text) as f64 / all,
                limit,
            )?;
        }
        self.lines(text, judge)?;
        if self.min_alpha_words_ratio != 0.0 {
            let share = counts.alpha as f64 / all;
            judge.at_least(
                "gopher_quality.below_alpha_threshold",
                share,
                self.min_alpha_words_ratio,
            )?;
        }
        if self.min_stop_words != 0 {
            let found = counts.stop_words as f64;
            judge.at_least(
                "gopher_quality.enough_stop_words",
                found,
                self.min_stop_words as f64,
            )?;
        }
        KEEP
    }

    fn lines(&self, text: &str, judge: &mut Judge) -> Verdict {
        let (mut lines, mut bullets, mut dots) = (0u32, 0u32, 0u32);
        let space = |c| unicode::is(c, SPACE);
        for line in unicode::split_lines(text) {
            lines += 1;
            bullets += u32::from(
                line.trim_start_matches(space)
                    .starts_with(['\u{2022}', '-']),
            );
            let end = line.trim_end_matches(space);
            dots += u32::from(end.ends_with("...") || end.ends_with('\u{2026}'));
        }
        let lines = f64::from(lines);
        if self.max_bullet_lines_ratio != 0.0 {
            let share = f64::from(bullets) / lines;
            judge.at_most(
                "gopher_quality.too_many_bullets",
                share,
                self.max_bullet_lines_ratio,
            )?;
        }
        if self.max_ellipsis_lines_ratio != 0.0 {
            let share = f64::from(dots) / lines;
            judge.at_most(
                "gopher_quality.too_many_end_ellipsis",
                share,
                self.max_ellipsis_lines_ratio,
            )?;
        }
        KEEP
    }
}

/// Counts from one pass over the words.
struct WordCounts {
    /// Words with a character that is not punctuation.
    real: usize,
    /// Characters of those.
    chars: u64,
    /// Words with a letter.
    alpha: usize,
    /// Distinct stop words.
    stop_words: u32,
}

impl WordCounts {
    fn of(stop_word: &impl Fn(&[u8]) -> u128, text: &str, scratch: &Scratch) -> WordCounts {
        let mut counts = WordCounts {
            real: 0,
            chars: 0,
            alpha: 0,
            stop_words: 0,
        };
        let mut seen = 0u128;
        let table = unicode::table();
        for word in &scratch.words {
            let w = word.of(text);
            let (mut alpha, mut real) = (false, false);
            for c in w.chars() {
                let flags = table[c as usize];
                alpha |= flags & LETTER != 0;
                real |= flags & (TRANSLATED | TERMINAL) == 0;
                if alpha && real {
                    break;
                }
            }
            counts.alpha += usize::from(alpha);
            if real {
                counts.real += 1;
                counts.chars += chars(w) as u64;
            }
            seen |= stop_word(w.as_bytes());
        }
        counts.stop_words = seen.count_ones();
        counts
    }
}

/// Non-overlapping "..." plus the ellipsis character.
fn ellipses(text: &str) -> usize {
    memchr::memmem::find_iter(text.as_bytes(), "...").count()
        + memchr::memmem::find_iter(text.as_bytes(), "\u{2026}").count()
}

impl StepConfig for GopherQuality {
    fn name(&self) -> &'static str {
        "gopher_quality"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.max_doc_words != 0 && self.min_doc_words > self.max_doc_words {
            let found = format!(
                "{} above max_doc_words {}",
                self.min_doc_words, self.max_doc_words
            );
            problem("min_doc_words", found, "at most max_doc_words");
        }
        if self.max_avg_word_length != 0.0 && self.min_avg_word_length > self.max_avg_word_length {
            let found = format!(
                "{} above max_avg_word_length {}",
                self.min_avg_word_length, self.max_avg_word_length
            );
            problem("min_avg_word_length", found, "at most max_avg_word_length");
        }
        range(
            problem,
            "max_symbol_word_ratio",
            self.max_symbol_word_ratio,
            0.0,
            1e9,
        );
        range(
            problem,
            "max_bullet_lines_ratio",
            self.max_bullet_lines_ratio,
            0.0,
            1.0,
        );
        range(
            problem,
            "max_ellipsis_lines_ratio",
            self.max_ellipsis_lines_ratio,
            0.0,
            1.0,
        );
        range(
            problem,
            "min_alpha_words_ratio",
            self.min_alpha_words_ratio,
            0.0,
            1.0,
        );
        let distinct: BTreeSet<&String> = self.stop_words.iter().collect();
        let most = match distinct.len() {
            0 => STOP_WORDS,
            words => words,
        };
        range(
            problem,
            "min_stop_words",
            self.min_stop_words as f64,
            0.0,
            most as f64,
        );
        if self.stop_words.len() > MOST_STOP_WORDS {
            let found = format!("{} words", self.stop_words.len());
            problem("stop_words", found, "at most 128 words");
        }
        check_language(&self.language, problem);
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let filter: Box<dyn Filter> = match self.stop_words.is_empty() {
            true => Box::new(self.clone()),
            false => Box::new(WithStopWords {
                rules: self.clone(),
                stop_words: bits(self.stop_words.iter().map(|w| w.as_bytes())),
            }),
        };
        in_language(&self.language, "gopher_quality", at, filter)
    }
}

impl Filter for WithStopWords {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let bit = |word: &[u8]| self.stop_words.get(word).map_or(0, |&bit| 1u128 << bit);
        self.rules
            .measure_with(&bit, &draft.text, &mut scratch.text, judge)
    }
}

impl Filter for GopherQuality {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}
