//! Filtering by a transformer: a sequence classifier or regressor from a Hugging Face folder, such as FineWeb-Edu's
//! (Penedo et al. 2024, arXiv:2406.17557), or one of domains or of safety; limits, labels, buckets.
//!
//! Ensembles as Nemotron-CC's (Su et al. 2024, arXiv:2412.02595): each classifier's score becomes an integer by quantiles of
//! a sample's scores, the greatest counts, and ranges of it have one of five levels. `quality` steps with buckets take part.
//! The model runs in another crate; its texts go there a batch of records at a time. Scores are kept, and compared, to six
//! places. We differ from transformers' text-classification pipeline for a single output without `problem_type`: it is a
//! regression, as the classes' loss has it, where the pipeline applies the logistic function.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::buckets::{add_bucket, check_buckets};
use super::condition::check_name;
use crate::check::{self, Problem};
use crate::classifier::{
    Answer, ClassifierDtype, ClassifierModel, Logits, TextClassifier, files_of,
};
use crate::contract::{BatchFilter, Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::{Error, Result};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// A classifier or regressor in transformers' format.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifierConfig {
    /// Name of the model: metrics and drops are `classifier.NAME.score`; the score is `meta.classifier_NAME`, of several
    /// labels the highest one's name `meta.classifier_NAME_label` and the scores by label `meta.classifier_NAME_scores`.
    pub name: String,
    /// A Hugging Face folder with `config.json`, `model.safetensors` or shards of it, and `tokenizer.json`: a sequence
    /// classifier of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, DeBERTa-v2 or v3.
    pub model: String,
    /// Number format of the model's products.
    pub dtype: ClassifierDtype,
    /// Tokens of a text that are read, special ones included: the first; 0: as many as the model can.
    pub max_tokens: u64,
    /// Tokens of texts that run through the model together, sorted by length; each takes about 40 KB of memory in a model of
    /// BERT-base's size, for each shard in flight. Never changes the output.
    pub batch_tokens: u64,
    /// Function of the outputs: `auto` by the model's `problem_type`, `none`, `softmax` or `sigmoid`.
    pub function: ScoreFunction,
    /// The label whose score is compared and put into buckets. Default: the one with the highest score.
    pub label: String,
    /// Labels whose scores are kept in `meta`. Default: all.
    pub labels: Vec<String>,
    /// Minimum score.
    pub min_score: Option<f64>,
    /// Greatest score.
    pub max_score: Option<f64>,
    /// Labels of which one must have the highest score. Default: any.
    pub keep: Vec<String>,
    /// Scores that part documents into buckets, the lowest first, as `millrace classifier score` finds them: the bucket is
    /// the number of those that the score reaches. Of several steps with buckets the greatest counts,
    /// `meta.quality_bucket`. Nemotron-CC: 19, of a sample's scores. Empty: none.
    pub buckets: Vec<f64>,
    /// Minimum bucket.
    pub min_bucket: u64,
    /// Four buckets from which the levels `medium_low`, `medium`, `medium_high` and `high` begin, the lowest first; those
    /// before are `low`: `meta.quality_level`, of the greatest bucket so far. Nemotron-CC chooses them by training on each
    /// bucket. Empty: no levels.
    pub levels: Vec<u64>,
}

/// Function of a classifier's outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreFunction {
    /// By the model's `problem_type`: none of a regression, softmax of one label, sigmoid of several. Without it, none of
    /// one output and softmax of more.
    #[default]
    Auto,
    /// The outputs are the scores.
    None,
    /// Probabilities of labels of which one applies.
    Softmax,
    /// A probability for each label.
    Sigmoid,
}

/// The names of `levels`.
const LEVELS: [&str; 5] = ["low", "medium_low", "medium", "medium_high", "high"];

impl Default for ClassifierConfig {
    fn default() -> Self {
        ClassifierConfig {
            name: "model".to_string(),
            model: String::new(),
            dtype: ClassifierDtype::default(),
            max_tokens: 0,
            batch_tokens: 2048,
            function: ScoreFunction::default(),
            label: String::new(),
            labels: Vec::new(),
            min_score: None,
            max_score: None,
            keep: Vec::new(),
            buckets: Vec::new(),
            min_bucket: 0,
            levels: Vec::new(),
        }
    }
}

