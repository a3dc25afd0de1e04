//! Settings of the source code step.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::identify_code;
use super::labels::CODE_LABELS;
use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, Verdict, broken};

/// Classifies documents as source code or prose. The label is written to `meta.code`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeConfig {
    /// Labels to keep, of `CODE_LABELS`: names of programming languages, `other` for other code, markup and
    /// data, `prose`; empty: keep all, only label.
    pub keep: Vec<String>,
    /// Minimum confidence in 0..=1 for a kept document; 0 accepts any.
    pub min_confidence: f64,
}

impl StepConfig for CodeConfig {
    fn name(&self) -> &'static str {
        "code"
    }

    fn check(&self, problem: Problem<'_>) {
        range(problem, "min_confidence", self.min_confidence, 0.0, 1.0);
        for (i, label) in self.keep.iter().enumerate() {
            if !CODE_LABELS.contains(&label.as_str()) {
                problem(
                    &format!("keep[{i}]"),
                    format!("{label:?}"),
                    &format!("one of {}", CODE_LABELS.join(", ")),
                );
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for CodeConfig {
    fn apply(&self, draft: &mut Draft, _scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let guess = identify_code(&draft.text, draft.url.as_deref());
        draft.note("code", Value::String(guess.label.to_string()));
        if !self.keep.is_empty() && !self.keep.iter().any(|k| k == guess.label) {
            let wanted = self.keep.join(" ");
            return Verdict::Break(broken("code.keep", guess.label, wanted));
        }
        judge.at_least("code.min_confidence", guess.confidence, self.min_confidence)
    }
}
