//! User-defined conditions over the metrics of earlier steps.

use serde::{Deserialize, Serialize};

use super::metrics::{Expression, Metrics};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::chars;
use crate::verdict::{Judge, KEEP, Metric, Verdict, broken};

/// Names in conditions that are texts.
const TEXTS: [&str; 3] = ["language", "url", "subset"];

/// A user-defined condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpressionConfig {
    /// Name of the rule: drops are counted as `expression.NAME`.
    pub name: String,
    /// Condition for keeping a document, such as `chars >= 200 and language == "en"`.
    pub keep: String,
}

impl StepConfig for ExpressionConfig {
    fn name(&self) -> &'static str {
        "expression"
    }

    fn check(&self, problem: Problem<'_>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if self.name.is_empty() || !self.name.chars().all(plain) {
            problem(
                "name",
                format!("{:?}", self.name),
                "letters, digits, '-' or '_'",
            );
        }
        if let Err(why) = Expression::parse(&self.keep, &TEXTS) {
            problem("keep", why, "a condition over metrics");
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let wrong = |found: String, wanted: String| at.wrong("expression.keep", found, wanted);
        let condition = Expression::parse(&self.keep, &TEXTS)
            .map_err(|why| wrong(why, "a condition over metrics".into()))?;
        let mut known: Vec<String> = OWN.iter().chain(&TEXTS).map(|n| n.to_string()).collect();
        known.extend(at.before.iter().flat_map(|step| step.metrics()));
        if let Some(name) = condition.names().find(|n| !known.iter().any(|k| k == n)) {
            known.sort();
            known.dedup();
            let wanted = format!("a metric of an earlier step: {}", known.join(" "));
            return Err(wrong(format!("{name:?}"), wanted));
        }
        Ok(Box::new(Condition {
            config: self.clone(),
            condition,
        }))
    }
}

/// The step, with its condition parsed.
struct Condition {
    config: ExpressionConfig,
    condition: Expression,
}

impl Filter for Condition {
    /// Breaks, with every metric it names, if the condition does not hold.
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let document = Document {
            draft,
            metrics: judge.metrics(),
        };
        if self.condition.holds(&document) {
            return KEEP;
        }
        let shown = self
            .condition
            .names()
            .map(|name| match document.text(name) {
                Some(text) => format!("{name}={text}"),
                None => match document.number(name) {
                    Some(number) => format!("{name}={number}"),
                    None => format!("{name}=?"),
                },
            });
        let shown = shown.collect::<Vec<_>>().join(" ");
        Verdict::Break(broken(
            &format!("expression.{}", self.config.name),
            shown,
            self.config.keep.as_str(),
        ))
    }

    fn reads_metrics(&self) -> bool {
        true
    }
}

/// Metrics of the document itself.
const OWN: [&str; 3] = ["chars", "bytes", "lines"];

/// A document as conditions see it.
struct Document<'a> {
    draft: &'a Draft,
    metrics: &'a [Metric],
}

impl Metrics for Document<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        let text = &self.draft.text;
        match name {
            "chars" => Some(chars(text) as f64),
            "bytes" => Some(text.len() as f64),
            "lines" => Some(memchr::memchr_iter(b'\n', text.as_bytes()).count() as f64 + 1.0),
            // of a step that occurs twice the last metrics count
            _ => self
                .metrics
                .iter()
                .rev()
                .find(|m| m.rule == name)
                .map(|m| m.value),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match name {
            "language" => Some(&self.draft.language),
            "url" => Some(self.draft.url.as_deref().unwrap_or_default()),
            "subset" => Some(self.draft.subset.as_deref().unwrap_or_default()),
            _ => None,
        }
    }
}
