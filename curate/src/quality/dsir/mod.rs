//! DSIR, data selection by importance resampling: draws documents from raw texts so that they resemble a target.
//!
//! Paper: Xie et al. 2023, arXiv:2302.03169. Features are words and pairs of words hashed to 10,000 buckets; with the
//! shares t of the target's and r of the raw texts' features in each bucket a document weighs the sum over its features of
//! log(t + 1e-8) - log(r + 1e-8). The k documents with the greatest weight plus Gumbel noise are a draw without
//! replacement. Words are those of the authors' package (data-selection 1.0 with NLTK 3.10, whose regular expressions know
//! Unicode's words; older ones leave marks out of them): `\w+|[^\w\s]+` over the lower-cased text, an n-gram's words joined
//! by a space, SHA-256 modulo the buckets; weights equal its own.
//!
//! We differ: the noise is derived from a document's id and a seed, so that neither order nor shards matter; the k
//! greatest are found in two passes (the step `dsir` measures, `dsir_cut` finds the limit, the step applies it);
//! `xxh3` can replace SHA-256, which changes which n-grams share a bucket. With several targets the authors can
//! draw from each separately; we fit one model per target.

use std::collections::BinaryHeap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::check::{self, Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::corpus::{Corpus, CorpusCounts, kept_documents};
use crate::error::{At, Error, Result};
use crate::progress::Progress;
use crate::quality::model_file::ModelFile;
use crate::verdict::{Judge, Verdict};
use crate::write::clean_file;

/// Kind at the start of a model file.
const KIND: &str = "dsir";
const MOST_BUCKETS: usize = 1 << 24;
/// NLTK's WordPunctTokenizer.
static WORDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\w+|[^\w\s]+").expect("the pattern is one"));
/// Added to shares before the logarithm.
const SMOOTH: f64 = 1e-8;

/// The hash of an n-gram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DsirHash {
    /// As the authors' package.
    Sha256,
    /// Faster.
    Xxh3,
}

/// Feature extraction settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DsirTraining {
    /// Words of the longest n-grams. Paper: 2.
    pub ngrams: usize,
    /// Buckets. Paper: 10,000.
    pub buckets: usize,
    /// Hash.
    pub hash: DsirHash,
}

impl Default for DsirTraining {
    fn default() -> Self {
        DsirTraining {
            ngrams: 2,
            buckets: 10_000,
            hash: DsirHash::Sha256,
        }
    }
}

/// Texts that a model was fitted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct DsirSide {
    /// Documents.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that could not be read.
    pub bad: u64,
    /// Their n-grams.
    pub features: u64,
}

/// Result of a fit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DsirReport {
    /// Settings.
    pub settings: DsirTraining,
    /// Texts like those that are wanted.
    pub target: DsirSide,
    /// Texts like those that are chosen from.
    pub raw: DsirSide,
    /// Mean weight of a feature of the target: the divergence of the two in nats.
    pub divergence: f64,
}

/// A model file.
#[derive(Deserialize, Serialize)]
struct File {
    kind: String,
    report: DsirReport,
    /// log(t + 1e-8) - log(r + 1e-8) of each bucket.
    weights: Vec<f64>,
}

/// Weighs documents.
#[derive(Clone, Debug)]
pub struct Dsir {
    settings: DsirTraining,
    weights: Vec<f64>,
}

/// Buffers of a thread.
#[derive(Default)]
pub(crate) struct DsirScratch {
    lower: String,
    /// Words as ranges of `lower`.
    words: Vec<(usize, usize)>,
    gram: String,
}

