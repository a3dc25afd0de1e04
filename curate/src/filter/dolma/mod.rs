//! Dolma's Gopher rules: the metrics of its tagger, the limits of its mixer, and its tagger of repeated characters.
//!
//! Paper: Soldaini et al. 2024, arXiv:2402.00159. Definitions: dolma 1.2.1 `taggers/gopher.py` (`gopher_v1`, and
//! `gopher_v2`, which splits lines at runs of line feeds) and `taggers/repetitions` (`repetitions_v1`); limits and order
//! of `configs/dolma-v1_6/mixing/cc-head.yaml`. Words are split at white space; characters are those of words; the length
//! of words is a median; a duplicate is every copy; stop words count with repeats. Dolma's C4 rules are the step `c4`
//! with `profile = "dolma"`. We differ: a text without a word drops as `dolma.empty`, where it has no metrics; the
//! three limits on frequent n-grams are applied although the published file misspells their attributes (`2gram` for
//! `2grams`) and so never did; taggers that need a tokenizer are left out.

mod repetitions;

use serde::{Deserialize, Serialize};

use super::limits::{Limits, Rule, Rules};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::plain::{Copies, PlainWords, most_frequent, share};
use crate::text::unicode::{self, LETTER};
use crate::text::{HashCounts, Scratch, chars};
use crate::verdict::{Judge, KEEP, Verdict, empty};
use repetitions::Repetitions;

/// Dolma's rules.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dolma {
    /// Version of its tagger.
    pub gopher: DolmaGopher,
    /// Also measure repeated characters. Nothing is published to compare them with: see `limits`.
    pub repetitions: bool,
    /// Limits that differ from the published ones; `false` switches a rule off.
    pub limits: Limits,
}

/// Dolma's Gopher taggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DolmaGopher {
    /// Lines end at every line feed.
    #[default]
    V1,
    /// Empty lines are none.
    V2,
}

/// In the order of the mixer.
const RULES: [Rule; 23] = [
    Rule::at_least("dolma.min_words", 50.0),
    Rule::at_most("dolma.max_words", 100_000.0),
    Rule::at_least("dolma.min_median_word_length", 3.0),
    Rule::at_most("dolma.max_median_word_length", 10.0),
    Rule::at_most("dolma.max_symbol_to_word_ratio", 0.1),
    Rule::at_least("dolma.min_alphabetic_word_ratio", 0.8),
    Rule::at_least("dolma.min_required_words", 2.0),
    Rule::at_most("dolma.max_bullet_ratio", 0.9),
    Rule::at_most("dolma.max_ellipsis_ratio", 0.3),
    Rule::at_most("dolma.max_duplicate_line_ratio", 0.3),
    Rule::at_most("dolma.max_duplicate_line_char_ratio", 0.3),
    Rule::at_most("dolma.max_top_2_gram_ratio", 0.2),
    Rule::at_most("dolma.max_top_3_gram_ratio", 0.18),
    Rule::at_most("dolma.max_top_4_gram_ratio", 0.16),
    Rule::at_most("dolma.max_duplicate_5_gram_ratio", 0.15),
    Rule::at_most("dolma.max_duplicate_6_gram_ratio", 0.14),
    Rule::at_most("dolma.max_duplicate_7_gram_ratio", 0.13),
    Rule::at_most("dolma.max_duplicate_8_gram_ratio", 0.12),
    Rule::at_most("dolma.max_duplicate_9_gram_ratio", 0.11),
    Rule::at_most("dolma.max_duplicate_10_gram_ratio", 0.1),
    Rule::at_most("dolma.max_repetition_times", f64::INFINITY),
    Rule::at_most("dolma.max_repetition_chars", f64::INFINITY),
    Rule::at_most("dolma.max_repetition_ratio", f64::INFINITY),
];

/// Rules of the most frequent n-gram, by n.
const TOP: [(usize, &str); 3] = [
    (2, "max_top_2_gram_ratio"),
    (3, "max_top_3_gram_ratio"),
    (4, "max_top_4_gram_ratio"),
];
/// Rules of n-grams that occur again, by n.
const DUPLICATE: [(usize, &str); 6] = [
    (5, "max_duplicate_5_gram_ratio"),
    (6, "max_duplicate_6_gram_ratio"),
    (7, "max_duplicate_7_gram_ratio"),
    (8, "max_duplicate_8_gram_ratio"),
    (9, "max_duplicate_9_gram_ratio"),
    (10, "max_duplicate_10_gram_ratio"),
];

