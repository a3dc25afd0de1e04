//! The training loop: resume, one thread per rank, steps, validations, checkpoints, metrics.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use kernels::{CpuPath, Device};

use crate::checkpoint::background::{self, CheckpointWriter};
use crate::checkpoint::initial_weights::{self, InitialWeights};
use crate::checkpoint::newest::{self, Found, Newest};
use crate::checkpoint::path_of;
use crate::checkpoint::read::Opened;
use crate::checkpoint::shard_sender::ShardSender;
use crate::checkpoint::snapshot;
use crate::checkpoint::state::Record;
use crate::checkpoint::state::State;
use crate::checkpoint::train_state::{Ended, TrainState};
use crate::checkpoint::write;
use crate::checkpoint::write_shards::Form;
use crate::config::BadStepAction;
use crate::config::exact::Exact;
use crate::config::numbers::with_sums_on;
use crate::config::plan::Plan;
use crate::config::precision::{Bf16Sums, Units};
use crate::config::resume::SettingChange;
use crate::config::sums::SumsRecord;
use crate::data::Samples;
use crate::dist::gpu_groups::GpuLinks;
use crate::dist::launch::cpu_path;
use crate::dist::mesh::{Groups, RankCoord, StageEdges};
use crate::dist::threads;
use crate::dist::world::World;
use crate::error::{At, Error, OnRank, Result};
use crate::metrics::{ChangeRecord, Events, Journal};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::{self, Spec};
use crate::optim::next_step::{GoodStep, Next};
use crate::panics;
use crate::parallel::shards::Shards;
use crate::profile::{self, Tracer};
use crate::trainer::bad_steps;
use crate::trainer::endings::{Ending, first_cause};
use crate::trainer::memory;
use crate::trainer::reference::Reference;
use crate::trainer::reporter::{Measured, Reporter};
use crate::trainer::step::{self, Trainer};

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
    /// Settings that changed on resume, over all runs of the job.
    pub changes: Vec<SettingChange>,
}

/// Samples that loss is measured on, never trained on.
#[derive(Clone, Copy)]
pub struct ValidationSet<'a> {
    /// Name in `metrics.jsonl`, events and `train.early_stop.set`; `valid` for the blend's own.
    pub name: &'a str,
    /// The first `train.eval_samples` are used.
    pub samples: &'a dyn Samples,
}

/// Like `run_with_sets` with no validation set, or one that is called `valid`.
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

