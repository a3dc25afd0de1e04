//! Filtering by model scores: a classifier's probability of a label, a language model's perplexity; limits and
//! sampling.
//!
//! Classifier: any supervised fastText model (DCLM: Li et al. 2024, arXiv:2406.11794, keeps documents that score at
//! least 0.018112). Pareto sampling keeps a document if a Lomax variate of shape `alpha` exceeds 1 - score (GPT-3:
//! Brown et al. 2020, arXiv:2005.14165, appendix A; MT-NLG: alpha 3). We differ: the variate is derived from the
//! document's id and a seed, so that order and sharding do not matter, where others draw from one generator.
//! Perplexity and its head, middle and tail: CCNet (Wenzek et al. 2020, arXiv:1911.00359); words are separated by
//! white space.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::buckets::{add_bucket, bucket, check_buckets};
use super::condition::check_name;
use super::fasttext::{FastText, FastTextScratch, is_fasttext};
use crate::check::{self, Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// A classifier.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QualityConfig {
    /// Name of the score, where several models give one: metrics and drops are `quality.NAME.score`, the score
    /// `meta.quality_NAME`. Default: none, `quality.score` and `meta.quality`.
    pub name: String,
    /// A fastText model, `.bin` or `.ftz`.
    pub model: String,
    /// The label whose probability is the score, with or without `__label__`.
    pub label: String,
    /// Minimum score.
    pub min_score: f64,
    /// Shape of Pareto sampling; 0: no sampling. MT-NLG: 3.
    pub pareto_alpha: f64,
    /// Seed of the sampling.
    pub seed: u64,
    /// Scores that part documents into buckets, the lowest first, as `millrace classifier score` finds them: the bucket is
    /// the number of those that the score reaches. Of several steps with buckets the greatest counts. Nemotron-CC (Su et
    /// al. 2024, arXiv:2412.02595): 19, of a sample's scores. Empty: none.
    pub buckets: Vec<f64>,
    /// Minimum bucket.
    pub min_bucket: u64,
}

impl Default for QualityConfig {
    fn default() -> Self {
        QualityConfig {
            name: String::new(),
            model: String::new(),
            label: "hq".to_string(),
            min_score: 0.0,
            pareto_alpha: 0.0,
            seed: 42,
            buckets: Vec::new(),
            min_bucket: 0,
        }
    }
}

impl QualityConfig {
    /// The bucket of a score: as documents keep it, to six places.
    pub fn bucket(&self, score: f64) -> u64 {
        bucket(&self.buckets, score)
    }

    /// The name of a metric or a drop.
    fn rule(&self, part: &str) -> String {
        match self.name.as_str() {
            "" => format!("quality.{part}"),
            name => format!("quality.{name}.{part}"),
        }
    }

    /// Minimum score of a document in Pareto sampling: 1 - a Lomax variate.
    pub fn pareto_limit(&self, id: &str) -> f64 {
        let bits = xxh3_64_with_seed(id.as_bytes(), self.seed) >> 11;
        // in (0, 1]
        let uniform = (bits as f64 + 1.0) / (1u64 << 53) as f64;
        1.0 - (uniform.powf(-1.0 / self.pareto_alpha) - 1.0)
    }
}

/// The step, with its model.
struct Classifier {
    config: QualityConfig,
    model: FastText,
    /// Number of the label whose probability is the score.
    label: usize,
    /// Where the metadata has the score.
    key: String,
    score_rule: String,
    bucket_rule: String,
    pareto_rule: String,
}

/// Buffers of one thread.
#[derive(Default)]
struct ClassifierScratch {
    fasttext: FastTextScratch,
    labels: Vec<(usize, f32)>,
}

