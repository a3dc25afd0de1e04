//! Values of expressions as metadata: tags for later steps, for the tokenizer's datasets and for whoever reads `clean/`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepExpression, StepScratch};
use crate::error::Result;
use crate::expression::{self, DocumentMetrics, Expression, Kind, Value};
use crate::read::{keep_only, take_field};
use crate::verdict::{Judge, KEEP, Verdict};

/// Tags.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TagConfig {
    /// Names in `meta` and the expressions that give their values, such as `is_long = "chars > 10000"`. A name whose
    /// expression has no value is left out, and removed if the record had it.
    pub set: BTreeMap<String, String>,
    /// Fields of `meta` to remove, after `set`; a dot leads into an object.
    pub drop: Vec<String>,
    /// The only fields of `meta` to keep, before `set`. Default: all.
    pub keep: Option<Vec<String>>,
    /// Only documents that meet this condition; empty: all.
    #[serde(rename = "where")]
    pub condition: String,
}

impl StepConfig for TagConfig {
    fn name(&self) -> &'static str {
        "tag"
    }

    fn check(&self, problem: Problem<'_>) {
        for (name, source) in &self.set {
            if name.is_empty() {
                problem("set", "\"\"".to_string(), "names of fields");
            }
            expression::report(problem, &format!("set.{name}"), source, Kind::Any);
        }
        if !self.condition.is_empty() {
            expression::report(problem, "where", &self.condition, Kind::Truth);
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let set = self.set.iter().map(|(name, source)| {
            let key = format!("tag.set.{name}");
            Ok((name.clone(), expression::open(at, &key, source, Kind::Any)?))
        });
        Ok(Box::new(Tagger {
            set: set.collect::<Result<_>>()?,
            condition: condition(at, "tag.where", &self.condition)?,
            config: self.clone(),
        }))
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn expressions(&self) -> Vec<StepExpression<'_>> {
        let set = self.set.iter();
        let set = set.map(|(name, source)| StepExpression::at(format!("set.{name}"), source));
        set.chain(condition_at("where", &self.condition)).collect()
    }
}

/// A condition of a step for its list of expressions, if there is one.
pub(super) fn condition_at<'a>(key: &str, source: &'a str) -> Option<StepExpression<'a>> {
    (!source.is_empty()).then(|| StepExpression::at(key, source))
}

/// A condition of a step, if there is one.
pub(super) fn condition(at: &Opening<'_>, key: &str, source: &str) -> Result<Option<Expression>> {
    let is_there = !source.is_empty();
    is_there
        .then(|| expression::open(at, key, source, Kind::Truth))
        .transpose()
}

/// The step, with its expressions parsed.
struct Tagger {
    config: TagConfig,
    set: Vec<(String, Expression)>,
    condition: Option<Expression>,
}

impl Filter for Tagger {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let document = DocumentMetrics::of(draft, judge.metrics());
        if self.condition.as_ref().is_some_and(|c| !c.holds(&document)) {
            return KEEP;
        }
        // all of them see the document as it was
        let values = self.set.iter();
        let values: Vec<(&str, Option<Json>)> = values
            .map(|(name, expression)| (name.as_str(), to_json(expression.value(&document))))
            .collect();
        if let (Some(names), Some(Json::Object(meta))) = (&self.config.keep, &mut draft.meta) {
            *meta = keep_only(meta, names);
        }
        for (name, value) in values {
            if let Some(value) = value {
                draft.note(name, value);
            } else if let Some(Json::Object(meta)) = &mut draft.meta {
                meta.remove(name);
            }
        }
        if let Some(Json::Object(meta)) = &mut draft.meta {
            for name in &self.config.drop {
                take_field(meta, name);
            }
            if meta.is_empty() {
                draft.meta = None;
            }
        }
        KEEP
    }

    fn reads_metrics(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Whole numbers up to this are written without a fraction.
const MOST_WHOLE: f64 = (1u64 << 53) as f64;

/// A value as metadata; None if it is absent.
fn to_json(value: Value<'_>) -> Option<Json> {
    match value {
        Value::Number(number) if number.fract() == 0.0 && number.abs() <= MOST_WHOLE => {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            let whole = number as i64;
            Some(whole.into())
        }
        // infinities are no JSON
        Value::Number(number) => number.is_finite().then(|| json!(number)),
        Value::Text(text) => Some(Json::String(text.into_owned())),
        Value::Truth(truth) => Some(truth.into()),
        Value::Json(json) => Some(json.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(config: Json, meta: Json) -> Option<Json> {
        let config: TagConfig = serde_json::from_value(config).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let at = Opening {
            number: 0,
            before: &[],
            models: &crate::classifier::NoModels,
        };
        let step = config.open(&at).unwrap();
        let mut draft = Draft {
            text: "one\ntwo".to_string(),
            meta: (!meta.is_null()).then_some(meta),
            ..Draft::default()
        };
        let verdict = step.apply(
            &mut draft,
            &mut StepScratch::default(),
            &mut Judge::keeping(),
        );
        assert!(verdict.is_continue());
        draft.meta
    }

    #[test]
    fn values_of_expressions_become_metadata_of_their_kind() {
        let set = json!({"set": {"n": "chars", "half": "chars / 2", "is_long": "chars > 100", "first": "meta.list[0]",
            "all": "meta.list", "name": "meta.name", "none": "meta.none", "old": "meta.none", "inf": "1 / 0"}});
        assert_eq!(
            tagged(
                set,
                json!({"list": [[0, 3, 0.5], "x"], "name": "a", "old": 1})
            ),
            Some(
                json!({"n": 7, "half": 3.5, "is_long": false, "first": [0, 3, 0.5], "all": [[0, 3, 0.5], "x"], "name": "a",
                "list": [[0, 3, 0.5], "x"]})
            )
        );
        assert_eq!(
            tagged(json!({"set": {"n": "lines"}}), Json::Null),
            Some(json!({"n": 2}))
        );
        assert_eq!(tagged(json!({"set": {"n": "meta.x"}}), Json::Null), None);
    }

    #[test]
    fn fields_are_dropped_and_kept_by_name() {
        let meta = json!({"a": {"b": 1, "c": 2}, "d": 3, "e": 4});
        let drop = json!({"drop": ["a.b", "e", "none"]});
        assert_eq!(
            tagged(drop, meta.clone()),
            Some(json!({"a": {"c": 2}, "d": 3}))
        );
        let keep = json!({"keep": ["d", "a.c"], "set": {"f": "meta.e"}});
        assert_eq!(
            tagged(keep, meta.clone()),
            Some(json!({"a": {"c": 2}, "d": 3, "f": 4}))
        );
        assert_eq!(tagged(json!({"keep": []}), meta.clone()), None);
        let not = json!({"keep": [], "where": "meta.d > 3"});
        assert_eq!(tagged(not, meta.clone()), Some(meta));
    }

    #[test]
    fn every_wrong_expression_is_told_with_its_key() {
        let config: TagConfig =
            serde_json::from_value(json!({"set": {"": "1", "a": "1 +"}, "where": "3"})).unwrap();
        let mut found = Vec::new();
        config.check(&mut |key, _, _| found.push(key.to_string()));
        assert_eq!(found, ["set", "set.a", "where"]);
        let config: TagConfig =
            serde_json::from_value(json!({"set": {"a": "quality.score"}})).unwrap();
        let at = Opening {
            number: 3,
            before: &[],
            models: &crate::classifier::NoModels,
        };
        let why = config.open(&at).err().unwrap().to_string();
        assert!(
            why.contains("step[3].tag.set.a") && why.contains("quality.score"),
            "{why}"
        );
    }
}
