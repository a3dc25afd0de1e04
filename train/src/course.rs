//! Where training stands between two steps, besides weights and the optimizer's state: what has been
//! used up and measured, and whether the run is at its end. Every rank keeps it and comes to the same
//! numbers; checkpoints hold it, so that a resumed run decides as an undisturbed one.

use serde::{Deserialize, Serialize};

use crate::checkpoint::state::Exact;
use crate::plan::Plan;

/// Why a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// All steps are done.
    Steps,
    /// It was asked to stop; the same call goes on.
    Asked,
}

/// Counters and losses after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Course {
    /// Steps done.
    pub step: u64,
    /// Samples used in them: the next step starts with this one.
    pub consumed_samples: u64,
    /// Loss of the last step.
    pub loss: Exact,
    /// Last validation loss, and the lowest.
    pub valid_loss: Option<Exact>,
    pub best_valid_loss: Option<Exact>,
}

impl Course {
    /// Before the first step.
    pub(crate) fn start() -> Course {
        Course {
            step: 0,
            consumed_samples: 0,
            loss: Exact(f64::NAN),
            valid_loss: None,
            best_valid_loss: None,
        }
    }

    /// Takes note of a step over `samples` samples.
    pub(crate) fn stepped(&mut self, samples: usize, loss: f64) {
        self.step += 1;
        self.consumed_samples += samples as u64;
        self.loss = Exact(loss);
    }

    /// Takes note of a validation.
    pub(crate) fn validated(&mut self, loss: f64) {
        self.valid_loss = Some(Exact(loss));
        let best = self.best_valid_loss.map_or(loss, |best| best.0.min(loss));
        self.best_valid_loss = Some(Exact(best));
    }

    /// Whether the plan is fulfilled.
    pub(crate) fn ended(&self, plan: &Plan) -> Option<Ended> {
        (self.step >= plan.train.steps).then_some(Ended::Steps)
    }
}
