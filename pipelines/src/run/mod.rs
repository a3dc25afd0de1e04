//! The verbs. Each stage computes its fingerprint, is skipped if done, works, and is recorded.

mod bad_records;
mod blend;
mod blend_samples;
mod chat;
mod chat_data;
mod classifiers;
mod convert;
mod curate;
mod curate_work;
mod decision;
mod dedup;
mod doctor;
mod doctor_measure;
mod epochs;
mod eval;
mod eval_adjectives;
mod eval_classifier;
mod eval_tasks;
mod explain;
mod export;
mod failure;
mod finished_shards;
mod generate;
mod hosts;
mod index_memory;
mod inspect;
mod job_at;
mod labelled;
mod launch;
mod left_out;
mod merge;
mod mixer;
mod models;
mod new;
mod new_outputs;
mod outlook;
mod plan;
mod plan_answer;
mod plan_bytes;
mod plan_page;
mod plan_question;
mod plan_serving;
mod plan_table;
mod plan_training;
mod plan_trials;
mod prompt_ids;
mod quantize;
mod report;
mod schema;
mod set_names;
mod setting_changes;
mod settings_print;
mod shell;
mod status;
mod takedown;
mod task;
mod task_args;
mod task_runs;
mod text_samples;
mod texts;
mod tokenize;
mod tokenize_decision;
mod tokenize_files;
mod train;
mod train_adapters;
mod train_data;
mod training;
mod training_decision;
mod words;

pub(crate) use self::curate::shards_left;
pub(crate) use blend::blend;
pub(crate) use chat::{ChatArgs, chat};
pub(crate) use convert::{Convert, convert};
pub(crate) use doctor::{compile_kernels, doctor};
pub(crate) use doctor_measure::measure;
pub(crate) use eval_tasks::{EvalTasks, eval_tasks};
pub(crate) use explain::{explain, filters, formats};
pub(crate) use export::{ExportArgs, export};
pub(crate) use failure::Failure;
pub(crate) use generate::{GenerateArgs, generate};
pub(crate) use hosts::{follow, join, lead};
pub(crate) use inspect::{extract, inspect};
pub(crate) use job_at::job_at;
pub(crate) use launch::{LaunchArgs, NodeArgs, check_line, launch, node_problems, note_of_fewest};
pub(crate) use left_out::note as note_left_out;
pub(crate) use merge::merge;
pub(crate) use mixer::mixer;
pub(crate) use models::{Classifier, Dsir, Ngram, classifier, dsir, ngram};
pub(crate) use new::{NewArgs, new};
pub(crate) use outlook::outlook;
pub(crate) use plan::{PlanArgs, plan};
pub(crate) use quantize::{Quantize, quantize};
pub(crate) use report::refilter;
pub(crate) use schema::schema;
pub(crate) use shell::{CompletionsArgs, completions, man};
pub(crate) use status::status;
pub(crate) use takedown::{TakedownArgs, takedown};
pub(crate) use task::task;
pub(crate) use tokenize_files::{TokenizeArgs, tokenize_files};
pub(crate) use train::note_of_rate;
pub(crate) use train_data::expect_training;
pub(crate) use training::TrainingState;

use crate::context::Context;
use crate::job::Job;
use crate::machine::{grouped, peak_rss_bytes};
use anyhow::{Context as _, Result};
use failure::watched;
use outlook::Outlook;
use std::path::Path;
use training_decision::has_history;

