//! FineWeb's own rules: line endings, short lines, duplicate lines, lists.
//!
//! Paper: Penedo et al. 2024, arXiv:2406.17557, sec. 3.6. Definitions: datatrove 0.10.1 `FineWebQualityFilter`:
//! lines are split at `\n` and blank ones skipped; a line's end is tested as it is, without stripping; characters
//! are code points. We differ: a text without words drops as `list_ratio` only if it has a line feed, where
//! datatrove divides by zero (it cannot happen: non-blank lines hold words).

use serde::{Deserialize, Serialize};

use super::gopher_repetition::duplicates;
use super::languages::{check_language, in_language};
use super::profile::Profile;
use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::languages::OF_DOCUMENT;
use crate::text::unicode::{self, TERMINAL};
use crate::text::{Scratch, chars};
use crate::verdict::{Judge, KEEP, Verdict, empty};

/// FineWeb quality.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FinewebQuality {
    /// Whose definition.
    pub profile: Profile,
    /// Minimum share of lines that end with terminal punctuation. Paper: 0.12.
    pub line_punct_thr: f64,
    /// Accept documents without a single such line.
    pub line_punct_exclude_zero: bool,
    /// Greatest share of short lines. Paper: 0.67.
    pub short_line_thr: f64,
    /// A line of at most this many characters is short. Paper: 30.
    pub short_line_length: usize,
    /// Greatest share of characters in duplicate lines. FineWeb: 0.01.
    pub char_duplicates_ratio: f64,
    /// Maximum line feeds per word. FineWeb: 0.3.
    pub new_line_ratio: f64,
    /// Language by which words are split, as datatrove names it, for example `swh_Latn` or `de`; `document`: the one that
    /// the step `language` found; empty: English.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub language: String,
}

impl Default for FinewebQuality {
    fn default() -> Self {
        FinewebQuality {
            profile: Profile::Datatrove,
            line_punct_thr: 0.12,
            line_punct_exclude_zero: false,
            short_line_thr: 0.67,
            short_line_length: 30,
            char_duplicates_ratio: 0.01,
            new_line_ratio: 0.3,
            language: String::new(),
        }
    }
}

impl FinewebQuality {
    /// Judges a text.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        let lines: Vec<&str> = text
            .split('\n')
            .filter(|line| !unicode::strip(line).is_empty())
            .collect();
        if lines.is_empty() {
            return Verdict::Break(empty("fineweb.empty"));
        }
        let all = lines.len() as f64;
        let terminal = |line: &&&str| {
            line.chars()
                .next_back()
                .is_some_and(|c| unicode::is(c, TERMINAL))
        };
        let share = lines.iter().filter(terminal).count() as f64 / all;
        if !(share == 0.0 && self.line_punct_exclude_zero) {
            judge.at_least("fineweb.line_punct_ratio", share, self.line_punct_thr)?;
        }
        let short = |line: &&&str| chars(line) <= self.short_line_length;
        let share = lines.iter().filter(short).count() as f64 / all;
        judge.at_most("fineweb.short_line_ratio", share, self.short_line_thr)?;
        let feeds = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let (_, _, dup) = duplicates(lines.iter().copied(), text.len(), &mut scratch.set);
        let share = dup / (chars(text) - feeds) as f64;
        judge.at_most("fineweb.char_dup_ratio", share, self.char_duplicates_ratio)?;
        scratch.split(text);
        let share = feeds as f64 / scratch.words().len() as f64;
        judge.at_most("fineweb.list_ratio", share, self.new_line_ratio)?;
        KEEP
    }
}

impl StepConfig for FinewebQuality {
    fn name(&self) -> &'static str {
        "fineweb"
    }

    fn check(&self, problem: Problem<'_>) {
        check_language(&self.language, problem);
        range(problem, "line_punct_thr", self.line_punct_thr, 0.0, 1.0);
        range(problem, "short_line_thr", self.short_line_thr, 0.0, 1.0);
        range(
            problem,
            "char_duplicates_ratio",
            self.char_duplicates_ratio,
            0.0,
            1.0,
        );
        range(problem, "new_line_ratio", self.new_line_ratio, 0.0, 1e9);
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        in_language(&self.language, "fineweb", at, Box::new(self.clone()))
    }

    fn language_key(&self) -> Option<&'static str> {
        (self.language == OF_DOCUMENT).then_some("language")
    }
}

impl Filter for FinewebQuality {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}
