//! `[model.classify]`: a classification head in place of the language model's. `[classify]` of a job fills it in from its
//! task.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// A classification head: the pooled first token of a masked model (tanh(x W^T + b), dropout), or the last token of a
/// decoder, times a matrix of `classes` rows. One class without choices is a regression: the score is a number, and the loss
/// its squared error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifyConfig {
    /// Scores of each sequence.
    pub classes: usize,
    /// Sequences that are the choices of one question, in order; each has one score. 1: each sequence has a class of its
    /// own. Default: 1.
    #[serde(default = "one")]
    pub choices: usize,
    /// Names of the classes, by number, for readers of the exported model (`id2label`). Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

fn one() -> usize {
    1
}

impl ClassifyConfig {
    /// A head of `classes` scores for each sequence, without names.
    pub const fn of(classes: usize) -> ClassifyConfig {
        ClassifyConfig {
            classes,
            choices: 1,
            names: Vec::new(),
        }
    }

    /// A head that gives each of `choices` sequences of a question one score.
    pub const fn choosing(choices: usize) -> ClassifyConfig {
        ClassifyConfig {
            classes: 1,
            choices,
            names: Vec::new(),
        }
    }

    /// Whether the score is a number of its own, not one of several to compare.
    pub fn is_regression(&self) -> bool {
        self.classes == 1 && self.choices == 1
    }

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
        if self.classes == 0 {
            problem("classes", "0".into(), "at least 1");
        }
        if u32::try_from(self.classes).is_err() {
            problem("classes", self.classes.to_string(), "below 2^32");
        }
        if !self.names.is_empty() && self.names.len() != self.classes {
            let found = format!("{} with classes = {}", self.names.len(), self.classes);
            problem("names", found, "none, or one of each class");
        }
        let mut names: Vec<&String> = self.names.iter().collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let found = format!("{:?} twice", pair[0]);
            problem("names", found, "different names");
        }
    }
}
