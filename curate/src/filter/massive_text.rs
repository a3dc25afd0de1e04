//! MassiveText: Gopher's quality and repetition rules, with stop words, as the paper words them.
//!
//! Paper: Rae et al. 2021, arXiv:2112.11446, app. A.1 and table A1. The paper defines neither words nor lines; here
//! words are separated by white space, lines by line feeds, paragraphs by empty lines, and pieces without text are
//! ignored. A duplicate is every copy but the first. The characters of duplicate n-grams count once where n-grams
//! overlap, as the paper requires (datatrove's metric, step `gopher_repetition`, differs); shares are of all
//! characters of words. Rules run in the paper's order. The repetition rules come after the quality rules.

use serde::{Deserialize, Serialize};

use super::limits::{Limits, Rule, Rules};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::Scratch;
use crate::text::plain::{Copies, covered_chars, most_frequent, share};
use crate::text::unicode::{self, LETTER};
use crate::verdict::{Judge, KEEP, Verdict, empty};

/// MassiveText's rules.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MassiveText {
    /// Limits that differ from the paper's; `false` switches a rule off.
    pub limits: Limits,
}

const RULES: [Rule; 23] = [
    Rule::at_least("massive_text.min_words", 50.0),
    Rule::at_most("massive_text.max_words", 100_000.0),
    Rule::at_least("massive_text.min_mean_word_length", 3.0),
    Rule::at_most("massive_text.max_mean_word_length", 10.0),
    Rule::at_most("massive_text.max_hash_ratio", 0.1),
    Rule::at_most("massive_text.max_ellipsis_ratio", 0.1),
    Rule::at_most("massive_text.max_bullet_line_ratio", 0.9),
    Rule::at_most("massive_text.max_ellipsis_line_ratio", 0.3),
    Rule::at_least("massive_text.min_alphabetic_word_ratio", 0.8),
    Rule::at_least("massive_text.min_stop_words", 2.0),
    Rule::at_most("massive_text.max_duplicate_line_ratio", 0.3),
    Rule::at_most("massive_text.max_duplicate_paragraph_ratio", 0.3),
    Rule::at_most("massive_text.max_duplicate_line_char_ratio", 0.2),
    Rule::at_most("massive_text.max_duplicate_paragraph_char_ratio", 0.2),
    Rule::at_most("massive_text.max_top_2_gram_ratio", 0.2),
    Rule::at_most("massive_text.max_top_3_gram_ratio", 0.18),
    Rule::at_most("massive_text.max_top_4_gram_ratio", 0.16),
    Rule::at_most("massive_text.max_duplicate_5_gram_ratio", 0.15),
    Rule::at_most("massive_text.max_duplicate_6_gram_ratio", 0.14),
    Rule::at_most("massive_text.max_duplicate_7_gram_ratio", 0.13),
    Rule::at_most("massive_text.max_duplicate_8_gram_ratio", 0.12),
    Rule::at_most("massive_text.max_duplicate_9_gram_ratio", 0.11),
    Rule::at_most("massive_text.max_duplicate_10_gram_ratio", 0.1),
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

/// Stop words, of which two must occur.
const STOP_WORDS: [&str; 8] = ["the", "be", "to", "of", "and", "that", "have", "with"];

impl MassiveText {
    /// Judges a text.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        let Scratch { plain, set, .. } = scratch;
        plain.split(text);
        if plain.len() == 0 {
            return Verdict::Break(empty("massive_text.empty"));
        }
        let mut rules = Rules::new(&RULES, &self.limits, judge);
        let (count, all) = (plain.len(), plain.all_chars());
        rules.check("min_words", count as f64)?;
        rules.check("max_words", count as f64)?;
        let mean = share(all, count);
        rules.check("min_mean_word_length", mean)?;
        rules.check("max_mean_word_length", mean)?;
        let times = |s: &str| memchr::memmem::find_iter(text.as_bytes(), s).count();
        rules.check("max_hash_ratio", share(times("#"), count))?;
        rules.check(
            "max_ellipsis_ratio",
            share(times("...") + times("\u{2026}"), count),
        )?;
        let lines = || pieces(text, "\n");
        let whole = lines().count();
        let bullets = lines().filter(|l| l.starts_with(['\u{2022}', '-', '*']));
        rules.check("max_bullet_line_ratio", share(bullets.count(), whole))?;
        let dots = lines().filter(|l| l.ends_with("...") || l.ends_with('\u{2026}'));
        rules.check("max_ellipsis_line_ratio", share(dots.count(), whole))?;
        let words = || plain.words.iter().map(|w| w.of(text));
        let alphabetic = words().filter(|w| w.chars().any(|c| unicode::is(c, LETTER)));
        rules.check(
            "min_alphabetic_word_ratio",
            share(alphabetic.count(), count),
        )?;
        let stops = STOP_WORDS.iter().filter(|s| words().any(|w| w == **s));
        rules.check("min_stop_words", stops.count() as f64)?;
        let lines = Copies::of(lines(), set);
        let paragraphs = Copies::of(pieces(text, "\n\n"), set);
        let pieces = |copies: &Copies| share(copies.pieces - copies.distinct, copies.pieces);
        rules.check("max_duplicate_line_ratio", pieces(&lines))?;
        rules.check("max_duplicate_paragraph_ratio", pieces(&paragraphs))?;
        let chars = |copies: &Copies| share(copies.chars - copies.distinct_chars, copies.chars);
        rules.check("max_duplicate_line_char_ratio", chars(&lines))?;
        rules.check("max_duplicate_paragraph_char_ratio", chars(&paragraphs))?;
        for (n, rule) in TOP {
            let (keys, chars) = plain.grams(n);
            let top = most_frequent(keys, set).map_or(0, |(first, times)| {
                let length: usize = chars[first..first + n].iter().map(|&c| c as usize).sum();
                length * times as usize
            });
            rules.check(rule, share(top, all))?;
        }
        for (n, rule) in DUPLICATE {
            let (keys, chars) = plain.grams(n);
            rules.check(rule, share(covered_chars(keys, n, chars, set), all))?;
        }
        KEEP
    }
}

