//! The steps of a job: the registry, and the runner.

mod registry;

pub use registry::Step;

use crate::contract::{Draft, Filter, Opening, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict};

/// A step and its name.
struct Opened {
    name: &'static str,
    filter: Box<dyn Filter>,
}

/// The steps of a chain, ready.
pub(crate) struct Steps {
    steps: Vec<Opened>,
    keeps_metrics: bool,
    measures_all: bool,
}

impl Steps {
    /// Opens the resources of the steps; `measures_all` keeps every metric in the drafts.
    pub(crate) fn open(steps: &[Step], measures_all: bool) -> Result<Steps> {
        let mut filters: Vec<Box<dyn Filter>> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let before = filters.as_slice();
            let filter = step.settings().open(&Opening { number, before })?;
            filters.push(filter);
        }
        Ok(Steps {
            keeps_metrics: filters.iter().any(|f| f.reads_metrics()),
            steps: steps
                .iter()
                .zip(filters)
                .map(|(step, filter)| Opened {
                    name: step.name(),
                    filter,
                })
                .collect(),
            measures_all,
        })
    }

    /// Runs all of them, up to the first broken rule. `after` runs after them; metrics must include it.
    pub(crate) fn run(
        &self,
        draft: &mut Draft,
        scratch: &mut StepScratch,
        after: &dyn Fn(&str) -> Verdict,
    ) -> Verdict {
        if self.measures_all {
            return self.measure(draft, scratch, after);
        }
        let mut judge = match self.keeps_metrics {
            true => Judge::keeping(),
            false => Judge::strict(),
        };
        for step in &self.steps {
            let verdict = step.filter.apply(draft, scratch, &mut judge);
            scratch.clock.lap(step.name);
            verdict?;
        }
        KEEP
    }

    /// The same verdict and the same draft, with every metric: after the first broken rule it continues with a
    /// copy.
    fn measure(
        &self,
        draft: &mut Draft,
        scratch: &mut StepScratch,
        after: &dyn Fn(&str) -> Verdict,
    ) -> Verdict {
        let mut judge = Judge::measuring();
        let mut verdict = KEEP;
        let mut on = draft.clone();
        let mut is_lost = false;
        for step in &self.steps {
            let stopped = step.filter.apply(&mut on, scratch, &mut judge);
            scratch.clock.lap(step.name);
            is_lost = stopped.is_break();
            if verdict.is_continue() {
                verdict = judge.verdict();
                if verdict.is_continue() {
                    verdict = stopped;
                }
                // a step that breaks a rule leaves the text as it was
                let text = verdict.is_break().then(|| std::mem::take(&mut draft.text));
                draft.clone_from(&on);
                if let Some(text) = text {
                    draft.text = text;
                }
            }
            if is_lost {
                break;
            }
        }
        draft.metrics = judge.metrics().to_vec();
        draft.is_lost = is_lost || after(&on.text).is_break();
        verdict
    }
}
