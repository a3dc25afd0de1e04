//! The training run: resume, a thread per rank, steps, validations, checkpoints, metrics.

use std::any::Any;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use kernels::Device;

use crate::checkpoint::read::{Opened, newest};
use crate::checkpoint::state::{Exact, State};
use crate::checkpoint::write;
use crate::data::Samples;
use crate::error::{At, Error, OnRank, Result};
use crate::memory;
use crate::mesh::Groups;
use crate::metrics::{Events, Journal, StepRecord, ValidationRecord};
use crate::model::param::{self, Spec};
use crate::optim::schedule;
use crate::plan::Plan;
use crate::step::{self, Trainer};

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Steps of the job, all of them done.
    pub steps: u64,
    /// Loss of the last step, nats per token.
    pub loss: f64,
    /// Last validation loss, nats per token.
    pub valid_loss: Option<f64>,
    /// Lowest validation loss, nats per token.
    pub best_valid_loss: Option<f64>,
    /// Folder of the last checkpoint.
    pub checkpoint: PathBuf,
    /// Tokens trained on, all runs of the job together.
    pub tokens: u64,
    /// Seconds of this run alone.
    pub seconds: f64,
}

/// Trains to the plan's last step, from the newest whole checkpoint under `out` if there is one.
/// Writes `out/checkpoints/step-NNNNNNNN/` and `out/metrics.jsonl`. May be killed at any time.
///
/// # Errors
/// A plan that contradicts itself (all problems at once), too few samples, a checkpoint of another
/// job, no whole checkpoint among existing ones, data, disk, and a loss that is not finite.
pub fn run(
    plan: &Plan,
    train_set: &dyn Samples,
    valid_set: Option<&dyn Samples>,
    out: &Path,
    events: &dyn Events,
) -> Result<Outcome> {
    let started = Instant::now();
    check(plan, train_set, valid_set)?;
    let folder = out.join("checkpoints");
    fs::create_dir_all(&folder).at("create", &folder)?;
    write::clean(&folder)?;
    let opened = newest(&folder, events)?;
    if let Some(opened) = &opened {
        opened.check_fits(plan)?;
        events.resumed(opened.state.step);
    }
    let done = opened.as_ref().map_or(0, |opened| opened.state.step);
    let journal = Journal::resume(&out.join("metrics.jsonl"), done)?;
    let state = match &opened {
        Some(opened) if done == plan.train.steps => opened.state.clone(),
        _ => {
            let specs = param::specs(plan);
            let run = Run {
                plan,
                specs: &specs,
                train_set,
                valid_set,
                folder: &folder,
                opened: &opened,
            };
            run.all_ranks(Lead::new(events, journal, opened.as_ref()))?
        }
    };
    Ok(Outcome {
        steps: plan.train.steps,
        loss: state.loss.0,
        valid_loss: state.valid_loss.map(|loss| loss.0),
        best_valid_loss: state.best_valid_loss.map(|loss| loss.0),
        checkpoint: crate::checkpoint::path_of(&folder, plan.train.steps),
        tokens: state.consumed_samples * plan.seq_length as u64,
        seconds: started.elapsed().as_secs_f64(),
    })
}

fn check(plan: &Plan, train_set: &dyn Samples, valid_set: Option<&dyn Samples>) -> Result<()> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(Error::Plan(problems));
    }
    let steps = plan.train.steps;
    let (found, wanted) = (
        train_set.len(),
        steps.saturating_mul(plan.train.global_batch as u64),
    );
    if found < wanted {
        return Err(Error::TooFewSamples {
            found,
            wanted,
            steps,
        });
    }
    if plan.train.eval_every > 0 && valid_set.is_some_and(Samples::is_empty) {
        return Err(Error::NoSamples {
            wanted: plan.train.eval_samples,
        });
    }
    Ok(())
}

/// What all ranks share.
struct Run<'a> {
    plan: &'a Plan,
    specs: &'a [Spec],
    train_set: &'a dyn Samples,
    valid_set: Option<&'a dyn Samples>,
    folder: &'a Path,
    opened: &'a Option<Opened>,
}

/// What rank 0 alone has.
struct Lead<'a> {
    events: &'a dyn Events,
    journal: Journal,
    valid_loss: Option<Exact>,
    best_valid_loss: Option<Exact>,
}

