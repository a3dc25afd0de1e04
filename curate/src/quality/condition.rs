//! User-defined conditions over the document and the metrics of earlier steps.

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepExpression, StepScratch};
use crate::error::Result;
use crate::expression::{self, DocumentMetrics, Expression, Kind};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// A user-defined condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpressionConfig {
    /// Name of the rule: drops are counted as `expression.NAME`.
    pub name: String,
    /// Condition for keeping a document, such as `chars >= 200 and language == "en"` or `meta.score > 0.5`.
    pub keep: String,
}

/// Reports a name that cannot be part of a rule's name.
pub(crate) fn check_name(name: &str, problem: Problem<'_>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        problem("name", format!("{name:?}"), "letters, digits, '-' or '_'");
    }
}

impl StepConfig for ExpressionConfig {
    fn name(&self) -> &'static str {
        "expression"
    }

    fn check(&self, problem: Problem<'_>) {
        check_name(&self.name, problem);
        expression::report(problem, "keep", &self.keep, Kind::Truth);
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let condition = expression::open(at, "expression.keep", &self.keep, Kind::Truth)?;
        Ok(Box::new(Condition {
            config: self.clone(),
            condition,
        }))
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn expressions(&self) -> Vec<StepExpression<'_>> {
        vec![StepExpression::at("keep", &self.keep)]
    }
}

/// The step, with its condition parsed.
struct Condition {
    config: ExpressionConfig,
    condition: Expression,
}

impl Filter for Condition {
    /// Breaks, with every value it names, if the condition does not hold.
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let document = DocumentMetrics::of(draft, judge.metrics());
        if self.condition.holds(&document) {
            return KEEP;
        }
        Verdict::Break(broken(
            &format!("expression.{}", self.config.name),
            self.condition.shown(&document),
            self.config.keep.as_str(),
        ))
    }

    fn reads_metrics(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}
