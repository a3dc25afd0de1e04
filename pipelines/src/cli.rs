//! The command line (clap): the verbs and their few flags. Every other setting is a key of the job file.

use crate::context::Context;
use crate::job::{self, Executor, Job};
use crate::signals::Interrupted;
use crate::{executor, run};
use anyhow::bail;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// From raw web text to a trained language model.
#[derive(Parser)]
#[command(name = "millrace", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// A job file and its overrides from the command line.
#[derive(Args)]
pub(crate) struct JobArgs {
    /// Job file (TOML).
    job: PathBuf,
    /// Override one key, e.g. --set train.steps=50 (repeatable; array elements by number).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the job, print it resolved, and stop.
    #[arg(long)]
    check: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Run every stage of a job: finished stages are skipped, an interrupted run resumes where it stopped.
    Run {
        #[command(flatten)]
        job: JobArgs,
        /// Print what would be submitted to the job's executor, and stop.
        #[arg(long)]
        dry_run: bool,
    },
    /// Run one task of a stage (started by executors).
    Task {
        #[command(flatten)]
        job: JobArgs,
        /// The stage, one that is divided into tasks: curate.
        #[arg(long)]
        stage: String,
        /// Number of the task, from 0.
        #[arg(long)]
        index: usize,
        /// Number of tasks.
        #[arg(long)]
        of: usize,
    },
    /// Show the progress of a job, from the files in its folder.
    Status {
        /// Job file (TOML).
        job: PathBuf,
        /// Override one key of the job.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// As JSON on stdout.
        #[arg(long)]
        json: bool,
    },
    /// Read, extract and filter.
    Curate(JobArgs),
    /// Mark exact and near duplicates.
    Dedup(JobArgs),
    /// Train or load the tokenizer and write the token datasets.
    Tokenize(JobArgs),
    /// Merge token datasets, or indexes of earlier crawls, into one, in the order given; a folder is read as
    /// everything in it, sorted by name.
    Merge {
        /// Prefix of the dataset to write, or a file *.index.
        out: PathBuf,
        /// Prefixes (without .bin and .idx), files *.index, or folders.
        #[arg(required = true)]
        parts: Vec<PathBuf>,
    },
    /// Show the blend: requested and realised shares, epochs.
    Blend {
        #[command(flatten)]
        job: JobArgs,
        /// Hashes of the index arrays and the tokens of the first K samples of each split.
        #[arg(long, value_name = "K")]
        dump: Option<u64>,
        /// As JSON on stdout.
        #[arg(long)]
        json: bool,
    },
    /// Train the model.
    Train(JobArgs),
    /// Measure the newest checkpoint on the validation split.
    Eval(JobArgs),
    /// Continue prompts with a checkpoint.
    Generate {
        /// Job file; its newest checkpoint and its tokenizer are used.
        job: Option<PathBuf>,
        /// Checkpoint folder, instead of a job.
        #[arg(long, value_name = "DIR", conflicts_with = "job")]
        checkpoint: Option<PathBuf>,
        /// tokenizer.json, with --checkpoint.
        #[arg(
            long,
            value_name = "FILE",
            requires = "checkpoint",
            conflicts_with = "job"
        )]
        tokenizer: Option<PathBuf>,
        /// Text to continue (repeatable); without it the job's prompts.
        #[arg(long)]
        prompt: Vec<String>,
        /// Override one key of the job.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Write report.html; or count, from the recorded figures of every document, how many the filters would keep
    /// with other limits.
    Report {
        #[command(flatten)]
        job: JobArgs,
        /// Another limit, e.g. --limit gopher_quality.short_doc=80 (repeatable; all given limits apply together).
        #[arg(long = "limit", value_name = "RULE=NUMBER", value_parser = limit)]
        limits: Vec<(String, f64)>,
    },
    /// Write a checkpoint in Hugging Face form (config.json, model.safetensors), without the optimizer state, or
    /// for another tensor- and pipeline-parallel layout; or import a Hugging Face or Megatron model as a
    /// checkpoint.
    Convert(run::Convert),
    /// Describe any file that millrace reads or writes.
    Inspect {
        /// File, or dataset prefix, or checkpoint folder.
        path: PathBuf,
        /// As JSON on stdout.
        #[arg(long)]
        json: bool,
    },
    /// Main text of an HTML page, or of every page of a WARC.
    Extract {
        /// HTML file or WARC.
        file: PathBuf,
    },
    /// Train a quality classifier, or score texts with one.
    #[command(subcommand)]
    Classifier(run::Classifier),
    /// Train an n-gram language model, or find the perplexities that divide texts into buckets.
    #[command(subcommand)]
    Ngram(run::Ngram),
    /// Importance resampling towards a target (DSIR).
    #[command(subcommand)]
    Dsir(run::Dsir),
    /// Show this machine's processor, memory, GPUs and libraries, and which of them a run would use.
    Doctor {
        /// As JSON on stdout.
        #[arg(long)]
        json: bool,
    },
}