/// Pieces with text, stripped.
fn pieces<'a>(text: &'a str, separator: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(separator)
        .map(unicode::strip)
        .filter(|p| !p.is_empty())
}

impl StepConfig for MassiveText {
    fn name(&self) -> &'static str {
        "massive_text"
    }

    fn check(&self, problem: Problem<'_>) {
        self.limits.check(&RULES, problem);
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for MassiveText {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Metric;

    fn figures(text: &str) -> Vec<Metric> {
        let mut judge = Judge::measuring();
        let verdict = MassiveText::default().measure(text, &mut Scratch::new(), &mut judge);
        assert!(verdict.is_continue());
        judge.metrics().to_vec()
    }

    fn figure(text: &str, rule: &str) -> f64 {
        let found = figures(text);
        let name = format!("massive_text.{rule}");
        found.iter().find(|m| m.rule == name).unwrap().value
    }

    #[test]
    fn figures_can_be_counted_by_hand() {
        let text = "the cat and\n- the dog\n\nthe cat and\n# a b...";
        assert_eq!(figures(text).len(), RULES.len());
        assert_eq!(figure(text, "min_words"), 12.0);
        assert_eq!(figure(text, "max_mean_word_length"), 31.0 / 12.0);
        assert_eq!(figure(text, "max_hash_ratio"), 1.0 / 12.0);
        assert_eq!(figure(text, "max_bullet_line_ratio"), 0.25);
        assert_eq!(figure(text, "max_ellipsis_line_ratio"), 0.25);
        assert_eq!(figure(text, "min_alphabetic_word_ratio"), 10.0 / 12.0);
        assert_eq!(figure(text, "min_stop_words"), 2.0);
        assert_eq!(figure(text, "max_duplicate_line_ratio"), 0.25);
        assert_eq!(figure(text, "max_duplicate_line_char_ratio"), 11.0 / 39.0);
        assert_eq!(figure(text, "max_duplicate_paragraph_ratio"), 0.0);
        assert_eq!(figure(text, "max_top_2_gram_ratio"), 12.0 / 31.0);
    }

    #[test]
    fn overlapping_duplicates_count_their_characters_once() {
        let text = "a b c d e a b c d e f";
        assert_eq!(figure(text, "max_duplicate_5_gram_ratio"), 10.0 / 11.0);
        assert_eq!(figure(text, "max_duplicate_6_gram_ratio"), 0.0);
    }
}
