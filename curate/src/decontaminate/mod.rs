//! Decontamination: removes documents, or parts of them, that share an n-gram with an evaluation set.
//!
//! Paper: Brown et al. 2020, arXiv:2005.14165, app. C (13-grams). Words are `\w+` of the lower-cased text. Every
//! n-gram of every evaluation text goes into a set of 64-bit hashes; a document with one of them drops with the
//! n-gram as value. We differ: whole documents drop where GPT-3 cut 200 characters around the hit; two different
//! n-grams collide with probability (pairs) / 2^64. `profile = "datatrove"` takes words, n-grams and fields as
//! datatrove does (`datatrove.rs`). `profile = "mt_nlg"` cuts documents as Megatron-LM did (`megatron/`), in a
//! separate pass after deduplication. `profile = "decon"` scores how much of a record a document contains
//! (`sampled/`).
//!
//! The rule of a drop is `decontaminate.TASK`, so the counts by rule show how often each task matched. A task is
//! named by a field of the record or by its file; an n-gram of several tasks counts for the first of them.

mod config;
mod datatrove;
mod evaluation;
mod megatron;
mod report;
mod sampled;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::text::narrow;
use crate::text::unicode::{self, DIGIT, LETTER, MARK};
use crate::verdict::{KEEP, Verdict, broken};
use datatrove::Words;
use evaluation::{Entry, each_entry, each_text};
use sampled::Index;

pub use config::{DecontaminateConfig, DecontaminateProfile};
pub use megatron::CutRules;
pub(crate) use megatron::{CutNgrams, Cutting, Outcome};
pub use report::{Contaminated, Decontamination, TaskHits};
pub use sampled::SampledRules;

