//! The training run: resume, a thread per rank, steps, validations, checkpoints, metrics.

use std::any::Any;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use kernels::Device;

use crate::bad_steps;
use crate::checkpoint::background::{self, Giver};
use crate::checkpoint::origin::{self, Origin, Record};
use crate::checkpoint::read::{Opened, newest};
use crate::checkpoint::snapshot;
use crate::checkpoint::state::{Exact, State};
use crate::checkpoint::write::{self, Form};
use crate::config::BadStepAction;
use crate::course::{Course, Ended, Next};
use crate::data::Samples;
use crate::error::{At, Error, OnRank, Result};
use crate::lead::Lead;
use crate::memory;
use crate::mesh::{Groups, Place};
use crate::metrics::{Events, Journal};
use crate::model::param::{self, Spec};
use crate::parallel::shards::Shards;
use crate::plan::Plan;
use crate::step::{self, Trainer};

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
    /// XXH3 of the weights that `train.init_from` named.
    pub init: Option<String>,
}

/// Samples that loss is measured on, never trained on.
#[derive(Clone, Copy)]
pub struct ValidationSet<'a> {
    /// In `metrics.jsonl`, events and `train.early_stop.set`; `valid` for the blend's own.
    pub name: &'a str,
    /// The first `train.eval_samples` are used.
    pub samples: &'a dyn Samples,
}

/// As `run_with_sets` with no validation set, or one that is called `valid`.
///
/// # Errors
/// As `run_with_sets`.
pub fn run(
    plan: &Plan,
    train_set: &dyn Samples,
    valid_set: Option<&dyn Samples>,
    out: &Path,
    events: &dyn Events,
) -> Result<Outcome> {
    let sets: Vec<ValidationSet<'_>> = valid_set
        .into_iter()
        .map(|samples| ValidationSet {
            name: "valid",
            samples,
        })
        .collect();
    run_with_sets(plan, train_set, &sets, out, events)
}

/// Trains to the end of the plan, from the newest whole checkpoint under `out` if there is one.
/// Writes `out/checkpoints/step-NNNNNNNN/`, `out/metrics.jsonl`, and the batches of bad steps under
/// `out/bad_steps/`. May be killed at any time.
///
/// # Errors
/// A plan that contradicts itself (all problems at once), too few samples, a checkpoint of another
/// job, no whole checkpoint among existing ones, data, disk, and steps that must not be trained through.
pub fn run_with_sets(
    plan: &Plan,
    train_set: &dyn Samples,
    sets: &[ValidationSet<'_>],
    out: &Path,
    events: &dyn Events,
) -> Result<Outcome> {
    let started = Instant::now();
    check(plan, train_set, sets)?;
    let folder = out.join("checkpoints");
    fs::create_dir_all(&folder).at("create", &folder)?;
    write::clean(&folder)?;
    let opened = newest(&folder, events)?;
    let (origin, init) = origin::of_plan(plan, opened.as_ref(), events)?;
    if let Some(opened) = &opened {
        opened.check_fits(plan, init.as_ref())?;
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
            sets,
            out,
            folder: &folder,
            opened: &opened,
            origin: origin.map(Mutex::new),
            init: init.as_ref(),
        };
        if plan.train.budget_secs().is_some() {
            events.note(
                "with a time budget the schedule follows the clock: bits depend on the machine",
            );
        }
        course = run.all_ranks(Lead::new(events, &journal))?;
        ended = course.ended(plan);
        journal.sync()?;
    }
    Ok(Outcome {
        steps: course.step,
        ended: ended.unwrap_or(Ended::Asked),
        loss: course.loss.0,
        valid_loss: course.valid_loss(),
        best_valid_loss: course.best_valid_loss(),
        checkpoint: crate::checkpoint::path_of(&folder, course.step),
        tokens: course.consumed_samples * plan.sample_tokens() as u64,
        seconds: started.elapsed().as_secs_f64(),
        init: init.map(|init| init.xxh3),
    })
}

