//! A task's definition: a TOML file of templates and names, built into the program (`definitions/`) or the user's own.
//!
//! Templates are Jinja over the columns of a row; `contexts`, `choices` and `target` are Jinja expressions whose values
//! are lists, numbers or strings. `pipelines/docs/evaluation.md` describes every key.

use super::built_in::BUILT_IN;
use super::error::{Result, TaskError};
use super::metrics::Metric;
use super::shape::Shape;
use crate::job::or_nearest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Column {
    String,
    /// A list of strings.
    Strings,
    /// An integer, or a string or boolean that stands for one.
    Integer,
    Any,
}

/// Source of the examples in front of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sampler {
    /// Drawn anew for each question by one generator.
    #[default]
    Random,
    /// The first ones, in order.
    FirstN,
}

/// Tokens of a prompt and its continuation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tokens {
    /// Of both texts together; the continuation has those beyond the prompt's number.
    #[default]
    Joined,
    /// Of each text alone, as Megatron does.
    Separate,
}

/// A change of an answer, or of a response before it is compared.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    /// The first match of a pattern (its first group that is not empty), or the last one.
    Regex {
        pattern: String,
        #[serde(default)]
        last: bool,
    },
    /// White space at both ends goes.
    Strip {},
}

/// A way to find the answer in a response; its name is part of the metrics' keys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    pub name: String,
    pub steps: Vec<Step>,
}

/// Differences that `exact_match` ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Exact {
    pub ignore_case: bool,
    pub ignore_punctuation: bool,
    /// Patterns whose matches are removed, in order.
    pub ignore: Vec<String>,
}

/// Subsets with results of their own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parts {
    /// Column whose values name the subsets.
    pub by: String,
    /// Beginning of their names. Default: the task's name.
    pub prefix: Option<String>,
    /// The whole is the mean of its parts by size, as lm-evaluation-harness's groups are. Otherwise it is a task itself.
    #[serde(default)]
    pub is_group: bool,
    /// Groups of subsets by name.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
}

/// Another form of the rows, such as the one that a data set's authors published.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    /// Expression that is true for rows of this form.
    pub when: String,
    /// Columns to set: expressions over the row as it is in the file.
    pub set: BTreeMap<String, String>,
}

/// Rows that the program makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Generated {
    /// Pairs of sentences (`hans/`).
    Hans,
}

/// A study of the examples in front of a question (`study.rs`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Study {
    /// Numbers of examples.
    pub shots: Vec<usize>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    pub name: String,
    #[serde(default = "one")]
    pub version: f64,
    pub shape: Shape,
    /// Data set and split to ask for, in words.
    pub data: String,
    /// Data set and split of the examples, in words; empty: those of the task.
    #[serde(default)]
    pub shots_data: String,
    #[serde(default)]
    pub columns: BTreeMap<String, Column>,
    /// Values of columns of which every combination is a row, for tasks that need no file.
    #[serde(default)]
    pub product: BTreeMap<String, Vec<String>>,
    /// Rows of the program's own, where no file is given.
    pub generated: Option<Generated>,
    /// Columns of CSV files whose first line does not name them.
    #[serde(default)]
    pub csv: Vec<String>,
    /// Column whose values are the lines of the file beside, `NAME-labels.lst`, if the rows lack it.
    pub labels_beside: Option<String>,
    /// Other forms of the rows; the first that fits is used.
    #[serde(default)]
    pub forms: Vec<Form>,
    /// Expression; rows for which it is false are left out.
    pub keep: Option<String>,
    /// Template in front of everything.
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub prompt: String,
    /// Expression for several prompts, of which `target` selects one; then `answer` is the continuation of each.
    pub contexts: Option<String>,
    /// Expression for the answers to choose from.
    pub choices: Option<String>,
    /// Expression for the right choice: its number or its text. For generation: the right text, or several.
    pub target: Option<String>,
    /// Template of the text whose likelihood is measured.
    pub answer: Option<String>,
    /// Template of the text whose words and bytes a whole text's perplexities are over, if it is not `answer`.
    pub original: Option<String>,
    /// Between a prompt and its answer.
    #[serde(default = "blank")]
    pub delimiter: String,
    /// Between examples.
    #[serde(default = "blank_line")]
    pub shot_delimiter: String,
    /// Number of examples if none is asked for.
    #[serde(default)]
    pub shots: usize,
    #[serde(default)]
    pub sampler: Sampler,
    /// One more example is drawn, and the question itself is left out.
    #[serde(default = "yes")]
    pub leaves_out_the_question: bool,
    #[serde(default)]
    pub tokens: Tokens,
    /// New tokens of each window of a whole text after the first; 0: a window's length.
    #[serde(default)]
    pub stride: usize,
    /// Strings that end a response.
    #[serde(default)]
    pub until: Vec<String>,
    #[serde(default = "most_tokens")]
    pub max_tokens: usize,
    #[serde(default)]
    pub filters: Vec<Filter>,
    #[serde(default)]
    pub exact: Exact,
    pub metrics: Vec<Metric>,
    pub parts: Option<Parts>,
    /// Expressions over a row; rows with the same value have results of their own under it.
    #[serde(default)]
    pub cuts: Vec<String>,
    pub study: Option<Study>,
}

