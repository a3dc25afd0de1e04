//! `train` of `[[finetune.adapters]]`: all adapters together over one base, each in its own folder with the files and records that
//! a training alone has there, and the same bits.

use super::chat_data::ChatData;
use super::task_runs::TaskRuns;
use super::train::{Finished, Watcher, note_of_rate, print_memory, print_of, record_data};
use super::training::Training as Noted;
use crate::context::{Context, relative};
use crate::generation::trained_tokenizer::has_checkpoints;
use crate::machine::grouped;
use crate::manifest::fingerprint;
use crate::progress::Progress;
use crate::signals::Signals;
use anyhow::{Context as _, Result, bail};
use serde_json::{Map, json};
use std::sync::OnceLock;
use train::checkpoint::Ended;
use train::config::Plan;
use train::dist::World;
use train::trainer::{Outcome, Training, ValidationSet, memory, run_together};

/// The opened jobs of a job's adapters, for stages that write there.
///
/// # Errors
/// A folder that another process works in.
pub(super) fn parts(cx: &Context) -> Result<Vec<Context>> {
    let jobs = cx.job.of_adapters().into_iter();
    jobs.map(Context::open_part).collect()
}

/// An adapter before its training.
struct Adapter<'a> {
    cx: &'a Context,
    name: &'a str,
    data: ChatData,
    plan: Plan,
    print: String,
    tasks: Option<TaskRuns>,
}

impl<'a> Adapter<'a> {
    fn open(cx: &'a Context, name: &'a str) -> Result<Adapter<'a>> {
        let of = || format!("adapter {name}");
        let table = cx.job.finetune.as_ref().with_context(of)?;
        let data = ChatData::open(cx, table).with_context(of)?;
        let plan = data.plan(cx, table).with_context(of)?;
        Ok(Adapter {
            tasks: None,
            print: print_of(&plan),
            cx,
            name,
            data,
            plan,
        })
    }

    fn prepare(&mut self) -> Result<()> {
        note_of_rate(&format!("train {}", self.name), &self.plan.train);
        record_data(self.cx, &self.data.order)?;
        self.data.keep_files(self.cx)?;
        self.tasks = TaskRuns::of(self.cx, &self.plan)?;
        if has_checkpoints(&self.cx.out) {
            return Ok(());
        }
        self.cx.accept()?;
        self.cx.manifest.forget("train");
        Noted::note(&self.cx.out, self.plan.train.steps, 0)
    }
}

/// Trains the adapters that are not done.
pub(super) fn run(cx: &Context) -> Result<()> {
    let world = cx
        .take_world()
        .unwrap_or_else(|| World::alone().on(crate::devices::of(&cx.job)));
    if world.processes() > 1 {
        bail!(
            "finetune.adapters: found {} processes, want one, with all ranks in it",
            world.processes()
        );
    }
    let names = cx.job.finetune.iter().flat_map(|table| &table.adapters);
    let names: Vec<&str> = names.map(|adapter| adapter.name.as_str()).collect();
    let parts = parts(cx)?;
    let all = parts.iter().zip(&names);
    let all = all.map(|(part, name)| Adapter::open(part, name));
    let mut adapters: Vec<Adapter<'_>> = all.collect::<Result<_>>()?;
    let prints: Vec<&str> = adapters.iter().map(|one| one.print.as_str()).collect();
    let print = fingerprint(&json!(prints));
    let mut left = Vec::new();
    for (number, adapter) in adapters.iter().enumerate() {
        match adapter.cx.done("train", &adapter.print)? {
            Some(_) => info!("train {}: done before", adapter.name),
            None => left.push(number),
        }
    }
    if left.is_empty() && cx.done("train", &print)?.is_some() {
        return Ok(());
    }
    cx.manifest.forget("train");
    let mut going = adapters.iter_mut().enumerate();
    going.try_for_each(|(number, adapter)| match left.contains(&number) {
        true => adapter.prepare(),
        false => Ok(()),
    })?;
    let open: Vec<&Adapter<'_>> = left.iter().map(|&number| &adapters[number]).collect();
    if !open.is_empty() {
        train(&open, &world)?;
    }
    cx.accept()?;
    record(cx, &adapters, &print)
}