/// Stages in the order of a run, and whether a job has them.
pub(crate) fn stages(job: &Job) -> [(&'static str, bool); 7] {
    [
        ("curate", job.curate.is_some()),
        ("dedup", job.has_keep_lists()),
        ("tokenize", job.tokenize.is_some()),
        ("blend", job.blend.is_some()),
        ("train", job.train.is_some()),
        ("eval", job.eval.is_some()),
        ("generate", job.generate.is_some() || job.finetune.is_some()),
    ]
}

/// `run`: every table of the job, in order.
pub(crate) fn all(cx: &Context) -> Result<()> {
    let job = &cx.job;
    info!(
        "millrace {}: job {:?} in {}",
        env!("CARGO_PKG_VERSION"),
        job.name,
        cx.out.display()
    );
    let started = std::time::Instant::now();
    training_refused_first(cx, Outlook::of)?;
    type Verb = fn(&Context) -> Result<()>;
    let verbs: [Verb; 7] = [
        curated,
        deduplicated,
        tokenized,
        mixed,
        trained,
        eval,
        generated,
    ];
    for ((_, present), verb) in stages(job).into_iter().zip(verbs) {
        if present {
            verb(cx)?;
        }
    }
    // stages that were done before fit the job as it is now
    cx.accept()?;
    if job.report.is_some() {
        watched(cx, "report", |cx| report::run(&cx.job, &cx.out, None))?;
    }
    let spent = cx.recorded_seconds(&["curate", "dedup", "tokenize", "train"]);
    log!(
        "done in {:.1} s (recorded work {spent:.1} s), peak memory {} MB",
        started.elapsed().as_secs_f64(),
        grouped(peak_rss_bytes() / 1_000_000)
    );
    if job.report.is_some() {
        log!("report: {}", cx.out.join("report.html").display());
    }
    Ok(())
}

/// Refuses a job before its first stage changes a file. Without checkpoints nothing depends on what the stages replace: then
/// decisions are made for the log alone.
fn refused_first(cx: &Context, of: fn(&Context) -> Result<Outlook>) -> Result<()> {
    if !has_history(&cx.job) && !crate::log::is_verbose() {
        return Ok(());
    }
    let outlook = of(cx)?;
    outlook.detail();
    Ok(outlook.expect_allowed()?)
}

/// The same for a training, which may also begin with weights of another model.
fn training_refused_first(cx: &Context, of: fn(&Context) -> Result<Outlook>) -> Result<()> {
    if !has_history(&cx.job) {
        Outlook::of_new(cx).expect_allowed()?;
    }
    refused_first(cx, of)
}

/// Refuses a job before it is handed to its executor.
///
/// # Errors
/// `Refused`, and inputs, records or checkpoints that cannot be read.
pub(crate) fn refuse_submission(job: &Job) -> Result<()> {
    if !has_history(job) {
        // nothing depends on what the job will replace
        return Ok(());
    }
    // the threads of the process are those of the context that submits
    let threads = rayon::ThreadPoolBuilder::new().num_threads(job.threads);
    let threads = threads.build().context("cannot start threads")?;
    threads.install(|| refused_first(&Context::part_to_look(job.clone())?, Outlook::of))
}

/// Logs the decision of a stage that is the only one of its verb, for `--verbose`: `run` has logged those of all.
fn detailed(cx: &Context, of: fn(&Context) -> Result<Outlook>) -> Result<()> {
    if crate::log::is_verbose() {
        of(cx)?.detail();
    }
    Ok(())
}

pub(crate) fn curate(cx: &Context) -> Result<()> {
    left_out::note(&cx.job);
    watched(cx, "curate", |cx| {
        detailed(cx, Outlook::of_curate)?;
        curate::run(cx)
    })
}
fn curated(cx: &Context) -> Result<()> {
    left_out::note(&cx.job);
    watched(cx, "curate", curate::run)
}
pub(crate) fn dedup(cx: &Context) -> Result<()> {
    watched(cx, "dedup", |cx| {
        detailed(cx, Outlook::of_dedup)?;
        dedup::run(cx)
    })
}
fn deduplicated(cx: &Context) -> Result<()> {
    watched(cx, "dedup", dedup::run)
}
pub(crate) fn tokenize(cx: &Context) -> Result<()> {
    refused_first(cx, Outlook::of_tokenize)?;
    tokenized(cx)
}
fn tokenized(cx: &Context) -> Result<()> {
    if cx.job.curate.is_none() {
        left_out::note(&cx.job);
    }
    watched(cx, "tokenize", tokenize::run)
}
fn mixed(cx: &Context) -> Result<()> {
    watched(cx, "blend", blend::run)
}
pub(crate) fn train(cx: &Context) -> Result<()> {
    training_refused_first(cx, Outlook::of_train)?;
    trained(cx)
}
fn trained(cx: &Context) -> Result<()> {
    watched(cx, "train", |cx| match cx.job.has_adapters() {
        true => train_adapters::run(cx),
        false => train::run(cx),
    })
}
pub(crate) fn eval(cx: &Context) -> Result<()> {
    match cx.is_owner() {
        true => watched(cx, "eval", eval::run),
        // a failure beside a stage is none of the folder's
        false => eval::run(cx),
    }
}
fn generated(cx: &Context) -> Result<()> {
    watched(cx, "generate", generate::run)
}
/// `report`, with a comparison if another run is given. It only reads, and writes the page: no lock is needed beside a stage.
pub(crate) fn report(cx: &Context, other: Option<&Path>) -> Result<()> {
    let other = other.map(report::of_folder).transpose()?;
    report::run(&cx.job, &cx.out, other.as_ref())
}
