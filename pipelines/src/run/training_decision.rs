//! Decisions of the stages from the blend on: `blend`, `train`, `eval` and `generate`.

use super::blend::{self, Blended};
use super::decision::{Action, Change, Decision, Effect, Reason, files_there};
use super::train::{explained, print_of};
use super::train_data::TrainData;
use super::{eval, generate, setting_changes};
use crate::context::{Context, JOB, relative};
use crate::generation::trained_tokenizer::has_checkpoints;
use crate::job::{Job, LoadError};
use crate::log::message;
use anyhow::Result;
use std::path::Path;
use train::config::Plan;
use train::metrics::StepRecord;
use train::trainer::{Resumption, Training, resumption, resumption_by_settings};

/// Tables and keys that a training depends on.
const SETTINGS: [&str; 8] = [
    "train",
    "model",
    "blend",
    "finetune",
    "classify",
    "seed",
    "determinism",
    "parallel",
];

/// Notes of the trainer, which the training itself repeats, are dropped.
struct Silent;

impl train::metrics::Events for Silent {
    fn step(&self, _: &StepRecord) {}
    fn validation(&self, _: &str, _: u64, _: f64) {}
    fn checkpoint(&self, _: u64, _: &Path) {}
    fn resumed(&self, _: u64) {}
    fn note(&self, _: &str) {}
}

/// Whether a training may be refused for what is in its folder, or for the checkpoint that it branches from.
pub(super) fn has_history(job: &Job) -> bool {
    let from = (job.train.as_ref()).is_some_and(|train| !train.resume.from.is_empty());
    let parts = job.of_adapters();
    from || has_checkpoints(&job.out) || parts.iter().any(|part| has_checkpoints(&part.out))
}

/// Decisions of the stages from the blend on. `change`: of the tokens; without one the data is opened.
///
/// # Errors
/// Data or checkpoints that cannot be read.
pub(super) fn decisions(cx: &Context, change: Option<&Change>) -> Result<Vec<Decision>> {
    let job = &cx.job;
    let data = match (change, &job.train) {
        (None, Some(_)) if !job.has_adapters() => Some(TrainData::open(cx)?),
        (None | Some(_), Some(_) | None) => None,
    };
    // a job without a training may have a blend of its own
    let has_blend_alone = job.train.is_none() && job.blend.is_some() && change.is_none();
    let alone = match has_blend_alone {
        true => Some(Blended::open(cx)?),
        false => None,
    };
    let blended = match &data {
        Some(TrainData::Blend(blended)) => Some(&**blended),
        Some(TrainData::Labelled(_) | TrainData::Chats(_)) | None => alone.as_ref(),
    };
    let mut all = Vec::new();
    if job.blend.is_some() {
        all.push(match (blended, change) {
            (Some(blended), _) => blend::decision(cx, blended)?,
            (None, change) => {
                let reasons = change.map(Change::reason);
                let decision = blend::of_run(cx, reasons.into_iter().collect());
                after(cx, decision, change)?
            }
        });
    }
    let before = all.len();
    match (&data, change) {
        (_, None) if job.has_adapters() => all.extend(of_adapters(cx)?),
        (Some(data), _) => all.push(training(cx, data, "train")?),
        (None, Some(change)) if job.train.is_some() => all.push(on_other_tokens(cx, change)?),
        (None, _) => {}
    }
    // the data is another one, or the checkpoints are
    let trained = Change::of(&all[before..]);
    let of_either = Change::of_both(change.cloned(), trained.clone());
    if job.eval.is_some() {
        all.push(match (&of_either, blended) {
            (None, Some(blended)) => eval::decision(cx, blended)?,
            (None, None) => eval::of_run(cx, Vec::new()),
            (Some(change), _) => {
                let decision = eval::of_run(cx, vec![change.reason()]);
                after(cx, decision, Some(change))?
            }
        });
    }
    if job.generate.is_some() || job.finetune.is_some() {
        all.push(match trained {
            None => generated(cx)?,
            Some(trained) => {
                let decision = generate::of_run(cx, vec![trained.reason()]);
                after(cx, decision, Some(&trained))?
            }
        });
    }
    Ok(all)
}

/// The decision of a stage behind one that changes: one that has run before is skipped if that comes out as before.
fn after(cx: &Context, mut decision: Decision, change: Option<&Change>) -> Result<Decision> {
    if let Some(change) = change
        && cx.manifest.get(&decision.stage)?.is_some()
    {
        decision.action = change.action();
    }
    Ok(decision)
}

fn generated(cx: &Context) -> Result<Decision> {
    if !cx.job.has_adapters() {
        return generate::decision(cx);
    }
    for part in cx.job.of_adapters() {
        let decision = generate::decision(&Context::part_to_look(part)?)?;
        if decision.action != Action::Skip {
            return Ok(decision);
        }
    }
    Ok(Decision::skip("generate"))
}

/// The training of each adapter.
fn of_adapters(cx: &Context) -> Result<Vec<Decision>> {
    let names = cx.job.finetune.iter().flat_map(|table| &table.adapters);
    let parts = cx.job.of_adapters().into_iter().zip(names);
    let decisions = parts.map(|(part, adapter)| {
        let part = Context::part_to_look(part)?;
        let data = TrainData::open(&part)?;
        training(&part, &data, &format!("train {}", adapter.name))
    });
    decisions.collect()
}

