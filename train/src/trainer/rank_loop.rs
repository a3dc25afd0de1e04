//! The loop of a rank: steps, validations, checkpoints, metrics, one thread per rank. Several trainings of one base (`together.rs`)
//! step together, and each is judged, validated, saved and ended by itself.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use kernels::{Device, Tensor};

use crate::checkpoint::background::{self, CheckpointWriter};
use crate::checkpoint::initial_weights::InitialWeights;
use crate::checkpoint::read::Opened;
use crate::checkpoint::shard_sender::ShardSender;
use crate::checkpoint::snapshot::{self, Whole};
use crate::checkpoint::state::Record;
use crate::checkpoint::state::State;
use crate::checkpoint::train_state::TrainState;
use crate::checkpoint::write_shards::Form;
use crate::config::BadStepAction;
use crate::config::exact::Exact;
use crate::config::plan::Plan;
use crate::config::resume::SettingChange;
use crate::config::sums::SumsRecord;
use crate::data::Samples;
use crate::dist::gpu_groups::GpuLinks;
use crate::dist::mesh::{Groups, RankCoord, StageEdges};
use crate::dist::threads;
use crate::dist::world::World;
use crate::error::{Error, OnRank, Result};
use crate::metrics::{Events, Journal};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::{self, Spec};
use crate::optim::next_step::{GoodStep, Next};
use crate::optim::rank_state::FrozenWeights;
use crate::panics;
use crate::parallel::shards::Shards;
use crate::profile::{self, Tracer};
use crate::trainer::bad_steps;
use crate::trainer::endings::{Ending, first_cause};
use crate::trainer::memory;
use crate::trainer::reference::{Reference, Referenced};
use crate::trainer::reporter::{Measured, Reporter};
use crate::trainer::step::{self, Asked, Trainer, step_together};
use crate::trainer::training::ValidationSet;

/// A training, as all ranks of this process see it.
pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) specs: &'a [Spec],
    pub(super) train_set: &'a dyn Samples,
    pub(super) sets: &'a [ValidationSet<'a>],
    pub(super) out: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) opened: &'a Option<Opened>,
    pub(super) world: &'a World,
    pub(super) events: &'a dyn Events,
    /// Of process 0.
    pub(super) journal: Option<&'a Journal>,
    /// Initial weights, if not drawn from the seed; ranks read them in turns.
    pub(super) origin: Option<&'a Mutex<InitialWeights>>,
    pub(super) init: Option<&'a Record>,
    /// Of preference pairs.
    pub(super) reference: Option<&'a Reference<'a>>,
    /// It has to be computed first.
    pub(super) needs_reference: bool,
    /// Settings that changed on earlier resumes and on this one.
    pub(super) changes: &'a [SettingChange],
    /// Time origin of traces.
    pub(super) epoch: Instant,
}

/// A rank's ends of what all trainings have one of each.
struct Ends<'a> {
    /// Those of rank 0.
    reporters: Vec<Option<Reporter<'a>>>,
    writers: Vec<CheckpointWriter>,
}

