//! Perplexity filter: limits on a language model's perplexity, and the buckets head, middle and tail.
//!
//! CCNet (Wenzek et al. 2020, arXiv:1911.00359); words are separated by white space.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::condition::check_name;
use super::ngram::{NgramModel, may_be_model};
use crate::check::{self, Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, Verdict};

/// A language model.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PerplexityConfig {
    /// Name of the perplexity, where several models give one (datatrove names them by the model's data and language): the
    /// metrics are `perplexity.NAME.value` and `perplexity.NAME.max`, the results `meta.perplexity_NAME` and
    /// `meta.perplexity_NAME_bucket`. Default: none, `perplexity.value`, `meta.perplexity` and `meta.perplexity_bucket`.
    pub name: String,
    /// An ARPA file or a binary of KenLM's.
    pub model: String,
    /// Minimum perplexity; 0: none.
    pub min: f64,
    /// Greatest perplexity; 0: none.
    pub max: f64,
    /// Perplexities up to the first are the head, up to the second the middle, the rest the tail; empty: no buckets.
    pub buckets: Vec<f64>,
    /// Lower case first, as CCNet's models want it.
    pub lowercase: bool,
}

impl Default for PerplexityConfig {
    fn default() -> Self {
        PerplexityConfig {
            name: String::new(),
            model: String::new(),
            min: 0.0,
            max: 0.0,
            buckets: Vec::new(),
            lowercase: false,
        }
    }
}

impl PerplexityConfig {
    /// The name of a metric.
    fn rule(&self, part: &str) -> String {
        match self.name.as_str() {
            "" => format!("perplexity.{part}"),
            name => format!("perplexity.{name}.{part}"),
        }
    }

    /// The bucket of a perplexity.
    pub fn bucket(&self, perplexity: f64) -> Option<&'static str> {
        let [head, middle] = self.buckets[..] else {
            return None;
        };
        Some(match perplexity {
            p if p <= head => "head",
            p if p <= middle => "middle",
            _ => "tail",
        })
    }
}

/// The step, with its model.
struct Perplexity {
    config: PerplexityConfig,
    model: NgramModel,
    /// Where the metadata has the perplexity and its bucket.
    key: String,
    bucket_key: String,
    value_rule: String,
    max_rule: String,
}

impl StepConfig for PerplexityConfig {
    fn name(&self) -> &'static str {
        "perplexity"
    }

    fn check(&self, problem: Problem<'_>) {
        if !self.name.is_empty() {
            check_name(&self.name, problem);
        }
        if self.model.is_empty() {
            problem(
                "model",
                "\"\"".to_string(),
                "the path of an ARPA file or a binary of KenLM's",
            );
        }
        range(problem, "min", self.min, 0.0, f64::MAX);
        range(problem, "max", self.max, 0.0, f64::MAX);
        if self.max > 0.0 && self.min > self.max {
            problem(
                "min",
                format!("{} above max {}", self.min, self.max),
                "at most max",
            );
        }
        let sorted = self.buckets.is_sorted() && self.buckets.iter().all(|b| *b > 0.0);
        if !(sorted && matches!(self.buckets.len(), 0 | 2)) {
            problem(
                "buckets",
                format!("{:?}", self.buckets),
                "two perplexities, the lower first, or []",
            );
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let model = NgramModel::open(Path::new(&self.model))?;
        let key = match self.name.as_str() {
            "" => "perplexity".to_string(),
            name => format!("perplexity_{name}"),
        };
        Ok(Box::new(Perplexity {
            config: self.clone(),
            model,
            bucket_key: format!("{key}_bucket"),
            key,
            value_rule: self.rule("value"),
            max_rule: self.rule("max"),
        }))
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![PathBuf::from(&self.model)]
    }

    fn check_files(&self, problem: Problem<'_>) {
        let wanted = "an ARPA file or a binary of KenLM's";
        check::file(problem, "model", &self.model, wanted, may_be_model);
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(["value", "max"].map(|part| self.rule(part)).into())
    }
}

impl Filter for Perplexity {
    fn apply(&self, draft: &mut Draft, _scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let config = &self.config;
        let value = match config.lowercase {
            true => self.model.document_perplexity(&draft.text.to_lowercase()),
            false => self.model.document_perplexity(&draft.text),
        };
        draft.note(&self.key, json!((value * 1e3).round() / 1e3));
        if let Some(bucket) = config.bucket(value) {
            draft.note(&self.bucket_key, bucket.into());
        }
        judge.at_least(&self.value_rule, value, config.min)?;
        let most = if config.max > 0.0 {
            config.max
        } else {
            f64::INFINITY
        };
        judge.at_most(&self.max_rule, value, most)
    }

    fn metrics(&self) -> Vec<String> {
        vec![self.value_rule.clone(), self.max_rule.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ccnets() {
        let config = PerplexityConfig {
            buckets: vec![100.0, 300.0],
            ..PerplexityConfig::default()
        };
        let names = [50.0, 100.0, 101.0, 300.0, 1e9].map(|p| config.bucket(p).unwrap());
        assert_eq!(names, ["head", "head", "middle", "middle", "tail"]);
        assert_eq!(PerplexityConfig::default().bucket(1.0), None);
    }
}
