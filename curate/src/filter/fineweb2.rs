//! FineWeb-2's filters for one language: Gopher repetition, FineWeb and Gopher quality with the language's
//! thresholds and stop words.
//!
//! Paper: Penedo et al. 2025, arXiv:2506.20920. Definitions: huggingface/fineweb-2 d0defb2, `fineweb-2-pipeline.py`
//! and `configs/`, over datatrove 0.10.1: rules on paragraphs and characters of duplicate lines are off, as is the
//! one on short lines, `char_duplicates_ratio` is 0.1; drops carry the names of the filters. The least confidence
//! in the language is the step `language`. All of its 1,929 languages are known, with datatrove's thresholds and stop
//! words; their words are datatrove's where they come from rules, near it where they come from a model or a dictionary
//! (curate/docs/words.md has the agreement in figures).

use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::languages::{LIMITS, MOST_STOP_WORDS, bits, language};
use super::{FinewebQuality, GopherQuality, GopherRepetition, Limit, Limits};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::{Error, Result};
use crate::text::Scratch;
use crate::text::languages::OF_DOCUMENT;
use crate::text::words::WordRules;
use crate::verdict::{Judge, Verdict};

/// FineWeb-2's filters.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fineweb2 {
    /// Language and script as FineWeb-2 names them, for example `swh_Latn`; ISO 639-3 or 639-1 alone means the usual script.
    /// `document`: the language that the step `language` found, each document by its own rules; one in a language that
    /// FineWeb-2 does not have (English among them) is dropped.
    pub language: String,
    /// Stop words; empty: the published ones.
    pub stop_words: Vec<String>,
    /// Limits that differ from the published ones; `false` switches a rule off.
    pub limits: Limits,
}

/// Names of limits, in the order of the columns of the table.
const NAMES: [&str; LIMITS] = [
    "dup_line_frac",
    "top_2_gram",
    "top_3_gram",
    "top_4_gram",
    "duplicated_5_n_grams",
    "duplicated_6_n_grams",
    "duplicated_7_n_grams",
    "duplicated_8_n_grams",
    "duplicated_9_n_grams",
    "duplicated_10_n_grams",
    "line_punct_ratio",
    "list_ratio",
    "min_avg_word_length",
    "max_avg_word_length",
    "min_alpha_words_ratio",
];

/// Further limits, the same for all languages.
const COMMON: [&str; 4] = [
    "char_dup_ratio",
    "min_doc_words",
    "max_doc_words",
    "min_stop_words",
];

/// The filters of a language, ready.
pub struct Fineweb2Filter {
    word_rules: WordRules,
    repetition: GopherRepetition,
    fineweb: FinewebQuality,
    quality: GopherQuality,
    /// Word to its bit.
    stop_words: FxHashMap<Box<[u8]>, u8>,
}