/// N-grams of all evaluation texts.
pub struct Decontaminator {
    config: DecontaminateConfig,
    ngram: usize,
    /// N-grams and the numbers of their tasks.
    hashes: FxHashMap<u64, u32>,
    tasks: Vec<String>,
    /// Texts of each task.
    task_texts: Vec<u64>,
    buffers: Mutex<Vec<Words>>,
    /// Number of evaluation texts indexed.
    texts: u64,
    /// Index of profile `decon`, which does not use the hashes.
    sampled: Option<Index>,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Decontaminator {
    /// Reads and indexes the evaluation files.
    ///
    /// # Errors
    /// `Input` for a file that cannot be read or has no text; `Config` for a profile that cuts documents instead of
    /// judging them, see [`crate::decontaminate`].
    pub fn new(config: &DecontaminateConfig) -> Result<Decontaminator> {
        if config.cuts() {
            return Err(Error::Config {
                key: "profile".to_string(),
                found: "one that cuts documents".to_string(),
                wanted: "one that drops them".to_string(),
            });
        }
        let mut made = Decontaminator {
            config: config.clone(),
            ngram: config.ngram(),
            hashes: FxHashMap::default(),
            tasks: Vec::new(),
            task_texts: Vec::new(),
            buffers: Mutex::default(),
            texts: 0,
            sampled: (config.profile == DecontaminateProfile::Decon)
                .then(|| Index::new(&config.sampled, config.ngram())),
        };
        each_entry(config, &mut |task, entry| {
            let task = made.task(task);
            let texts = made.add(task, entry)?;
            made.texts += texts;
            made.task_texts[task as usize] += texts;
            Ok(texts)
        })?;
        if let Some(index) = &mut made.sampled {
            index.weigh();
        }
        Ok(made)
    }

    /// Number of distinct n-grams.
    pub fn ngrams(&self) -> usize {
        let sampled = self.sampled.as_ref().map(Index::ngrams);
        sampled.unwrap_or(self.hashes.len())
    }

    /// Number of evaluation texts.
    pub fn texts(&self) -> u64 {
        self.texts
    }

    /// The hashes of a task's n-grams, sorted.
    pub fn hashes_of(&self, task: &str) -> Vec<u64> {
        let all = self.hashes.iter();
        let of_task = all.filter(|(_, at)| self.tasks[**at as usize] == task);
        let mut hashes: Vec<u64> = of_task.map(|(hash, _)| *hash).collect();
        hashes.sort_unstable();
        hashes
    }

    /// The tasks with their texts and n-grams.
    pub(crate) fn sets(&self) -> BTreeMap<String, TaskHits> {
        let mut ngrams = vec![0; self.tasks.len()];
        let sampled = self.sampled.iter().flat_map(Index::tasks_of_ngrams);
        for task in self.hashes.values().copied().chain(sampled) {
            ngrams[task as usize] += 1;
        }
        let counts = self.task_texts.iter().zip(ngrams);
        let sets = self
            .tasks
            .iter()
            .zip(counts)
            .map(|(task, (texts, ngrams))| {
                let hits = TaskHits {
                    texts: *texts,
                    ngrams,
                    ..TaskHits::default()
                };
                (task.clone(), hits)
            });
        sets.collect()
    }

    /// The number of a task.
    fn task(&mut self, name: &str) -> u32 {
        let at = self.tasks.iter().position(|t| t == name);
        narrow(at.unwrap_or_else(|| {
            self.tasks.push(name.to_string());
            self.task_texts.push(0);
            self.tasks.len() - 1
        }))
    }

    fn add(&mut self, task: u32, entry: &Entry<'_>) -> Result<u64, String> {
        if let Some(index) = &mut self.sampled {
            return Ok(index.add(entry, task));
        }
        if let (DecontaminateProfile::Datatrove, Entry::Record(record)) =
            (self.config.profile, entry)
        {
            return self.add_pair(record, task);
        }
        let fields = self.config.fields.clone();
        let texts = each_text(&fields, entry, &mut |text| self.add_text(text, task));
        Ok(texts)
    }

    /// Adds the n-grams of a label and its query, as datatrove's index does.
    fn add_pair(&mut self, record: &Map<String, Value>, task: u32) -> Result<u64, String> {
        let config = &self.config;
        let field = |name: &str| record.get(name).and_then(Value::as_str);
        let Some(text) = field(&config.label_field) else {
            return Err(format!("no text in field {:?}", config.label_field));
        };
        let (mut label, mut query) = (Words::default(), Words::default());
        label.read(text);
        let n = self.ngram;
        let mut found: Vec<u64> = label.ngrams(n).map(datatrove::hash).collect();
        if let Some(text) = field(&config.query_field) {
            query.read(text);
            if config.query_ngrams {
                found.extend(query.ngrams(n).map(datatrove::hash));
            }
            if config.overlap_ngrams {
                datatrove::overlaps(&query, &label, n, &mut |hash| found.push(hash));
            }
        }
        for hash in found {
            self.hashes.entry(hash).or_insert(task);
        }
        Ok(1)
    }

    fn add_text(&mut self, text: &str, task: u32) {
        let mut window = Window::new(self.ngram);
        let hashes = &mut self.hashes;
        each_word(text, |_, _, word| {
            if let Some((hash, _)) = window.push(word, 0) {
                hashes.entry(hash).or_insert(task);
            }
            true
        });
    }

    /// Judges a document.
    pub fn judge(&self, text: &str) -> Verdict {
        if let Some(index) = &self.sampled {
            let Some((task, score, words)) = index.meet(text) else {
                return KEEP;
            };
            let rule = format!("decontaminate.{}", self.tasks[task as usize]);
            let limit = format!("a score below {}", self.config.sampled.min_score);
            return Verdict::Break(broken(&rule, format!("{score:.3}: {words}"), limit));
        }
        let found = match self.config.profile {
            DecontaminateProfile::Datatrove => self.meet_words(text),
            _ => self.meet(text),
        };
        match found {
            Some((ngram, task)) => {
                let rule = format!("decontaminate.{}", self.tasks[task as usize]);
                let limit = format!("no shared {}-gram", self.ngram);
                Verdict::Break(broken(&rule, ngram, limit))
            }
            None => KEEP,
        }
    }

    /// The first n-gram of datatrove's words that a task has.
    fn meet_words(&self, text: &str) -> Option<(String, u32)> {
        let pool = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = pool().pop().unwrap_or_default();
        words.read(text);
        let mut all = words.ngrams(self.ngram);
        let found = all.find_map(|ngram| {
            let task = self.hashes.get(&datatrove::hash(ngram))?;
            Some((ngram.to_string(), *task))
        });
        drop(all);
        pool().push(words);
        found
    }

    /// The first n-gram that a task has.
    fn meet(&self, text: &str) -> Option<(String, u32)> {
        let mut window = Window::new(self.ngram);
        let mut hit = None;
        each_word(text, |start, end, word| {
            if let Some((hash, first)) = window.push(word, start)
                && let Some(task) = self.hashes.get(&hash)
            {
                hit = Some((first, end, *task));
                return false;
            }
            true
        });
        let (from, to, task) = hit?;
        let gram: Vec<&str> = text[from..to].split_whitespace().collect();
        Some((gram.join(" "), task))
    }
}

/// The last n word hashes with a polynomial over them, updated in O(1).
struct Window {
    ring: Vec<(u64, usize)>,
    next: usize,
    seen: usize,
    hash: u64,
    /// MULTIPLIER^n: weight of the word that falls out.
    out: u64,
}

impl Window {
    fn new(n: usize) -> Window {
        let out = (0..n).fold(1u64, |p, _| p.wrapping_mul(MULTIPLIER));
        Window {
            ring: vec![(0, 0); n],
            next: 0,
            seen: 0,
            hash: 0,
            out,
        }
    }