/// Runs every rank of this process on its thread and returns the final states of the trainings, or the first cause of failure.
pub(super) fn all_ranks(runs: &[Run<'_>]) -> Result<Vec<TrainState>> {
    let Some(first) = runs.first() else {
        return Ok(Vec::new());
    };
    let (plan, world, events) = (first.plan, first.world, first.events);
    let here = world.ranks(plan.parallel.world());
    let plans: Vec<&Plan> = runs.iter().map(|run| run.plan).collect();
    let arenas = memory::arenas(&plans)?.into_iter().enumerate();
    let arenas: Vec<_> = arenas.filter(|(rank, _)| here.contains(rank)).collect();
    let first_local = world.first_local_rank(plan.parallel.world())?;
    let links = &GpuLinks {
        nccl: world.devices().nccl(plan.sum_order())?,
        sums: plan.sum_order(),
        watch: world.shared_watch(),
        edges: StageEdges::of(
            &plan.parallel,
            &param::stages_that_share(first.specs, plan.parallel.pp),
        ),
    };
    let devices = arenas
        .iter()
        .zip(first_local..)
        .map(|((rank, arena), local_rank)| {
            let device = world.devices().open(local_rank)?;
            arena.reserve(*rank, plan, &device)?;
            Ok(device)
        });
    let devices: Vec<Device> = devices.collect::<Result<_>>()?;
    for (rank, device) in here.clone().zip(&devices) {
        if !device.is_host() {
            events.info(&format!("rank {rank}: {}", device.name()));
        }
    }
    let devices = devices.as_slice();
    let mut ends_of_ranks: Vec<Ends<'_>> = devices
        .iter()
        .map(|_| Ends {
            reporters: runs.iter().map(|_| None).collect(),
            writers: Vec::new(),
        })
        .collect();
    let mut backgrounds = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let (writers, background) = background::ends(devices.len());
        for (ends, writer) in ends_of_ranks.iter_mut().zip(writers) {
            ends.writers.push(writer);
        }
        if let (Some(ends), Some(journal)) = (ends_of_ranks.first_mut(), run.journal) {
            let reporter = Reporter::new((run.events, journal), run.peak());
            ends.reporters[number] = Some(reporter);
        }
        backgrounds.push(background);
    }
    let (ends, endings) = channel::<Ending>();
    let train_states = thread::scope(|scope| {
        let groups = Groups::here(&plan.parallel, world);
        for (run, background) in runs.iter().zip(backgrounds) {
            let connect = |name| world.of_processes(name);
            let sender = ShardSender::new(connect, devices.len());
            scope.spawn(move || {
                let form = Form {
                    specs: run.specs,
                    shards: Shards::of(run.plan, run.specs),
                    place: RankCoord::of(0, &run.plan.parallel),
                    folder: run.folder,
                    plan: run.plan,
                };
                match (run.journal, sender) {
                    (Some(journal), sender) => background.serve(&form, sender.as_ref(), journal),
                    (None, Some(sender)) => background.forward(&form, &sender),
                    (None, None) => {}
                }
            });
        }
        let ranks = devices.iter().zip(&arenas).zip(groups).zip(ends_of_ranks);
        for (number, (((device, (_, arena)), groups), own)) in ranks.enumerate() {
            let ends = ends.clone();
            scope.spawn(move || {
                let rank = groups.place.rank();
                let run = || {
                    let threads = threads::of_rank(number, devices.len());
                    let threads = threads.map_err(|source| Error::Threads { rank, source })?;
                    threads::work(&threads, || {
                        let connected = links.connect(groups, device);
                        let (groups, ways) = connected.on_rank(rank, "connect the GPUs")?;
                        if let (0, Some(ways)) = (number, ways) {
                            events.info(&ways);
                        }
                        one_rank(runs, groups, (device, devices), own)
                    })
                    .map_err(|error| arena.explain(error, plan, device))
                };
                // state left by a panic is not used again
                let end = panics::caught(run)
                    .unwrap_or_else(|message| Err(Error::Panicked { rank, message }));
                // the receiver stays until all have ended
                let _ = ends.send((rank, end));
            });
        }
        first_cause((&endings, devices.len()), world, events)
    });
    for (rank, device) in here.zip(devices) {
        let bytes = device.overflow_bytes();
        if bytes > 0 {
            events.note(&format!("rank {rank}: {bytes} bytes did not fit its arena"));
        }
    }
    train_states
}