/// Trains adapters together and records each.
fn train(adapters: &[&Adapter<'_>], world: &World) -> Result<()> {
    let plans: Vec<&Plan> = adapters.iter().map(|adapter| &adapter.plan).collect();
    let first = plans[0];
    let trained: u64 = plans.iter().map(|plan| plan.trained_parameters()).sum();
    let parallel = &first.parallel;
    info!(
        "train: {} adapters of {} parameters over one base of {}, tp {} pp {} dp {} cp {} zero {}",
        adapters.len(),
        grouped(trained),
        grouped(first.parameters() - first.trained_parameters()),
        parallel.tp,
        parallel.pp,
        parallel.dp,
        parallel.cp,
        parallel.zero
    );
    print_memory(&memory::predict_together(&plans));
    if first.train.peak_tflops == 0.0 && world.devices().is_cpu() {
        // without it, lines of metrics have no mfu
        world.measure_peak(first)?;
    }
    let steps = plans.iter().map(|plan| plan.train.steps);
    let progress = Progress::start("train", "steps", steps.max().unwrap_or(0));
    let signals = Signals::listen()?;
    let watchers = adapters.iter().map(|adapter| Watcher {
        cx: adapter.cx,
        label: format!("train {}", adapter.name),
        steps: adapter.plan.train.steps,
        tasks: adapter.tasks.as_ref(),
        progress: &progress,
        signals: &signals,
        earlier: OnceLock::new(),
        order: (adapter.plan.train.resume.allows_data()).then_some(&adapter.data.order),
    });
    let watchers: Vec<Watcher<'_>> = watchers.collect();
    let sets = adapters.iter().map(|adapter| {
        let sets = adapter.data.valid.iter();
        sets.map(|(name, samples)| ValidationSet { name, samples })
            .collect()
    });
    let sets: Vec<Vec<ValidationSet<'_>>> = sets.collect();
    let trainings = (0..adapters.len()).map(|number| Training {
        plan: plans[number],
        train_set: adapters[number].data.train(),
        sets: &sets[number],
        out: &adapters[number].cx.out,
        events: &watchers[number],
    });
    let outcomes = run_together(&trainings.collect::<Vec<_>>(), world)?;
    let mut stopped = Vec::new();
    for ((adapter, outcome), watcher) in adapters.iter().zip(&outcomes).zip(&watchers) {
        if outcome.ended == Ended::Asked {
            stopped.push(format!("{} after step {}", adapter.name, outcome.steps));
            continue;
        }
        let done = Finished {
            plan: &adapter.plan,
            outcome,
            print: &adapter.print,
            seconds: watcher.seconds(),
        };
        done.record(adapter.cx, adapter.tasks.as_ref())?;
    }
    drop(watchers);
    if !stopped.is_empty() {
        progress.finish(&format!(
            "stopped by a signal: {}; the same command continues from their checkpoints",
            stopped.join(", ")
        ));
        return Err(signals.interrupted().into());
    }
    let pairs = adapters.iter().zip(&outcomes);
    let summaries: Vec<String> = pairs
        .map(|(adapter, outcome)| summary(adapter, outcome))
        .collect();
    progress.finish(&summaries.join(", "));
    Ok(())
}

/// The end of an adapter's training, for the terminal.
fn summary(adapter: &Adapter<'_>, outcome: &Outcome) -> String {
    format!(
        "{} {} steps, loss {:.4}",
        adapter.name, outcome.steps, outcome.loss
    )
}

/// Records the stage of the job with what each adapter's own record says.
fn record(cx: &Context, adapters: &[Adapter<'_>], print: &str) -> Result<()> {
    let (mut counts, mut files, mut steps) = (Map::new(), Vec::new(), 0);
    // they are trained together
    let mut seconds: f64 = 0.0;
    for adapter in adapters {
        let record = adapter.cx.manifest.get("train")?;
        let record = record.with_context(|| format!("no record of adapter {}", adapter.name))?;
        steps = steps.max(record.counts["steps"].as_u64().unwrap_or(0));
        seconds = seconds.max(record.seconds);
        counts.insert(adapter.name.to_owned(), record.counts);
        files.push(relative(&cx.out, &adapter.cx.out.join("metrics.jsonl")));
    }
    let counts = json!({"steps": steps, "adapters": counts});
    let recorded = cx.manifest.record("train", print, &files, counts, seconds);
    recorded.map(drop)
}
