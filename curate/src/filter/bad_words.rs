//! Bad-word filter: whole words and phrases, one list file per language in the layout of LDNOOBW.
//!
//! Definition: datatrove 0.10.1 `C4BadWordsFilter`, after C4's multilingual variant: an entry matches in the
//! lower-case text where no letter, digit or underscore precedes or follows it; in Japanese, Thai and Chinese it
//! matches anywhere, and entries that are common parts of words there are left out. One match drops the page. A
//! share (`max_ratio`) may be allowed instead; and a fraction of the pages that would go may be kept. We differ:
//! these are chosen by seed and id, so the choice does not depend on the order of documents; the user supplies the
//! list files.

use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::check::{self, Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::{At, Error, Result};
use crate::text::plain::{self, share};
use crate::text::unicode::is_word;
use crate::verdict::{Judge, KEEP, Verdict};

/// Bad words.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BadWords {
    /// A folder with one list a language (`en`, or `en.txt`), or one list for `language`.
    pub lists: String,
    /// Language of all documents; empty: the result of an earlier step `language`. Documents in a language without
    /// a list pass.
    pub language: String,
    /// Maximum ratio of bad words to words. C4: 0.
    pub max_ratio: f64,
    /// Fraction of matching pages that are kept nevertheless. C4's multilingual variant: 0.001 but for English.
    pub keep_fraction: f64,
    /// Seed of that choice.
    pub seed: u64,
    /// Entries that do not count.
    pub allow: Vec<String>,
}

impl Default for BadWords {
    fn default() -> Self {
        BadWords {
            lists: String::new(),
            language: String::new(),
            max_ratio: 0.0,
            keep_fraction: 0.0,
            seed: 42,
            allow: Vec::new(),
        }
    }
}

impl BadWords {
    /// Files of the lists; an unreadable folder is returned itself.
    fn list_files(&self) -> Vec<PathBuf> {
        let path = Path::new(&self.lists);
        if !self.language.is_empty() {
            return vec![list_of(path, &self.language)];
        }
        match std::fs::read_dir(path) {
            Ok(entries) => {
                let mut files: Vec<PathBuf> = entries
                    .flatten()
                    .map(|e| e.path())
                    .filter(|p| p.is_file())
                    .collect();
                files.sort();
                files
            }
            Err(_) => vec![path.to_path_buf()],
        }
    }
}

/// The list of a language in a folder; a file is its own list.
pub(super) fn list_of(lists: &Path, language: &str) -> PathBuf {
    if !lists.is_dir() {
        return lists.to_path_buf();
    }
    let plain = lists.join(language);
    if plain.exists() {
        plain
    } else {
        lists.join(format!("{language}.txt"))
    }
}

/// Languages without spaces between words.
const UNSPACED: [&str; 3] = ["ja", "th", "zh"];
/// Common parts of words in those.
const COMMON: [&str; 4] = [
    "sm",
    "\u{30b0}\u{30ed}",
    "\u{5973}\u{306e}\u{5b50}",
    "\u{6027}",
];

/// The metric.
const RATIO: &str = "bad_words.ratio";

/// Lists grow no larger than this.
const MOST_BYTES: u64 = 16 << 20;

/// The lists, ready.
pub struct BadWordsFilter {
    config: BadWords,
    lists: FxHashMap<String, AhoCorasick>,
}