fn one_rank(
    runs: &[Run<'_>],
    groups: Groups,
    (device, devices): (&Device, &[Device]),
    ends: Ends<'_>,
) -> Result<Vec<TrainState>> {
    let groups = Arc::new(groups);
    let (mut trainers, mut lives) = (Vec::new(), Vec::new());
    for ((number, run), reporter) in runs.iter().enumerate().zip(ends.reporters) {
        if number == 0 {
            profile::prepare(run.plan.train.profile, run.epoch);
        }
        let frozen = FrozenWeights::of(number, runs.len());
        let on = (Arc::clone(&groups), device.clone());
        let (trainer, train_state) = run.begin(on, frozen, lent(&trainers))?;
        lives.push(Live::of(run, &trainer, train_state, reporter));
        trainers.push(trainer);
    }
    let mut writers = ends.writers;
    let done = steps(&mut trainers, &mut lives, &mut writers, devices);
    for (live, writer) in lives.iter_mut().zip(writers) {
        if let Some(reporter) = &mut live.reporter {
            // a checkpoint in flight is reported even if a step failed in the meantime
            let step = live.train_state.step;
            let last = done.is_ok().then_some(step);
            reporter.tell(writer.finish(), step, last)?;
        }
    }
    done.map(|()| lives.into_iter().map(|live| live.train_state).collect())
}

/// The weights that the first training lends to the others.
fn lent<'t>(trainers: &'t [Trainer<'_>]) -> &'t [Tensor] {
    trainers.first().map_or(&[], |first| first.state.kept())
}

/// A training on a rank while it runs.
struct Live<'a> {
    run: &'a Run<'a>,
    train_state: TrainState,
    /// Of rank 0.
    reporter: Option<Reporter<'a>>,
    clock: Clock<'a>,
    tracer: Option<Tracer>,
    /// With the reference of preference pairs.
    referenced: Option<Referenced<'a>>,
    /// Seconds of the stall before the next step.
    stall_s: Option<f64>,
    is_over: bool,
}

impl<'a> Live<'a> {
    fn of(
        run: &'a Run<'a>,
        trainer: &Trainer<'_>,
        train_state: TrainState,
        reporter: Option<Reporter<'a>>,
    ) -> Live<'a> {
        let (plan, rank) = (run.plan, trainer.state.groups.place.rank());
        let asker = run.world.ranks(plan.parallel.world()).start;
        let asker = (rank == asker).then_some(run.events);
        let referenced = run.reference.map(|known| known.samples(0, run.train_set));
        // one trace shows the passes of all trainings
        let is_traced = trainer.state.frozen != FrozenWeights::Borrowed;
        let tracer = || Tracer::of(plan.train.profile, train_state.step + 1, rank, run.out);
        let tracer = is_traced.then(tracer).flatten();
        Live {
            run,
            reporter,
            clock: Clock::start(plan, &train_state, asker),
            tracer,
            referenced,
            stall_s: None,
            is_over: false,
            train_state,
        }
    }

    fn train_set(&self) -> &dyn Samples {
        match &self.referenced {
            Some(known) => known,
            None => self.run.train_set,
        }
    }
}

/// A step that was done.
struct Done {
    next: Next,
    outcome: step::Outcome,
    seconds: f64,
}

