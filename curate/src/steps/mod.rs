//! The steps of a job: the registry, and the runner.

mod registry;

pub use registry::Step;

use crate::classifier::{Logits, Models, NoModels};
use crate::contract::{Draft, Filter, Opening, PROBE, StepScratch};
use crate::error::Result;
use crate::expression::MetaPath;
use crate::verdict::{Judge, KEEP, Metric, Verdict};

/// A metric of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMetric {
    /// `step.metric`, as drops and conditions name it.
    pub name: String,
    /// Its comparison with a limit on a sample page; none for a metric that only some documents have, or without a limit.
    pub rule: Option<Metric>,
}

/// The metrics of a step with these settings, opened alone and without models.
///
/// # Errors
/// As opening the step: a file that is missing, a setting that is wrong.
pub fn metrics_of(step: &Step) -> Result<Vec<StepMetric>> {
    let filter = step.settings().open(&Opening {
        number: 0,
        before: &[],
        models: &NoModels,
    })?;
    let mut draft = Draft {
        text: PROBE.to_string(),
        ..Draft::default()
    };
    let mut judge = Judge::measuring();
    // the verdict on the sample page says nothing
    drop(filter.apply(&mut draft, &mut StepScratch::default(), &mut judge));
    let rule = |name: &String| judge.metrics().iter().find(|m| m.rule == *name).cloned();
    let names = filter.metrics().into_iter();
    Ok(names
        .map(|name| StepMetric {
            rule: rule(&name),
            name,
        })
        .collect())
}

/// A step and its name.
struct Opened {
    name: &'static str,
    filter: Box<dyn Filter>,
    /// Values of the metadata that its expressions name.
    named: Vec<NamedValue>,
}

/// A value of the metadata that an expression names.
struct NamedValue {
    /// Key of the expression: `step[1].expression.keep`.
    key: String,
    path: MetaPath,
    /// Its number among those of all steps.
    number: usize,
}

/// The values that the expressions of a step name; `number` counts on.
fn named_values(at: usize, step: &Step, number: &mut usize) -> Vec<NamedValue> {
    let mut all = Vec::new();
    for expression in step.settings().expressions() {
        let key = format!("step[{at}].{}.{}", step.name(), expression.key);
        for path in MetaPath::all(expression.source) {
            all.push(NamedValue {
                key: key.clone(),
                path,
                number: *number,
            });
            *number += 1;
        }
    }
    all
}

/// The steps of a chain, ready.
pub(crate) struct Steps {
    steps: Vec<Opened>,
    keeps_metrics: bool,
    measures_all: bool,
}

/// A document on its way through the steps.
pub(crate) struct Passage {
    draft: Draft,
    judge: Judge,
    /// The copy that goes on after the first broken rule, where every metric is kept.
    on: Option<Draft>,
    /// Verdict so far.
    verdict: Verdict,
    /// A step has dropped what goes on.
    is_lost: bool,
    /// The next step.
    next: usize,
}

impl Passage {
    /// The text at this point.
    pub(crate) fn text(&self) -> &str {
        &self.on.as_ref().unwrap_or(&self.draft).text
    }

    /// Gives it the outputs of the model that it waits for.
    pub(crate) fn give(&mut self, logits: Vec<f32>) {
        self.on.as_mut().unwrap_or(&mut self.draft).logits = Some(logits);
    }
}