impl ScoreFunction {
    /// Scores of outputs, to six places.
    pub fn scores(self, logits: &[f32], answer: Answer) -> Vec<f64> {
        let function = match (self, answer) {
            (ScoreFunction::Auto, Answer::Regression) => ScoreFunction::None,
            (ScoreFunction::Auto, Answer::OneLabel) => ScoreFunction::Softmax,
            (ScoreFunction::Auto, Answer::AnyLabels) => ScoreFunction::Sigmoid,
            (chosen, _) => chosen,
        };
        let wide = logits.iter().map(|x| f64::from(*x));
        let scores: Vec<f64> = match function {
            ScoreFunction::Auto | ScoreFunction::None => wide.collect(),
            ScoreFunction::Sigmoid => wide.map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            ScoreFunction::Softmax => {
                let most = wide.clone().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = wide.map(|x| (x - most).exp()).collect();
                let sum: f64 = powers.iter().sum();
                powers.iter().map(|power| power / sum).collect()
            }
        };
        let rounded = |score: f64| (score * 1e6).round() / 1e6;
        scores.into_iter().map(rounded).collect()
    }
}

impl ClassifierConfig {
    /// The name of a metric or a drop.
    fn rule(&self, part: &str) -> String {
        format!("classifier.{}.{part}", self.name)
    }
}

impl StepConfig for ClassifierConfig {
    fn name(&self) -> &'static str {
        "classifier"
    }

    fn check(&self, problem: Problem<'_>) {
        check_name(&self.name, problem);
        if self.model.is_empty() {
            let wanted = "the path of a Hugging Face folder";
            problem("model", "\"\"".to_string(), wanted);
        }
        if self.batch_tokens == 0 || self.batch_tokens > 1 << 20 {
            problem(
                "batch_tokens",
                self.batch_tokens.to_string(),
                "1 to 1048576",
            );
        }
        for (key, score) in [("min_score", self.min_score), ("max_score", self.max_score)] {
            if score.is_some_and(f64::is_nan) {
                problem(key, "nan".to_string(), "a number");
            }
        }
        if let (Some(min), Some(max)) = (self.min_score, self.max_score)
            && min > max
        {
            let found = format!("{min} above max_score {max}");
            problem("min_score", found, "at most max_score");
        }
        check_buckets(
            &self.buckets,
            self.min_bucket,
            f64::NEG_INFINITY..=f64::INFINITY,
            problem,
        );
        let fits = self.levels.len() == LEVELS.len() - 1 && self.levels.is_sorted();
        let is_reached = self
            .levels
            .iter()
            .all(|level| *level <= self.buckets.len() as u64);
        if !(self.levels.is_empty() || fits && is_reached) {
            let wanted = "four buckets, the lowest first, or []";
            problem("levels", format!("{:?}", self.levels), wanted);
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let model = ClassifierModel {
            folder: PathBuf::from(&self.model),
            dtype: self.dtype,
            max_tokens: count(self.max_tokens),
            batch_tokens: count(self.batch_tokens),
        };
        let model = at.models.classifier(&model);
        let model = model.map_err(|why| Error::Model {
            step: format!("step[{}].classifier.model {}", at.number, self.model),
            why,
        })?;
        let labels = model.labels();
        let wanted = || format!("one of the labels of {}: {}", self.model, labels.join(", "));
        let number = |key: &str, label: &String| {
            let number = labels.iter().position(|l| l == label);
            number.ok_or_else(|| {
                at.wrong(&format!("classifier.{key}"), format!("{label:?}"), wanted())
            })
        };
        let numbers = |key: &str, names: &[String]| -> Result<Vec<usize>> {
            names.iter().map(|label| number(key, label)).collect()
        };
        let label = match self.label.is_empty() {
            true => None,
            false => Some(number("label", &self.label)?),
        };
        let shown = match self.labels.is_empty() {
            true => (0..labels.len()).collect(),
            false => numbers("labels", &self.labels)?,
        };
        let keep = numbers("keep", &self.keep)?;
        Ok(Box::new(Classifier {
            config: self.clone(),
            label,
            shown,
            keep,
            key: format!("classifier_{}", self.name),
            min_rule: self.rule("score"),
            max_rule: self.rule("max_score"),
            label_rule: self.rule("label"),
            bucket_rule: self.rule("bucket"),
            unread_rule: self.rule("unread"),
            model,
        }))
    }

    fn files(&self) -> Vec<PathBuf> {
        files_of(Path::new(&self.model))
    }

    fn check_files(&self, problem: Problem<'_>) {
        let wanted = "a Hugging Face folder: config.json, tokenizer and weights";
        if Path::new(&self.model).is_dir() {
            let config = Path::new(&self.model).join("config.json");
            if !config.is_file() {
                let found = format!("{:?}: a folder without config.json", self.model);
                problem("model", found, wanted);
            }
            return;
        }
        check::file(problem, "model", &self.model, wanted, |_| false);
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(
            ["score", "max_score", "bucket"]
                .map(|part| self.rule(part))
                .into(),
        )
    }
}

