//! Steps that ask a model: signals, classifiers, language models, importance.

use serde_json::{Value, json};

use super::{Draft, StepScratch, note};
use crate::dsir::{Dsir, DsirConfig};
use crate::fasttext::FastText;
use crate::filter::{Redpajama, RedpajamaSignals};
use crate::ngram::NgramModel;
use crate::quality::{PerplexityConfig, QualityConfig};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Signals cost more than any filter: they are counted only for those who ask.
pub(super) fn quality_signals(
    config: &Redpajama,
    signals: &RedpajamaSignals,
    draft: &mut Draft,
    judge: &mut Judge,
) -> Verdict {
    if !config.store && judge.may_stop_counting() {
        return KEEP;
    }
    let found = signals.of(&draft.text);
    if config.store {
        let stored = found.iter().map(|s| (s.name.to_string(), json!(s.spans)));
        note(draft, "quality_signals", Value::Object(stored.collect()));
    }
    signals.measure(&found, judge)
}

pub(super) fn score(
    config: &QualityConfig,
    model: &FastText,
    label: usize,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    let all = model.labels().len();
    model.predict(&draft.text, all, &mut scratch.quality, &mut scratch.labels);
    let found = scratch.labels.iter().find(|(l, _)| *l == label);
    let score = found.map_or(0.0, |(_, p)| f64::from(*p));
    note(draft, "quality", json!((score * 1e6).round() / 1e6));
    judge.at_least("quality.score", score, config.min_score)?;
    if !config.buckets.is_empty() {
        // of several models the greatest bucket counts
        let before = draft
            .meta
            .as_ref()
            .and_then(|m| m["quality_bucket"].as_u64());
        let bucket = config.bucket(score).max(before.unwrap_or(0));
        note(draft, "quality_bucket", bucket.into());
        judge.at_least("quality.bucket", bucket as f64, config.min_bucket as f64)?;
    }
    if config.pareto_alpha > 0.0 {
        let limit = config.pareto_limit(&draft.id);
        if score <= limit {
            return Verdict::Break(broken("quality.pareto", score, limit));
        }
    }
    KEEP
}

pub(super) fn resample(
    config: &DsirConfig,
    model: &Dsir,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    let (weight, words) = model.weigh(&draft.text, &mut scratch.dsir);
    let key = weight + config.noise(&draft.id);
    note(draft, "dsir", json!({ "weight": weight, "key": key }));
    judge.at_least("dsir.words", words as f64, config.min_words as f64)?;
    // no limit at all: infinity is no number in the files of figures
    judge.at_least("dsir.weight", weight, f64::MIN)?;
    judge.at_least("dsir.key", key, config.min_key.unwrap_or(f64::MIN))
}

pub(super) fn perplexity(
    config: &PerplexityConfig,
    model: &NgramModel,
    draft: &mut Draft,
    judge: &mut Judge,
) -> Verdict {
    let value = match config.lowercase {
        true => model.document_perplexity(&draft.text.to_lowercase()),
        false => model.document_perplexity(&draft.text),
    };
    note(draft, "perplexity", json!((value * 1e3).round() / 1e3));
    if let Some(bucket) = config.bucket(value) {
        note(draft, "perplexity_bucket", bucket.into());
    }
    judge.at_least("perplexity.value", value, config.min)?;
    let most = if config.max > 0.0 {
        config.max
    } else {
        f64::INFINITY
    };
    judge.at_most("perplexity.max", value, most)
}
