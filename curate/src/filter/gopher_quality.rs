//! Gopher quality rules: word count, word length, symbols, bullets, alphabetic words, stop words.
//!
//! Paper: Rae et al. 2021, arXiv:2112.11446, app. A. Definitions: datatrove 0.10.1
//! `GopherQualityFilter`: words are spaCy tokens, a symbol word has only punctuation, mean length
//! counts non-symbol words, ratios are over all words, lines are `str.splitlines`. Rules run in
//! datatrove's order; limits are strict (`<`, `>`). A limit of 0 switches a rule off, as there.
//! `language` and `stop_words` are the parameters of these names there; `language = "document"` is our own: words and
//! stop words of each document's language, the stop words those of FineWeb-2 (`fineweb2.rs`).
//! We differ: a text without a single word drops as too short even with `min_doc_words = 0`, where
//! datatrove divides by zero.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::languages::{MOST_STOP_WORDS, bits, check_language, in_language, language};
use super::profile::Profile;
use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::languages::{self, OF_DOCUMENT};
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
    /// Stop words; empty: the paper's eight English ones, with `language = "document"` those of each document's own language
    /// (FineWeb-2's lists). A document of a language without a list is dropped as `gopher_quality.known_language`.
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

/// The rules with the stop words of each document's own language, found when the language first occurs.
struct OfDocument {
    rules: GopherQuality,
    /// The rules without the one on stop words.
    other_rules: GopherQuality,
    /// By the document's name of the language; None for one without a list.
    stop_words: RwLock<FxHashMap<String, Option<Arc<StopWords>>>>,
}

/// The stop words of a language.
enum StopWords {
    /// The paper's.
    English,
    /// FineWeb-2's: word to its bit.
    Listed(FxHashMap<Box<[u8]>, u8>),
}

/// The code of English in the list of languages.
const ENGLISH: &str = "eng_Latn";
/// The rule that drops documents of a language without a list.
const KNOWN_LANGUAGE: &str = "gopher_quality.known_language";

impl OfDocument {
    fn new(rules: &GopherQuality) -> OfDocument {
        OfDocument {
            rules: rules.clone(),
            other_rules: GopherQuality {
                min_stop_words: 0,
                ..rules.clone()
            },
            stop_words: RwLock::default(),
        }
    }

    fn stop_words(&self, name: &str) -> Option<Arc<StopWords>> {
        let known = self
            .stop_words
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(name) {
            return found.clone();
        }
        drop(known);
        let is_english = languages::language(name).is_ok_and(|found| found.code == ENGLISH);
        let made = match is_english {
            true => Some(StopWords::English),
            false => language(name).ok().map(|found| {
                StopWords::Listed(bits(found.stop_words.iter().map(|word| word.as_bytes())))
            }),
        };
        let mut known = self
            .stop_words
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let made = made.map(Arc::new);
        known.entry(name.to_string()).or_insert(made).clone()
    }
}

impl Filter for OfDocument {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let (text, scratch) = (&draft.text, &mut scratch.text);
        match self.stop_words(&draft.language).as_deref() {
            Some(StopWords::English) => self.rules.measure(text, scratch, judge),
            Some(StopWords::Listed(words)) => {
                let bit = |word: &[u8]| words.get(word).map_or(0, |&bit| 1u128 << bit);
                self.rules.measure_with(&bit, text, scratch, judge)
            }
            None => {
                self.other_rules.measure(text, scratch, judge)?;
                judge.at_least(KNOWN_LANGUAGE, 0.0, 1.0)
            }
        }
    }

    fn metrics(&self) -> Vec<String> {
        let mut names = self.rules.metrics();
        names.push(KNOWN_LANGUAGE.to_string());
        names
    }
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
        let is_of_document = self.language == OF_DOCUMENT && self.min_stop_words > 0;
        let filter: Box<dyn Filter> = match self.stop_words.is_empty() {
            true if is_of_document => Box::new(OfDocument::new(self)),
            true => Box::new(self.clone()),
            false => Box::new(WithStopWords {
                rules: self.clone(),
                stop_words: bits(self.stop_words.iter().map(|w| w.as_bytes())),
            }),
        };
        in_language(&self.language, "gopher_quality", at, filter)
    }

    fn language_key(&self) -> Option<&'static str> {
        (self.language == OF_DOCUMENT).then_some("language")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::NoModels;

    /// The rule that drops a text in a language, of a step with these settings beside `language = "document"`.
    fn dropped(settings: &str, text: &str, language: &str) -> Option<String> {
        let json = format!(r#"{{"language": "document", "min_doc_words": 5{settings}}}"#);
        let config: GopherQuality = serde_json::from_str(&json).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let at = Opening {
            number: 0,
            before: &[],
            models: &NoModels,
        };
        let filter = config.open(&at).unwrap();
        let mut draft = Draft {
            text: text.to_string(),
            language: language.to_string(),
            ..Draft::default()
        };
        let mut scratch = StepScratch::default();
        let verdict = filter.apply(&mut draft, &mut scratch, &mut Judge::strict());
        verdict.break_value().map(|reason| reason.rule)
    }

    #[test]
    fn stop_words_are_those_of_each_documents_language() {
        let german = "Der Hund und die Katze gehen in den Garten, wo das Haus steht.";
        let english = "The dog and the cat go to the garden with the house of stone.";
        let stop_words = Some("gopher_quality.enough_stop_words".to_string());
        let unknown = Some("gopher_quality.known_language".to_string());
        for language in ["de", "deu_Latn"] {
            assert_eq!(dropped("", german, language), None, "{language}");
            assert_eq!(dropped("", english, language), stop_words, "{language}");
        }
        for language in ["en", "eng_Latn"] {
            assert_eq!(dropped("", english, language), None, "{language}");
            assert_eq!(dropped("", german, language), stop_words, "{language}");
        }
        // told apart from texts that lack the words of their language, and from those that other rules drop
        assert_eq!(dropped("", german, "und"), unknown);
        assert_eq!(dropped("", german, "xxx_Latn"), unknown);
        let short = Some("gopher_quality.short_doc".to_string());
        assert_eq!(dropped("", "Der Hund", "und"), short);
        // the job's own words, or none, are asked of every language
        assert_eq!(
            dropped(r#", "stop_words": ["Hund", "Katze"]"#, german, "und"),
            None
        );
        assert_eq!(dropped(r#", "min_stop_words": 0"#, german, "und"), None);
    }
}