/// Number of the highest score; of equal ones the first.
pub(super) fn highest_of(scores: &[f64]) -> usize {
    (1..scores.len()).fold(0, |best, label| match scores[label] > scores[best] {
        true => label,
        false => best,
    })
}

/// The step, with its model.
struct Classifier {
    config: ClassifierConfig,
    model: Box<dyn TextClassifier>,
    /// Number of the label whose score is compared.
    label: Option<usize>,
    /// Numbers of the labels whose scores are kept.
    shown: Vec<usize>,
    /// Numbers of the labels of which one must have the highest score.
    keep: Vec<usize>,
    /// Where the metadata has the score.
    key: String,
    min_rule: String,
    max_rule: String,
    label_rule: String,
    bucket_rule: String,
    unread_rule: String,
}

impl Classifier {
    /// Puts the scores of a document into its metadata.
    fn note(&self, draft: &mut Draft, scores: &[f64], highest: usize) {
        let labels = self.model.labels();
        let score = scores[self.label.unwrap_or(highest)];
        draft.note(&self.key, json!(score));
        if labels.len() > 1 {
            draft.note(&format!("{}_label", self.key), json!(labels[highest]));
            let shown = self.shown.iter();
            let by_label: Map<String, Value> = shown
                .map(|label| (labels[*label].clone(), json!(scores[*label])))
                .collect();
            draft.note(&format!("{}_scores", self.key), by_label.into());
        }
    }
}

impl Filter for Classifier {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let config = &self.config;
        let logits = match draft.logits.take() {
            Some(logits) => Ok(logits),
            // a document that comes without a batch
            None => match self.measure(&[&draft.text]) {
                Ok(mut measured) => measured.swap_remove(0),
                Err(error) => Err(error.to_string()),
            },
        };
        let logits = match logits {
            Ok(logits) => logits,
            Err(why) => {
                return Verdict::Break(broken(
                    &self.unread_rule,
                    why,
                    "a text that the model reads",
                ));
            }
        };
        let scores = config.function.scores(&logits, self.model.answer());
        let highest = highest_of(&scores);
        self.note(draft, &scores, highest);
        let score = scores[self.label.unwrap_or(highest)];
        judge.at_least(
            &self.min_rule,
            score,
            config.min_score.unwrap_or(f64::NEG_INFINITY),
        )?;
        if let Some(max) = config.max_score {
            judge.at_most(&self.max_rule, score, max)?;
        }
        if !self.keep.is_empty() && !self.keep.contains(&highest) {
            let label = self.model.labels()[highest].as_str();
            return Verdict::Break(broken(&self.label_rule, label, config.keep.join(", ")));
        }
        if !config.buckets.is_empty() {
            let bucket = add_bucket(draft, &config.buckets, score);
            if !config.levels.is_empty() {
                let level = config.levels.partition_point(|from| *from <= bucket);
                draft.note("quality_level", LEVELS[level].into());
            }
            judge.at_least(&self.bucket_rule, bucket as f64, config.min_bucket as f64)?;
        }
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        [&self.min_rule, &self.max_rule, &self.bucket_rule]
            .map(String::clone)
            .into()
    }

    fn batched(&self) -> Option<&dyn BatchFilter> {
        Some(self)
    }
}

impl BatchFilter for Classifier {
    fn measure(&self, texts: &[&str]) -> Result<Vec<Logits>> {
        let step = || format!("classifier {}", self.config.name);
        let found = self
            .model
            .logits(texts)
            .map_err(|why| Error::Model { step: step(), why })?;
        if found.len() != texts.len() {
            let why = format!("{} results for {} texts", found.len(), texts.len());
            return Err(Error::Model { step: step(), why });
        }
        let labels = self.model.labels().len();
        let checked = found.into_iter().map(|logits| match logits {
            Ok(logits) if logits.len() == labels && logits.iter().all(|x| x.is_finite()) => {
                Ok(logits)
            }
            Ok(logits) => Err(format!(
                "classifier {}: outputs {logits:?}, wanted {labels} numbers",
                self.config.name
            )),
            Err(why) => Err(format!("classifier {}: {why}", self.config.name)),
        });
        Ok(checked.collect())
    }
}