fn check(plan: &Plan, train_set: &dyn Samples, sets: &[ValidationSet<'_>]) -> Result<()> {
    let mut problems = plan.problems();
    let names: Vec<&str> = sets.iter().map(|set| set.name).collect();
    let stop = &plan.train.early_stop;
    if stop.patience > 0 && !names.contains(&stop.set.as_str()) {
        let (found, names) = (&stop.set, names.join(", "));
        problems.push(format!(
            "train.early_stop.set: found {found:?}, want one of the validation sets: {names}"
        ));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            problems.push(format!(
                "validation sets: found {name:?} twice, want a name for each"
            ));
        }
    }
    if !problems.is_empty() {
        return Err(Error::Plan(problems));
    }
    let (found, wanted) = (train_set.len(), plan.train.samples());
    if found < wanted {
        let steps = plan.train.steps;
        return Err(Error::TooFewSamples {
            found,
            wanted,
            steps,
        });
    }
    if plan.train.eval_every > 0 && sets.iter().any(|set| set.samples.is_empty()) {
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
    sets: &'a [ValidationSet<'a>],
    out: &'a Path,
    folder: &'a Path,
    opened: &'a Option<Opened>,
    /// The first weights, if they are not the seed's; ranks read them in turns.
    origin: Option<Mutex<Origin>>,
    init: Option<&'a Record>,
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
                    plan: self.plan,
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
        } else if let Some(origin) = &self.origin {
            // a rank that panicked has left nothing half done in it
            let mut origin = origin.lock().unwrap_or_else(PoisonError::into_inner);
            origin.load(&mut trainer)?;
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
        let clock = Clock::start(plan, course);
        let mut stall_s = None;
        loop {
            let (started, next) = (Instant::now(), course.next(plan));
            let outcome = trainer.step(self.train_set, &next, &course.recent)?;
            let seconds = started.elapsed().as_secs_f64();
            self.judge(&next, &outcome, course, lead)?;
            let numbers = (outcome.loss, outcome.grad_norm);
            course.stepped(plan, next.batch, numbers, outcome.bad.is_some());
            if let Some(lead) = lead {
                let peak_bytes = devices.iter().map(Device::peak_bytes).sum();
                let measured = (seconds, peak_bytes, stall_s.take());
                lead.record(plan, course, (&next, &outcome), measured)?;
            }
            let is_asked = clock.agree(trainer, course, lead.as_ref())?;
            let is_out = course.ended(plan).is_some();
            self.validate(trainer, course, is_out, lead)?;
            let is_end = is_asked || course.ended(plan).is_some();
            let every = plan.train.checkpoint.every;
            if is_end || every > 0 && course.step.is_multiple_of(every) {
                let started = Instant::now();
                giver.wait();
                if let Some(lead) = lead {
                    lead.tell(giver.tried(), course.step, None)?;
                }
                let state = lead.as_ref().map(|_| State::new(plan, course, self.init));
                let pieces = snapshot::take(trainer);
                giver.give(trainer.groups.place.rank(), pieces, state);
                stall_s = Some(started.elapsed().as_secs_f64());
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Puts the batch of a bad step aside; an error if it is not to be skipped.
    fn judge(
        &self,
        next: &Next,
        outcome: &step::Outcome,
        course: &Course,
        lead: &mut Option<Lead<'_>>,
    ) -> Result<()> {
        let Some(reason) = &outcome.bad else {
            return Ok(());
        };
        let (plan, step) = (self.plan, next.step);
        if let Some(lead) = lead {
            let about = (outcome, reason.as_str());
            let dumped = bad_steps::write(self.out, self.train_set, plan, next, about);
            let end = match dumped {
                Ok(()) => String::new(),
                Err(error) => format!("; its batch is not kept: {}", error.with_causes()),
            };
            lead.events
                .note(&format!("step {step} changes no weights: {reason}{end}"));
        }
        let config = &plan.train.on_bad_step;
        let skipped = course.skipped_in_row;
        if config.action == BadStepAction::Skip && skipped < config.limit {
            return Ok(());
        }
        Err(Error::BadStep {
            step,
            reason: reason.clone(),
            skipped,
            dump: bad_steps::path_of(self.out, step),
        })
    }

    /// Measures every set if it is time to, or for the last time.
    fn validate(
        &self,
        trainer: &Trainer<'_>,
        course: &mut Course,
        is_last: bool,
        lead: &mut Option<Lead<'_>>,
    ) -> Result<()> {
        let config = &self.plan.train;
        let is_due =
            config.eval_every > 0 && (is_last || course.step.is_multiple_of(config.eval_every));
        if !is_due {
            return Ok(());
        }
        for set in self.sets {
            let count = config.eval_samples.min(set.samples.len());
            let sequences = usize::try_from(count).unwrap_or(usize::MAX);
            let loss = trainer.evaluate(set.samples, sequences)?;
            course.validated(self.plan, set.name, loss);
            if let Some(lead) = lead {
                lead.validation(set.name, course.step, (loss, count))?;
            }
        }
        Ok(())
    }
}

/// Wall-clock time of all runs of the job, where it matters.
struct Clock {
    started: Instant,
    before: f64,
    is_measured: bool,
}

impl Clock {
    fn start(plan: &Plan, course: &Course) -> Clock {
        Clock {
            started: Instant::now(),
            before: course.seconds.map_or(0.0, |seconds| seconds.0),
            is_measured: plan.train.budget_secs().is_some(),
        }
    }

    /// Whether rank 0 was asked to stop. Every rank hears its answer, and takes its time for theirs.
    fn agree(
        &self,
        trainer: &Trainer<'_>,
        course: &mut Course,
        lead: Option<&Lead<'_>>,
    ) -> Result<bool> {
        let used = self.before + self.started.elapsed().as_secs_f64();
        let mine = lead.map_or(Vec::new(), |lead| {
            vec![f64::from(u8::from(lead.events.is_stop_asked())), used]
        });
        let all = trainer.groups.world.all_gather_f64(&mine);
        let all = all.on_rank(trainer.groups.place.rank(), "agree on going on")?;
        let [asked, used] = all.concat()[..] else {
            unreachable!("rank 0 alone gives two numbers");
        };
        if self.is_measured {
            course.seconds = Some(Exact(used));
        }
        Ok(asked > 0.0)
    }
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