impl Dolma {
    /// Judges a text.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        let Scratch { plain, set, .. } = scratch;
        plain.split(text);
        if plain.len() == 0 {
            return Verdict::Break(empty("dolma.empty"));
        }
        let mut rules = Rules::new(&RULES, &self.limits, judge);
        let (count, all) = (plain.len(), plain.all_chars());
        rules.check("min_words", count as f64)?;
        rules.check("max_words", count as f64)?;
        let median = median(&plain.chars);
        rules.check("min_median_word_length", median)?;
        rules.check("max_median_word_length", median)?;
        let words = WordCounts::of(text, plain);
        rules.check("max_symbol_to_word_ratio", share(words.symbols, count))?;
        rules.check("min_alphabetic_word_ratio", share(words.alphabetic, count))?;
        rules.check("min_required_words", words.required as f64)?;
        let lines = LineCounts::of(text, self.gopher, set);
        rules.check(
            "max_bullet_ratio",
            share(lines.bullets, lines.copies.pieces),
        )?;
        rules.check(
            "max_ellipsis_ratio",
            share(lines.ellipses, lines.copies.pieces),
        )?;
        rules.check(
            "max_duplicate_line_ratio",
            share(lines.copies.repeated, lines.copies.pieces),
        )?;
        rules.check(
            "max_duplicate_line_char_ratio",
            share(lines.copies.repeated_chars, all),
        )?;
        for (n, rule) in TOP {
            rules.check(rule, top(n, all, plain, set))?;
        }
        for (n, rule) in DUPLICATE {
            rules.check(rule, duplicate(n, plain, set))?;
        }
        if self.repetitions {
            let found = Repetitions::of(text);
            rules.check("max_repetition_times", found.times as f64)?;
            rules.check("max_repetition_chars", found.longest as f64)?;
            rules.check("max_repetition_ratio", share(found.chars, chars(text)))?;
        }
        KEEP
    }
}

fn median(lengths: &[u32]) -> f64 {
    let mut sorted = lengths.to_vec();
    let middle = sorted.len() / 2;
    let (below, &mut high, _) = sorted.select_nth_unstable(middle);
    if lengths.len() % 2 == 1 {
        return f64::from(high);
    }
    let low = below.iter().copied().max().unwrap_or(high);
    (f64::from(low) + f64::from(high)) / 2.0
}

/// Share of the words' characters in the most frequent n-gram; without one 0.
fn top(n: usize, all: usize, plain: &mut PlainWords, set: &mut HashCounts) -> f64 {
    let (keys, chars) = plain.grams(n);
    most_frequent(keys, set).map_or(0.0, |(first, times)| {
        let length: usize = chars[first..first + n].iter().map(|&c| c as usize).sum();
        share(length * times as usize, all)
    })
}

/// Characters of all n-grams that occur again, against those of all n-grams.
fn duplicate(n: usize, plain: &mut PlainWords, set: &mut HashCounts) -> f64 {
    let (keys, chars) = plain.grams(n);
    set.clear(keys.len());
    for &key in keys {
        set.add(key);
    }
    let (mut all, mut again) = (0usize, 0usize);
    let mut length: usize = chars.iter().take(n).map(|&c| c as usize).sum();
    for (i, &key) in keys.iter().enumerate() {
        if i > 0 {
            length = length + chars[i + n - 1] as usize - chars[i - 1] as usize;
        }
        all += length;
        if set.get(key) > 1 {
            again += length;
        }
    }
    share(again, all)
}

#[derive(Default)]
struct WordCounts {
    symbols: usize,
    alphabetic: usize,
    required: usize,
}

impl WordCounts {
    fn of(text: &str, plain: &PlainWords) -> WordCounts {
        let mut counts = WordCounts::default();
        for word in &plain.words {
            let word = word.of(text);
            counts.symbols += usize::from(word.contains(['#', '\u{2026}']));
            counts.alphabetic += usize::from(word.chars().any(|c| unicode::is(c, LETTER)));
            counts.required += usize::from(matches!(
                word,
                "the" | "be" | "to" | "of" | "and" | "that" | "have" | "with"
            ));
        }
        counts
    }
}

struct LineCounts {
    copies: Copies,
    bullets: usize,
    ellipses: usize,
}

impl LineCounts {
    fn of(text: &str, gopher: DolmaGopher, set: &mut HashCounts) -> LineCounts {
        let lines: Vec<&str> = match gopher {
            DolmaGopher::V1 => text.split('\n').collect(),
            DolmaGopher::V2 => super::gopher_repetition::runs_of_lines(text).collect(),
        };
        let count = |is: &dyn Fn(&str) -> bool| lines.iter().filter(|l| is(l)).count();
        LineCounts {
            bullets: count(&|l| l.starts_with(['*', '-'])),
            ellipses: count(&|l| l.ends_with('\u{2026}')),
            copies: Copies::of(lines.iter().copied(), set),
        }
    }
}

impl StepConfig for Dolma {
    fn name(&self) -> &'static str {
        "dolma"
    }

    fn check(&self, problem: Problem<'_>) {
        self.limits.check(&RULES, problem);
        for rule in &RULES[20..] {
            let name = rule.name.trim_start_matches("dolma.");
            if self.limits.0.contains_key(name) && !self.repetitions {
                let wanted = "true, if there is a limit on repetitions";
                problem("repetitions", format!("false beside {name}"), wanted);
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Dolma {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&[3, 1, 2]), 2.0);
        assert_eq!(median(&[4, 1, 2, 9]), 3.0);
        assert_eq!(median(&[5]), 5.0);
    }

    #[test]
    fn a_limit_on_repetitions_needs_them_measured() {
        let config: Dolma =
            serde_json::from_str(r#"{"limits": {"max_repetition_ratio": 0.1}}"#).unwrap();
        let mut found = Vec::new();
        config.check(&mut |k, f, _| found.push(format!("{k}: {f}")));
        assert_eq!(found, ["repetitions: false beside max_repetition_ratio"]);
    }
}