/// Like `run_in_world` with all ranks in this process.
///
/// # Errors
/// As `run_in_world`.
pub fn run_with_sets(
    plan: &Plan,
    train_set: &dyn Samples,
    sets: &[ValidationSet<'_>],
    out: &Path,
    events: &dyn Events,
) -> Result<Outcome> {
    run_in_world(plan, train_set, sets, (out, &World::alone()), events)
}

/// Trains to the end of the plan, from the newest whole checkpoint under `out` if there is one, else from
/// `train.resume.from`, else from step 0.
/// Writes `out/checkpoints/step-NNNNNNNN/`, `out/metrics.jsonl`, and the batches of bad steps under
/// `out/bad_steps/`. May be killed at any time. Every process of a world of several makes this call
/// with the same arguments and an `out` that they all see; process 0 alone writes there.
///
/// # Errors
/// A plan that contradicts itself (all problems at once), too few samples, a checkpoint of another job, only
/// damaged checkpoints, data or disk errors, bad steps where the job says to stop; the failure of another process,
/// or its unexpected end.
pub fn run_in_world(
    plan: &Plan,
    train_set: &dyn Samples,
    sets: &[ValidationSet<'_>],
    (out, world): (&Path, &World),
    events: &dyn Events,
) -> Result<Outcome> {
    let done = train(plan, train_set, sets, (out, world), events);
    done.map_err(|error| world.end(error))
}

fn train(
    plan: &Plan,
    train_set: &dyn Samples,
    sets: &[ValidationSet<'_>],
    (out, world): (&Path, &World),
    events: &dyn Events,
) -> Result<Outcome> {
    let started = Instant::now();
    check(plan, train_set, sets)?;
    world.check_devices(plan.parallel.world())?;
    let path = cpu_path()?;
    if world.devices().is_cpu() {
        events.kernels(&path);
    }
    let plan = &with_sums(plan, &path, (world, events))?;
    let folder = out.join("checkpoints");
    let Beginning {
        opened,
        origin,
        init,
        changes,
    } = begin(plan, &folder, (world, events))?;
    let begun = opened
        .as_ref()
        .map(|opened| opened.state.train_state.clone());
    let mut train_state = begun.unwrap_or_else(TrainState::start);
    let journal = match world.is_first() {
        true => Some(Journal::resume(
            &out.join("metrics.jsonl"),
            train_state.step,
        )?),
        false => None,
    };
    let mut ended = train_state.ended(plan);
    let earlier = (opened.as_ref()).map_or(&[][..], |opened| &opened.state.changes);
    let changes = [earlier, &changes].concat();
    if ended.is_none() {
        if let (Some(journal), Some(opened)) = (&journal, &opened) {
            let step = opened.state.train_state.step;
            let changed = changes.get(earlier.len()..).unwrap_or_default();
            let record = ChangeRecord {
                step: step + 1,
                changed,
            };
            if !changed.is_empty() {
                // a full disk is reported with the first step
                journal.write(&record)?;
            }
        }
        let mut reference = None;
        if plan.train.preference.is_some() {
            let all = std::iter::once(("train", train_set));
            let all = all.chain(sets.iter().map(|set| (set.name, set.samples)));
            let all: Vec<(&str, &dyn Samples)> = all.collect();
            reference = Some(Reference::of(plan, init.as_ref(), &all, out, world)?);
        }
        let known = reference.as_ref().map(Reference::pairs);
        if let Some(Some(pairs)) = known {
            events.note(&format!("the reference of {pairs} pairs is known"));
        }
        let is_wanted = known == Some(None);
        let mut origin = origin;
        if is_wanted && opened.is_some() {
            events.note("the reference is computed again, with the initial weights");
            (origin, _) = initial_weights::of_plan(plan, None, events)?;
        }
        let specs = param::specs(plan);
        let run = Run {
            plan,
            specs: &specs,
            train_set,
            sets,
            out,
            folder: &folder,
            opened: &opened,
            world,
            events,
            origin: origin.map(Mutex::new),
            init: init.as_ref(),
            reference: reference.as_ref(),
            needs_reference: is_wanted,
            changes: &changes,
            epoch: started,
        };
        if plan.train.budget_secs().is_some() && world.is_first() {
            events.note(
                "with a time budget the schedule follows the clock: bits depend on the machine",
            );
        }
        train_state = run.all_ranks(journal.as_ref())?;
        ended = train_state.ended(plan);
        if let Some(journal) = &journal {
            journal.sync()?;
        }
        // the last checkpoint is written, or else process 0 does not come here
        world.exchange("done")?;
    }
    Ok(Outcome {
        steps: train_state.step,
        ended: ended.unwrap_or(Ended::Asked),
        loss: train_state.loss.0,
        valid_loss: train_state.valid_loss(),
        best_valid_loss: train_state.best_valid_loss(),
        checkpoint: path_of(&folder, train_state.step),
        tokens: train_state.consumed_samples * plan.sample_tokens() as u64,
        seconds: started.elapsed().as_secs_f64(),
        init: init.map(|init| init.xxh3),
        changes,
    })
}

/// The plan with `bf16_sums` resolved for this machine; all processes must agree on it.
fn with_sums(plan: &Plan, path: &CpuPath, (world, events): (&World, &dyn Events)) -> Result<Plan> {
    let units = world.devices().units(path.isa());
    let plan = with_sums_on(plan, units);
    if !plan.train.bf16_sums.is_of(units) {
        let problem = match units {
            Units::Gpu => {
                "train.bf16_sums: found \"tiles\" on a GPU, want \"pairs\", \"mma\" or \"auto\": tiles are of CPUs"
            }
            Units::Cpu(_) => {
                "train.bf16_sums: found \"mma\" on a CPU, want \"pairs\", \"tiles\" or \"auto\": tensor cores are of GPUs"
            }
        };
        return Err(Error::Plan(vec![problem.to_owned()]));
    }
    if plan.train.bf16_sums != Bf16Sums::Auto {
        let sums = plan.train.bf16_sums.name();
        events.note(&format!("sums of bf16 products are made in {sums}"));
        let what =
            "sums of bf16 products (train.bf16_sums = \"pairs\" or \"tiles\" runs on every host)";
        world.compare(what, &serde_json::json!(sums))?;
    }
    Ok(plan)
}

/// Starting point of a run.
struct Beginning {
    /// The checkpoint to resume from.
    opened: Option<Opened>,
    /// Otherwise the source of the initial weights, if not the seed.
    origin: Option<InitialWeights>,
    /// Identity of the initial weights.
    init: Option<Record>,
    /// Settings that differ from the checkpoint's, as the job allows.
    changes: Vec<SettingChange>,
}

/// Finds the starting point. Process 0 chooses the checkpoint, and the others open the same one.
fn begin(plan: &Plan, folder: &Path, (world, events): (&World, &dyn Events)) -> Result<Beginning> {
    let mut opened = None;
    let mut place = String::new();
    if world.is_first() {
        fs::create_dir_all(folder).at("create", folder)?;
        write::clean(folder)?;
        opened = own_or_branched(plan, folder, events)?;
        place = (opened.as_ref()).map_or(place, |opened| opened.path.display().to_string());
    }
    let told = world.exchange(&place)?;
    if !world.is_first() && !told[0].is_empty() {
        opened = Some(Opened::open(Path::new(&told[0]))?);
    }
    let (origin, init) = initial_weights::of_plan(plan, opened.as_ref(), events)?;
    world.compare("first weights", &serde_json::json!(init))?;
    let mut changes = Vec::new();
    if let Some(opened) = &opened {
        changes = opened.check_fits(plan, init.as_ref())?;
        if world.is_first() {
            events.resumed(opened.state.train_state.step);
            for SettingChange {
                key, before, after, ..
            } in &changes
            {
                events.note(&format!("{key} was {before} so far, from here on {after}"));
            }
        }
        let sums = SumsRecord::of(plan, world.devices().backend());
        let of_sums = opened.changed_sums(&sums);
        if world.is_first() {
            of_sums
                .iter()
                .for_each(|change| events.note(&sums_note(change)));
        }
        changes.extend(of_sums);
    }
    Ok(Beginning {
        opened,
        origin,
        init,
        changes,
    })
}

/// The line of the log about another way of making sums.
fn sums_note(change: &SettingChange) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (before, after) = (text(&change.before), text(&change.after));
    let ways = match change.key.as_str() {
        "device" => format!("sums were made on {before} so far, from here on on {after}"),
        _ => format!("sums of bf16 products were made in {before} so far, from here on in {after}"),
    };
    format!("{ways}: bits may differ from here on from those of a run that was made in one way")
}

/// The newest checkpoint of the run, or the one of another run that it branches from.
fn own_or_branched(plan: &Plan, folder: &Path, events: &dyn Events) -> Result<Option<Opened>> {
    let Found { opened, skipped } = newest::find(folder)?;
    (skipped.iter()).for_each(|one| events.note(&one.to_string()));
    let from = &plan.train.resume.from;
    if opened.is_some() || from.is_empty() {
        return Ok(opened);
    }
    let Newest {
        path,
        step,
        skipped,
    } = newest::checkpoint_at(Path::new(from))?;
    for one in skipped {
        events.note(&format!("{from}: {one}"));
    }
    events.note(&format!(
        "branches off the checkpoint of step {step} in {}",
        path.display()
    ));
    newest::whole(&path).map(Some)
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

/// State shared by all ranks.
struct Run<'a> {
    plan: &'a Plan,
    specs: &'a [Spec],
    train_set: &'a dyn Samples,
    sets: &'a [ValidationSet<'a>],
    out: &'a Path,
    folder: &'a Path,
    opened: &'a Option<Opened>,
    world: &'a World,
    events: &'a dyn Events,
    /// Initial weights, if not drawn from the seed; ranks read them in turns.
    origin: Option<Mutex<InitialWeights>>,
    init: Option<&'a Record>,
    /// Of preference pairs.
    reference: Option<&'a Reference<'a>>,
    /// It has to be computed first.
    needs_reference: bool,
    /// Settings that changed on earlier resumes and on this one.
    changes: &'a [SettingChange],
    /// Time origin of traces.
    epoch: Instant,
}

impl Run<'_> {
    /// Runs every rank of this process on its thread and returns the final state, or the first cause of failure.
    /// Process 0 has the journal.
    fn all_ranks(&self, journal: Option<&Journal>) -> Result<TrainState> {
        let here = self.world.ranks(self.plan.parallel.world());
        let arenas = memory::arenas(self.plan)?.into_iter().enumerate();
        let arenas: Vec<_> = arenas.filter(|(rank, _)| here.contains(rank)).collect();
        let first = self.world.first_local_rank(self.plan.parallel.world())?;
        let links = &GpuLinks {
            nccl: self.world.devices().nccl(self.plan.sum_order())?,
            sums: self.plan.sum_order(),
            watch: self.world.shared_watch(),
            edges: StageEdges::of(
                &self.plan.parallel,
                &param::stages_that_share(self.specs, self.plan.parallel.pp),
            ),
        };
        let devices = arenas
            .iter()
            .zip(first..)
            .map(|((rank, arena), local_rank)| {
                let device = self.world.devices().open(local_rank)?;
                arena.reserve(*rank, self.plan, &device)?;
                Ok(device)
            });
        let devices: Vec<Device> = devices.collect::<Result<_>>()?;
        for (rank, device) in here.clone().zip(&devices) {
            if !device.is_host() {
                self.events.note(&format!("rank {rank}: {}", device.name()));
            }
        }
        let devices = devices.as_slice();
        let mut reporter =
            journal.map(|journal| Reporter::new((self.events, journal), self.peak()));
        let (givers, background) = background::ends(devices.len());
        let (ends, endings) = channel::<Ending>();
        let train_state = thread::scope(|scope| {
            let groups = Groups::here(&self.plan.parallel, self.world);
            let connect = |name| self.world.of_processes(name);
            let sender = ShardSender::new(connect, devices.len());
            scope.spawn(move || {
                let form = Form {
                    specs: self.specs,
                    shards: Shards::of(self.plan, self.specs),
                    place: RankCoord::of(0, &self.plan.parallel),
                    folder: self.folder,
                    plan: self.plan,
                };
                match (journal, sender) {
                    (Some(journal), sender) => background.serve(&form, sender.as_ref(), journal),
                    (None, Some(sender)) => background.forward(&form, &sender),
                    (None, None) => {}
                }
            });
            let ranks = devices.iter().zip(&arenas).zip(groups).zip(givers);
            for (number, (((device, (_, arena)), groups), checkpoint_writer)) in ranks.enumerate() {
                let (reporter, ends) = (reporter.take(), ends.clone());
                scope.spawn(move || {
                    let rank = groups.place.rank();
                    let run = || {
                        let threads = threads::of_rank(number, devices.len());
                        let threads = threads.map_err(|source| Error::Threads { rank, source })?;
                        threads::work(&threads, || {
                            let connected = links.connect(groups, device);
                            let (groups, ways) = connected.on_rank(rank, "connect the GPUs")?;
                            if let (0, Some(ways)) = (number, ways) {
                                self.events.note(&ways);
                            }
                            self.one_rank(groups, (device, devices), reporter, checkpoint_writer)
                        })
                        .map_err(|error| arena.explain(error, self.plan, device))
                    };
                    // state left by a panic is not used again
                    let end = panics::caught(run)
                        .unwrap_or_else(|message| Err(Error::Panicked { rank, message }));
                    // the receiver stays until all have ended
                    let _ = ends.send((rank, end));
                });
            }
            first_cause((&endings, devices.len()), self.world, self.events)
        });
        for (rank, device) in here.zip(devices) {
            let bytes = device.overflow_bytes();
            if bytes > 0 {
                self.events
                    .note(&format!("rank {rank}: {bytes} bytes did not fit its arena"));
            }
        }
        train_state
    }

    fn one_rank(
        &self,
        groups: Groups,
        (device, devices): (&Device, &[Device]),
        mut reporter: Option<Reporter<'_>>,
        mut checkpoint_writer: CheckpointWriter,
    ) -> Result<TrainState> {
        profile::prepare(self.plan.train.profile, self.epoch);
        let mut trainer = Trainer::new(self.plan, self.specs, groups, device.clone())?;
        let mut train_state = TrainState::start();
        if let Some(origin) = &self.origin {
            // a rank that panicked has left nothing half done in it
            let mut origin = origin.lock().unwrap_or_else(PoisonError::into_inner);
            origin.load(&mut trainer.state)?;
        }
        if let Some(reference) = self.reference.filter(|_| self.needs_reference) {
            reference.compute(&trainer, (self.out, self.events))?;
        }
        if let Some(opened) = self.opened {
            opened.load(&mut trainer.state)?;
            train_state = opened.state.train_state.clone();
        }
        let done = self.steps(
            &mut trainer,
            &mut train_state,
            (&mut reporter, &mut checkpoint_writer),
            devices,
        );
        if let Some(reporter) = &mut reporter {
            // a checkpoint in flight is reported even if a step failed in the meantime
            let last = done.is_ok().then_some(train_state.step);
            reporter.tell(checkpoint_writer.finish(), train_state.step, last)?;
        }
        done.map(|()| train_state)
    }

    /// Trains until the plan is fulfilled or a stop is requested.
    fn steps(
        &self,
        trainer: &mut Trainer<'_>,
        train_state: &mut TrainState,
        (reporter, checkpoint_writer): (&mut Option<Reporter<'_>>, &mut CheckpointWriter),
        devices: &[Device],
    ) -> Result<()> {
        let plan = self.plan;
        let asker = self.world.ranks(plan.parallel.world()).start;
        let asker = (trainer.state.groups.place.rank() == asker).then_some(self.events);
        let clock = Clock::start(plan, train_state, asker);
        let (rank, next) = (trainer.state.groups.place.rank(), train_state.step + 1);
        let tracer = Tracer::of(plan.train.profile, next, rank, self.out);
        let referenced = (self.reference).map(|known| known.samples(0, self.train_set));
        let train_set = (referenced.as_ref()).map_or(self.train_set, |known| known as &dyn Samples);
        let mut stall_s = None;
        loop {
            let (started, next) = (Instant::now(), train_state.next(plan));
            self.world.watch().set_step(next.step);
            if let Some(tracer) = &tracer {
                tracer.begin(next.step);
            }
            let outcome = trainer.step(train_set, &next, &train_state.recent)?;
            let seconds = started.elapsed().as_secs_f64();
            self.judge(&next, &outcome, train_state, reporter)?;
            let done = GoodStep::new(outcome.loss, outcome.grad_norm);
            train_state.stepped(plan, next.batch, done, outcome.status());
            let peak_bytes = self.peak_bytes(trainer, devices)?;
            if let Some(reporter) = reporter {
                let measured = Measured {
                    seconds,
                    peak_bytes,
                    stall_s: stall_s.take(),
                };
                reporter.record(plan, train_state, (&next, &outcome), measured)?;
                // one that was finished during this step
                reporter.tell(checkpoint_writer.tried(), train_state.step, None)?;
            }
            let is_asked = clock.agree(trainer, train_state)?;
            let is_out = train_state.ended(plan).is_some();
            self.validate(trainer, train_state, is_out, reporter)?;
            let is_end = is_asked || train_state.ended(plan).is_some();
            let every = plan.train.checkpoint.every;
            let is_due = every > 0 && train_state.step.is_multiple_of(every);
            if is_end || is_due {
                let _span = profile::phase("checkpoint copy");
                let started = Instant::now();
                checkpoint_writer.wait();
                if let Some(reporter) = reporter {
                    reporter.tell(checkpoint_writer.tried(), train_state.step, None)?;
                }
                let state = reporter.as_ref().map(|_| State {
                    fp8: trainer.state.delayed.as_ref().map(Delayed::records),
                    sums: Some(SumsRecord::of(plan, self.world.devices().backend())),
                    changes: self.changes.to_vec(),
                    is_interrupted: train_state.ended(plan).is_none() && !is_due,
                    ..State::new(plan, train_state, self.init)
                });
                if is_end {
                    let lent = snapshot::lend(&trainer.state, |pieces| {
                        checkpoint_writer.give(rank, pieces, state)
                    });
                    lent.on_rank(rank, "copy the state for a checkpoint")?;
                } else {
                    let pieces = snapshot::take(&trainer.state);
                    let pieces = pieces.on_rank(rank, "copy the state for a checkpoint")?;
                    checkpoint_writer.give(rank, pieces, state);
                }
                stall_s = Some(started.elapsed().as_secs_f64());
            }
            if let Some(tracer) = &tracer {
                // a trace that cannot be written must not end the run
                if let Err(error) = tracer.end(next.step, is_end) {
                    self.events.note(&error.with_causes());
                }
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Peak floating-point operations per second of all processes: the job's number, or the measured one.
    fn peak(&self) -> Option<f64> {
        let told = self.plan.train.peak_tflops * 1e12;
        if told > 0.0 {
            Some(told)
        } else {
            self.world.peak()
        }
    }

    /// Peak bytes of all ranks, as far as process 0 reports them.
    fn peak_bytes(&self, trainer: &Trainer<'_>, devices: &[Device]) -> Result<usize> {
        let here: usize = devices.iter().map(Device::peak_bytes).sum();
        if !self.world.is_shared() {
            return Ok(here);
        }
        let (place, world) = (&trainer.state.groups.place, &trainer.state.groups.world);
        let is_first = self.world.ranks(0).start == place.rank();
        let mine: &[f64] = if is_first { &[here as f64] } else { &[] };
        let all = world
            .all_gather_f64(mine)
            .on_rank(place.rank(), "count memory")?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts of bytes"
        )]
        Ok(all.concat().iter().sum::<f64>() as usize)
    }

    /// Dumps the batch of a bad step; an error if the step is not to be skipped.
    fn judge(
        &self,
        next: &Next,
        outcome: &step::Outcome,
        train_state: &TrainState,
        reporter: &mut Option<Reporter<'_>>,
    ) -> Result<()> {
        let Some(reason) = &outcome.bad else {
            return Ok(());
        };
        let (plan, step) = (self.plan, next.step);
        if let Some(reporter) = reporter {
            let about = (outcome, reason.as_str());
            let dumped = bad_steps::write(self.out, self.train_set, plan, next, about);
            let end = match dumped {
                Ok(()) => String::new(),
                Err(error) => format!("; its batch is not kept: {}", error.with_causes()),
            };
            reporter
                .events
                .note(&format!("step {step} changes no weights: {reason}{end}"));
        }
        let config = &plan.train.on_bad_step;
        let skipped = train_state.skipped_in_row;
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

    /// Evaluates every validation set if one is due, or at the end.
    fn validate(
        &self,
        trainer: &Trainer<'_>,
        train_state: &mut TrainState,
        is_last: bool,
        reporter: &mut Option<Reporter<'_>>,
    ) -> Result<()> {
        let config = &self.plan.train;
        let is_due = config.eval_every > 0
            && (is_last || train_state.step.is_multiple_of(config.eval_every));
        if !is_due {
            return Ok(());
        }
        for (number, set) in self.sets.iter().enumerate() {
            let referenced = (self.reference).map(|known| known.samples(number + 1, set.samples));
            let samples = (referenced.as_ref()).map_or(set.samples, |known| known as &dyn Samples);
            let count = config.eval_samples.min(set.samples.len());
            let _span = profile::phase("validation");
            let sequences = usize::try_from(count).unwrap_or(usize::MAX);
            let evaluated = trainer.evaluate(samples, sequences)?;
            train_state.validated(self.plan, set.name, evaluated.loss);
            if let Some(reporter) = reporter {
                reporter.validation(set.name, train_state.step, (evaluated, count))?;
            }
        }
        Ok(())
    }
}

/// Wall-clock time of all runs of the job, where it matters.
struct Clock<'a> {
    started: Instant,
    before: f64,
    is_measured: bool,
    /// The first rank of each process polls that process's events.
    asker: Option<&'a dyn Events>,
}

impl<'a> Clock<'a> {
    fn start(plan: &Plan, train_state: &TrainState, asker: Option<&'a dyn Events>) -> Clock<'a> {
        Clock {
            started: Instant::now(),
            before: train_state.seconds.map_or(0.0, |seconds| seconds.0),
            is_measured: plan.train.budget_secs().is_some(),
            asker,
        }
    }

    /// Whether a stop was requested in any process. All-gathers the answers, so that every rank decides alike, and
    /// takes rank 0's time for its own.
    fn agree(&self, trainer: &Trainer<'_>, train_state: &mut TrainState) -> Result<bool> {
        let used = self.before + self.started.elapsed().as_secs_f64();
        let mine = self.asker.map_or(Vec::new(), |events| {
            vec![f64::from(u8::from(events.is_stop_asked())), used]
        });
        let all = trainer.state.groups.world.all_gather_f64(&mine);
        let all = all.on_rank(trainer.state.groups.place.rank(), "agree on going on")?;
        if let (true, [_, used]) = (self.is_measured, &all[0][..]) {
            train_state.seconds = Some(Exact(*used));
        }
        Ok(all
            .iter()
            .any(|one| one.first().is_some_and(|&asked| asked > 0.0)))
    }
}