impl BadWordsFilter {
    /// Reads the lists.
    ///
    /// # Errors
    /// `Io` for a list that cannot be read; `Config` for a language that has none; `Input` for one that holds no word.
    pub fn open(config: &BadWords) -> Result<BadWordsFilter> {
        let mut lists = FxHashMap::default();
        let files = config.list_files();
        let missing = !config.language.is_empty() && files.iter().any(|f| !f.exists());
        if missing && Path::new(&config.lists).is_dir() {
            return Err(Error::Config {
                key: "bad_words.language".into(),
                found: format!("{:?}", config.language),
                wanted: format!("a language with a list in {}", config.lists),
            });
        }
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // LDNOOBW's folder also holds its licence and its readme
            if config.language.is_empty() && !is_language(&name) {
                continue;
            }
            let code = match config.language.as_str() {
                "" => name.trim_end_matches(".txt").to_string(),
                given => given.to_string(),
            };
            let matcher = read(&file, config)?;
            lists.insert(code, matcher);
        }
        if lists.is_empty() {
            return Err(Error::Input {
                path: config.lists.clone().into(),
                why: "no list of words".into(),
            });
        }
        Ok(BadWordsFilter {
            config: config.clone(),
            lists,
        })
    }

    /// Judges a text with an id in a language.
    pub fn judge(&self, text: &str, id: &str, language: &str) -> Verdict {
        self.measure(text, id, language, &mut Judge::strict())
    }

    /// Lets `judge` compare the metric of a text.
    pub fn measure(&self, text: &str, id: &str, language: &str, judge: &mut Judge) -> Verdict {
        let language = match self.config.language.as_str() {
            "" => language,
            given => given,
        };
        let Some(list) = self.lists.get(language) else {
            return KEEP;
        };
        let only_one = self.config.max_ratio == 0.0 && judge.may_stop_counting();
        let found = count(list, text, UNSPACED.contains(&language), only_one);
        if found > 0 && self.config.keep_fraction > 0.0 {
            let hash = xxh3_64_with_seed(id.as_bytes(), self.config.seed);
            // 53 bits make an even number in 0..1
            if ((hash >> 11) as f64 / (1u64 << 53) as f64) < self.config.keep_fraction {
                return KEEP;
            }
        }
        let ratio = match found {
            0 => 0.0,
            _ => share(found, plain::words(text).count().max(1)),
        };
        judge.at_most(RATIO, ratio, self.config.max_ratio)
    }
}

fn is_language(name: &str) -> bool {
    let code = name.trim_end_matches(".txt");
    let letters = code.split('-').next().unwrap_or_default();
    matches!(letters.len(), 2 | 3) && letters.bytes().all(|b| b.is_ascii_lowercase())
}

fn read(file: &Path, config: &BadWords) -> Result<AhoCorasick> {
    let wrong = |why: &str| Error::Input {
        path: file.to_path_buf(),
        why: why.into(),
    };
    if std::fs::metadata(file).at(file)?.len() > MOST_BYTES {
        return Err(wrong("longer than 16 MiB: not a list of words"));
    }
    let bytes = std::fs::read(file).at(file)?;
    let text = String::from_utf8(bytes).map_err(|e| {
        wrong(&format!(
            "invalid UTF-8 at byte {}",
            e.utf8_error().valid_up_to()
        ))
    })?;
    let words: Vec<&str> = text
        .lines()
        .map(crate::text::unicode::strip)
        .filter(|w| !w.is_empty() && !COMMON.contains(w))
        .filter(|w| !config.allow.iter().any(|a| a == w))
        .collect();
    if words.is_empty() {
        return Err(wrong("no word in it"));
    }
    AhoCorasick::new(&words).map_err(|e| wrong(&e.to_string()))
}

/// Entries in a text that do not overlap, each the first that ends; at most one if that is enough.
fn count(list: &AhoCorasick, text: &str, anywhere: bool, only_one: bool) -> usize {
    let lower = text.to_lowercase();
    let (mut found, mut upto) = (0, 0);
    for hit in list.find_overlapping_iter(&lower) {
        let alone = || {
            let before = lower[..hit.start()].chars().next_back();
            let behind = lower[hit.end()..].chars().next();
            !before.is_some_and(is_word) && !behind.is_some_and(is_word)
        };
        if hit.start() >= upto && (anywhere || alone()) {
            found += 1;
            upto = hit.end();
            if only_one {
                break;
            }
        }
    }
    found
}

