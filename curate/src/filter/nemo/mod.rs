//! NeMo Curator's heuristic filters for English, in the order of its published pipeline.
//!
//! Definitions: NeMo Curator 1.4.0, `stages/text/filters/heuristic` and
//! `config/text/heuristic_filter_english_pipeline.yaml`; its numbers are Gopher's and C4's, its metrics its own.
//! Words are split at white space, lines without text are skipped, paragraphs are separated by two line feeds,
//! repetition is measured by the text left when copies are removed. Filters that need a tokenizer, code or a
//! histogram are left out. We differ: a text without a word drops as `nemo.empty`, where it divides by zero; of
//! equally frequent n-grams the first is taken, where NeMo uses the order of a randomly seeded set; common words
//! are counted to the end, where NeMo stops at the limit.

mod strings;

use serde::{Deserialize, Serialize};

use super::limits::{Limits, Rule, Rules};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::plain::{Copies, PlainWords, most_frequent, share};
use crate::text::{HashCounts, Scratch, chars};
use crate::verdict::{Judge, Verdict, empty};
use strings::{Strings, lines};

/// NeMo Curator's heuristics.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nemo {
    /// Limits that differ from the published ones; `false` switches a rule off.
    pub limits: Limits,
}

/// In the order of the published pipeline; rules that it leaves out come last.
const RULES: [Rule; 31] = [
    Rule::at_most("nemo.max_non_alpha_numeric_ratio", 0.25),
    Rule::at_most("nemo.max_symbol_to_word_ratio", 0.1),
    Rule::at_most("nemo.max_number_ratio", 0.15),
    Rule::at_most("nemo.max_url_ratio", 0.2),
    Rule::at_most("nemo.max_white_space_ratio", 0.25),
    Rule::at_most("nemo.max_parentheses_ratio", 0.1),
    Rule::at_most("nemo.max_boilerplate_ratio", 0.4),
    Rule::at_least("nemo.min_distinct_line_ratio", 0.7),
    Rule::at_least("nemo.min_distinct_paragraph_ratio", 0.7),
    Rule::at_least("nemo.min_distinct_line_char_ratio", 0.8),
    Rule::at_least("nemo.min_distinct_paragraph_char_ratio", 0.8),
    Rule::at_least("nemo.min_words", 50.0),
    Rule::at_most("nemo.max_words", 100_000.0),
    Rule::at_most("nemo.max_no_end_mark_ratio", 0.85),
    Rule::at_least("nemo.min_alphabetic_word_ratio", 0.8),
    Rule::at_least("nemo.min_common_words", 2.0),
    Rule::at_least("nemo.min_mean_word_length", 3.0),
    Rule::at_most("nemo.max_mean_word_length", 10.0),
    Rule::at_most("nemo.max_word_length", 1000.0),
    Rule::at_most("nemo.max_ellipsis_ratio", 0.3),
    Rule::at_most("nemo.max_top_2_gram_ratio", 0.2),
    Rule::at_most("nemo.max_top_3_gram_ratio", 0.18),
    Rule::at_most("nemo.max_top_4_gram_ratio", 0.16),
    Rule::at_most("nemo.max_duplicated_5_gram_ratio", 0.15),
    Rule::at_most("nemo.max_duplicated_6_gram_ratio", 0.14),
    Rule::at_most("nemo.max_duplicated_7_gram_ratio", 0.13),
    Rule::at_most("nemo.max_duplicated_8_gram_ratio", 0.12),
    Rule::at_most("nemo.max_duplicated_9_gram_ratio", 0.11),
    Rule::at_most("nemo.max_duplicated_10_gram_ratio", 0.1),
    Rule::at_most("nemo.max_bullet_ratio", 0.9),
    Rule::at_most("nemo.max_pornographic_urls", 0.0),
];

/// Rules of the most frequent n-gram, by n.
const TOP: [(usize, &str); 3] = [
    (2, "max_top_2_gram_ratio"),
    (3, "max_top_3_gram_ratio"),
    (4, "max_top_4_gram_ratio"),
];
/// Rules of n-grams that occur again, by n.
const DUPLICATE: [(usize, &str); 6] = [
    (5, "max_duplicated_5_gram_ratio"),
    (6, "max_duplicated_6_gram_ratio"),
    (7, "max_duplicated_7_gram_ratio"),
    (8, "max_duplicated_8_gram_ratio"),
    (9, "max_duplicated_9_gram_ratio"),
    (10, "max_duplicated_10_gram_ratio"),
];

