//! Rank 0's reporter: writes `metrics.jsonl`, sends events, and reports checkpoints that were tried.

use crate::checkpoint::background::Tried;
use crate::checkpoint::train_state::TrainState;
use crate::config::plan::Plan;
use crate::config::precision::Precision;
use crate::error::{Error, Result};
use crate::metrics::{Events, FailureRecord, Journal, StepRecord, ValidationRecord};
use crate::optim::next_step::Next;
use crate::parallel::pipeline::Evaluated;
use crate::trainer::step::Outcome;

/// Measurements of one step.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub seconds: f64,
    /// Most bytes in use so far.
    pub peak_bytes: usize,
    /// Seconds of the stall before it.
    pub stall_s: Option<f64>,
}

/// State that only rank 0 has.
pub(crate) struct Reporter<'a> {
    pub events: &'a dyn Events,
    pub journal: &'a Journal,
    /// Peak floating-point operations per second of the whole run, if known.
    peak: Option<f64>,
    /// The journal's lines wait for disk space, and that was reported.
    is_waiting: bool,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(
        (events, journal): (&'a dyn Events, &'a Journal),
        peak: Option<f64>,
    ) -> Reporter<'a> {
        Reporter {
            events,
            journal,
            peak,
            is_waiting: false,
        }
    }

    /// Reports a finished step, which `train_state` already counts.
    pub(crate) fn record(
        &mut self,
        plan: &Plan,
        train_state: &TrainState,
        (next, outcome): (&Next, &Outcome),
        measured: Measured,
    ) -> Result<()> {
        let Measured {
            seconds,
            peak_bytes,
            stall_s,
        } = measured;
        let tokens_per_s = (next.batch * plan.sample_tokens()) as f64 / seconds;
        let flops = tokens_per_s * plan.flops_per_token();
        let overflow = || "the gradient overflows with this loss_scale".to_owned();
        let skipped = outcome.is_overflow.then(overflow);
        let skipped = skipped.or_else(|| outcome.bad.clone());
        let record = StepRecord {
            step: train_state.step,
            loss: outcome.loss,
            grad_norm: outcome.grad_norm,
            lr: next.rate,
            tokens: train_state.consumed_samples * plan.sample_tokens() as u64,
            consumed_samples: train_state.consumed_samples,
            tokens_per_s,
            tflops: flops / 1e12,
            mfu: self.peak.map(|peak| flops / peak),
            step_s: seconds,
            memory_bytes: peak_bytes as u64,
            stall_s,
            z_loss: outcome.z_loss,
            mtp_losses: outcome.mtp_losses.clone(),
            loss_scale: (plan.train.precision == Precision::Fp16).then_some(next.loss_scale),
            skipped,
            routing: outcome.routing.clone(),
            preference: outcome.preference,
        };
        self.write(&record)?;
        if is_due(train_state.step, plan.train.log_every, plan.train.steps) {
            self.events.step(&record);
        }
        Ok(())
    }

    /// A set's loss, accuracy and number of samples after `step`.
    pub(crate) fn validation(
        &mut self,
        set: &str,
        step: u64,
        (evaluated, samples): (Evaluated, u64),
    ) -> Result<()> {
        self.write(&ValidationRecord {
            step,
            set: (set != "valid").then(|| set.to_owned()),
            valid_loss: evaluated.loss,
            valid_accuracy: evaluated.accuracy,
            valid_samples: samples,
            preference: evaluated.preference,
        })?;
        self.events.validation(set, step, evaluated.loss);
        if let Some(accuracy) = evaluated.accuracy {
            self.events.accuracy(set, step, accuracy);
        }
        Ok(())
    }

    /// Reports checkpoints that were tried, during step `step`. A failure is only noted, unless it is that of step
    /// `last`: no checkpoint follows that one.
    pub(crate) fn tell(&mut self, tried: Vec<Tried>, step: u64, last: Option<u64>) -> Result<()> {
        for one in tried {
            match one.result {
                Ok(path) => self.events.checkpoint(one.step, &path),
                Err(error) if last == Some(one.step) => return Err(error),
                Err(error) => {
                    let reason = error.with_causes();
                    self.events.note(&format!(
                        "the checkpoint of step {} could not be written: {reason}; training continues",
                        one.step
                    ));
                    self.write(&FailureRecord {
                        step,
                        checkpoint_step: one.step,
                        checkpoint_failed: reason,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, record: &impl serde::Serialize) -> Result<()> {
        let refused: Option<Error> = self.journal.write(record)?;
        if let Some(error) = &refused
            && !self.is_waiting
        {
            let reason = error.with_causes();
            self.events
                .note(&format!("metrics wait for room: {reason}"));
        }
        self.is_waiting = refused.is_some();
        Ok(())
    }
}

/// Every `every` steps (0: never) and after the last.
pub(crate) fn is_due(step: u64, every: u64, steps: u64) -> bool {
    step == steps || every > 0 && step.is_multiple_of(every)
}
