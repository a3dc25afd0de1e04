//! Progress of training between two steps, besides weights and the optimizer's state: counters, losses, and whether
//! the run has ended. Every rank keeps it and computes the same numbers. Checkpoints store it, so that a resumed
//! run decides as an undisturbed one would.

use serde::{Deserialize, Serialize};

use crate::config::exact::Exact;
use crate::config::plan::Plan;
use crate::config::precision::Precision;
use crate::optim::loss_scale::LossScale;
use crate::optim::next_step::{GoodStep, Next};
use crate::optim::schedule;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// All steps are done.
    Steps,
    /// `train.time_budget` is used up.
    TimeBudget,
    /// `train.early_stop`: the validation loss no longer fell.
    EarlyStop,
    /// A stop was requested; the same call resumes the run.
    Asked,
}

/// Counters and losses after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainState {
    /// Steps done, with those that were skipped.
    pub step: u64,
    /// Samples used in them: the next step starts with this one.
    pub consumed_samples: u64,
    /// Loss of the last step.
    pub loss: Exact,
    /// Losses of each validation set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<SetLosses>,
    /// Steps without an update: in total, and consecutive ones at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_in_row: u64,
    /// Loss and gradient norm of the last good steps, while their medians matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<GoodStep>,
    /// Scale of the loss, with fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Wall-clock seconds of all runs, under a time budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Exact>,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepStatus {
    /// The weights were updated.
    Done,
    /// Its loss or gradient is bad; the weights are as before.
    Bad,
    /// Its scaled gradient is not finite; the weights are as before.
    Overflow,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Losses of one validation set so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SetLosses {
    pub name: String,
    /// Last loss, and the lowest.
    pub loss: Exact,
    pub best: Exact,
    /// Early stop: the loss to improve on, and validations since the last improvement.
    pub mark: Exact,
    pub stale: u64,
}

impl TrainState {
    /// Before the first step.
    pub(crate) fn start() -> TrainState {
        TrainState {
            step: 0,
            consumed_samples: 0,
            loss: Exact(f64::NAN),
            sets: Vec::new(),
            skipped: 0,
            skipped_in_row: 0,
            recent: Vec::new(),
            loss_scale: None,
            seconds: None,
        }
    }

    pub(crate) fn next(&self, plan: &Plan) -> Next {
        let step = self.step + 1;
        let by_time = match (plan.train.budget_secs(), self.seconds) {
            (Some(budget), Some(used)) => plan.train.steps as f64 * used.0 / budget,
            _ => 0.0,
        };
        Next {
            step,
            first: self.consumed_samples,
            batch: plan.train.batch_at(self.consumed_samples),
            update: step - self.skipped,
            rate: schedule::rate(&plan.train, by_time.max(step as f64)),
            loss_scale: self.loss_scale(plan).map_or(1.0, |scale| scale.scale.0),
        }
    }

    /// Loss scale of the next step, if losses are scaled.
    pub(crate) fn loss_scale(&self, plan: &Plan) -> Option<LossScale> {
        let is_scaled = plan.train.precision == Precision::Fp16;
        let start = || LossScale::start(&plan.train.loss_scale);
        is_scaled.then(|| self.loss_scale.clone().unwrap_or_else(start))
    }

    /// Records a step over `samples` samples: its loss, gradient norm and outcome. A bad step leaves the loss scale
    /// unchanged, and an overflow leaves the count of consecutive bad steps unchanged.
    pub(crate) fn stepped(
        &mut self,
        plan: &Plan,
        samples: usize,
        done: GoodStep,
        status: StepStatus,
    ) {
        self.loss_scale = self.loss_scale(plan);
        if let (Some(scale), true) = (&mut self.loss_scale, status != StepStatus::Bad) {
            scale.follow(&plan.train.loss_scale, status == StepStatus::Overflow);
        }
        self.step += 1;
        self.consumed_samples += samples as u64;
        self.loss = done.loss;
        if status != StepStatus::Done {
            self.skipped += 1;
            self.skipped_in_row += u64::from(status == StepStatus::Bad);
            return;
        }
        self.skipped_in_row = 0;
        let config = &plan.train.on_bad_step;
        if config.factor > 0.0 {
            self.recent.push(done);
            let surplus = self.recent.len().saturating_sub(config.window);
            self.recent.drain(..surplus);
        }
    }