impl DsirTraining {
    fn check(&self) -> Result<()> {
        for (key, value, most) in [
            ("ngrams", self.ngrams, 8),
            ("buckets", self.buckets, MOST_BUCKETS),
        ] {
            if !(1..=most).contains(&value) {
                return Err(Error::Config {
                    key: key.into(),
                    found: value.to_string(),
                    wanted: format!("1 to {most}"),
                });
            }
        }
        Ok(())
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder is below the number of buckets"
    )]
    fn bucket(&self, gram: &str) -> usize {
        let buckets = self.buckets as u64;
        match self.hash {
            DsirHash::Xxh3 => (xxh3_64(gram.as_bytes()) % buckets) as usize,
            DsirHash::Sha256 => {
                let digest = Sha256::digest(gram.as_bytes());
                // the digest as one number, the first byte being the greatest
                let rest = digest
                    .iter()
                    .fold(0, |rest, b| (rest << 8 | u64::from(*b)) % buckets);
                rest as usize
            }
        }
    }

    /// Calls `take` with the bucket of every n-gram; returns the number of words.
    fn features(
        &self,
        text: &str,
        scratch: &mut DsirScratch,
        mut take: impl FnMut(usize),
    ) -> usize {
        let DsirScratch { lower, words, gram } = scratch;
        lower.clear();
        words.clear();
        // the whole text, because a final sigma depends on the characters before it
        lower.push_str(&text.to_lowercase());
        words.extend(
            WORDS
                .find_iter(lower)
                .map(|word| (word.start(), word.end())),
        );
        for n in 1..=self.ngrams {
            for several in words.windows(n) {
                gram.clear();
                for (start, end) in several {
                    if !gram.is_empty() {
                        gram.push(' ');
                    }
                    gram.push_str(&lower[*start..*end]);
                }
                take(self.bucket(gram));
            }
        }
        words.len()
    }

    fn counts(&self, corpus: &Corpus, progress: &dyn Progress) -> Result<(Vec<u64>, DsirSide)> {
        let mut counts = vec![0u64; self.buckets];
        let mut scratch = DsirScratch::default();
        let CorpusCounts {
            documents,
            bytes,
            bad,
        } = corpus.each(progress, &mut |text| {
            self.features(text, &mut scratch, |bucket| counts[bucket] += 1);
            Ok(())
        })?;
        let side = DsirSide {
            documents,
            bytes,
            bad,
            features: counts.iter().sum(),
        };
        if side.features == 0 {
            return Err(Error::Input {
                path: corpus.first(),
                why: "found no word, wanted text".into(),
            });
        }
        Ok((counts, side))
    }

    /// Fits a model to a target and to raw texts and writes it to `out`.
    ///
    /// # Errors
    /// `Config` for settings that cannot be; `Input` for texts without words; `Io`.
    pub fn fit(
        &self,
        target: &Corpus,
        raw: &Corpus,
        out: &Path,
        progress: &dyn Progress,
    ) -> Result<DsirReport> {
        self.check()?;
        let (wanted, target) = self.counts(target, progress)?;
        let (found, raw) = self.counts(raw, progress)?;
        let share = |count: u64, side: &DsirSide| count as f64 / side.features as f64;
        let pairs = wanted.iter().zip(&found);
        let weights: Vec<f64> = pairs
            .map(|(t, r)| (share(*t, &target) + SMOOTH).ln() - (share(*r, &raw) + SMOOTH).ln())
            .collect();
        let means = weights.iter().zip(&wanted);
        let report = DsirReport {
            settings: *self,
            target,
            raw,
            divergence: means.map(|(w, t)| w * share(*t, &target)).sum(),
        };
        let mut file = ModelFile::at(out)?.create()?;
        let model = File {
            kind: KIND.into(),
            report: report.clone(),
            weights,
        };
        serde_json::to_writer(&mut file, &model)
            .map_err(std::io::Error::from)
            .at(out)?;
        writeln!(file).at(out)?;
        file.finish()?;
        Ok(report)
    }
}

impl Dsir {
    /// Reads a model that [`DsirTraining::fit`] wrote.
    ///
    /// # Errors
    /// `Io`; `Input` with the problem in the file.
    pub fn open(path: &Path) -> Result<Dsir> {
        let bytes = std::fs::read(path).at(path)?;
        let wrong = |why: String| Error::Input {
            path: path.to_path_buf(),
            why,
        };
        let file: File = serde_json::from_slice(&bytes)
            .map_err(|e| wrong(format!("found {e}, wanted a model of `dsir fit`")))?;
        if file.kind != KIND {
            return Err(wrong(format!(
                "found kind {:?}, wanted {KIND:?}",
                file.kind
            )));
        }
        let settings = file.report.settings;
        settings.check()?;
        if file.weights.len() != settings.buckets {
            let (found, wanted) = (file.weights.len(), settings.buckets);
            return Err(wrong(format!("found {found} weights, wanted {wanted}")));
        }
        Ok(Dsir {
            settings,
            weights: file.weights,
        })
    }

    /// Weight of a text and the number of its words.
    pub(crate) fn weigh(&self, text: &str, scratch: &mut DsirScratch) -> (f64, usize) {
        let mut sum = 0.0;
        let words = self
            .settings
            .features(text, scratch, |bucket| sum += self.weights[bucket]);
        (sum, words)
    }
}

/// Importance resampling.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DsirConfig {
    /// A model of `millrace dsir fit`.
    pub model: String,
    /// Seed of the noise.
    pub seed: u64,
    /// Minimum number of words of a document. The authors' package: 100.
    pub min_words: usize,
    /// Minimum weight with noise, as `millrace dsir cut` finds it; without it all are kept and measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_key: Option<f64>,
}

impl Default for DsirConfig {
    fn default() -> Self {
        DsirConfig {
            model: String::new(),
            seed: 42,
            min_words: 100,
            min_key: None,
        }
    }
}