impl StepConfig for QualityConfig {
    fn name(&self) -> &'static str {
        "quality"
    }

    fn check(&self, problem: Problem<'_>) {
        if !self.name.is_empty() {
            check_name(&self.name, problem);
        }
        if self.model.is_empty() {
            problem("model", "\"\"".to_string(), "the path of a fastText model");
        }
        if self.label.is_empty() {
            problem("label", "\"\"".to_string(), "a label of the model");
        }
        range(problem, "min_score", self.min_score, 0.0, 1.0);
        range(problem, "pareto_alpha", self.pareto_alpha, 0.0, 1000.0);
        check_buckets(&self.buckets, self.min_bucket, 0.0..=1.0, problem);
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let model = FastText::open(Path::new(&self.model))?;
        let Some(label) = model.label(&self.label) else {
            return Err(at.wrong(
                "quality.label",
                format!("{:?}", self.label),
                format!("a label of the model {}", self.model),
            ));
        };
        Ok(Box::new(Classifier {
            config: self.clone(),
            model,
            label,
            key: match self.name.as_str() {
                "" => "quality".to_string(),
                name => format!("quality_{name}"),
            },
            score_rule: self.rule("score"),
            bucket_rule: self.rule("bucket"),
            pareto_rule: self.rule("pareto"),
        }))
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![PathBuf::from(&self.model)]
    }

    fn check_files(&self, problem: Problem<'_>) {
        let wanted = "a fastText model (.bin or .ftz)";
        check::file(problem, "model", &self.model, wanted, is_fasttext);
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(["score", "bucket"].map(|part| self.rule(part)).into())
    }
}

impl Filter for Classifier {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let Classifier {
            config,
            model,
            label,
            ..
        } = self;
        let all = model.labels().len();
        let ClassifierScratch { fasttext, labels } = scratch.own.get();
        model.predict(&draft.text, all, fasttext, labels);
        let found = labels.iter().find(|(l, _)| l == label);
        let score = found.map_or(0.0, |(_, p)| f64::from(*p));
        draft.note(&self.key, json!((score * 1e6).round() / 1e6));
        judge.at_least(&self.score_rule, score, config.min_score)?;
        if !config.buckets.is_empty() {
            let bucket = add_bucket(draft, &config.buckets, score);
            judge.at_least(&self.bucket_rule, bucket as f64, config.min_bucket as f64)?;
        }
        if config.pareto_alpha > 0.0 {
            let limit = config.pareto_limit(&draft.id);
            if score <= limit {
                return Verdict::Break(broken(&self.pareto_rule, score, limit));
            }
        }
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        vec![self.score_rule.clone(), self.bucket_rule.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pareto_sampling_keeps_as_many_as_its_law_says_whatever_the_order() {
        let config = QualityConfig {
            pareto_alpha: 3.0,
            ..QualityConfig::default()
        };
        for score in [0.1, 0.5, 0.9] {
            let kept = (0..20_000)
                .filter(|i| score > config.pareto_limit(&format!("d/{i}")))
                .count();
            // P(Lomax > 1 - s) = (2 - s)^-alpha
            let wanted = 20_000.0 * (2.0f64 - score).powf(-3.0);
            assert!(
                (kept as f64 - wanted).abs() < 4.0 * wanted.sqrt(),
                "{score}: {kept}, {wanted}"
            );
        }
        let other = QualityConfig {
            seed: 1,
            ..config.clone()
        };
        assert_ne!(
            config.pareto_limit("a").to_bits(),
            other.pareto_limit("a").to_bits()
        );
    }

    #[test]
    fn quality_buckets_count_the_thresholds_that_a_score_reaches() {
        let config = QualityConfig {
            model: "m.bin".into(),
            buckets: vec![0.1, 0.5, 0.5, 0.9],
            ..QualityConfig::default()
        };
        let found = [0.0, 0.099_999_9, 0.1, 0.5, 0.899, 1.0].map(|score| config.bucket(score));
        // scores are kept to six places
        assert_eq!(found, [0, 1, 1, 3, 3, 4]);
        let problems = |config: &QualityConfig| {
            let mut all = Vec::new();
            config.check(&mut |key, found, _| all.push(format!("{key}: {found}")));
            all
        };
        assert!(problems(&config).is_empty());
        let wrong = QualityConfig {
            buckets: vec![0.5, 0.1, 2.0],
            min_bucket: 4,
            ..config
        };
        assert_eq!(
            problems(&wrong),
            ["buckets: [0.5, 0.1, 2.0]", "min_bucket: 4"]
        );
    }
}