    /// Records a validation.
    pub(crate) fn validated(&mut self, plan: &Plan, name: &str, loss: f64) {
        let Some(set) = self.sets.iter_mut().find(|set| set.name == name) else {
            let one = Exact(loss);
            self.sets.push(SetLosses {
                name: name.into(),
                loss: one,
                best: one,
                mark: one,
                stale: 0,
            });
            return;
        };
        set.loss = Exact(loss);
        set.best = Exact(set.best.0.min(loss));
        if loss < set.mark.0 - plan.train.early_stop.min_delta {
            (set.mark, set.stale) = (Exact(loss), 0);
        } else {
            set.stale += 1;
        }
    }

    /// Last loss of the first validation set, and the lowest.
    pub(crate) fn valid_loss(&self) -> Option<f64> {
        self.sets.first().map(|set| set.loss.0)
    }

    pub(crate) fn best_valid_loss(&self) -> Option<f64> {
        self.sets.first().map(|set| set.best.0)
    }

    /// Why the run is at its end, if it is.
    pub(crate) fn ended(&self, plan: &Plan) -> Option<Ended> {
        let stop = &plan.train.early_stop;
        let is_stale = |set: &SetLosses| set.name == stop.set && set.stale >= stop.patience;
        if self.step >= plan.train.steps {
            Some(Ended::Steps)
        } else if self.is_out_of_time(plan) {
            Some(Ended::TimeBudget)
        } else if stop.patience > 0 && self.sets.iter().any(is_stale) {
            Some(Ended::EarlyStop)
        } else {
            None
        }
    }

    fn is_out_of_time(&self, plan: &Plan) -> bool {
        let (budget, used) = (plan.train.budget_secs(), self.seconds);
        budget
            .zip(used)
            .is_some_and(|(budget, used)| used.0 >= budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tiny_gpt;

    #[test]
    fn early_stop_counts_validations_without_a_loss_lower_by_the_delta() {
        let mut plan = tiny_gpt();
        (
            plan.train.early_stop.patience,
            plan.train.early_stop.min_delta,
        ) = (2, 0.1);
        let mut train_state = TrainState::start();
        for (loss, stale, ended) in [
            (3.0, 0, None),
            (2.95, 1, None), // lower, but not by the delta
            (2.85, 0, None), // against the mark of 3.0
            (2.8, 1, None),
            (2.9, 2, Some(Ended::EarlyStop)),
        ] {
            train_state.validated(&plan, "other", 1.0);
            train_state.validated(&plan, "valid", loss);
            let set = &train_state.sets[1];
            assert_eq!(
                (set.stale, train_state.ended(&plan)),
                (stale, ended),
                "{loss}"
            );
        }
        assert_eq!(train_state.sets[1].best.0, 2.8);
    }

    #[test]
    fn the_rate_follows_the_time_used_where_it_is_ahead_of_the_steps() {
        let mut plan = tiny_gpt();
        plan.train.steps = 1000;
        plan.train.time_budget = "100s".into();
        let mut train_state = TrainState::start();
        train_state.step = 9;
        for (seconds, at) in [(0.5, 10.0), (50.0, 500.0), (99.0, 990.0)] {
            train_state.seconds = Some(Exact(seconds));
            assert_eq!(
                train_state.next(&plan).rate,
                schedule::rate(&plan.train, at)
            );
            assert_eq!(train_state.ended(&plan), None);
        }
        train_state.seconds = Some(Exact(100.0));
        assert_eq!(train_state.ended(&plan), Some(Ended::TimeBudget));
    }
}