impl Nemo {
    /// Judges a text.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        let Scratch { plain, set, .. } = scratch;
        plain.split(text);
        if plain.len() == 0 {
            return Verdict::Break(empty("nemo.empty"));
        }
        let mut rules = Rules::new(&RULES, &self.limits, judge);
        let strings = Strings::of(text);
        let all = chars(text);
        let words = WordCounts::of(text, plain);
        rules.check(
            "max_non_alpha_numeric_ratio",
            share(all - strings.alphanumeric, all),
        )?;
        rules.check(
            "max_symbol_to_word_ratio",
            share(words.symbols, plain.len()),
        )?;
        rules.check("max_number_ratio", share(strings.digits, all))?;
        rules.check("max_url_ratio", share(strings.url_chars, all))?;
        rules.check("max_white_space_ratio", share(strings.white, all))?;
        rules.check("max_parentheses_ratio", share(strings.parentheses, all))?;
        rules.check("max_boilerplate_ratio", strings::boilerplate(text))?;
        let lines = Copies::of(lines(text), set);
        let paragraphs = Copies::of(text.split("\n\n"), set);
        rules.check(
            "min_distinct_line_ratio",
            share(lines.distinct, lines.pieces),
        )?;
        rules.check(
            "min_distinct_paragraph_ratio",
            share(paragraphs.distinct, paragraphs.pieces),
        )?;
        rules.check(
            "min_distinct_line_char_ratio",
            share(lines.distinct_chars, lines.chars),
        )?;
        rules.check(
            "min_distinct_paragraph_char_ratio",
            share(paragraphs.distinct_chars, paragraphs.chars),
        )?;
        let count = plain.len() as f64;
        rules.check("min_words", count)?;
        rules.check("max_words", count)?;
        let ends = strings::Ends::of(text);
        rules.check(
            "max_no_end_mark_ratio",
            share(ends.without_mark, lines.pieces),
        )?;
        rules.check(
            "min_alphabetic_word_ratio",
            share(words.alphabetic, plain.len()),
        )?;
        rules.check("min_common_words", words.common as f64)?;
        let mean = plain.all_chars() as f64 / count;
        rules.check("min_mean_word_length", mean)?;
        rules.check("max_mean_word_length", mean)?;
        rules.check(
            "max_word_length",
            f64::from(plain.chars.iter().copied().max().unwrap_or(0)),
        )?;
        rules.check("max_ellipsis_ratio", share(ends.ellipses, lines.pieces))?;
        for (n, rule) in TOP {
            rules.check(rule, top(text, n, plain, set))?;
        }
        for (n, rule) in DUPLICATE {
            rules.check(rule, duplicated(all, n, plain, set))?;
        }
        rules.check("max_bullet_ratio", share(ends.bullets, lines.pieces))?;
        rules.check(
            "max_pornographic_urls",
            f64::from(u8::from(strings.pornographic)),
        )
    }
}

/// Share of characters that go with the most frequent n-gram, its words joined by one space.
fn top(text: &str, n: usize, plain: &mut PlainWords, set: &mut HashCounts) -> f64 {
    let (keys, _) = plain.grams(n);
    let Some((first, _)) = most_frequent(keys, set) else {
        return 1.0;
    };
    let words: Vec<&str> = plain.words[first..first + n]
        .iter()
        .map(|w| w.of(text))
        .collect();
    let gram = words.join(" ");
    let times = memchr::memmem::find_iter(text.as_bytes(), &gram).count();
    share(times * chars(&gram), chars(text))
}

/// Share of characters in n-grams that were there before, overlaps once, with the spaces inside.
fn duplicated(all: usize, n: usize, plain: &mut PlainWords, set: &mut HashCounts) -> f64 {
    if plain.len() < n {
        return 1.0;
    }
    let (keys, lengths) = plain.grams(n);
    set.clear(keys.len());
    let (mut found, mut overlap) = (0usize, 0usize);
    for (i, &key) in keys.iter().enumerate() {
        if set.add(key) > 0 {
            let fresh = &lengths[i + overlap..i + n];
            found += fresh.iter().map(|&c| c as usize).sum::<usize>();
            found += (n - overlap).min(n - 1);
            overlap = n;
        }
        overlap = overlap.saturating_sub(1);
    }
    share(found, all)
}

/// Counts over words.
#[derive(Default)]
struct WordCounts {
    symbols: usize,
    alphabetic: usize,
    common: usize,
}

/// Words that mean an omission.
const ELLIPSES: [&str; 6] = ["...", "[...]", "\u{2026}", "(...)", "[\u{2026}]", "-\u{bb}"];

impl WordCounts {
    fn of(text: &str, plain: &PlainWords) -> WordCounts {
        let mut counts = WordCounts::default();
        for (word, &length) in plain.words.iter().zip(&plain.chars) {
            let word = word.of(text);
            // runs of '#' of any length, relative to characters
            let hashes = word.split('#').filter(|p| !p.is_empty()).count();
            let runs = if word.contains('#') {
                let ends = usize::from(!word.starts_with('#')) + usize::from(!word.ends_with('#'));
                hashes + 1 - ends
            } else {
                0
            };
            let symbol = runs * 2 > length as usize || ELLIPSES.contains(&word);
            counts.symbols += usize::from(symbol);
            counts.alphabetic += usize::from(word.chars().any(char::is_alphabetic));
            counts.common += usize::from(matches!(
                word,
                "the" | "be" | "to" | "of" | "and" | "that" | "have" | "with"
            ));
        }
        counts
    }
}

impl StepConfig for Nemo {
    fn name(&self) -> &'static str {
        "nemo"
    }

    fn check(&self, problem: Problem<'_>) {
        self.limits.check(&RULES, problem);
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Nemo {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_hashes_count_once_against_the_length() {
        let symbols = |text: &str| {
            let mut plain = PlainWords::default();
            plain.split(text);
            WordCounts::of(text, &plain).symbols
        };
        assert_eq!(symbols("# ## ... mixed #a # \u{2026} [...]"), 5);
    }
}
