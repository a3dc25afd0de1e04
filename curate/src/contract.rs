//! The contract of a step: settings are opened into a filter, which runs on one document after the other.
//!
//! A step is a settings type with [`StepConfig`] and a type with [`Filter`] (often the same one), in one file, and
//! one line in the registry (`steps/registry.rs`). `open` has no default: a step that nothing opens does not
//! compile.

use std::any::Any;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::classifier::{Logits, Models, NoModels};
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

    /// Reports models and lists that are not there or, as their first bytes show, of another kind. None of them is
    /// loaded. Default: the step reads none.
    fn check_files(&self, _problem: Problem<'_>) {}

    /// Names of the metrics that conditions in later steps may use, as [`Filter::metrics`] has them once the step is
    /// opened; None if it cannot be. Default: it is opened alone. Steps that read files or whose settings need
    /// other steps must override it.
    fn metric_names(&self) -> Option<Vec<String>> {
        let alone = Opening {
            number: 0,
            before: &[],
            models: &NoModels,
        };
        self.open(&alone).ok().map(|filter| filter.metrics())
    }

    /// The expressions over a document in the settings. Default: none.
    fn expressions(&self) -> Vec<StepExpression<'_>> {
        Vec::new()
    }

    /// The key that asks for each document's own language, which an earlier step `language` must find. Default: none.
    fn language_key(&self) -> Option<&'static str> {
        None
    }

    /// Whether the step must come before all others.
    fn is_first(&self) -> bool {
        false
    }
}

/// An expression in a step's settings.
pub struct StepExpression<'a> {
    /// Its key, relative to the settings.
    pub key: String,
    /// The expression.
    pub source: &'a str,
}

impl<'a> StepExpression<'a> {
    /// An expression at a key.
    pub fn at(key: impl Into<String>, source: &'a str) -> StepExpression<'a> {
        StepExpression {
            key: key.into(),
            source,
        }
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
    /// Fields that the input's settings name, in their order.
    pub of_input: Sought,
    /// Values of the metadata that the steps' expressions name, in their order.
    pub of_steps: Sought,
}

/// Names that were looked for in a document, and those of them that had a value there: a bit for each of the first 64
/// names of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sought {
    /// Looked for.
    pub asked: u64,
    /// With a value.
    pub found: u64,
}

impl Sought {
    /// Notes the name with this number in its list.
    pub fn note(&mut self, number: usize, has_value: bool) {
        let bit = u32::try_from(number).ok().and_then(|n| 1u64.checked_shl(n));
        let bit = bit.unwrap_or(0);
        self.asked |= bit;
        if has_value {
            self.found |= bit;
        }
    }
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

/// Documents in which a named field was looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FieldCounts {
    /// All of them: for a step those that came to it.
    pub documents: u64,
    /// Those in which the field has a value; null is none.
    pub with_value: u64,
}

impl FieldCounts {
    /// Adds the counts of other documents.
    pub fn add(&mut self, other: &FieldCounts) {
        self.documents += other.documents;
        self.with_value += other.with_value;
    }

    /// A note on a field of this name that no document has, which is often a misspelt one; None if some document has it, or
    /// if there was none.
    pub fn absence(&self, name: &str) -> Option<String> {
        let documents = match (self.documents, self.with_value) {
            (1, 0) => "the only document".to_string(),
            (documents, 0) if documents > 0 => format!("any of {documents} documents"),
            _ => return None,
        };
        Some(format!("{name} has no value in {documents}"))
    }
}

/// Named fields and the documents that have them.
#[derive(Clone, Debug, Default)]
pub struct NamedFields {
    /// Key in the job and name of each.
    names: Vec<(String, String)>,
    counts: Vec<FieldCounts>,
}

impl NamedFields {
    /// For fields of these keys and names, none counted.
    pub fn new(names: Vec<(String, String)>) -> NamedFields {
        NamedFields {
            counts: vec![FieldCounts::default(); names.len()],
            names,
        }
    }

    /// Counts a document.
    pub fn count(&mut self, sought: Sought) {
        let mut asked = sought.asked;
        while asked != 0 {
            let number = asked.trailing_zeros();
            if let Some(counts) = self.counts.get_mut(number as usize) {
                counts.documents += 1;
                counts.with_value += sought.found >> number & 1;
            }
            asked &= asked - 1;
        }
    }

    /// Each with its counts.
    pub fn each(&self) -> impl Iterator<Item = (&(String, String), &FieldCounts)> {
        self.names.iter().zip(&self.counts)
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
    fn the_first_64_names_are_noted() {
        let mut sought = Sought::default();
        for (number, has_value) in [(0, true), (1, false), (63, true), (64, true), (1000, true)] {
            sought.note(number, has_value);
        }
        assert_eq!(sought.asked, 1 | 2 | 1 << 63);
        assert_eq!(sought.found, 1 | 1 << 63);
        let names = ["a", "b"].map(|name| ("key".to_string(), name.to_string()));
        let mut fields = NamedFields::new(names.into());
        fields.count(sought);
        let notes: Vec<Option<String>> = fields
            .each()
            .map(|((_, name), counts)| counts.absence(name))
            .collect();
        assert_eq!(
            notes,
            [
                None,
                Some("b has no value in the only document".to_string())
            ]
        );
        fields.count(sought);
        let many = fields.each().nth(1).unwrap().1.absence("b");
        assert_eq!(
            many.as_deref(),
            Some("b has no value in any of 2 documents")
        );
        assert_eq!(FieldCounts::default().absence("b"), None);
    }

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
