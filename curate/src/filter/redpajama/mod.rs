//! RedPajama-v2's rule-based quality signals: metrics to put conditions on and to store.
//!
//! Paper: Weber et al. 2024, arXiv:2411.12372. Definitions: togethercomputer/RedPajama-Data 6d2cee9,
//! `app/src/core/quality_signals`; the filter drops nothing. Raw words are those of NLTK 3.8's `WordPunctTokenizer`
//! (`\w+|[^\w\s]+`); normalized text has no ASCII punctuation, lower case, one space between words, NFD. A signal
//! of a document is one number; one of lines has a number for each line, and its metric is their mean. Numbers are
//! rounded to 8 digits. Left out: signals that need models or a corpus (`rps_doc_ml_*`, `rps_doc_*_importance`:
//! step `quality`; `ccnet_*`: steps `language`, `perplexity`; `rps_doc_ut1_blacklist`: step `url`).
//!
//! `stop_words.txt` has a line for each language, its code first: the lists of github.com/6/stopwords-json (Apache-2.0)
//! in the selection that RedPajama uses.

mod lines;
mod round;
mod words;

use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::limits::{Limits, Rule, Rules};
use crate::check::{self, Problem};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::{At, Error, Result};
use crate::text::plain::Grams;
use crate::text::{HashCounts, chars};
use crate::verdict::{Judge, KEEP, Verdict};
use round::{ratio, rounded};
use words::{Normalized, RawWords};

/// RedPajama-v2's signals.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Redpajama {
    /// Language of the stop words and of the bad words: `bg de en es fi fr it`.
    pub language: String,
    /// Folder with a list of bad words for each language (`en.txt` or LDNOOBW's `en`); empty: that signal is left out.
    pub bad_words: String,
    /// Put all signals into `meta.quality_signals`, in RedPajama's layout: `[[start, end, score], ...]`, in characters.
    pub store: bool,
}

impl Default for Redpajama {
    fn default() -> Self {
        Redpajama {
            language: "en".to_string(),
            bad_words: String::new(),
            store: false,
        }
    }
}

static STOP_WORDS: &str = include_str!("stop_words.txt");

/// Stop words of a language; None if there is no list.
fn stop_words(language: &str) -> Option<FxHashSet<&'static str>> {
    let lists = STOP_WORDS.lines().map(|line| line.split_once(' '));
    let (_, words) = lists.flatten().find(|(code, _)| *code == language)?;
    Some(words.split(' ').collect())
}

impl Redpajama {
    /// The list of bad words, if there is to be one.
    fn file(&self) -> Option<PathBuf> {
        (!self.bad_words.is_empty())
            .then(|| super::bad_words::list_of(Path::new(&self.bad_words), &self.language))
    }
}

/// A signal of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct QualitySignal {
    /// RedPajama's name.
    pub name: &'static str,
    /// First and last character that the score refers to, and the score. `None`: not defined.
    pub spans: Vec<(usize, usize, Option<f64>)>,
}

impl QualitySignal {
    /// The score, or the mean score of lines; None if there is none.
    pub fn metric(&self) -> Option<f64> {
        let scores: Option<Vec<f64>> = self.spans.iter().map(|s| s.2).collect();
        let scores = scores.filter(|s| !s.is_empty())?;
        Some(scores.iter().sum::<f64>() / scores.len() as f64)
    }
}

/// The signals with their lists, ready.
pub struct RedpajamaSignals {
    /// Signals go to the documents.
    is_stored: bool,
    stop_words: FxHashSet<&'static str>,
    bad_words: Option<FxHashSet<String>>,
    /// Numbers of words that bad words have.
    sizes: Vec<usize>,
}

const PREFIX: &str = "redpajama.";