impl Steps {
    /// Opens the resources of the steps; `measures_all` keeps every metric in the drafts.
    pub(crate) fn open(steps: &[Step], measures_all: bool, models: &dyn Models) -> Result<Steps> {
        let mut filters: Vec<Box<dyn Filter>> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let before = filters.as_slice();
            let filter = step.settings().open(&Opening {
                number,
                before,
                models,
            })?;
            filters.push(filter);
        }
        let mut number = 0;
        Ok(Steps {
            keeps_metrics: filters.iter().any(|f| f.reads_metrics()),
            steps: steps
                .iter()
                .zip(filters)
                .enumerate()
                .map(|(at, (step, filter))| Opened {
                    name: step.name(),
                    filter,
                    named: named_values(at, step, &mut number),
                })
                .collect(),
            measures_all,
        })
    }

    /// Values of the metadata that expressions name, each with the expression's key, in the order of
    /// [`Draft::of_steps`].
    pub(crate) fn named_values(&self) -> Vec<(&str, &str)> {
        let named = self.steps.iter().flat_map(|step| &step.named);
        named
            .map(|value| (value.key.as_str(), value.path.name()))
            .collect()
    }

    /// Starts a document on its way.
    pub(crate) fn begin(&self, draft: Draft) -> Passage {
        let judge = match (self.measures_all, self.keeps_metrics) {
            (true, _) => Judge::measuring(),
            (false, true) => Judge::keeping(),
            (false, false) => Judge::strict(),
        };
        Passage {
            on: self.measures_all.then(|| draft.clone()),
            draft,
            judge,
            verdict: KEEP,
            is_lost: false,
            next: 0,
        }
    }

    /// Runs the steps up to the first broken rule or, where every metric is kept, up to one without a limit. Returns the step
    /// whose model has to look at the text first, which may be with others: to be given to it before the passage goes on.
    pub(crate) fn go_on(&self, passage: &mut Passage, scratch: &mut StepScratch) -> Option<usize> {
        while let Some(step) = self.steps.get(passage.next) {
            let waits = step.filter.batched().is_some();
            let on = passage.on.as_ref().unwrap_or(&passage.draft);
            if waits && on.logits.is_none() {
                return Some(passage.next);
            }
            passage.next += 1;
            let on = passage.on.as_mut().unwrap_or(&mut passage.draft);
            for value in &step.named {
                let is_there = value.path.is_in(on);
                on.of_steps.note(value.number, is_there);
            }
            let stopped = match &mut passage.on {
                None => step
                    .filter
                    .apply(&mut passage.draft, scratch, &mut passage.judge),
                Some(on) => step.filter.apply(on, scratch, &mut passage.judge),
            };
            scratch.clock.lap(step.name);
            passage.take(stopped);
            if passage.is_lost {
                break;
            }
        }
        None
    }

    /// Measures texts with the model of a step.
    pub(crate) fn measure(&self, step: usize, texts: &[&str]) -> Result<Vec<Logits>> {
        match self.steps[step].filter.batched() {
            Some(model) => model.measure(texts),
            // `go_on` names only steps that have one
            None => Ok(vec![Ok(Vec::new()); texts.len()]),
        }
    }

    /// Name of a step.
    pub(crate) fn name(&self, step: usize) -> &'static str {
        self.steps[step].name
    }

    /// The document after its way, and the verdict. `after` runs after the steps; metrics must include it.
    pub(crate) fn end(
        &self,
        passage: Passage,
        after: &dyn Fn(&str) -> Verdict,
    ) -> (Draft, Verdict) {
        let Passage {
            mut draft,
            judge,
            on,
            verdict,
            is_lost,
            ..
        } = passage;
        if let Some(on) = on {
            draft.metrics = judge.metrics().to_vec();
            draft.is_lost = is_lost || after(&on.text).is_break();
        }
        (draft, verdict)
    }

    /// All steps on one document alone.
    #[cfg(test)]
    pub(crate) fn run(&self, draft: Draft, scratch: &mut StepScratch) -> (Draft, Verdict) {
        let mut passage = self.begin(draft);
        while let Some(step) = self.go_on(&mut passage, scratch) {
            let logits = self.measure(step, &[passage.text()]);
            passage.give(logits.unwrap().remove(0).unwrap());
        }
        self.end(passage, &|_| KEEP)
    }
}

impl Passage {
    /// Takes the verdict of a step. Where every metric is kept, the document stays as the first broken rule left it, and a
    /// copy goes on.
    fn take(&mut self, stopped: Verdict) {
        self.is_lost = stopped.is_break();
        let Some(on) = &self.on else {
            self.verdict = stopped;
            return;
        };
        if self.verdict.is_break() {
            return;
        }
        self.verdict = self.judge.verdict();
        if self.verdict.is_continue() {
            self.verdict = stopped;
        }
        // a step that breaks a rule leaves the text as it was
        let text = self
            .verdict
            .is_break()
            .then(|| std::mem::take(&mut self.draft.text));
        self.draft.clone_from(on);
        if let Some(text) = text {
            self.draft.text = text;
        }
    }
}
