//! `train`: connects the data's samples, the trainer (which resumes by itself) and the progress bar.

use super::task_runs::TaskRuns;
use super::train_data::TrainData;
use super::training::{Training, seconds_up_to};
use super::words::{DONE, TRAIN, shared_failure};
use crate::context::{Context, relative};
use crate::generation::trained_tokenizer::{SETTINGS, has_checkpoints};
use crate::machine::grouped;
use crate::manifest::{fingerprint, identity};
use crate::progress::Progress;
use crate::signals::Interrupted;
use crate::signals::Signals;
use anyhow::{Context as _, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use train::checkpoint::Ended;
use train::config::{Difference, EvalTasks, Plan, ResumeConfig, TrainConfig};
use train::data::Samples;
use train::dist::World;
use train::metrics::StepRecord;
use train::trainer::memory::RankMemory;
use train::trainer::{Outcome, ValidationSet};

pub(super) fn run(cx: &Context) -> Result<()> {
    let world = cx
        .take_world()
        .unwrap_or_else(|| World::alone().on(crate::devices::of(&cx.job)));
    let done = if world.is_first() {
        lead(cx, &world)
    } else {
        follow(cx, &world)
    };
    match done {
        // all processes were stopped together
        Err(error) if error.is::<Interrupted>() => Err(error),
        done => shared_failure(&world, done),
    }
}

/// Process 1 and up: trains its ranks, writes no records.
fn follow(cx: &Context, world: &World) -> Result<()> {
    let data = TrainData::open(cx)?;
    let plan = data.plan(cx)?;
    let signals = Signals::listen()?;
    let outcome = with_samples(cx, (&plan, &data), world, &Follower { signals: &signals })?;
    info!("train: {} steps", outcome.steps);
    if outcome.ended == Ended::Asked {
        return Err(signals.interrupted().into());
    }
    Ok(())
}

/// Trains on the samples of the data.
fn with_samples(
    cx: &Context,
    (plan, data): (&Plan, &TrainData),
    world: &World,
    events: &dyn train::metrics::Events,
) -> Result<Outcome> {
    data.with_samples(cx, |samples, sets| {
        train_on((plan, world), (samples, sets), &cx.out, events)
    })
}

fn train_on(
    (plan, world): (&Plan, &World),
    (samples, sets): (&dyn Samples, &[ValidationSet<'_>]),
    out: &Path,
    events: &dyn train::metrics::Events,
) -> Result<Outcome> {
    if world.processes() > 1 {
        let lengths: Vec<u64> = sets.iter().map(|set| set.samples.len()).collect();
        let data = json!({"fingerprint": plan.fingerprint, "vocabulary": plan.vocab,
            "samples": samples.len(), "validation": lengths});
        world.compare("data", &data)?;
    }
    if plan.train.peak_tflops == 0.0 && world.devices().is_cpu() {
        let peak = world.measure_peak(plan)?;
        events.info(&match peak {
            Some(flops) => format!("the cores do {:.2} TFLOP/s at most, measured", flops / 1e12),
            None => {
                "the peak of this instruction set is not known: no mfu, but with train.peak_tflops"
                    .into()
            }
        });
    }
    Ok(train::trainer::run_in_world(
        plan,
        samples,
        sets,
        (out, world),
        events,
    )?)
}

fn lead(cx: &Context, world: &World) -> Result<()> {
    let data = TrainData::open(cx)?;
    let plan = data.plan(cx)?;
    let print = print_of(&plan);
    if cx.done("train", &print)?.is_some() {
        info!("train: done before ({} steps)", plan.train.steps);
        world.exchange(DONE)?;
        return Ok(());
    }
    record_data(cx, data.order())?;
    data.prepare(cx)?;
    if !has_checkpoints(&cx.out) {
        // nothing of an earlier training refuses this one
        cx.accept()?;
        cx.manifest.forget("train");
    }
    let parallel = &plan.parallel;
    if plan.trained_parameters() < plan.parameters() {
        info!(
            "train: {} parameters of adapters are trained",
            grouped(plan.trained_parameters())
        );
    }
    info!(
        "train: {} parameters, vocabulary {}, {} tokens per step, tp {} pp {} dp {} cp {} zero {}",
        grouped(plan.parameters()),
        grouped(plan.vocab as u64),
        grouped((plan.train.global_batch * plan.sample_tokens()) as u64),
        parallel.tp,
        parallel.pp,
        parallel.dp,
        parallel.cp,
        parallel.zero
    );
    print_memory(&train::trainer::memory::predict_in(
        &plan,
        world.processes(),
    ));
    note_of_rate("train", &plan.train);
    if let Some(epochs) = data.repeated(cx)? {
        info!("train: more than one epoch of the data: {epochs}");
    }
    let tasks = TaskRuns::of(cx, &plan)?;
    let progress = Progress::start("train", "steps", plan.train.steps);
    let signals = Signals::listen()?;
    if !has_checkpoints(&cx.out) {
        Training::note(&cx.out, plan.train.steps, 0)?;
    }
    let watcher = Watcher {
        cx,
        label: "train".into(),
        steps: plan.train.steps,
        tasks: tasks.as_ref(),
        progress: &progress,
        signals: &signals,
        earlier: OnceLock::new(),
        order: (plan.train.resume.allows_data()).then(|| data.order()),
    };
    world.exchange(TRAIN)?;
    let outcome = with_samples(cx, (&plan, &data), world, &watcher)
        .map_err(|error| explained(cx, &data, error))?;
    if outcome.ended == Ended::Asked {
        progress.finish(&format!(
            "stopped by a signal after step {}; the same command continues from its checkpoint",
            outcome.steps
        ));
        return Err(signals.interrupted().into());
    }
    let done = Finished {
        plan: &plan,
        outcome: &outcome,
        print: &print,
        seconds: watcher.seconds(),
    };
    done.record(cx, tasks.as_ref())?;
    let why = match outcome.ended {
        Ended::TimeBudget => ", the time budget is used up",
        Ended::EarlyStop => ", the validation loss no longer fell",
        _ => "",
    };
    progress.finish(&format!(
        "{} steps, loss {:.4}{why}",
        outcome.steps, outcome.loss
    ));
    Ok(())
}

/// Logs that a training would change nothing.
pub(crate) fn note_of_rate(label: &str, train: &TrainConfig) {
    if train.never_learns() {
        log!(
            "{label}: note: the learning rate of every step is 0, so that the weights stay as they are: found {} steps, train.lr = {}, \
             train.min_lr = {}; the last step has min_lr",
            train.steps,
            train.lr,
            train.min_lr
        );
    }
}

/// A training that is done.
pub(super) struct Finished<'a> {
    pub(super) plan: &'a Plan,
    pub(super) outcome: &'a Outcome,
    pub(super) print: &'a str,
    pub(super) seconds: f64,
}

impl Finished<'_> {
    /// Records it in the manifest, after the evaluations beside it.
    pub(super) fn record(&self, cx: &Context, tasks: Option<&TaskRuns>) -> Result<()> {
        let Finished {
            plan,
            outcome,
            print,
            seconds,
        } = self;
        let mut files: Vec<PathBuf> = vec!["metrics.jsonl".into()];
        if let Some(tasks) = tasks {
            files.extend(tasks.finish(outcome.steps, &outcome.checkpoint)?);
        }
        let mut inside: Vec<PathBuf> = std::fs::read_dir(&outcome.checkpoint)
            .with_context(|| outcome.checkpoint.display().to_string())?
            .flatten()
            .map(|e| relative(&cx.out, &e.path()))
            .collect();
        inside.sort();
        files.extend(inside);
        let counts = json!({"steps": outcome.steps, "loss": outcome.loss, "valid_loss": outcome.valid_loss,
            "best_valid_loss": outcome.best_valid_loss, "tokens": outcome.tokens,
            "checkpoint": relative(&cx.out, &outcome.checkpoint), "parameters": plan.parameters(),
            "init_from": (!plan.train.init_from.is_empty()).then_some(&plan.train.init_from), "init_xxh3": outcome.init,
            "changes": (!outcome.changes.is_empty()).then_some(&outcome.changes)});
        cx.manifest
            .record("train", print, &files, counts, *seconds)
            .map(drop)
    }
}

/// Fingerprint of a training.
pub(super) fn print_of(plan: &Plan) -> String {
    // the parallel layout is part of the plan but not of the result
    let trained = TrainConfig {
        // tasks are evaluated beside the training and change nothing of it
        eval_tasks: EvalTasks::default(),
        // settings that were allowed to change are compared themselves
        resume: ResumeConfig {
            allow: Vec::new(),
            from: plan.train.resume.from.clone(),
        },
        ..plan.train.clone()
    };
    let mut parts = vec![
        json!(plan.model),
        json!(trained),
        json!(plan.vocab),
        json!(plan.seq_length),
        json!(plan.seed),
        json!(plan.determinism),
        json!(plan.fingerprint),
    ];
    for source in [&plan.train.init_from, &plan.train.resume.from] {
        if !source.is_empty() {
            parts.push(source_identity(Path::new(source)));
        }
    }
    fingerprint(&json!(parts))
}

/// Prints the peak memory of the rank that needs most, by kind. A plan that contradicts itself is reported by the run.
pub(super) fn print_memory(ranks: &train::Result<Vec<RankMemory>>) {
    let ranks = ranks.iter().flatten();
    let Some(rank) = ranks.max_by_key(|rank| rank.total()) else {
        return;
    };
    let transfer = match rank.transfer {
        0 => String::new(),
        bytes => format!(", checkpoint parts between processes {}", bytes / 1_000_000),
    };
    info!(
        "train: peak memory per rank: {} MB (weights {}, optimizer {}, gradients {}, activations {}, packed weights {}, checkpoint buffer {}{transfer})",
        rank.total() / 1_000_000,
        rank.weights / 1_000_000,
        rank.optimizer / 1_000_000,
        rank.gradients / 1_000_000,
        rank.activations / 1_000_000,
        rank.packs / 1_000_000,
        rank.snapshot / 1_000_000
    );
}

/// Identities of the files that the initial weights come from.
fn source_identity(path: &Path) -> serde_json::Value {
    let folder = match path.ends_with("ema.safetensors") {
        true => path.parent().unwrap_or(path),
        false => path,
    };
    let mut files = files_in(folder);
    // of a folder of checkpoints, the files in each
    for inside in files.clone().iter().filter(|path| path.is_dir()) {
        files.extend(files_in(inside));
    }
    files.sort();
    json!(files.iter().map(|file| identity(file)).collect::<Vec<_>>())
}

/// Files and folders in a folder; none if it is not there.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Records the settings that fix the order of the data, once per training.
pub(super) fn record_data(cx: &Context, order: &serde_json::Value) -> Result<()> {
    if has_checkpoints(&cx.out) && cx.manifest.get(SETTINGS)?.is_some() {
        return Ok(());
    }
    let settings = json!({"data": order});
    let print = fingerprint(&settings);
    cx.manifest
        .record(SETTINGS, &print, &[], settings, 0.0)
        .map(drop)
}

/// Records the settings of other data that a training goes on with after `step`, and prints what differs.
fn change_data(cx: &Context, order: &serde_json::Value, step: u64) -> Result<()> {
    let recorded = cx.manifest.get(SETTINGS)?;
    let Some(before) = recorded.map(|record| record.counts["data"].clone()) else {
        return Ok(());
    };
    let mut found = Vec::new();
    data_differences(&before, order, "data", &mut found);
    if found.is_empty() {
        return Ok(());
    }
    for Difference {
        key, found, wanted, ..
    } in &found
    {
        log!("train: after step {step} {key} changes from {found} to {wanted}");
    }
    let settings = json!({"data": order});
    let print = fingerprint(&settings);
    cx.manifest
        .record(SETTINGS, &print, &[], settings, 0.0)
        .map(drop)
}

/// Expands the trainer's refusal of another sample order: names the differing settings instead of a fingerprint.
pub(super) fn explained(cx: &Context, data: &TrainData, error: anyhow::Error) -> anyhow::Error {
    let mut error = match error.downcast::<train::Error>() {
        Ok(error) => error,
        Err(error) => return error,
    };
    let recorded = cx.manifest.get(SETTINGS).ok().flatten();
    if let (train::Error::Mismatch { differences, .. }, Some(record)) = (&mut error, recorded)
        && let Some(at) = differences.iter().position(|d| d.key == "fingerprint")
    {
        let mut found = Vec::new();
        data_differences(&record.counts["data"], data.order(), "data", &mut found);
        let allowed_by = differences[at].allowed_by.clone();
        for difference in &mut found {
            difference.allowed_by.clone_from(&allowed_by);
        }
        if !found.is_empty() {
            differences.splice(at..=at, found);
        }
    }
    error.into()
}

/// Appends every leaf that differs.
fn data_differences(
    there: &serde_json::Value,
    here: &serde_json::Value,
    key: &str,
    out: &mut Vec<Difference>,
) {
    match (there.as_object(), here.as_object()) {
        (Some(a), Some(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for k in keys {
                let path = format!("{key}.{k}");
                data_differences(&there[k.as_str()], &here[k.as_str()], &path, out);
            }
        }
        _ if there != here => out.push(Difference {
            key: key.to_owned(),
            found: there.to_string(),
            wanted: here.to_string(),
            allowed_by: None,
        }),
        _ => {}
    }
}

/// Shows training events on the progress bar.
pub(super) struct Watcher<'a> {
    pub(super) cx: &'a Context,
    /// `train`, with the adapter's name if there are several.
    pub(super) label: String,
    /// Steps in all.
    pub(super) steps: u64,
    pub(super) tasks: Option<&'a TaskRuns>,
    pub(super) progress: &'a Progress,
    pub(super) signals: &'a Signals,
    /// Seconds of the steps that earlier processes did, once this one goes on behind them.
    pub(super) earlier: OnceLock<f64>,
    /// The data's order, if it may differ from that of earlier steps.
    pub(super) order: Option<&'a serde_json::Value>,
}

impl Watcher<'_> {
    /// Seconds of the training so far, with those of earlier processes.
    pub(super) fn seconds(&self) -> f64 {
        self.earlier.get().copied().unwrap_or(0.0) + self.progress.seconds()
    }

    /// The training is under way after `step`: the folder's job and its notes are this process's from here on.
    fn begin(&self, step: u64) {
        if self.earlier.get().is_some() {
            return;
        }
        self.earlier
            .get_or_init(|| seconds_up_to(&self.cx.out, step));
        // only other verbs read these; training goes on without them
        let noted = Training::note(&self.cx.out, self.steps, step);
        let order = self.order.map(|order| change_data(self.cx, order, step));
        let order = order.unwrap_or(Ok(()));
        if let Err(error) = self.cx.accept().and(noted).and(order) {
            log!("{}: {error:#}", self.label);
        }
    }
}