/// Every signal as a rule without a limit.
const RULES: [Rule; 28] = [
    Rule::at_most("redpajama.rps_doc_ldnoobw_words", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_lorem_ipsum", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_curly_bracket", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_stop_word_fraction", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_num_sentences", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_word_count", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_mean_word_length", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_symbol_to_word_ratio", f64::INFINITY),
    Rule::at_most(
        "redpajama.rps_doc_frac_lines_end_with_ellipsis",
        f64::INFINITY,
    ),
    Rule::at_most("redpajama.rps_doc_frac_no_alph_words", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_unique_words", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_unigram_entropy", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_all_caps_words", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_top_2gram", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_top_3gram", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_top_4gram", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_dupe_5grams", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_dupe_6grams", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_dupe_7grams", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_dupe_8grams", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_dupe_9grams", f64::INFINITY),
    Rule::at_most("redpajama.rps_doc_frac_chars_dupe_10grams", f64::INFINITY),
    Rule::at_most("redpajama.rps_lines_javascript_counts", f64::INFINITY),
    Rule::at_most(
        "redpajama.rps_lines_ending_with_terminal_punctution_mark",
        f64::INFINITY,
    ),
    Rule::at_most("redpajama.rps_lines_num_words", f64::INFINITY),
    Rule::at_most(
        "redpajama.rps_lines_uppercase_letter_fraction",
        f64::INFINITY,
    ),
    Rule::at_most(
        "redpajama.rps_lines_numerical_chars_fraction",
        f64::INFINITY,
    ),
    Rule::at_most("redpajama.rps_lines_start_with_bulletpoint", f64::INFINITY),
];

/// Signals of the most frequent n-gram, by n.
const TOP: [(usize, &str); 3] = [
    (2, "rps_doc_frac_chars_top_2gram"),
    (3, "rps_doc_frac_chars_top_3gram"),
    (4, "rps_doc_frac_chars_top_4gram"),
];
/// Signals of n-grams that occur again, by n.
const DUPLICATE: [(usize, &str); 6] = [
    (5, "rps_doc_frac_chars_dupe_5grams"),
    (6, "rps_doc_frac_chars_dupe_6grams"),
    (7, "rps_doc_frac_chars_dupe_7grams"),
    (8, "rps_doc_frac_chars_dupe_8grams"),
    (9, "rps_doc_frac_chars_dupe_9grams"),
    (10, "rps_doc_frac_chars_dupe_10grams"),
];

impl RedpajamaSignals {
    /// Reads the lists.
    ///
    /// # Errors
    /// `Config` for a language without stop words; `Io` or `Input` for a list of bad words that cannot be read.
    pub fn open(config: &Redpajama) -> Result<RedpajamaSignals> {
        let stop_words = stop_words(&config.language).ok_or_else(|| Error::Config {
            key: "redpajama.language".into(),
            found: format!("{:?}", config.language),
            wanted: "a language with stop words".into(),
        })?;
        let mut bad_words = None;
        if let Some(file) = config.file() {
            let list = std::fs::read_to_string(&file).at(&file)?;
            bad_words = Some(
                list.lines()
                    .map(|l| l.trim().to_string())
                    .collect::<FxHashSet<_>>(),
            );
        }
        let mut sizes: Vec<usize> = bad_words
            .iter()
            .flatten()
            .map(|w| 1 + w.matches(' ').count())
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        Ok(RedpajamaSignals {
            is_stored: config.store,
            stop_words,
            bad_words,
            sizes,
        })
    }

    /// Signals of a text, in the order of [`Redpajama`]'s tables.
    pub fn of(&self, text: &str) -> Vec<QualitySignal> {
        let whole = chars(text);
        let normalized = Normalized::of(text);
        let raw = RawWords::of(text, &self.stop_words);
        let lines = lines::Lines::of(text);
        let mut found = Vec::with_capacity(RULES.len());
        let mut whole_document = |name: &'static str, score: Option<f64>| {
            found.push(QualitySignal {
                name,
                spans: vec![(0, whole, score)],
            });
        };
        whole_document(
            "rps_doc_ldnoobw_words",
            self.bad_words.as_ref().map(|bad| {
                let count = |n: &usize| normalized.grams_in(*n, bad);
                self.sizes.iter().map(count).sum::<usize>() as f64
            }),
        );
        let content = chars(&normalized.text);
        let lorem = memchr::memmem::find_iter(normalized.text.as_bytes(), "lorem ipsum").count();
        whole_document(
            "rps_doc_lorem_ipsum",
            Some(ratio(lorem, content).unwrap_or(0.0)),
        );
        let curly = memchr::memchr2_iter(b'{', b'}', text.as_bytes()).count();
        whole_document(
            "rps_doc_curly_bracket",
            Some(ratio(curly, whole).unwrap_or(0.0)),
        );
        let stops = if normalized.words.is_empty() {
            0
        } else {
            raw.stop_words
        };
        whole_document(
            "rps_doc_stop_word_fraction",
            Some(ratio(stops, raw.words).unwrap_or(0.0)),
        );
        whole_document("rps_doc_num_sentences", Some(words::sentences(text) as f64));
        let count = normalized.words.len();
        whole_document("rps_doc_word_count", Some(count as f64));
        whole_document(
            "rps_doc_mean_word_length",
            ratio(normalized.word_chars, count),
        );
        let symbols: usize = ["#", "...", "\u{2026}"]
            .iter()
            .map(|s| memchr::memmem::find_iter(text.as_bytes(), s).count())
            .sum();
        whole_document("rps_doc_symbol_to_word_ratio", ratio(symbols, raw.words));
        whole_document(
            "rps_doc_frac_lines_end_with_ellipsis",
            ratio(lines.ellipses, lines.spans.len()),
        );
        whole_document(
            "rps_doc_frac_no_alph_words",
            (raw.words > 0).then(|| rounded(1.0 - raw.with_latin_letter as f64 / raw.words as f64)),
        );
        let mut set = HashCounts::default();
        let (distinct, entropy) = normalized.unigrams(&mut set);
        whole_document("rps_doc_frac_unique_words", ratio(distinct, count));
        whole_document(
            "rps_doc_unigram_entropy",
            (count > 0).then(|| rounded(entropy)),
        );
        whole_document(
            "rps_doc_frac_all_caps_words",
            ratio(raw.capitals, raw.words),
        );
        let mut grams = Grams::default();
        for (n, name) in TOP {
            whole_document(name, Some(normalized.top(n, &mut grams, &mut set)));
        }
        for (n, name) in DUPLICATE {
            whole_document(name, Some(normalized.duplicated(n, &mut grams, &mut set)));
        }
        grams.clear();
        let names = RULES[22..].iter().map(|r| &r.name[PREFIX.len()..]);
        for (name, scores) in names.zip(lines.scores) {
            let spans = lines.spans.iter().zip(scores);
            found.push(QualitySignal {
                name,
                spans: spans.map(|(&(a, b), score)| (a, b, Some(score))).collect(),
            });
        }
        if self.bad_words.is_none() {
            found.remove(0);
        }
        found
    }

    /// Hands every metric to `judge`.
    pub fn measure(&self, signals: &[QualitySignal], judge: &mut Judge) -> Verdict {
        let limits = Limits::default();
        let mut rules = Rules::new(&RULES, &limits, judge);
        for signal in signals {
            if let Some(metric) = signal.metric() {
                rules.check(signal.name, metric)?;
            }
        }
        KEEP
    }
}

impl StepConfig for Redpajama {
    fn name(&self) -> &'static str {
        "redpajama"
    }

    fn check(&self, problem: Problem<'_>) {
        if stop_words(&self.language).is_none() {
            let known: Vec<&str> = STOP_WORDS
                .lines()
                .filter_map(|l| l.split(' ').next())
                .collect();
            let wanted = format!("a language with stop words: {}", known.join(" "));
            problem("language", format!("{:?}", self.language), &wanted);
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(RedpajamaSignals::open(self)?))
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file().into_iter().collect()
    }

    fn check_files(&self, problem: Problem<'_>) {
        if let Some(file) = self.file() {
            let wanted = "a list of words, or a folder with one of the language";
            let file = file.to_string_lossy();
            check::file(problem, "bad_words", &file, wanted, check::is_text);
        }
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(metrics(!self.bad_words.is_empty()))
    }
}

