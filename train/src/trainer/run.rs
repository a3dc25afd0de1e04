//! A training from its beginning, from weights, a seed or a checkpoint, to its end. Several trainings of adapters over one base run
//! together (`together.rs`); each has its own folder, checkpoints and metrics. The loop of a rank: `rank_loop.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use kernels::CpuPath;

use crate::checkpoint::initial_weights::{self, InitialWeights};
use crate::checkpoint::newest::{self, Found, Newest};
use crate::checkpoint::path_of;
use crate::checkpoint::read::Opened;
use crate::checkpoint::state::Record;
use crate::checkpoint::train_state::{Ended, TrainState};
use crate::checkpoint::write;
use crate::config::numbers::with_sums_on;
use crate::config::plan::Plan;
use crate::config::precision::{Bf16Sums, Units};
use crate::config::resume::SettingChange;
use crate::config::sums::SumsRecord;
use crate::data::Samples;
use crate::dist::launch::cpu_path;
use crate::dist::world::World;
use crate::error::{At, Error, Result};
use crate::metrics::{ChangeRecord, Events, Journal};
use crate::model::param::{self, Spec};
use crate::trainer::rank_loop::{Run, all_ranks};
use crate::trainer::reference::Reference;
use crate::trainer::together;
use crate::trainer::training::{Training, ValidationSet};

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
    let training = Training {
        plan,
        train_set,
        sets,
        out,
        events,
    };
    let outcomes = run_together(&[training], world)?;
    Ok(outcomes.into_iter().next().expect("one of each training"))
}