impl train::metrics::Events for Watcher<'_> {
    fn step(&self, r: &StepRecord) {
        self.begin(0);
        let note = format!(
            "loss {:.4}, lr {:.2e}, {:.0} tokens/s",
            r.loss, r.lr, r.tokens_per_s
        );
        self.progress.set(r.step, &note);
    }
    fn validation(&self, set: &str, step: u64, loss: f64) {
        let which = if set == "valid" { "validation" } else { set };
        self.progress.say(&format!(
            "{}: step {step}: {which} loss {loss:.4}",
            self.label
        ));
    }
    fn accuracy(&self, set: &str, step: u64, accuracy: f64) {
        let which = if set == "valid" { "validation" } else { set };
        self.progress.say(&format!(
            "{}: step {step}: {which} accuracy {accuracy:.4}",
            self.label
        ));
    }
    fn checkpoint(&self, step: u64, path: &Path) {
        self.progress
            .say(&format!("{}: step {step}: checkpoint written", self.label));
        let at = path.display();
        self.progress
            .detail(&format!("{}: step {step}: it is {at}", self.label));
        if let Some(tasks) = self.tasks {
            tasks.checkpoint(step, path);
        }
    }
    fn kernels(&self, path: &train::CpuPath) {
        self.progress
            .say(&format!("{}: kernels: {path}", self.label));
    }
    fn resumed(&self, step: u64) {
        // the checkpoint fits this job: the folder changes from here on
        self.cx.manifest.forget("train");
        self.begin(step);
        self.progress.begin_at(step);
        self.progress
            .say(&format!("{}: resuming after step {step}", self.label));
        if let Some(tasks) = self.tasks {
            tasks.resumed(step, &self.cx.out.join("checkpoints"));
        }
    }
    fn note(&self, text: &str) {
        self.progress.warn(&format!("{}: {text}", self.label));
    }
    fn info(&self, text: &str) {
        self.progress.say(&format!("{}: {text}", self.label));
    }
    fn is_stop_asked(&self) -> bool {
        self.signals.is_asked()
    }
    fn stuck(&self, error: &train::Error) {
        end(error);
    }
}