impl StepConfig for BadWords {
    fn name(&self) -> &'static str {
        "bad_words"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.lists.is_empty() {
            problem(
                "lists",
                "\"\"".to_string(),
                "a list of words, or a folder of them",
            );
        }
        range(problem, "max_ratio", self.max_ratio, 0.0, 1.0);
        range(problem, "keep_fraction", self.keep_fraction, 0.0, 1.0);
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(BadWordsFilter::open(self)?))
    }

    fn files(&self) -> Vec<PathBuf> {
        self.list_files()
    }

    fn check_files(&self, problem: Problem<'_>) {
        let wanted = "a list of words, or a folder of them";
        check::file_or_folder(problem, "lists", &self.lists, wanted, check::is_text);
        let folder = Path::new(&self.lists);
        let has_list = self.language.is_empty() || list_of(folder, &self.language).is_file();
        if folder.is_dir() && !has_list {
            let wanted = format!("a language with a list in {}", self.lists);
            problem("language", format!("{:?}", self.language), &wanted);
        }
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(vec![RATIO.to_string()])
    }

    fn language_key(&self) -> Option<&'static str> {
        self.language.is_empty().then_some("language")
    }
}

impl Filter for BadWordsFilter {
    fn apply(&self, draft: &mut Draft, _scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &draft.id, &draft.language, judge)
    }

    fn metrics(&self) -> Vec<String> {
        vec![RATIO.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(config: &str, lists: &[(&str, &str)]) -> Result<BadWordsFilter> {
        let folder = tempfile::tempdir().unwrap();
        for (name, words) in lists {
            std::fs::write(folder.path().join(name), words).unwrap();
        }
        let mut config: BadWords = serde_json::from_str(config).unwrap();
        config.lists = folder.path().display().to_string();
        BadWordsFilter::open(&config)
    }

    fn drops(filter: &BadWordsFilter, text: &str, language: &str) -> bool {
        filter.judge(text, "d/1", language).is_break()
    }

    #[test]
    fn only_whole_words_and_phrases_count() {
        let filter = filter("{}", &[("en", "darn\nheck no\n"), ("LICENSE", "darn")]).unwrap();
        assert!(drops(&filter, "Darn!", "en") && drops(&filter, "oh heck no.", "en"));
        assert!(!drops(&filter, "darned darn_it heck  no", "en"));
        assert!(!drops(&filter, "darn", "fr"), "no list for it");
    }

    #[test]
    fn languages_without_spaces_match_anywhere_but_for_common_parts() {
        let filter = filter("{}", &[("zh", "\u{574f}\n\u{6027}\n")]).unwrap();
        assert!(drops(&filter, "\u{597d}\u{574f}\u{597d}", "zh"));
        assert!(!drops(&filter, "\u{7537}\u{6027}", "zh"));
    }

    #[test]
    fn a_share_may_be_allowed() {
        let filter = filter(r#"{"max_ratio": 0.2, "language": "en"}"#, &[("en", "darn")]).unwrap();
        assert!(!drops(&filter, "darn one two three four", "x"));
        assert!(drops(&filter, "darn one two darn four", "x"));
    }

    #[test]
    fn the_kept_fraction_depends_on_seed_and_id_only() {
        let config = r#"{"keep_fraction": 0.25, "language": "en"}"#;
        let filter = filter(config, &[("en.txt", "darn")]).unwrap();
        let kept = |seed| {
            let config = BadWords {
                seed,
                ..filter.config.clone()
            };
            let filter = BadWordsFilter {
                config,
                lists: filter.lists.clone(),
            };
            (0..4000)
                .filter(|i| filter.judge("darn", &format!("d/{i}"), "").is_continue())
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(42), kept(42));
        assert_ne!(kept(42), kept(7));
        // 1000 of 4000, within four standard deviations
        assert!((kept(42).len() as f64 - 1000.0).abs() < 110.0);
    }

    #[test]
    fn a_language_without_a_list_is_an_error_before_any_data_is_read() {
        let message = filter(r#"{"language": "eo"}"#, &[("en", "darn")])
            .err()
            .unwrap()
            .to_string();
        assert!(
            message.contains("bad_words.language: found \"eo\""),
            "{message}"
        );
        assert!(filter("{}", &[]).is_err() && filter("{}", &[("en", "\n")]).is_err());
    }
}
