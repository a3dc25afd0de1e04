//! `train`: the blend's samples into the trainer, which resumes by itself; its events onto the bar.

use super::hosts::{DONE, TRAIN, told};
use super::{Blended, Context, PartSamples};
use crate::machine::grouped;
use crate::manifest::{fingerprint, identity};
use crate::progress::Progress;
use crate::signals::Signals;
use anyhow::{Context as _, Result, bail};
use index::{BertItem, Cyclic, Part, T5Item};
use serde_json::json;
use std::path::{Path, PathBuf};
use train::{Ended, Plan, Samples, StepRecord, ValidationSet, World};

/// A blend as the trainer reads it: as it comes, or shuffled every epoch.
pub(super) struct BlendSamples<'a>(pub &'a PartSamples, pub Option<Cyclic>);

impl train::Samples for BlendSamples<'_> {
    fn len(&self) -> u64 {
        match &self.1 {
            Some(_) => u64::MAX, // epoch after epoch
            None => self.0.len(),
        }
    }
    fn read(
        &self,
        index: u64,
        sample: &mut train::Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let index = self.1.as_ref().map_or(index, |order| order.at(index));
        match self.0 {
            PartSamples::Text(samples) => samples.fill(index, sample.text()?)?,
            PartSamples::Masked(blend) => {
                if let Some(item) = blend.t5(index)? {
                    fill_spans(sample.spans()?, &item)?;
                } else if let Some(item) = blend.bert(index)? {
                    fill(sample.masked()?, &item)?;
                }
            }
        }
        Ok(())
    }
}

/// BERT's sample as the trainer takes it. Padding is token 0 of segment 0: nothing sees it.
fn fill(to: &mut train::MaskedSample, item: &BertItem) -> Result<()> {
    to.length = item.length;
    to.is_swapped = item.is_random;
    let ids = |from: &[i32], to: &mut [u32]| -> Result<()> {
        for (at, (to, from)) in to.iter_mut().zip(from).enumerate() {
            *to = if at < item.length {
                u32::try_from((*from).max(0))?
            } else {
                0
            };
        }
        Ok(())
    };
    ids(&item.text, &mut to.tokens)?;
    ids(&item.types, &mut to.segments)?;
    ids(&item.labels, &mut to.targets)?;
    for (counts, mask) in to.counts.iter_mut().zip(&item.loss_mask) {
        *counts = *mask == 1;
    }
    Ok(())
}

/// T5's sample as the trainer takes it.
fn fill_spans(to: &mut train::SpanSample, item: &T5Item) -> Result<()> {
    let ids = |from: &[i32], to: &mut [u32]| -> Result<()> {
        for (to, from) in to.iter_mut().zip(from) {
            *to = u32::try_from((*from).max(0))?;
        }
        Ok(())
    };
    to.length = item.enc_mask.iter().filter(|seen| **seen == 1).count();
    ids(&item.text_enc, &mut to.tokens)?;
    ids(&item.text_dec, &mut to.decoder_tokens)?;
    ids(&item.labels, &mut to.targets)?;
    for (counts, mask) in to.counts.iter_mut().zip(&item.loss_mask) {
        *counts = *mask == 1;
    }
    Ok(())
}

/// The plan of this job for an opened blend.
pub(super) fn plan(cx: &Context, blended: &Blended) -> Result<Plan> {
    let model = cx
        .job
        .model
        .as_ref()
        .context("the job has no [model] table")?;
    let train = cx
        .job
        .train
        .as_ref()
        .context("the job has no [train] table")?;
    let seq_length = cx.job.blend.as_ref().map_or(0, |b| b.seq_length);
    let print = blended.fingerprint(Part::Train);
    let ids = (blended.vocab, blended.eod);
    let plan = cx.job.plan(model, train, seq_length, ids, print);
    let mut plan = Plan {
        start: blended.start,
        ..plan
    };
    if cx.job.blend.as_ref().is_some_and(|b| b.full_validation) {
        plan.train.eval_samples = super::blend::EVERY_SAMPLE;
    }
    Ok(plan)
}

