//! Sampling by weight: a document stays with the probability that an expression gives it.
//!
//! The draw is a hash of the document's id, the step's name and its seed, so the same documents stay whatever the order, the
//! shards and the number of tasks, and a document stays under every weight that is at least one under which it stayed.
//! Weights above 1 would mean copies, which no later stage makes of single documents: they are refused one by one.
//! `min(1, ...)` cuts them; epochs belong to the blend.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepExpression, StepScratch};
use crate::error::Result;
use crate::expression::{self, DocumentMetrics, Expression, Kind, Value};
use crate::quality::check_name;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Sampling by weight.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleConfig {
    /// Name of the rule: drops are counted as `sample.NAME`, and those of documents whose weight is no number from 0 to 1
    /// as `sample.NAME.weight`. Steps of different names draw independently.
    pub name: String,
    /// Probability of keeping a document, from 0 to 1, such as `min(1, meta.score / 3)`.
    pub weight: String,
    /// Seed of the draws.
    pub seed: u64,
}

const WANTED: &str = "a number from 0 to 1 (min(1, ...) cuts greater ones)";

impl StepConfig for SampleConfig {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn check(&self, problem: Problem<'_>) {
        check_name(&self.name, problem);
        match expression::check(&self.weight, Kind::Number) {
            Err(wrong) => problem("weight", wrong.found, &wrong.wanted),
            Ok(weight) => {
                let constant = weight.constant().filter(|w| !(0.0..=1.0).contains(w));
                if let Some(constant) = constant {
                    problem("weight", constant.to_string(), WANTED);
                }
            }
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let weight = expression::open(at, "sample.weight", &self.weight, Kind::Number)?;
        Ok(Box::new(Sampler {
            config: self.clone(),
            weight,
        }))
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn expressions(&self) -> Vec<StepExpression<'_>> {
        vec![StepExpression::at("weight", &self.weight)]
    }
}

impl SampleConfig {
    /// Uniform in 0..1, the same for every document of this id.
    pub fn draw(&self, id: &str) -> f64 {
        let seed = xxh3_64_with_seed(self.name.as_bytes(), self.seed);
        let bits = xxh3_64_with_seed(id.as_bytes(), seed) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}

/// The step, with its weight parsed.
struct Sampler {
    config: SampleConfig,
    weight: Expression,
}

impl Filter for Sampler {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let document = DocumentMetrics::of(draft, judge.metrics());
        let name = &self.config.name;
        match self.weight.value(&document) {
            Value::Number(weight) if (0.0..=1.0).contains(&weight) => {
                let draw = self.config.draw(&draft.id);
                match draw < weight {
                    true => KEEP,
                    false => Verdict::Break(broken(&format!("sample.{name}"), weight, draw)),
                }
            }
            Value::Number(weight) if !weight.is_nan() => {
                Verdict::Break(broken(&format!("sample.{name}.weight"), weight, WANTED))
            }
            _ => {
                let rule = format!("sample.{name}.weight");
                Verdict::Break(broken(&rule, self.weight.shown(&document), WANTED))
            }
        }
    }

    fn reads_metrics(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn opened(weight: &str, seed: u64) -> Box<dyn Filter> {
        let config = SampleConfig {
            name: "w".to_string(),
            weight: weight.to_string(),
            seed,
        };
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let at = Opening {
            number: 0,
            before: &[],
            models: &crate::classifier::NoModels,
        };
        config.open(&at).unwrap()
    }

    fn rule(step: &dyn Filter, id: &str, meta: serde_json::Value) -> Option<String> {
        let mut draft = Draft {
            id: id.to_string(),
            meta: Some(meta),
            ..Draft::default()
        };
        let verdict = step.apply(
            &mut draft,
            &mut StepScratch::default(),
            &mut Judge::keeping(),
        );
        verdict.break_value().map(|reason| reason.rule)
    }

    #[test]
    fn as_many_documents_stay_as_their_weights_say() {
        let (step, other) = (opened("meta.w", 7), opened("meta.w", 8));
        for weight in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let stays = |step: &dyn Filter, i: usize| {
                rule(step, &format!("s/f/{i}"), json!({ "w": weight })).is_none()
            };
            let kept = (0..20_000).filter(|&i| stays(&*step, i)).count() as f64;
            let deviation = (20_000.0f64 * weight * (1.0 - weight)).sqrt();
            assert!(
                (kept - 20_000.0 * weight).abs() <= 4.0 * deviation,
                "{weight}: {kept}"
            );
            // independent under another seed: both keep weight squared of them
            let both = (0..20_000)
                .filter(|&i| stays(&*step, i) && stays(&*other, i))
                .count();
            assert!((both as f64 - 20_000.0 * weight * weight).abs() <= 4.0 * deviation + 1.0);
        }
    }

    #[test]
    fn a_document_stays_under_every_greater_weight() {
        let step = opened("meta.w", 0);
        for i in 0..500 {
            let id = format!("d{i}");
            let mut stayed = false;
            for weight in 0..=20 {
                let stays = rule(&*step, &id, json!({"w": f64::from(weight) / 20.0})).is_none();
                assert!(stays || !stayed, "{id}");
                stayed = stays;
            }
            assert!(stayed);
        }
    }

    #[test]
    fn what_is_no_weight_is_counted_by_name() {
        let step = opened("meta.w", 0);
        for meta in [
            json!({"w": 1.5}),
            json!({"w": -0.1}),
            json!({"w": "x"}),
            json!({"w": null}),
            json!({}),
        ] {
            assert_eq!(
                rule(&*step, "d", meta.clone()).as_deref(),
                Some("sample.w.weight"),
                "{meta}"
            );
        }
        let mut found = Vec::new();
        for weight in ["2", "-0.5", "chars >", "'x'", "1 / 0"] {
            let config = SampleConfig {
                name: "w".to_string(),
                weight: weight.to_string(),
                seed: 0,
            };
            config.check(&mut |key, f, _| found.push(format!("{key}: {f}")));
        }
        assert_eq!(found.len(), 5, "{found:?}");
    }
}
