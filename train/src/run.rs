//! The training run: resume, a thread per rank, steps, validations, checkpoints, metrics.

use std::any::Any;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use kernels::Device;

use crate::checkpoint::background::{self, Giver};
use crate::checkpoint::read::{Opened, newest};
use crate::checkpoint::snapshot;
use crate::checkpoint::state::State;
use crate::checkpoint::write::{self, Form};
use crate::course::{Course, Ended};
use crate::data::Samples;
use crate::error::{At, Error, OnRank, Result};
use crate::lead::Lead;
use crate::memory;
use crate::mesh::{Groups, Place};
use crate::metrics::{Events, Journal};
use crate::model::param::{self, Spec};
use crate::parallel::shards::Shards;
use crate::plan::Plan;
use crate::step::Trainer;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Steps done, all runs of the job together.
    pub steps: u64,
    /// Why there were no more.
    pub ended: Ended,
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
        events.resumed(opened.state.course.step);
    }
    let begun = opened.as_ref().map(|opened| opened.state.course.clone());
    let mut course = begun.unwrap_or_else(Course::start);
    let journal = Journal::resume(&out.join("metrics.jsonl"), course.step)?;
    let mut ended = course.ended(plan);
    if ended.is_none() {
        let specs = param::specs(plan);
        let run = Run {
            plan,
            specs: &specs,
            train_set,
            valid_set,
            folder: &folder,
            opened: &opened,
        };
        course = run.all_ranks(Lead::new(events, &journal))?;
        ended = course.ended(plan);
        journal.sync()?;
    }
    Ok(Outcome {
        steps: course.step,
        ended: ended.unwrap_or(Ended::Asked),
        loss: course.loss.0,
        valid_loss: course.valid_loss.map(|loss| loss.0),
        best_valid_loss: course.best_valid_loss.map(|loss| loss.0),
        checkpoint: crate::checkpoint::path_of(&folder, course.step),
        tokens: course.consumed_samples * plan.seq_length as u64,
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

impl Run<'_> {
    /// Runs every rank on its thread and returns where they stand at the end, or the first cause of
    /// failure.
    fn all_ranks(&self, lead: Lead<'_>) -> Result<Course> {
        let arenas = memory::arenas(self.plan)?.into_iter().enumerate();
        let devices = arenas.map(|(rank, bytes)| {
            Device::with_arena(bytes).on_rank(rank, "plan memory before the first step")
        });
        let devices: Vec<Device> = devices.collect::<Result<_>>()?;
        let (events, journal) = (lead.events, lead.journal);
        let (mut lead, devices) = (Some(lead), &devices);
        let (givers, background) = background::ends(devices.len());
        let results: Vec<Result<Course>> = thread::scope(|scope| {
            scope.spawn(move || {
                let form = Form {
                    specs: self.specs,
                    shards: Shards::of(self.plan, self.specs),
                    place: Place::of(0, &self.plan.parallel),
                    folder: self.folder,
                    config: &self.plan.train.checkpoint,
                };
                background.serve(&form, devices.len(), journal);
            });
            let threads: Vec<_> = Groups::all(&self.plan.parallel)
                .into_iter()
                .zip(givers)
                .map(|(groups, giver)| {
                    let lead = lead.take();
                    scope.spawn(move || self.one_rank(groups, devices, lead, giver))
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
        let mut course = None;
        let mut failure: Option<Error> = None;
        for result in results {
            match result {
                Ok(end) => course = course.or(Some(end)),
                // ranks that lost a peer only tell that another one failed first
                Err(error) if failure.as_ref().is_none_or(is_consequence) => failure = Some(error),
                Err(_) => {}
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(course.expect("there is a rank")),
        }
    }

    fn one_rank(
        &self,
        groups: Groups,
        devices: &[Device],
        mut lead: Option<Lead<'_>>,
        mut giver: Giver,
    ) -> Result<Course> {
        let device = devices[groups.place.rank()].clone();
        let mut trainer = Trainer::new(self.plan, self.specs, groups, device)?;
        let mut course = Course::start();
        if let Some(opened) = self.opened {
            opened.load(&mut trainer)?;
            course = opened.state.course.clone();
        }
        let done = self.steps(&mut trainer, &mut course, (&mut lead, &mut giver), devices);
        if let Some(lead) = &mut lead {
            // a checkpoint that was under way is told even if a step failed meanwhile
            let last = done.is_ok().then_some(course.step);
            lead.tell(giver.finish(), course.step, last)?;
        }
        done.map(|()| course)
    }

    /// Steps until the plan is fulfilled or somebody asks to stop.
    fn steps(
        &self,
        trainer: &mut Trainer<'_>,
        course: &mut Course,
        (lead, giver): (&mut Option<Lead<'_>>, &mut Giver),
        devices: &[Device],
    ) -> Result<()> {
        let plan = self.plan;
        let mut stall_s = None;
        loop {
            let started = Instant::now();
            let outcome = trainer.step(self.train_set, course.step + 1)?;
            course.stepped(plan.train.global_batch, outcome.loss);
            if let Some(lead) = lead {
                let seconds = started.elapsed().as_secs_f64();
                let peak_bytes = devices.iter().map(Device::peak_bytes).sum();
                let measured = (seconds, peak_bytes, stall_s.take());
                lead.record(plan, course, &outcome, measured)?;
            }
            let is_asked = is_asked(trainer, lead.as_ref())?;
            self.validate(trainer, course, lead)?;
            let is_end = is_asked || course.ended(plan).is_some();
            let every = plan.train.checkpoint.every;
            if is_end || every > 0 && course.step.is_multiple_of(every) {
                let started = Instant::now();
                giver.wait();
                if let Some(lead) = lead {
                    lead.tell(giver.tried(), course.step, None)?;
                }
                let state = lead.as_ref().map(|_| State::new(plan, course));
                let pieces = snapshot::take(trainer);
                giver.give(trainer.groups.place.rank(), pieces, state);
                stall_s = Some(started.elapsed().as_secs_f64());
            }
            if is_end {
                return Ok(());
            }
        }
    }

    fn validate(
        &self,
        trainer: &Trainer<'_>,
        course: &mut Course,
        lead: &mut Option<Lead<'_>>,
    ) -> Result<()> {
        let config = &self.plan.train;
        let Some(samples) = self.valid_set else {
            return Ok(());
        };
        if config.eval_every == 0 || !is_due(course.step, config.eval_every, config.steps) {
            return Ok(());
        }
        let count = config.eval_samples.min(samples.len());
        let sequences = usize::try_from(count).unwrap_or(usize::MAX);
        let loss = trainer.evaluate(samples, sequences)?;
        course.validated(loss);
        match lead {
            Some(lead) => lead.validation(course.step, loss, count),
            None => Ok(()),
        }
    }
}

/// Whether rank 0 was asked to stop; every rank hears the same answer.
fn is_asked(trainer: &Trainer<'_>, lead: Option<&Lead<'_>>) -> Result<bool> {
    let mine: Vec<f64> = lead
        .iter()
        .map(|lead| f64::from(u8::from(lead.events.is_stop_asked())))
        .collect();
    let all = trainer.groups.world.all_gather_f64(&mine);
    let all = all.on_rank(trainer.groups.place.rank(), "agree on going on")?;
    Ok(all.concat().iter().any(|&asked| asked > 0.0))
}

/// Every `every` steps (0: never) and after the last.
pub(crate) fn is_due(step: u64, every: u64, steps: u64) -> bool {
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
