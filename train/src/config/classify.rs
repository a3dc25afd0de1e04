//! `[model.classify]`: a classification head in place of the language model's. `[classify]` of a job fills it in from its
//! task.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// A classification head: the pooled first token of a masked model (tanh(x W^T + b), dropout), or the last token of a
/// decoder, times a matrix of `classes` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifyConfig {
    /// Scores of each sequence.
    pub classes: usize,
    /// Sequences that are the choices of one question, in order; each has one score. 1: each sequence has a class of its
    /// own. Default: 1.
    #[serde(default = "one")]
    pub choices: usize,
}

fn one() -> usize {
    1
}

impl ClassifyConfig {
    /// Scores that a label selects from.
    pub(crate) fn labels(&self) -> usize {
        self.classes.saturating_mul(self.choices)
    }

    pub(crate) fn check(&self, problem: Problem<'_>) {
        if !self.choices.is_power_of_two() {
            let wanted = "1, or a power of two: micro-batches are cut in half";
            problem("choices", self.choices.to_string(), wanted);
        }
        if self.choices > 1 && self.classes != 1 {
            let found = format!("{} with choices = {}", self.classes, self.choices);
            problem("classes", found, "1: a choice has one score");
        }
        if self.choices == 1 && self.classes < 2 {
            problem("classes", self.classes.to_string(), "at least 2");
        }
        if u32::try_from(self.classes).is_err() {
            problem("classes", self.classes.to_string(), "below 2^32");
        }
    }
}