/// Like `run_in_world` for several trainings of low-rank adapters over one base: its weights are in memory once, and each
/// step is one pass of the pipeline over the micro-batches of all of them. Each training ends by its own plan, resumes from its own
/// checkpoints, and has the bits that it has alone.
///
/// # Errors
/// As `run_in_world`; several trainings that differ in more than their data, seeds, schedules and the numbers of their
/// adapters.
pub fn run_together(trainings: &[Training<'_>], world: &World) -> Result<Vec<Outcome>> {
    let done = train(trainings, world);
    done.map_err(|error| world.end(error))
}

fn train(trainings: &[Training<'_>], world: &World) -> Result<Vec<Outcome>> {
    let started = Instant::now();
    for training in trainings {
        check(training.plan, training.train_set, training.sets)?;
    }
    let Some(first) = trainings.first() else {
        return Ok(Vec::new());
    };
    together::expect_one_base(trainings, world)?;
    world.check_devices(first.plan.parallel.world())?;
    let path = cpu_path()?;
    if world.devices().is_cpu() {
        first.events.kernels(&path);
    }
    let plans = trainings
        .iter()
        .map(|training| with_sums(training.plan, &path, (world, training.events)));
    let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
    let begun = trainings.iter().zip(&plans).map(|(training, plan)| {
        let training = Training { plan, ..*training };
        Begun::of(training, world)
    });
    let mut begun: Vec<Begun<'_>> = begun.collect::<Result<_>>()?;
    let runs: Vec<Run<'_>> = (begun.iter())
        .filter(|begun| begun.ended().is_none())
        .map(|begun| begun.run(world, started))
        .collect();
    let mut states = Vec::new();
    if !runs.is_empty() {
        states = all_ranks(&runs)?;
        for run in &runs {
            if let Some(journal) = run.journal {
                journal.sync()?;
            }
        }
        // the last checkpoints are written, or else process 0 does not come here
        world.exchange("done")?;
    }
    drop(runs);
    let mut states = states.into_iter();
    for begun in begun.iter_mut().filter(|begun| begun.ended().is_none()) {
        begun.train_state = states.next().expect("a state of each run");
    }
    Ok(begun
        .into_iter()
        .map(|begun| begun.outcome(started))
        .collect())
}

/// A training before its first step.
struct Begun<'a> {
    training: Training<'a>,
    specs: Vec<Spec>,
    folder: PathBuf,
    opened: Option<Opened>,
    origin: Option<Mutex<InitialWeights>>,
    init: Option<Record>,
    /// Settings that changed on earlier resumes and on this one.
    changes: Vec<SettingChange>,
    /// Process 0 has it.
    journal: Option<Journal>,
    reference: Option<Reference<'a>>,
    needs_reference: bool,
    train_state: TrainState,
}

impl<'a> Begun<'a> {
    fn of(training: Training<'a>, world: &World) -> Result<Begun<'a>> {
        let Training {
            plan,
            train_set,
            sets,
            out,
            events,
        } = training;
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
        let train_state = begun.unwrap_or_else(TrainState::start);
        let journal = match world.is_first() {
            true => Some(Journal::resume(
                &out.join("metrics.jsonl"),
                train_state.step,
            )?),
            false => None,
        };
        let earlier = (opened.as_ref()).map_or(&[][..], |opened| &opened.state.changes);
        let changes = [earlier, &changes].concat();
        let is_over = train_state.ended(plan).is_some();
        if let (Some(journal), Some(opened), false) = (&journal, &opened, is_over) {
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
        if plan.train.preference.is_some() && !is_over {
            let all = std::iter::once(("train", train_set));
            let all = all.chain(sets.iter().map(|set| (set.name, set.samples)));
            let all: Vec<(&str, &dyn Samples)> = all.collect();
            reference = Some(Reference::of(plan, init.as_ref(), &all, out, world)?);
        }
        let known = reference.as_ref().map(Reference::pairs);
        if let Some(Some(pairs)) = known {
            events.info(&format!("the reference of {pairs} pairs is known"));
        }
        let needs_reference = known == Some(None);
        let mut origin = origin;
        if needs_reference && opened.is_some() {
            events.note("the reference is computed again, with the initial weights");
            (origin, _) = initial_weights::of_plan(plan, None, events)?;
        }
        if plan.train.budget_secs().is_some() && world.is_first() && !is_over {
            events.note(
                "with a time budget the schedule follows the clock: bits depend on the machine",
            );
        }
        Ok(Begun {
            training,
            specs: param::specs(plan),
            folder,
            opened,
            origin: origin.map(Mutex::new),
            init,
            changes,
            journal,
            reference,
            needs_reference,
            train_state,
        })
    }

    fn ended(&self) -> Option<Ended> {
        self.train_state.ended(self.training.plan)
    }

    fn run<'b>(&'b self, world: &'b World, epoch: Instant) -> Run<'b>
    where
        'a: 'b,
    {
        Run {
            plan: self.training.plan,
            train_set: self.training.train_set,
            sets: self.training.sets,
            out: self.training.out,
            events: self.training.events,
            specs: &self.specs,
            folder: &self.folder,
            opened: &self.opened,
            world,
            journal: self.journal.as_ref(),
            origin: self.origin.as_ref(),
            init: self.init.as_ref(),
            reference: self.reference.as_ref(),
            needs_reference: self.needs_reference,
            changes: &self.changes,
            epoch,
        }
    }

    fn outcome(self, started: Instant) -> Outcome {
        let (ended, plan) = (self.ended(), self.training.plan);
        let train_state = self.train_state;
        Outcome {
            steps: train_state.step,
            ended: ended.unwrap_or(Ended::Asked),
            loss: train_state.loss.0,
            valid_loss: train_state.valid_loss(),
            best_valid_loss: train_state.best_valid_loss(),
            checkpoint: path_of(&self.folder, train_state.step),
            tokens: train_state.consumed_samples * plan.sample_tokens() as u64,
            seconds: started.elapsed().as_secs_f64(),
            init: self.init.map(|init| init.xxh3),
            changes: self.changes,
        }
    }
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
    let mut own = None;
    if folder.exists() {
        let Found { opened, skipped } = newest::find(folder)?;
        (skipped.iter()).for_each(|one| events.note(&one.to_string()));
        own = opened;
    }
    let from = &plan.train.resume.from;
    if own.is_some() || from.is_empty() {
        return Ok(own);
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

/// The checkpoint that a training would resume from.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumption {
    /// Its folder.
    pub checkpoint: PathBuf,
    /// Steps done when it was written.
    pub step: u64,
    /// Whether the training is over with it, so that no step follows.
    pub is_over: bool,
    /// Settings that would change on this resume, as `train.resume.allow` permits.
    pub changes: Vec<SettingChange>,
}

/// The checkpoint that `run_in_world` would resume from in this process, by the same rules; None if it would begin with step 1.
/// Nothing is changed. The whole checkpoint is read, as it is before a resume.
///
/// # Errors
/// Those by which `run_in_world` refuses the plan, the samples or the checkpoint.
pub fn resumption(training: &Training<'_>) -> Result<Option<Resumption>> {
    check(training.plan, training.train_set, training.sets)?;
    let folder = training.out.join("checkpoints");
    match own_or_branched(training.plan, &folder, training.events)? {
        Some(opened) => resumed(training.plan, opened, training.events).map(Some),
        None => Ok(None),
    }
}

/// Like `resumption`, while the samples of a training are not known yet: its plan may have any vocabulary, special tokens and
/// fingerprint, and only the settings are compared with the checkpoint's.
///
/// # Errors
/// As `resumption`, but for the samples and what follows from them.
pub fn resumption_by_settings(
    plan: &Plan,
    out: &Path,
    events: &dyn Events,
) -> Result<Option<Resumption>> {
    let Some(opened) = own_or_branched(plan, &out.join("checkpoints"), events)? else {
        return Ok(None);
    };
    let saved = &opened.state.plan;
    let plan = Plan {
        vocab: saved.vocab,
        start: saved.start,
        eod: saved.eod,
        fingerprint: saved.fingerprint.clone(),
        ..plan.clone()
    };
    resumed(&plan, opened, events).map(Some)
}

fn resumed(plan: &Plan, opened: Opened, events: &dyn Events) -> Result<Resumption> {
    let (_, init) = initial_weights::of_plan(plan, Some(&opened), events)?;
    Ok(Resumption {
        changes: opened.check_fits(plan, init.as_ref())?,
        step: opened.state.train_state.step,
        is_over: opened.state.train_state.ended(plan).is_some(),
        checkpoint: opened.path,
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