/// Newest checkpoint of the job.
pub(super) fn newest_checkpoint(out: &Path) -> Result<PathBuf> {
    let folder = out.join("checkpoints");
    let entries = std::fs::read_dir(&folder).with_context(|| {
        format!(
            "no checkpoints in {}; run `millrace train` first",
            folder.display()
        )
    })?;
    let mut steps: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    steps.retain(|p| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("step-"))
    });
    steps.sort();
    match steps.pop() {
        Some(p) => Ok(p),
        None => bail!("no checkpoint in {}", folder.display()),
    }
}

pub(super) fn run(cx: &Context) -> Result<()> {
    let world = cx.take_world().unwrap_or_else(World::alone);
    let done = if world.is_first() {
        lead(cx, &world)
    } else {
        follow(cx, &world)
    };
    told(&world, done)
}

/// A process other than 0: its share of the ranks, nothing to write.
fn follow(cx: &Context, world: &World) -> Result<()> {
    let blended = Blended::open(cx)?;
    let plan = plan(cx, &blended)?;
    let signals = Signals::listen()?;
    let outcome = with_samples(
        cx,
        (&plan, &blended),
        world,
        &Follower { signals: &signals },
    )?;
    eprintln!("train: {} steps", outcome.steps);
    Ok(())
}

/// Trains on the samples of the blend.
fn with_samples(
    cx: &Context,
    (plan, blended): (&Plan, &Blended),
    world: &World,
    events: &dyn train::Events,
) -> Result<train::Outcome> {
    let named = blended.validation(cx)?;
    let own = blended.parts[Part::Valid as usize].as_ref();
    let own = own.map(|samples| ("valid", BlendSamples(samples, None)));
    let more = named.iter();
    let more = more.map(|(name, samples)| (name.as_str(), BlendSamples(samples, None)));
    let valid: Vec<(&str, BlendSamples<'_>)> = own.into_iter().chain(more).collect();
    let samples = BlendSamples(blended.part(Part::Train)?, blended.cyclic(cx)?);
    let sets: Vec<ValidationSet<'_>> = valid
        .iter()
        .map(|(name, samples)| ValidationSet { name, samples })
        .collect();
    if world.processes() > 1 {
        let lengths: Vec<u64> = valid.iter().map(|(_, samples)| samples.len()).collect();
        let data = json!({"fingerprint": plan.fingerprint, "vocabulary": plan.vocab,
            "samples": samples.len(), "validation": lengths});
        world.compare("data", &data)?;
    }
    Ok(train::run_in_world(
        plan,
        &samples,
        &sets,
        (&cx.out, world),
        events,
    )?)
}

fn lead(cx: &Context, world: &World) -> Result<()> {
    let blended = Blended::open(cx)?;
    let plan = plan(cx, &blended)?;
    // the layout is part of the plan but not of the result
    let mut parts = vec![
        json!(plan.model),
        json!(plan.train),
        json!(plan.vocab),
        json!(plan.seq_length),
        json!(plan.seed),
        json!(plan.determinism),
        json!(plan.fingerprint),
    ];
    if !plan.train.init_from.is_empty() {
        parts.push(source_identity(Path::new(&plan.train.init_from)));
    }
    let print = fingerprint(&json!(parts));
    if cx.manifest.done("train", &print)?.is_some() {
        eprintln!("train: done before ({} steps)", plan.train.steps);
        world.exchange(DONE)?;
        return Ok(());
    }
    refuse_other_settings(cx, &plan, &blended)?;
    cx.manifest.forget("train");
    let parallel = &plan.parallel;
    eprintln!(
        "train: {} parameters, vocabulary {}, {} tokens a step, tp {} pp {} dp {} cp {} zero {}",
        grouped(plan.parameters()),
        grouped(plan.vocab as u64),
        grouped((plan.train.global_batch * plan.sample_tokens()) as u64),
        parallel.tp,
        parallel.pp,
        parallel.dp,
        parallel.cp,
        parallel.zero
    );
    // a plan that contradicts itself is told by the run
    let ranks = train::memory::predict(&plan).unwrap_or_default();
    if let Some(rank) = ranks.iter().max_by_key(|rank| rank.total()) {
        eprintln!(
            "train: the fullest of {} ranks holds {} MB: weights {}, optimizer {}, gradients {}, activations {}, packed weights {}, copy for checkpoints {}",
            ranks.len(),
            rank.total() / 1_000_000,
            rank.weights / 1_000_000,
            rank.optimizer / 1_000_000,
            rank.gradients / 1_000_000,
            rank.activations / 1_000_000,
            rank.packs / 1_000_000,
            rank.snapshot / 1_000_000
        );
    }
    let progress = Progress::start("train", "steps", plan.train.steps);
    let signals = Signals::listen()?;
    let watcher = Watcher {
        progress: &progress,
        signals: &signals,
    };
    world.exchange(TRAIN)?;
    let outcome = with_samples(cx, (&plan, &blended), world, &watcher)?;
    if outcome.ended == Ended::Asked {
        progress.finish(&format!(
            "stopped by a signal after step {}; the same command goes on from its checkpoint",
            outcome.steps
        ));
        cx.stop();
        return Ok(());
    }
    let mut files: Vec<PathBuf> = vec!["metrics.jsonl".into()];
    let mut inside: Vec<PathBuf> = std::fs::read_dir(&outcome.checkpoint)
        .with_context(|| outcome.checkpoint.display().to_string())?
        .flatten()
        .map(|e| super::relative(&cx.out, &e.path()))
        .collect();
    inside.sort();
    files.extend(inside);
    let counts = json!({"steps": outcome.steps, "loss": outcome.loss, "valid_loss": outcome.valid_loss,
        "best_valid_loss": outcome.best_valid_loss, "tokens": outcome.tokens,
        "checkpoint": super::relative(&cx.out, &outcome.checkpoint), "parameters": plan.parameters(),
        "init_from": (!plan.train.init_from.is_empty()).then_some(&plan.train.init_from), "init_xxh3": outcome.init});
    let seconds = progress.seconds();
    cx.manifest
        .record("train", &print, &files, counts, seconds)?;
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

/// Identities of the files that the first weights come from.
fn source_identity(path: &Path) -> serde_json::Value {
    let folder = match path.ends_with("ema.safetensors") {
        true => path.parent().unwrap_or(path),
        false => path,
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    json!(files.iter().map(|file| identity(file)).collect::<Vec<_>>())
}

/// Settings that may change between two runs of one training: they decide what is written when, not what is learnt.
const BOOKKEEPING: [&str; 6] = [
    "eval_every",
    "eval_samples",
    "early_stop",
    "checkpoint",
    "log_every",
    "profile",
];

/// Checkpoints made with other settings must not be taken for this job's: refused with every key that differs.
fn refuse_other_settings(cx: &Context, plan: &Plan, blended: &Blended) -> Result<()> {
    let mut settings = json!({"model": plan.model, "train": plan.train, "vocab": plan.vocab,
        "seq_length": plan.seq_length, "seed": plan.seed, "determinism": plan.determinism,
        "data": blended.orders[Part::Train as usize]});
    for (table, key) in BOOKKEEPING
        .map(|k| ("train", k))
        .into_iter()
        // the same bits whatever these are; the trainer compares the weights themselves
        .chain(
            [
                "micro_batch",
                "recompute",
                "recompute_layers",
                "chunked_cross_entropy",
                "offload",
                "keep_packed",
                "init_from",
            ]
            .map(|k| ("train", k)),
        )
        // with a constant rate, more steps only follow those before; else they change the rate of all
        .chain((plan.train.schedule == train::Schedule::Constant).then_some(("train", "steps")))
    {
        settings[table].as_object_mut().and_then(|t| t.remove(key));
    }
    let folder = cx.out.join("checkpoints");
    let begun = std::fs::read_dir(&folder).is_ok_and(|mut d| d.next().is_some());
    if let (true, Some(record)) = (begun, cx.manifest.get("train/settings")?) {
        let mut changes = Vec::new();
        differences(&record.counts, &settings, "", &mut changes);
        if !changes.is_empty() {
            bail!(
                "{} was trained with other settings ({}); delete it to train anew, or give another `out`",
                folder.display(),
                changes.join("; ")
            );
        }
    }
    cx.manifest.record(
        "train/settings",
        &fingerprint(&settings),
        &[],
        settings,
        0.0,
    )?;
    Ok(())
}

/// `key: a there, b here` for every leaf that differs.
fn differences(
    there: &serde_json::Value,
    here: &serde_json::Value,
    key: &str,
    out: &mut Vec<String>,
) {
    match (there.as_object(), here.as_object()) {
        (Some(a), Some(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for k in keys {
                let path = if key.is_empty() {
                    k.clone()
                } else {
                    format!("{key}.{k}")
                };
                differences(&there[k.as_str()], &here[k.as_str()], &path, out);
            }
        }
        _ if there != here => out.push(format!("{key}: {there} there, {here} here")),
        _ => {}
    }
}

/// Training events onto the bar.
struct Watcher<'a> {
    progress: &'a Progress,
    signals: &'a Signals,
}

impl train::Events for Watcher<'_> {
    fn step(&self, r: &StepRecord) {
        let note = format!(
            "loss {:.4}, lr {:.2e}, {:.0} tokens/s",
            r.loss, r.lr, r.tokens_per_s
        );
        self.progress.set(r.step, &note);
    }
    fn validation(&self, set: &str, step: u64, loss: f64) {
        let which = if set == "valid" { "validation" } else { set };
        self.progress
            .say(&format!("train: step {step}: {which} loss {loss:.4}"));
    }
    fn checkpoint(&self, step: u64, _path: &Path) {
        self.progress
            .say(&format!("train: step {step}: checkpoint written"));
    }
    fn kernels(&self, path: &train::CpuPath) {
        self.progress.say(&format!("train: kernels: {path}"));
    }
    fn resumed(&self, step: u64) {
        self.progress
            .say(&format!("train: going on after step {step}"));
    }
    fn note(&self, text: &str) {
        self.progress.say(&format!("train: {text}"));
    }
    fn is_stop_asked(&self) -> bool {
        self.signals.is_asked()
    }
    fn stuck(&self, error: &train::Error) {
        end(error);
    }
}

/// What a process other than 0 hears and says.
struct Follower<'a> {
    signals: &'a Signals,
}

impl train::Events for Follower<'_> {
    fn step(&self, _: &StepRecord) {}
    fn validation(&self, _: &str, _: u64, _: f64) {}
    fn checkpoint(&self, _: u64, _: &Path) {}
    fn kernels(&self, path: &train::CpuPath) {
        eprintln!("train: kernels: {path}");
    }
    fn resumed(&self, _: u64) {}
    fn note(&self, text: &str) {
        eprintln!("train: {text}");
    }
    fn is_stop_asked(&self) -> bool {
        self.signals.is_asked()
    }
    fn stuck(&self, error: &train::Error) {
        end(error);
    }
}

/// Ends the program although a rank's thread does not.
fn end(error: &train::Error) {
    let error = error.with_causes();
    eprintln!("error: {error}; a rank of this process does not end");
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_setting_is_named_and_equal_ones_are_not() {
        let mut out = Vec::new();
        let there = json!({"train": {"lr": 1, "steps": 2}, "seed": 3});
        differences(
            &there,
            &json!({"train": {"lr": 4, "steps": 2}, "seed": 5}),
            "",
            &mut out,
        );
        assert_eq!(out, ["seed: 3 there, 5 here", "train.lr: 1 there, 4 here"]);
        out.clear();
        differences(&there, &there, "", &mut out);
        assert!(out.is_empty());
    }
}