/// Names of the metrics; the first is of the list of bad words.
fn metrics(has_bad_words: bool) -> Vec<String> {
    let rules = RULES[usize::from(!has_bad_words)..].iter();
    rules.map(|rule| rule.name.to_string()).collect()
}

impl Filter for RedpajamaSignals {
    fn apply(&self, draft: &mut Draft, _scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        // signals cost more than any filter: they are computed only on request
        if !self.is_stored && judge.may_stop_counting() {
            return KEEP;
        }
        let found = self.of(&draft.text);
        if self.is_stored {
            let stored = found.iter().map(|s| (s.name.to_string(), json!(s.spans)));
            draft.note("quality_signals", Value::Object(stored.collect()));
        }
        self.measure(&found, judge)
    }

    fn metrics(&self) -> Vec<String> {
        metrics(self.bad_words.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_pythons() {
        assert_eq!(rounded(1.0 / 512.0), 0.001_953_12);
        assert_eq!(rounded(3.0 / 512.0), 0.005_859_38);
        assert_eq!(rounded(2.0 / 3.0), 0.666_666_67);
        assert_eq!(rounded(12.0), 12.0);
    }

    #[test]
    fn a_language_without_stop_words_is_told_with_those_that_have_some() {
        let config = Redpajama {
            language: "sw".into(),
            ..Redpajama::default()
        };
        let mut found = Vec::new();
        config.check(&mut |k, f, w| found.push(format!("{k}: {f}: {w}")));
        assert_eq!(
            found,
            ["language: \"sw\": a language with stop words: bg de en es fi fr it"]
        );
        assert!(RedpajamaSignals::open(&config).is_err());
    }
}
