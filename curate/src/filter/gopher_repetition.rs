//! Gopher repetition rules: duplicate paragraphs, lines, frequent and duplicate n-grams.
//!
//! Paper: Rae et al. 2021, arXiv:2112.11446, table A1. Definitions: datatrove 0.10.1
//! `GopherRepetitionFilter`: a duplicate is every occurrence after the first; shares of characters
//! are over the whole text in code points; the top n-gram counts even when it occurs once (joined by
//! spaces); duplicate n-grams are compared without separators and a hit skips its n words.
//! We differ: items are compared by 64-bit hashes instead of strings (see `counts.rs`), n-grams only where they can occur
//! twice (see `n_grams.rs`).

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::languages::{check_language, in_language};
use super::profile::Profile;
use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::languages::OF_DOCUMENT;
use crate::text::{HashCounts, Scratch, chars, unicode};
use crate::verdict::{Judge, KEEP, Verdict, empty};

/// Gopher repetition.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GopherRepetition {
    /// Whose definition.
    pub profile: Profile,
    /// Greatest share of duplicate lines. Paper: 0.3.
    pub dup_line_frac: f64,
    /// Greatest share of duplicate paragraphs. Paper: 0.3.
    pub dup_para_frac: f64,
    /// Greatest share of characters in duplicate lines. Paper: 0.2.
    pub dup_line_char_frac: f64,
    /// Greatest share of characters in duplicate paragraphs. Paper: 0.2.
    pub dup_para_char_frac: f64,
    /// (n, greatest share of characters in the most frequent n-gram). Paper: 2, 3, 4.
    pub top_n_grams: Vec<(usize, f64)>,
    /// (n, greatest share of characters in duplicate n-grams). Paper: 5 to 10.
    pub dup_n_grams: Vec<(usize, f64)>,
    /// Language by which words are split, as datatrove names it, for example `swh_Latn` or `de`; `document`: the one that
    /// the step `language` found; empty: English.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub language: String,
}

impl Default for GopherRepetition {
    fn default() -> Self {
        GopherRepetition {
            profile: Profile::Datatrove,
            dup_line_frac: 0.3,
            dup_para_frac: 0.3,
            dup_line_char_frac: 0.2,
            dup_para_char_frac: 0.2,
            top_n_grams: vec![(2, 0.2), (3, 0.18), (4, 0.16)],
            dup_n_grams: vec![
                (5, 0.15),
                (6, 0.14),
                (7, 0.13),
                (8, 0.12),
                (9, 0.11),
                (10, 0.10),
            ],
            language: String::new(),
        }
    }
}

impl GopherRepetition {
    /// Judges a text.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        if text.is_empty() {
            return Verdict::Break(empty("gopher_repetition.empty"));
        }
        let length = chars(text) as f64;
        let mut over = |rule: &str, part: f64, whole: f64, limit: f64| {
            if limit == 0.0 {
                KEEP
            } else {
                judge.at_most(rule, part / whole, limit)
            }
        };
        let set = &mut scratch.set;
        let (all, dup, dup_chars) = duplicates(paragraphs(unicode::strip(text)), text.len(), set);
        over(
            "gopher_repetition.dup_para_frac",
            dup,
            all,
            self.dup_para_frac,
        )?;
        over(
            "gopher_repetition.dup_para_char_frac",
            dup_chars,
            length,
            self.dup_para_char_frac,
        )?;
        let (all, dup, dup_chars) = duplicates(runs_of_lines(text), text.len(), set);
        over(
            "gopher_repetition.dup_line_frac",
            dup,
            all,
            self.dup_line_frac,
        )?;
        over(
            "gopher_repetition.dup_line_char_frac",
            dup_chars,
            length,
            self.dup_line_char_frac,
        )?;
        scratch.measure(text);
        for &(n, limit) in &self.top_n_grams {
            if let Some(top) = top_n_gram(n, scratch) {
                judge.at_most(
                    &format!("gopher_repetition.top_{n}_gram"),
                    top as f64 / length,
                    limit,
                )?;
            }
        }
        self.duplicate_n_grams(text, length, scratch, judge)
    }

    fn duplicate_n_grams(
        &self,
        text: &str,
        length: f64,
        scratch: &mut Scratch,
        judge: &mut Judge,
    ) -> Verdict {
        let Scratch {
            words,
            word_chars,
            grams,
            set,
            ..
        } = scratch;
        let Some(least) = self.dup_n_grams.iter().map(|&(n, _)| n).min() else {
            return KEEP;
        };
        grams.join(words.iter().map(|w| w.of(text)), least);
        for &(n, limit) in &self.dup_n_grams {
            let found = grams.repeated_chars(n, word_chars, set) as f64;
            let rule = format!("gopher_repetition.duplicated_{n}_n_grams");
            judge.at_most(&rule, found / length, limit)?;
        }
        KEEP
    }
}