/// Events of process 1 and up: logs kernels and notes only.
struct Follower<'a> {
    signals: &'a Signals,
}

impl train::metrics::Events for Follower<'_> {
    fn step(&self, _: &StepRecord) {}
    fn validation(&self, _: &str, _: u64, _: f64) {}
    fn checkpoint(&self, _: u64, _: &Path) {}
    fn kernels(&self, path: &train::CpuPath) {
        info!("train: kernels: {path}");
    }
    fn resumed(&self, _: u64) {}
    fn note(&self, text: &str) {
        log!("train: {text}");
    }
    fn info(&self, text: &str) {
        info!("train: {text}");
    }
    fn is_stop_asked(&self) -> bool {
        self.signals.is_asked()
    }
    fn stuck(&self, error: &train::Error) {
        end(error);
    }
}

/// Exits the program although a rank's thread is stuck.
fn end(error: &train::Error) {
    let error = error.with_causes();
    log!("error: {error}; a rank of this process does not end");
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_of_the_data_is_named_and_equal_data_has_none() {
        let mut out = Vec::new();
        let there = json!({"datasets": {"a": 1, "b": 2}, "seed": 3});
        let here = json!({"datasets": {"a": 4, "b": 2}, "seed": 5});
        data_differences(&there, &here, "data", &mut out);
        let texts: Vec<String> = out.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "data.datasets.a: 1 there, 4 here",
                "data.seed: 3 there, 5 here"
            ]
        );
        out.clear();
        data_differences(&there, &there, "data", &mut out);
        assert!(out.is_empty());
    }
}