impl DsirConfig {
    /// Gumbel noise of a document.
    pub fn noise(&self, id: &str) -> f64 {
        let bits = xxh3_64_with_seed(id.as_bytes(), self.seed) >> 11;
        // inside (0, 1)
        let uniform = (bits as f64 + 0.5) / (1u64 << 53) as f64;
        -(-uniform.ln()).ln()
    }
}

/// The limit that keeps a number of documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DsirCut {
    /// Documents that were measured.
    pub documents: u64,
    /// Documents that the limit keeps.
    pub kept: u64,
    /// `min_key` of the step.
    pub min_key: f64,
}

/// A key, the least being the greatest of a heap.
#[derive(PartialEq)]
struct Least(f64);

impl Eq for Least {}

impl PartialOrd for Least {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Least {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.total_cmp(&self.0)
    }
}

/// Finds the limit that keeps the `count` greatest keys of the documents under job folders, duplicates aside. Memory: 8
/// bytes for each of them.
///
/// # Errors
/// `Input` for a folder without clean shards, for a document that no step `dsir` has measured and for fewer documents than
/// are wanted; `Damaged` shards.
pub fn dsir_cut(folders: &[&Path], count: usize, progress: &dyn Progress) -> Result<DsirCut> {
    let wrong = |path: &Path, why: String| Error::Input {
        path: path.to_path_buf(),
        why,
    };
    if count == 0 {
        return Err(Error::Config {
            key: "count".into(),
            found: "0".into(),
            wanted: "1 or more".into(),
        });
    }
    for folder in folders {
        if !clean_file(folder, 0).0.exists() {
            let why = "found no clean/00000, wanted the folder of a job that has curated";
            return Err(wrong(folder, why.into()));
        }
    }
    let (mut documents, mut heap) = (0u64, BinaryHeap::new());
    for folder in folders {
        let shards = (0..).take_while(|shard| clean_file(folder, *shard).0.exists());
        for shard in shards {
            for document in kept_documents(folder, shard)? {
                let document = document?;
                let key = document
                    .meta
                    .as_ref()
                    .and_then(|meta| meta["dsir"]["key"].as_f64());
                let Some(key) = key else {
                    let found = document.meta.unwrap_or(Value::Null);
                    let why = format!(
                        "document {}: found meta {found}, wanted dsir.key, which a step dsir writes",
                        document.id
                    );
                    return Err(wrong(&clean_file(folder, shard).0, why));
                };
                documents += 1;
                progress.documents(1, 0);
                heap.push(Least(key));
                if heap.len() > count {
                    heap.pop();
                }
            }
        }
    }
    match heap.peek() {
        Some(least) if heap.len() == count => Ok(DsirCut {
            documents,
            kept: count as u64,
            min_key: least.0,
        }),
        _ => Err(Error::Config {
            key: "count".into(),
            found: count.to_string(),
            wanted: format!("at most {documents}, the documents there are"),
        }),
    }
}

/// Names of the metrics.
const METRICS: [&str; 3] = ["dsir.words", "dsir.weight", "dsir.key"];

/// The step, with its model.
struct Resampling {
    config: DsirConfig,
    model: Dsir,
}

impl StepConfig for DsirConfig {
    fn name(&self) -> &'static str {
        "dsir"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.model.is_empty() {
            problem(
                "model",
                "\"\"".to_string(),
                "the path of a model of `millrace dsir fit`",
            );
        }
        range(
            problem,
            "min_key",
            self.min_key.unwrap_or(0.0),
            f64::MIN,
            f64::MAX,
        );
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let model = Dsir::open(Path::new(&self.model))?;
        Ok(Box::new(Resampling {
            config: self.clone(),
            model,
        }))
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![PathBuf::from(&self.model)]
    }

    fn check_files(&self, problem: Problem<'_>) {
        let is_object = |head: &[u8]| head.trim_ascii_start().starts_with(b"{");
        let wanted = "a model of `millrace dsir fit`";
        check::file(problem, "model", &self.model, wanted, is_object);
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(METRICS.map(String::from).into())
    }
}

impl Filter for Resampling {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let config = &self.config;
        let (weight, words) = self.model.weigh(&draft.text, scratch.own.get());
        let key = weight + config.noise(&draft.id);
        draft.note("dsir", json!({ "weight": weight, "key": key }));
        judge.at_least("dsir.words", words as f64, config.min_words as f64)?;
        // no limit at all: infinity is no number in the files of metrics
        judge.at_least("dsir.weight", weight, f64::MIN)?;
        judge.at_least("dsir.key", key, config.min_key.unwrap_or(f64::MIN))
    }

    fn metrics(&self) -> Vec<String> {
        METRICS.map(String::from).into()
    }
}

#[cfg(test)]
mod tests;