/// A training whose data is known.
fn training(cx: &Context, data: &TrainData, stage: &str) -> Result<Decision> {
    let plan = data.plan(cx)?;
    if cx.done("train", &print_of(&plan))?.is_some() {
        let mut decision = Decision::skip(stage);
        decision.progress = Some(format!("{} steps are done", plan.train.steps));
        return Ok(decision);
    }
    let found = data.with_samples(cx, |samples, sets| {
        let training = Training {
            plan: &plan,
            train_set: samples,
            sets,
            out: &cx.out,
            events: &Silent,
        };
        Ok(resumption(&training)?)
    });
    let mut decision = match found {
        Ok(found) => of_resumption(cx, &plan, found.as_ref()),
        Err(error) => {
            let error = explained(cx, data, error);
            let mut decision = Decision::run(stage, settings(cx));
            decision.refusal = Some(refusal(error)?);
            decision
        }
    };
    decision.stage = stage.into();
    Ok(decision)
}

/// A training whose tokens are made again: the settings alone are compared with the checkpoint's.
fn on_other_tokens(cx: &Context, change: &Change) -> Result<Decision> {
    let plan = cx.job.rough_plan().filter(|_| has_history(&cx.job));
    // of others the steps follow from their data
    let plan = plan.filter(|_| cx.job.finetune.is_none() && cx.job.classify.is_none());
    let found = match &plan {
        Some(plan) => match resumption_by_settings(plan, &cx.out, &Silent) {
            Ok(found) => found,
            Err(error) => {
                let mut decision = Decision::run("train", settings(cx));
                decision.refusal = Some(refusal(error.into())?);
                return Ok(decision);
            }
        },
        None => None,
    };
    let is_over = found.as_ref().is_some_and(|found| found.is_over);
    let is_finished = is_over && cx.manifest.get("train")?.is_some();
    let mut decision = match &plan {
        Some(plan) => of_resumption(cx, plan, found.as_ref()),
        None => Decision::run("train", settings(cx)),
    };
    // a training that is over, with the same settings, is done again on other tokens alone
    if is_finished && decision.reasons.is_empty() && change.effect == Effect::Perhaps {
        decision.action = Action::Depends;
    }
    let mut reason = change.reason();
    if is_over {
        // whatever the tokens are: no step follows
        reason.effect = Effect::Same;
    }
    decision.reasons.insert(0, reason);
    Ok(decision)
}

/// The decision of a training that goes on, or begins.
fn of_resumption(cx: &Context, plan: &Plan, found: Option<&Resumption>) -> Decision {
    let Some(found) = found else {
        let reasons = vec![Reason::other("it has no checkpoint")];
        let mut decision = Decision::run("train", reasons);
        decision.replaces = files_there(&cx.out, std::iter::once("metrics.jsonl".into()));
        decision.refusal = init_refusal(cx);
        return decision;
    };
    // a training that is over keeps its checkpoint
    let effect = match found.is_over {
        true => Effect::Same,
        false => Effect::Other,
    };
    let reason = |text: String| Reason::new(text, effect);
    let changes = found.changes.iter().map(|change| {
        let (key, before, after) = (&change.key, &change.before, &change.after);
        let step = change.after_step;
        reason(format!(
            "{key} changes from {before} to {after} after step {step}"
        ))
    });
    let mut reasons: Vec<Reason> = changes.collect();
    let others = settings(cx).into_iter().filter(|one| {
        let key = one.text.split(' ').next().unwrap_or_default();
        !found.changes.iter().any(|change| change.key == key)
    });
    reasons.extend(others.map(|one| reason(one.text)));
    if !found.is_over {
        reasons.push(reason("steps are left".into()));
    }
    let mut decision = Decision::run("train", reasons);
    decision.action = Action::GoOn;
    decision.progress = Some(format!(
        "goes on after step {} of {} from {}",
        found.step,
        plan.train.steps,
        relative(&cx.out, &found.checkpoint).display()
    ));
    decision
}

fn settings(cx: &Context) -> Vec<Reason> {
    let changed = setting_changes::of(&cx.job, &cx.out);
    let lines = setting_changes::within(&changed, &SETTINGS).into_iter();
    // what may change is no change itself
    let lines = lines.filter(|line| !line.starts_with("train.resume"));
    lines.map(Reason::other).collect()
}

/// Initial weights that are not the model's.
pub(super) fn init_refusal(cx: &Context) -> Option<String> {
    let problems = cx.job.init_problems();
    let is_wrong = !problems.is_empty();
    is_wrong.then(|| LoadError::of_job(&cx.out.join(JOB), &[], problems).to_string())
}

/// The words of a refusal; other errors are passed on.
fn refusal(error: anyhow::Error) -> Result<String> {
    match error.downcast_ref::<train::Error>() {
        Some(
            train::Error::Mismatch { .. }
            | train::Error::Plan(_)
            | train::Error::TooFewSamples { .. }
            | train::Error::NoSamples { .. },
        ) => Ok(message(&error)),
        Some(_) | None => Err(error),
    }
}