/// Parses `args`, runs the verb, reports. Exit code 0 done, 1 failed, 2 bad usage or job, 128 + N stopped by signal N.
pub(crate) fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { 2 } else { 0 };
            // stderr is closed: nothing can be done
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    match dispatch(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if let Some(stopped) = e.downcast_ref::<Interrupted>() {
                return ExitCode::from(128 + stopped.signal);
            }
            log!("error: {}", crate::log::message(&e));
            let bad_job = e.downcast_ref::<job::LoadError>().is_some();
            ExitCode::from(if bad_job { 2 } else { 1 })
        }
    }
}

fn dispatch(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Run { job, dry_run } => run_or_submit(&job, dry_run),
        Verb::Task {
            job,
            stage,
            index,
            of,
        } => {
            let cx = Context::open_for_task(job::load(&job.job, &job.set)?)?;
            run::task(&cx, &stage, index, of)
        }
        Verb::Status { job, set, json } => run::status(&job::load(&job, &set)?, json),
        Verb::Curate(j) => with_job(&j, run::curate),
        Verb::Dedup(j) => with_job(&j, run::dedup),
        Verb::Tokenize(j) => with_job(&j, run::tokenize),
        Verb::Merge { out, parts } => run::merge(&out, &parts),
        Verb::Blend { job, dump, json } => with_job(&job, |cx| run::blend(cx, dump, json)),
        Verb::Train(j) => match checked(&j)? {
            Some(job) => with_ranks(job, run::train),
            None => Ok(()),
        },
        Verb::Eval(j) => with_job(&j, run::eval),
        Verb::Generate {
            job: Some(job),
            prompt,
            set,
            ..
        } => {
            let args = JobArgs {
                job,
                set,
                check: false,
            };
            with_job(&args, |cx| run::generate_for_job(cx, &prompt))
        }
        Verb::Generate {
            checkpoint,
            tokenizer,
            prompt,
            ..
        } => run::generate_from(checkpoint.as_deref(), tokenizer.as_deref(), &prompt),
        Verb::Report { job, limits } if limits.is_empty() => with_job(&job, run::report),
        Verb::Report { job, limits } => with_job(&job, |cx| run::refilter(cx, &limits)),
        Verb::Convert(args) => run::convert(&args),
        Verb::Inspect { path, json } => run::inspect(&path, json),
        Verb::Extract { file } => run::extract(&file),
        Verb::Classifier(verb) => run::classifier(verb),
        Verb::Ngram(verb) => run::ngram(verb),
        Verb::Dsir(verb) => run::dsir(verb),
        Verb::Doctor { json } => run::doctor(json),
    }
}

/// `RULE=NUMBER`.
fn limit(text: &str) -> Result<(String, f64), String> {
    let (rule, number) = text.split_once('=').ok_or("expected RULE=NUMBER")?;
    let number = number
        .trim()
        .parse()
        .map_err(|_| format!("{number:?} is no number"))?;
    Ok((rule.trim().to_string(), number))
}

/// `run`: here, or by handing the job to its executor.
fn run_or_submit(args: &JobArgs, dry_run: bool) -> anyhow::Result<()> {
    let job = checked(args)?;
    match job {
        None => Ok(()),
        Some(job) if job.executor != Executor::Local => {
            let cx = match dry_run {
                true => Context::open_to_read(job)?,
                false => Context::open_to_submit(job)?,
            };
            executor::submit(&cx, dry_run)
        }
        Some(_) if dry_run => {
            bail!(
                "--dry-run shows what is submitted to an executor; this job has executor = \"local\""
            )
        }
        Some(job) => with_ranks(job, run::all),
    }
}

/// Runs a verb that trains, in as many processes as the launcher started.
fn with_ranks(job: Job, verb: impl FnOnce(&Context) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if job.train.is_none() {
        return verb(&Context::open(job)?);
    }
    let world = run::join(&job)?;
    if world.is_first() {
        run::lead(job, world, verb)
    } else {
        run::follow(job, world)
    }
}

fn with_job(
    args: &JobArgs,
    verb: impl FnOnce(&Context) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match checked(args)? {
        Some(job) => verb(&Context::open(job)?),
        None => Ok(()),
    }
}

/// The checked job; None if it was only to be printed (`--check`).
fn checked(args: &JobArgs) -> anyhow::Result<Option<Job>> {
    let job: Job = job::load(&args.job, &args.set)?;
    if !args.check {
        return Ok(Some(job));
    }
    let mut problems = job.missing_inputs();
    problems.extend(job.init_problems());
    if !problems.is_empty() {
        let path = args.job.clone();
        return Err(job::LoadError::Problems { path, problems }.into());
    }
    crate::log::print(&job.to_toml())?;
    Ok(None)
}