/// Trains until every plan is fulfilled or a stop is requested.
fn steps(
    trainers: &mut [Trainer<'_>],
    lives: &mut [Live<'_>],
    writers: &mut [CheckpointWriter],
    devices: &[Device],
) -> Result<()> {
    while lives.iter().any(|live| !live.is_over) {
        let started = Instant::now();
        let next = |live: &Live<'_>| {
            let is_open = !live.is_over;
            is_open.then(|| live.train_state.next(live.run.plan))
        };
        let nexts: Vec<Option<Next>> = lives.iter().map(next).collect();
        for (live, next) in lives.iter().zip(&nexts) {
            let Some(next) = next else { continue };
            live.run.world.watch().set_step(next.step);
            if let Some(tracer) = &live.tracer {
                tracer.begin(next.step);
            }
        }
        let asked = lives.iter().zip(&nexts).map(|(live, next)| {
            Some(Asked {
                samples: live.train_set(),
                next: next.as_ref()?,
                recent: &live.train_state.recent,
            })
        });
        let asked: Vec<Option<Asked<'_>>> = asked.collect();
        let outcomes = step_together(trainers, &asked)?;
        let seconds = started.elapsed().as_secs_f64();
        for (number, (next, outcome)) in nexts.into_iter().zip(outcomes).enumerate() {
            let (Some(next), Some(outcome)) = (next, outcome) else {
                continue;
            };
            let done = Done {
                next,
                outcome,
                seconds,
            };
            let of = Whole {
                state: &trainers[number].state,
                lent: lent(trainers),
            };
            lives[number].after(done, (&trainers[number], of), (writers, number), devices)?;
        }
    }
    Ok(())
}

impl Live<'_> {
    /// Judges, records and validates a step, and saves a checkpoint if one is due or the training ends.
    fn after(
        &mut self,
        done: Done,
        (trainer, of): (&Trainer<'_>, Whole<'_>),
        (writers, number): (&mut [CheckpointWriter], usize),
        devices: &[Device],
    ) -> Result<()> {
        let Done {
            next,
            outcome,
            seconds,
        } = done;
        let Live {
            run,
            train_state,
            reporter,
            ..
        } = self;
        let (plan, rank) = (run.plan, trainer.state.groups.place.rank());
        run.judge(&next, &outcome, train_state, reporter)?;
        let good = GoodStep::new(outcome.loss, outcome.grad_norm);
        train_state.stepped(plan, next.batch, good, outcome.status());
        let peak_bytes = run.peak_bytes(trainer, devices)?;
        if let Some(reporter) = reporter {
            let measured = Measured {
                seconds,
                peak_bytes,
                stall_s: self.stall_s.take(),
            };
            reporter.record(plan, train_state, (&next, &outcome), measured)?;
            // one that was finished during this step
            reporter.tell(writers[number].tried(), train_state.step, None)?;
        }
        let is_asked = self.clock.agree(trainer, train_state)?;
        let is_out = train_state.ended(plan).is_some();
        run.validate((trainer, of.lent), train_state, is_out, reporter)?;
        let is_end = is_asked || train_state.ended(plan).is_some();
        let every = plan.train.checkpoint.every;
        let is_due = every > 0 && train_state.step.is_multiple_of(every);
        if is_end || is_due {
            let _span = profile::phase("checkpoint copy");
            let started = Instant::now();
            // of all trainings: there is one copy at a time
            writers.iter().for_each(CheckpointWriter::wait);
            if let Some(reporter) = reporter {
                reporter.tell(writers[number].tried(), train_state.step, None)?;
            }
            let state = reporter.as_ref().map(|_| State {
                fp8: trainer.state.delayed.as_ref().map(Delayed::records),
                sums: Some(SumsRecord::of(plan, run.world.devices().backend())),
                changes: run.changes.to_vec(),
                is_interrupted: train_state.ended(plan).is_none() && !is_due,
                ..State::new(plan, train_state, run.init)
            });
            if is_end {
                let lent = snapshot::lend(of, |pieces| {
                    writers[number].give(rank, pieces, state);
                });
                lent.on_rank(rank, "copy the state for a checkpoint")?;
            } else {
                let pieces = snapshot::take(of);
                let pieces = pieces.on_rank(rank, "copy the state for a checkpoint")?;
                writers[number].give(rank, pieces, state);
            }
            self.stall_s = Some(started.elapsed().as_secs_f64());
        }
        if let Some(tracer) = &self.tracer {
            // a trace that cannot be written must not end the run
            if let Err(error) = tracer.end(next.step, is_end) {
                run.events.note(&error.with_causes());
            }
        }
        self.is_over = is_end;
        Ok(())
    }
}

impl Run<'_> {
    /// The trainer with the weights to start from, and the state of the run.
    fn begin<'b>(
        &'b self,
        on: (Arc<Groups>, Device),
        frozen: FrozenWeights,
        lent: &[Tensor],
    ) -> Result<(Trainer<'b>, TrainState)> {
        let mut trainer = Trainer::with(self.plan, self.specs, on, frozen)?;
        let mut train_state = TrainState::start();
        if let Some(origin) = self.origin {
            // a rank that panicked has left nothing half done in it
            let mut origin = origin.lock().unwrap_or_else(PoisonError::into_inner);
            origin.load(&mut trainer.state)?;
        }
        if let Some(reference) = self.reference.filter(|_| self.needs_reference) {
            reference.compute((&trainer, lent), (self.out, self.events))?;
        }
        if let Some(opened) = self.opened {
            opened.load(&mut trainer.state)?;
            train_state = opened.state.train_state.clone();
        }
        Ok((trainer, train_state))
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
        (trainer, lent): (&Trainer<'_>, &[Tensor]),
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
            let evaluated = trainer.evaluate(samples, sequences, lent)?;
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
