//! Groups of documents by the value of an expression: the report counts kept and dropped documents and words of each.

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepExpression, StepScratch};
use crate::error::Result;
use crate::expression::{self, DocumentMetrics, Expression, Kind, Value};
use crate::quality::check_name;
use crate::text::excerpt;
use crate::verdict::{Judge, KEEP, Verdict};

/// Groups of documents.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupConfig {
    /// Name of the table in the report.
    pub name: String,
    /// Expression whose value is the document's group, such as `meta.domain` or `quality.bucket`. Documents that earlier
    /// steps drop are in no group, so a group by the record's own fields is best the first step.
    pub by: String,
    /// With `curate.statistics`: the statistics have their figures by this group, too, for the 512 values with the most documents
    /// and for the others together. datatrove's groupings by host and suffix: `by = "host"`, `by = "suffix"`.
    pub statistics: bool,
}

impl StepConfig for GroupConfig {
    fn name(&self) -> &'static str {
        "group"
    }

    fn check(&self, problem: Problem<'_>) {
        check_name(&self.name, problem);
        expression::report(problem, "by", &self.by, Kind::Any);
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let by = expression::open(at, "group.by", &self.by, Kind::Any)?;
        Ok(Box::new(Grouper {
            name: self.name.clone(),
            by,
        }))
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn expressions(&self) -> Vec<StepExpression<'_>> {
        vec![StepExpression::at("by", &self.by)]
    }
}

/// The step, with its expression parsed.
struct Grouper {
    name: String,
    by: Expression,
}

/// Group of documents without a value, and of those whose value is a list or an object.
const NONE: &str = "(none)";
const LISTS: &str = "(lists and objects)";
/// Characters of a group's name.
const NAME_CHARS: usize = 100;

impl Filter for Grouper {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let document = DocumentMetrics::of(draft, judge.metrics());
        let group = match self.by.value(&document) {
            Value::Number(number) if number.is_nan() => NONE.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) if text.is_empty() => NONE.to_string(),
            Value::Text(text) => excerpt(&text, NAME_CHARS).to_string(),
            Value::Truth(truth) => truth.to_string(),
            Value::Json(_) => LISTS.to_string(),
        };
        draft.groups.push((self.name.clone(), group));
        KEEP
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

    #[test]
    fn every_document_is_in_one_group_by_its_value() {
        let config: GroupConfig =
            serde_json::from_value(json!({"name": "g", "by": "meta.v"})).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let at = Opening {
            number: 0,
            before: &[],
            models: &crate::classifier::NoModels,
        };
        let step = config.open(&at).unwrap();
        let long = "x".repeat(500);
        for (value, wanted) in [
            (json!("a.org"), "a.org"),
            (json!(3), "3"),
            (json!(0.5), "0.5"),
            (json!(true), "true"),
            (json!(null), NONE),
            (json!(""), NONE),
            (json!([1]), LISTS),
            (json!(long), &long[..100]),
        ] {
            let mut draft = Draft {
                meta: Some(json!({ "v": value })),
                ..Draft::default()
            };
            let verdict = step.apply(
                &mut draft,
                &mut StepScratch::default(),
                &mut Judge::keeping(),
            );
            assert!(verdict.is_continue());
            assert_eq!(draft.groups, [("g".to_string(), wanted.to_string())]);
        }
    }
}