/// Pieces between runs of two or more newlines.
fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    split_newlines(text, 2)
}

/// Pieces between runs of newlines.
pub(super) fn runs_of_lines(text: &str) -> impl Iterator<Item = &str> {
    split_newlines(text, 1)
}

/// Splits at runs of at least `least` newlines, as `re.split` does: empty pieces at the ends stay.
fn split_newlines(text: &str, least: usize) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut start = 0;
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let mut at = start;
        while let Some(i) = memchr::memchr(b'\n', &bytes[at..]) {
            let from = at + i;
            let run = bytes[from..].iter().take_while(|&&b| b == b'\n').count();
            at = from + run;
            if run >= least {
                let piece = &text[start..from];
                start = at;
                return Some(piece);
            }
        }
        done = true;
        Some(&text[start..])
    })
}

/// (pieces, duplicate pieces, characters in duplicate pieces).
pub(crate) fn duplicates<'a>(
    pieces: impl Iterator<Item = &'a str>,
    most: usize,
    set: &mut HashCounts,
) -> (f64, f64, f64) {
    // A piece has at least its separator, so their number is bounded by bytes; the table grows on demand instead.
    let pieces: Vec<&str> = pieces.collect();
    debug_assert!(pieces.len() <= most + 1);
    set.clear(pieces.len());
    let (mut dup, mut dup_chars) = (0usize, 0usize);
    for piece in &pieces {
        if set.add(xxh3_64(piece.as_bytes())) > 0 {
            dup += 1;
            dup_chars += chars(piece);
        }
    }
    (pieces.len() as f64, dup as f64, dup_chars as f64)
}

/// Characters of the most frequent n-gram times its count; None if there is no n-gram.
fn top_n_gram(n: usize, scratch: &mut Scratch) -> Option<usize> {
    let Scratch {
        word_hashes,
        word_chars,
        grams,
        set,
        ..
    } = scratch;
    let (first, most) = grams.top(n, word_hashes, set)?;
    let words = word_chars[first..first + n].iter();
    let length: usize = words.map(|&c| c as usize).sum();
    Some((length + n - 1) * most as usize)
}

impl StepConfig for GopherRepetition {
    fn name(&self) -> &'static str {
        "gopher_repetition"
    }

    fn check(&self, problem: Problem<'_>) {
        check_language(&self.language, problem);
        for (key, value) in [
            ("dup_line_frac", self.dup_line_frac),
            ("dup_para_frac", self.dup_para_frac),
            ("dup_line_char_frac", self.dup_line_char_frac),
            ("dup_para_char_frac", self.dup_para_char_frac),
        ] {
            range(problem, key, value, 0.0, 1.0);
        }
        for (key, list) in [
            ("top_n_grams", &self.top_n_grams),
            ("dup_n_grams", &self.dup_n_grams),
        ] {
            for (i, &(n, share)) in list.iter().enumerate() {
                range(problem, &format!("{key}[{i}][0]"), n as f64, 1.0, 64.0);
                range(problem, &format!("{key}[{i}][1]"), share, 0.0, 1.0);
            }
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        in_language(
            &self.language,
            "gopher_repetition",
            at,
            Box::new(self.clone()),
        )
    }

    fn language_key(&self) -> Option<&'static str> {
        (self.language == OF_DOCUMENT).then_some("language")
    }
}

impl Filter for GopherRepetition {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}