impl Fineweb2Filter {
    /// Looks the language up.
    ///
    /// # Errors
    /// `Config` for a language that FineWeb-2 does not have.
    pub fn open(config: &Fineweb2) -> Result<Fineweb2Filter> {
        let found = language(&config.language).map_err(|wanted| Error::Config {
            key: "fineweb2.language".into(),
            found: format!("{:?}", config.language),
            wanted,
        })?;
        // a rule is off where its limit is out of reach
        let limit = |name: &str, published: f64, off: f64| match config.limits.0.get(name) {
            Some(Limit::Number(n)) => *n,
            Some(Limit::Is(_)) => off,
            None => published,
        };
        let of = |i: usize, off: f64| limit(NAMES[i], found.limits[i], off);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts that `check` found to be finite and not negative; a cast saturates"
        )]
        let count = |name: &str, published: f64| limit(name, published, 0.0) as usize;
        let words = match config.stop_words.is_empty() {
            true => found.stop_words.iter().map(|w| w.as_bytes()).collect(),
            false => config
                .stop_words
                .iter()
                .map(|w| w.as_bytes())
                .collect::<Vec<_>>(),
        };
        Ok(Fineweb2Filter {
            word_rules: found.word_rules,
            repetition: GopherRepetition {
                dup_line_frac: of(0, 0.0),
                dup_para_frac: 0.0,
                dup_line_char_frac: 0.0,
                dup_para_char_frac: 0.0,
                top_n_grams: (2..=4).map(|n| (n, of(n - 1, 1e9))).collect(),
                dup_n_grams: (5..=10).map(|n| (n, of(n - 1, 1e9))).collect(),
                ..GopherRepetition::default()
            },
            fineweb: FinewebQuality {
                line_punct_thr: of(10, 0.0),
                short_line_thr: 999.0,
                char_duplicates_ratio: limit("char_dup_ratio", 0.1, 1e9),
                new_line_ratio: of(11, 1e9),
                ..FinewebQuality::default()
            },
            quality: GopherQuality {
                min_doc_words: count("min_doc_words", 50.0),
                max_doc_words: count("max_doc_words", 100_000.0),
                min_avg_word_length: of(12, 0.0),
                max_avg_word_length: of(13, 0.0),
                min_alpha_words_ratio: of(14, 0.0),
                min_stop_words: count("min_stop_words", 2.0),
                ..GopherQuality::default()
            },
            stop_words: bits(words),
        })
    }

    /// The words of a text.
    pub fn words<'a>(&self, text: &'a str, scratch: &mut Scratch) -> Vec<&'a str> {
        scratch.use_rules(self.word_rules);
        scratch.split(text);
        let words = scratch.words().iter().map(|w| w.of(text)).collect();
        scratch.use_rules(WordRules::English);
        words
    }

    /// Judges a text.
    pub fn judge(&self, text: &str, scratch: &mut Scratch) -> Verdict {
        self.measure(text, scratch, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        scratch.use_rules(self.word_rules);
        let verdict = self.rules(text, scratch, judge);
        scratch.use_rules(WordRules::English);
        verdict
    }

    fn rules(&self, text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
        self.repetition.measure(text, scratch, judge)?;
        self.fineweb.measure(text, scratch, judge)?;
        let bit = |word: &[u8]| self.stop_words.get(word).map_or(0, |&bit| 1u128 << bit);
        self.quality.measure_with(&bit, text, scratch, judge)
    }
}

impl StepConfig for Fineweb2 {
    fn name(&self) -> &'static str {
        "fineweb2"
    }

    fn check(&self, problem: Problem<'_>) {
        match language(&self.language) {
            Err(_) if self.language == OF_DOCUMENT => {}
            Err(wanted) => problem("language", format!("{:?}", self.language), &wanted),
            Ok(found) if found.stop_words.is_empty() && self.stop_words.is_empty() => {
                let wanted = "some: the language has no list of its own";
                problem("stop_words", "[]".to_string(), wanted);
            }
            Ok(_) => {}
        }
        if self.stop_words.len() > MOST_STOP_WORDS {
            let found = format!("{} words", self.stop_words.len());
            problem("stop_words", found, "at most 128 words");
        }
        for (name, limit) in &self.limits.0 {
            let is_known = NAMES.iter().chain(&COMMON).any(|n| n == name);
            let is_right = match limit {
                Limit::Is(on) => !on,
                Limit::Number(n) => n.is_finite() && *n >= 0.0,
            };
            if !is_known || !is_right {
                let known: Vec<&str> = NAMES.iter().chain(&COMMON).copied().collect();
                let wanted = format!("a number or false for one of {}", known.join(" "));
                problem(&format!("limits.{name}"), format!("{limit:?}"), &wanted);
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        if self.language == OF_DOCUMENT {
            return Ok(Box::new(OfDocument {
                config: self.clone(),
                filters: RwLock::default(),
            }));
        }
        Ok(Box::new(Fineweb2Filter::open(self)?))
    }

    fn language_key(&self) -> Option<&'static str> {
        (self.language == OF_DOCUMENT).then_some("language")
    }
}

/// The filters of each document's own language, made when the language first occurs.
struct OfDocument {
    config: Fineweb2,
    /// By the document's name of the language; None for one that FineWeb-2 does not have.
    filters: RwLock<FxHashMap<String, Option<Arc<Fineweb2Filter>>>>,
}