fn one() -> f64 {
    1.0
}
fn blank() -> String {
    " ".into()
}
fn blank_line() -> String {
    "\n\n".into()
}
fn yes() -> bool {
    true
}
fn most_tokens() -> usize {
    256
}

impl Definition {
    /// Reads a definition; `name` is for messages.
    pub(super) fn parse(name: &str, text: &str) -> Result<Definition> {
        let wrong = |why: String| TaskError::Definition {
            name: name.into(),
            why,
        };
        let definition: Definition = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        definition.check().map_err(wrong)?;
        Ok(definition)
    }

    fn check(&self) -> Result<(), String> {
        let needs = |key: &str, value: bool| match value {
            true => Ok(()),
            false => Err(format!("shape {:?} needs `{key}`", self.shape.name())),
        };
        match self.shape {
            Shape::MultipleChoice if self.contexts.is_some() => {
                needs("answer", self.answer.is_some())?;
                needs("target", self.target.is_some())?;
            }
            Shape::MultipleChoice => needs("choices", self.choices.is_some())?,
            Shape::Continuation | Shape::Rolling => needs("answer", self.answer.is_some())?,
            Shape::Generation => needs("target", self.target.is_some())?,
        }
        if self.metrics.is_empty() {
            return Err("`metrics` is empty".into());
        }
        let wrong = self.metrics.iter().find(|m| !m.fits(self.shape));
        if let Some(metric) = wrong {
            return Err(format!(
                "metric {:?} does not go with shape {:?}",
                metric.name(),
                self.shape.name()
            ));
        }
        if let Some(empty) = self.until.iter().find(|stop| stop.is_empty()) {
            return Err(format!("`until` has {empty:?}"));
        }
        for filter in &self.filters {
            for step in &filter.steps {
                if let Step::Regex { pattern, .. } = step {
                    regex::Regex::new(pattern).map_err(|e| e.to_string())?;
                }
            }
        }
        for pattern in &self.exact.ignore {
            regex::Regex::new(pattern).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// The built-in task of a name, or the one of a file whose name ends in `.toml`.
    pub(super) fn find(name: &str) -> Result<Definition> {
        if name.ends_with(".toml") {
            let path = Path::new(name);
            let text = std::fs::read_to_string(path).map_err(|e| TaskError::File {
                path: path.to_path_buf(),
                why: e.to_string(),
            })?;
            return Definition::parse(name, &text);
        }
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Definition::parse(name, text),
            None => {
                let known = BUILT_IN.map(|(known, _)| known);
                let near = or_nearest(name, known);
                let known = match near.is_empty() {
                    true => format!(
                        "; there are {}, or a file that ends in .toml",
                        known.join(", ")
                    ),
                    false => " `millrace eval PATH --task list` prints all".into(),
                };
                Err(TaskError::Unknown {
                    name: name.into(),
                    near,
                    known,
                })
            }
        }
    }
}