    /// Adds a word; once full, the n-gram's hash and where it starts.
    fn push(&mut self, word: u64, start: usize) -> Option<(u64, usize)> {
        let (old, _) = self.ring[self.next];
        self.ring[self.next] = (word, start);
        self.next = (self.next + 1) % self.ring.len();
        self.hash = self
            .hash
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(word)
            .wrapping_sub(old.wrapping_mul(self.out));
        self.seen += 1;
        (self.seen >= self.ring.len()).then(|| (self.hash, self.ring[self.next].1))
    }
}

/// Calls `each(start, end, hash)` for the `\w+` words, lower-cased, until it returns false.
fn each_word(text: &str, mut each: impl FnMut(usize, usize, u64) -> bool) {
    let table = unicode::table();
    let word = |c: char| table[c as usize] & (LETTER | DIGIT | MARK) != 0 || c == '_';
    let mut lower = String::new();
    let mut start = None;
    for (i, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if word(c) {
            start.get_or_insert(i);
            if c.is_ascii() {
                lower.push(c.to_ascii_lowercase());
            } else {
                lower.extend(c.to_lowercase());
            }
        } else if let Some(from) = start.take() {
            if !each(from, i, xxh3_64(lower.as_bytes())) {
                return;
            }
            lower.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_shared_13_gram_drops_whatever_its_punctuation() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let question = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi";
        writeln!(file, "{}", serde_json::json!({"q": question, "n": 3})).unwrap();
        let config = DecontaminateConfig {
            files: vec![file.path().to_string_lossy().into_owned()],
            ..DecontaminateConfig::default()
        };
        let set = Decontaminator::new(&config).unwrap();
        assert_eq!(set.ngrams(), 2);
        let dirty =
            "Intro. BETA, gamma -- delta epsilon zeta eta theta iota kappa lambda mu nu xi!";
        let Verdict::Break(reason) = set.judge(dirty) else {
            panic!("kept")
        };
        assert_eq!(reason.rule, format!("decontaminate.{}", set.tasks[0]));
        let clean = "beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu other xi";
        assert_eq!(set.judge(clean), KEEP);
    }
}