impl OfDocument {
    fn filter(&self, language: &str) -> Option<Arc<Fineweb2Filter>> {
        let filters = self.filters.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = filters.get(language) {
            return found.clone();
        }
        drop(filters);
        let config = Fineweb2 {
            language: language.to_string(),
            ..self.config.clone()
        };
        let made = Fineweb2Filter::open(&config).ok().map(Arc::new);
        let mut filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
        filters.entry(language.to_string()).or_insert(made).clone()
    }
}

/// A language by which the names of the metrics are found: all languages have the same.
const PROBE: &str = "deu_Latn";

impl Filter for OfDocument {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        match self.filter(&draft.language) {
            Some(filter) => filter.measure(&draft.text, &mut scratch.text, judge),
            None => judge.at_least("fineweb2.known_language", 0.0, 1.0),
        }
    }

    fn metrics(&self) -> Vec<String> {
        let mut names = self.filter(PROBE).map_or_else(Vec::new, |f| f.metrics());
        names.push("fineweb2.known_language".to_string());
        names
    }
}

impl Filter for Fineweb2Filter {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.text, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(json: &str) -> Vec<String> {
        let config: Fineweb2 = serde_json::from_str(json).unwrap();
        let mut found = Vec::new();
        config.check(&mut |k, f, w| found.push(format!("{k}: {f}: {w}")));
        found
    }

    #[test]
    fn every_language_of_fineweb2_can_be_opened() {
        let (mut known, mut without_stop_words) = (0, 0);
        for code in crate::text::languages::codes() {
            let Ok(found) = language(code) else { continue };
            known += 1;
            let mut config = Fineweb2 {
                language: code.to_string(),
                ..Fineweb2::default()
            };
            if found.stop_words.is_empty() {
                without_stop_words += 1;
                config.stop_words.push("a".into());
            }
            config.check(&mut |key, found, wanted| panic!("{code}: {key}: {found}: {wanted}"));
            assert!(Fineweb2Filter::open(&config).is_ok(), "{code}");
        }
        assert_eq!((known, without_stop_words), (1929, 0));
    }

    #[test]
    fn each_document_is_judged_by_its_own_language() {
        let config = Fineweb2 {
            language: "document".into(),
            ..Fineweb2::default()
        };
        config.check(&mut |key, found, wanted| panic!("{key}: {found}: {wanted}"));
        let own = OfDocument {
            config,
            filters: RwLock::default(),
        };
        let german = "Der Hund und die Katze gehen in den Garten, wo das Haus steht. ".repeat(2);
        let mut scratch = StepScratch::default();
        let mut metrics = |language: &str| {
            let mut draft = Draft {
                text: german.clone(),
                language: language.into(),
                ..Draft::default()
            };
            let mut judge = Judge::measuring();
            let _measured = own.apply(&mut draft, &mut scratch, &mut judge);
            let value = |rule: &str| {
                let found = judge.metrics().iter().find(|m| m.rule == rule);
                found.map(|m| m.value)
            };
            (
                value("gopher_quality.enough_stop_words"),
                value("fineweb2.known_language"),
            )
        };
        // der und die in den das are German stop words, none of them an Italian one
        assert!(metrics("de").0.is_some_and(|n| n >= 5.0));
        assert!(metrics("it").0.is_some_and(|n| n < 2.0));
        assert_eq!(metrics("en"), (None, Some(0.0)));
        assert_eq!(metrics("und"), (None, Some(0.0)));
        assert!(
            own.metrics()
                .contains(&"gopher_quality.enough_stop_words".to_string())
        );
    }

    #[test]
    fn a_language_that_is_not_known_is_reported_with_the_nearest() {
        let found = problems(r#"{"language": "deu_Latm"}"#);
        assert!(found[0].contains("near are deu_Latn"), "{found:?}");
        assert!(problems("{}")[0].contains("such as \"swh_Latn\""));
        let english = problems(r#"{"language": "eng_Latn"}"#);
        assert!(english[0].contains("eng_Latn is none"), "{english:?}");
        for code in ["swh_Latn", "deu_Latn", "tha_Thai", "de", "kor"] {
            let json = format!(r#"{{"language": "{code}"}}"#);
            assert!(problems(&json).is_empty(), "{code}");
        }
        let wrong = r#"{"language": "swh_Latn", "limits": {"list": 1, "list_ratio": true}}"#;
        assert_eq!(problems(wrong).len(), 2);
    }
}
