//! The contract of a step: settings are opened into a filter, which runs on one document after the other.
//!
//! A step is a settings type with [`StepConfig`] and a type with [`Filter`] (often the same one), in one file, and
//! one line in the registry (`steps/registry.rs`). `open` has no default: a step that nothing opens does not
//! compile.

use std::any::Any;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::classifier::{Logits, Models};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::text::Scratch;
use crate::text::repair::Repairs;
use crate::verdict::{Judge, Metric, Verdict};

pub use crate::check::Problem;

/// A step's settings, as a job file has them.
pub trait StepConfig {
    /// The step's key in a job file.
    fn name(&self) -> &'static str;

    /// Reports every contradiction.
    fn check(&self, problem: Problem<'_>);

    /// Opens models and lists, once, before any data is read.
    ///
    /// # Errors
    /// `Io`, `Input` or `Damaged` for an unreadable, unsuitable or damaged file; `Config` for settings that do not
    /// fit it.
    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>>;

    /// Models and lists that are read: the output depends on their bytes.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Whether the step must come before all others.
    fn is_first(&self) -> bool {
        false
    }
}

/// A step, ready. Shared by threads.
pub trait Filter: Send + Sync {
    /// Judges a document, and repairs, labels or rewrites it. A dropped document keeps its text.
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict;

    /// Names of the metrics that conditions in later steps may use. Default: those of a sample page. Filters that
    /// measure only some documents must override it.
    fn metrics(&self) -> Vec<String> {
        let mut draft = Draft {
            text: PROBE.to_string(),
            ..Draft::default()
        };
        let mut judge = Judge::measuring();
        // the verdict on the sample page says nothing
        drop(self.apply(&mut draft, &mut StepScratch::default(), &mut judge));
        judge.metrics().iter().map(|m| m.rule.clone()).collect()
    }

    /// Whether `apply` reads the metrics of earlier steps.
    fn reads_metrics(&self) -> bool {
        false
    }

    /// The filter's model, if it looks at many texts together before `apply` looks at each. Default: none.
    fn batched(&self) -> Option<&dyn BatchFilter> {
        None
    }
}

/// A model that is faster on many texts together. All documents of a batch of records that are kept up to the step are
/// given to it at once; then `Filter::apply` runs on each with its result in [`Draft::logits`].
pub trait BatchFilter {
    /// The result for each text, in their order. It depends on the text alone, not on the others.
    ///
    /// # Errors
    /// `Model` if the model cannot run; a text that it cannot read is an error of its own.
    fn measure(&self, texts: &[&str]) -> Result<Vec<Logits>>;
}

/// A page of which every rule can be measured.
pub(crate) const PROBE: &str = "The people of the town and those who live with them have to walk to the river that flows by.\n\
    They have to be back with the others before it is dark, and all of them know that.\n\n\
    To be there in time is not hard, and of those who have tried most say that the way is short.\n\
    The river and the hills have been there for longer than the town, and that is good to know.\n\
    With the first light they set out again, and the old bridge carries them to the other side.\n";

/// Where in a job a step is opened, for errors.
pub struct Opening<'a> {
    /// Number of the step, from 0.
    pub number: usize,
    /// The steps in front of it.
    pub before: &'a [Box<dyn Filter>],
    /// Opens models that other crates run.
    pub models: &'a dyn Models,
}

impl Opening<'_> {
    /// An error about one of the step's keys, named `step.key`.
    pub fn wrong(&self, key: &str, found: String, wanted: String) -> Error {
        Error::Config {
            key: format!("step[{}].{key}", self.number),
            found,
            wanted,
        }
    }
}

/// A document while it passes through the steps.
#[derive(Clone, Default)]
pub struct Draft {
    /// `source/shard file/record number`, or the record's own id.
    pub id: String,
    /// Source address.
    pub url: Option<String>,
    /// `source` of the input.
    pub source: String,
    /// `meta.pile_set_name` of Pile documents.
    pub subset: Option<String>,
    /// Language code; empty before a language step.
    pub language: String,
    /// Repairs made in the text.
    pub repairs: Repairs,
    /// Rule of each piece of personal data that was found.
    pub personal: Vec<String>,
    /// The text.
    pub text: String,
    /// Metadata: an object, if there is any.
    pub meta: Option<Value>,
    /// Every metric, if they are kept.
    pub metrics: Vec<Metric>,
    /// Dropped by something that has no limit.
    pub is_lost: bool,
    /// Paragraphs that extraction left out as copies of the text.
    pub copies: u32,
    /// Groups that steps put the document into: their name, and the document's value.
    pub groups: Vec<(String, String)>,
    /// Headers, footers and page numbers that the reader left out.
    pub running_lines: u32,
    /// Result of the model of the step that runs, if it looked at a batch.
    pub logits: Option<Vec<f32>>,
}

impl Draft {
    /// Puts a value into the document's `meta`.
    pub fn note(&mut self, key: &str, value: Value) {
        if !matches!(self.meta, Some(Value::Object(_))) {
            self.meta = Some(json!({}));
        }
        if let Some(Value::Object(meta)) = self.meta.as_mut() {
            meta.insert(key.to_string(), value);
        }
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub struct StepScratch {
    /// Words and counts of the text.
    pub text: Scratch,
    /// Buffer for the text that will replace the draft's.
    pub rewritten: String,
    /// Buffers of individual filters.
    pub own: OwnScratch,
    pub(crate) clock: Clock,
}

/// Buffers of filters by type, each created on first use.
#[derive(Default)]
pub struct OwnScratch(Vec<Box<dyn Any + Send>>);

impl OwnScratch {
    /// The buffers of type `T`.
    pub fn get<T: Default + Send + 'static>(&mut self) -> &mut T {
        // a job has a handful of types
        let at = self.0.iter().position(|b| b.is::<T>());
        let at = at.unwrap_or_else(|| {
            self.0.push(Box::new(T::default()));
            self.0.len() - 1
        });
        self.0[at]
            .downcast_mut()
            .expect("the buffers at this place have this type")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_type_are_made_once() {
        let mut own = OwnScratch::default();
        own.get::<Vec<u8>>().push(7);
        own.get::<String>().push('a');
        assert_eq!(own.get::<Vec<u8>>(), &[7]);
        assert_eq!(own.get::<String>(), "a");
        assert_eq!(own.0.len(), 2);
    }
}