impl<'a> Lead<'a> {
    fn new(events: &'a dyn Events, journal: Journal, opened: Option<&Opened>) -> Lead<'a> {
        let state = opened.map(|opened| &opened.state);
        Lead {
            events,
            journal,
            valid_loss: state.and_then(|state| state.valid_loss),
            best_valid_loss: state.and_then(|state| state.best_valid_loss),
        }
    }
}

impl Run<'_> {
    /// Runs every rank on its thread and returns rank 0's last state, or the first cause of failure.
    fn all_ranks(&self, lead: Lead<'_>) -> Result<State> {
        let arenas = memory::arenas(self.plan)?.into_iter().enumerate();
        let devices = arenas.map(|(rank, bytes)| {
            Device::with_arena(bytes).on_rank(rank, "plan memory before the first step")
        });
        let devices: Vec<Device> = devices.collect::<Result<_>>()?;
        let events = lead.events;
        let mut lead = Some(lead);
        let devices = &devices;
        let results: Vec<Result<Option<State>>> = thread::scope(|scope| {
            let threads: Vec<_> = Groups::all(&self.plan.parallel)
                .into_iter()
                .map(|groups| {
                    let lead = lead.take();
                    scope.spawn(move || self.one_rank(groups, devices, lead))
                })
                .collect();
            let joined = threads.into_iter().enumerate().map(|(rank, thread)| {
                thread.join().unwrap_or_else(|panic| {
                    Err(Error::Panicked {
                        rank,
                        message: message_of(panic.as_ref()),
                    })
                })
            });
            joined.collect()
        });
        for (rank, device) in devices.iter().enumerate() {
            let bytes = device.overflow_bytes();
            if bytes > 0 {
                events.note(&format!("rank {rank}: {bytes} bytes did not fit its arena"));
            }
        }
        let mut last = None;
        let mut failure: Option<Error> = None;
        for result in results {
            match result {
                Ok(state) => last = last.or(state),
                // ranks that lost a peer only tell that another one failed first
                Err(error) if failure.as_ref().is_none_or(is_consequence) => failure = Some(error),
                Err(_) => {}
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(last.expect("rank 0 took at least one step")),
        }
    }

    fn one_rank(
        &self,
        groups: Groups,
        devices: &[Device],
        mut lead: Option<Lead<'_>>,
    ) -> Result<Option<State>> {
        let plan = self.plan;
        let device = devices[groups.place.rank()].clone();
        let mut trainer = Trainer::new(plan, self.specs, groups, device)?;
        let mut done = 0;
        if let Some(opened) = self.opened {
            opened.load(&mut trainer)?;
            done = opened.state.step;
        }
        let mut state = None;
        for step in done + 1..=plan.train.steps {
            let started = Instant::now();
            let outcome = trainer.step(self.train_set, step)?;
            if let Some(lead) = &mut lead {
                let seconds = started.elapsed().as_secs_f64();
                let peak_bytes = devices.iter().map(Device::peak_bytes).sum();
                lead.record(plan, step, &outcome, (seconds, peak_bytes))?;
            }
            self.validate(&trainer, step, &mut lead)?;
            if is_due(step, plan.train.checkpoint.every, plan.train.steps) {
                if let Some(lead) = &lead {
                    lead.journal.sync()?;
                    state = Some(lead.state(plan, step, outcome.loss));
                }
                let path = write::write(&trainer, self.folder, state.as_ref())?;
                if let (Some(lead), Some(path)) = (&lead, path) {
                    lead.events.checkpoint(step, &path);
                }
            }
        }
        Ok(state)
    }

    fn validate(
        &self,
        trainer: &Trainer<'_>,
        step: u64,
        lead: &mut Option<Lead<'_>>,
    ) -> Result<()> {
        let config = &self.plan.train;
        let Some(samples) = self.valid_set else {
            return Ok(());
        };
        if config.eval_every == 0 || !is_due(step, config.eval_every, config.steps) {
            return Ok(());
        }
        let count = config.eval_samples.min(samples.len());
        let sequences = usize::try_from(count).unwrap_or(usize::MAX);
        let loss = trainer.evaluate(samples, sequences)?;
        if let Some(lead) = lead {
            lead.journal.write(&ValidationRecord {
                step,
                valid_loss: loss,
                valid_samples: count,
            })?;
            lead.valid_loss = Some(Exact(loss));
            let best = lead.best_valid_loss.map_or(loss, |best| best.0.min(loss));
            lead.best_valid_loss = Some(Exact(best));
            lead.events.validation(step, loss);
        }
        Ok(())
    }
}

impl Lead<'_> {
    fn record(
        &mut self,
        plan: &Plan,
        step: u64,
        outcome: &step::Outcome,
        (seconds, peak_bytes): (f64, usize),
    ) -> Result<()> {
        let consumed_samples = step * plan.train.global_batch as u64;
        let tokens_per_s = (plan.train.global_batch * plan.seq_length) as f64 / seconds;
        let record = StepRecord {
            step,
            loss: outcome.loss,
            grad_norm: outcome.grad_norm,
            lr: schedule::rate(&plan.train, step),
            tokens: consumed_samples * plan.seq_length as u64,
            consumed_samples,
            tokens_per_s,
            tflops: tokens_per_s * plan.flops_per_token() / 1e12,
            mfu: None,
            step_s: seconds,
            memory_bytes: peak_bytes as u64,
            routing: outcome.routing.clone(),
        };
        self.journal.write(&record)?;
        if is_due(step, plan.train.log_every, plan.train.steps) {
            self.events.step(&record);
        }
        Ok(())
    }

    fn state(&self, plan: &Plan, step: u64, loss: f64) -> State {
        let mut state = State::new(plan, step, loss);
        state.valid_loss = self.valid_loss;
        state.best_valid_loss = self.best_valid_loss;
        state
    }
}

/// Every `every` steps (0: never) and after the last.
fn is_due(step: u64, every: u64, steps: u64) -> bool {
    step == steps || every > 0 && step.is_multiple_of(every)
}

fn is_consequence(error: &Error) -> bool {
    matches!(
        error,
        Error::Kernel {
            source: kernels::Error::PeerGone { .. },
            ..
        }
    )
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
