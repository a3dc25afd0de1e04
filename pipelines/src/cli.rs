//! The command line (clap): the verbs and their few flags. Every other setting is a key of the job file.

use crate::context::Context;
use crate::job::{self, Executor, Files, Job, Problem, WrongUse, or_nearest};
use crate::log::{self, Level};
use crate::tasks::Asked;
use crate::{executor, exit_code, panics, run, serve, watch};
use anyhow::bail;
use clap::{Arg, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use train::config::resume_entries;

/// Turns raw web text into a trained language model.
#[derive(Parser)]
#[command(name = "millrace", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    log: LogArgs,
}

/// Flags of the log, which every verb has.
#[derive(Args)]
#[command(next_help_heading = "Log")]
struct LogArgs {
    /// Print errors, notes and final results alone, without progress.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print details as well: why stages run or are skipped, the files that are read, checkpoints.
    #[arg(short, long, global = true)]
    verbose: bool,
    /// Append all lines, with the time in UTC, to this file as well.
    #[arg(long = "log", value_name = "FILE", global = true)]
    file: Option<PathBuf>,
}

impl LogArgs {
    fn set_up(&self) -> Result<(), WrongUse> {
        let level = match (self.quiet, self.verbose) {
            (true, _) => Level::Quiet,
            (false, true) => Level::Verbose,
            (false, false) => Level::Usual,
        };
        let file = self.file.as_deref();
        log::set_up(level, file).map_err(|error| {
            let shown = file.unwrap_or(Path::new("")).display();
            WrongUse::new(format!("--log: cannot open {shown}: {error}"))
        })
    }
}

/// A job file and overrides of its keys.
#[derive(Args)]
pub(crate) struct JobArgs {
    /// Job file (TOML).
    job: PathBuf,
    /// Override one key, e.g. --set train.steps=50 (repeatable; elements of lists by number, e.g. curate.inputs.0.path).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the job, print it with all defaults filled in, and stop.
    #[arg(long)]
    check: bool,
}

/// A job that trains, with settings that may change.
#[derive(Args)]
struct TrainingArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Settings that may differ from those of the checkpoint from the next step on, besides those of the job's `train.resume.allow`,
    /// e.g. --allow lr,steps,data.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', value_parser = allowed)]
    allow: Vec<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// Write a short commented job for your own data, after a look at the data and this machine.
    New(run::NewArgs),
    /// Run every stage of a job. Finished stages are skipped; a killed run resumes.
    Run {
        #[command(flatten)]
        job: TrainingArgs,
        /// Print what would be submitted to the job's executor, and stop.
        #[arg(long)]
        dry_run: bool,
        /// Print which stages would run, go on or be skipped, why, and what they replace, and stop. Nothing is written; exit code 2 if
        /// the run would be refused.
        #[arg(long, conflicts_with_all = ["dry_run", "check"])]
        plan: bool,
        /// With --plan: print JSON to stdout.
        #[arg(long, requires = "plan")]
        json: bool,
    },
    /// Run one task of a stage, as executors do.
    Task {
        #[command(flatten)]
        job: JobArgs,
        /// Stage: curate, the only one that is divided into tasks.
        #[arg(long)]
        stage: String,
        /// Index of the task, from 0.
        #[arg(long)]
        index: usize,
        /// Number of tasks.
        #[arg(long)]
        of: usize,
    },
    /// Train on the nodes of an allocation, as executors do: check them, start the ranks, and start them again without nodes that
    /// fail.
    Launch(run::LaunchArgs),
    /// Show the progress of a job, read from the files in its folder.
    Status {
        /// Job file (TOML), or the folder that a job writes.
        job: PathBuf,
        /// Override one key of the job.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Show live curves of running and finished runs in the browser, compared.
    Watch(watch::Watch),
    /// Read, extract and filter documents.
    Curate(JobArgs),
    /// Find exact and near duplicates.
    Dedup(JobArgs),
    /// Train or load the tokenizer and write token datasets: those of a job, or, with --input, those of files.
    Tokenize(Box<run::TokenizeArgs>),
    /// Join token datasets, or deduplication indexes, in the order given. A folder stands for the datasets or indexes in it, in
    /// name order.
    Merge {
        /// Prefix of the dataset to write, or the *.index file to write; it must be new.
        out: PathBuf,
        /// Prefixes (without .bin and .idx), *.index files, or folders.
        #[arg(required = true)]
        parts: Vec<PathBuf>,
    },
    /// Translate a configuration of dolma's mixer (YAML or JSON) to a job. What has no counterpart is told, or refused.
    Mixer {
        /// The configuration.
        config: PathBuf,
        /// Job file to write. Default: stdout.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Show the blend: requested and actual shares, epochs.
    Blend {
        #[command(flatten)]
        job: JobArgs,
        /// Also print hashes of the index arrays and the tokens of the first K samples of each split.
        #[arg(long, value_name = "K")]
        dump: Option<u64>,
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Train the model.
    Train(TrainingArgs),
    /// Fine-tune the model of `train.init_from` on conversations, let it answer some, and write the report.
    Finetune(JobArgs),
    /// Measure the loss of the newest checkpoint on the validation or test part; or, with --task, evaluate tasks such as HellaSwag
    /// or MMLU.
    Eval {
        /// Job file (TOML); for tasks also a checkpoint, a folder of checkpoints, or a Hugging Face folder.
        job: PathBuf,
        /// Override one key of the job.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Check the job, print it with all defaults filled in, and stop.
        #[arg(long, conflicts_with = "tasks")]
        check: bool,
        #[command(flatten)]
        tasks: run::EvalTasks,
    },
    /// Continue prompts with a model: sampled or by beam search, streaming, many at once.
    Generate(Box<run::GenerateArgs>),
    /// Talk to a model in the terminal; it needs a chat template.
    Chat(Box<run::ChatArgs>),
    /// Serve a model over HTTP: OpenAI's completions and chat, Megatron-LM's `/api`, and a page to talk to it.
    Serve(Box<serve::Serve>),
    /// Write report.html; or, with --limit, show the documents that other filter limits would keep (needs curate.figures).
    Report {
        #[command(flatten)]
        job: JobArgs,
        /// Compare with the run in this folder, the `out` of another job: settings, figures, losses and scores.
        #[arg(long, value_name = "OUT", conflicts_with = "limits")]
        compare: Option<PathBuf>,
        /// Another limit, e.g. --limit gopher_quality.short_doc=80 (repeatable; all limits apply together).
        #[arg(long = "limit", value_name = "RULE=NUMBER", value_parser = limit)]
        limits: Vec<(String, f64)>,
    },
    /// Convert a checkpoint to Hugging Face format (config.json, model.safetensors), split or join its files, or make a checkpoint
    /// from a Hugging Face or Megatron model.
    Convert(run::Convert),
    /// Write a model in fewer bits per weight, such as a GGUF file for llama.cpp.
    Quantize(run::Quantize),
    /// Explain a key of the job file, a filter, a rule, or a verb: type, default, range, example.
    Explain {
        /// Name: `train.lr`, `gopher_quality`, `gopher_quality.short_doc`, `export`.
        name: String,
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// List the filters and other steps of `[[curate.step]]`.
    Filters {
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// List the formats of inputs.
    Formats {
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of job files, for editors.
    Schema,
    /// Print the script that completes the command line in a shell.
    Completions(run::CompletionsArgs),
    /// Write the manual pages, one for every verb.
    Man {
        /// Folder to write them in.
        dir: PathBuf,
    },
    /// Write the final documents of a job, deduplicated and cut, as files with one schema and a data card.
    Export(run::ExportArgs),
    /// Remove the documents that a list of opt-outs names from finished corpora, and tell which token datasets and checkpoints
    /// contain them.
    Takedown(run::TakedownArgs),
    /// Describe any file that Millrace reads or writes.
    Inspect {
        /// File, dataset prefix or checkpoint folder.
        path: PathBuf,
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Print the main text of an HTML page, or of every page of a WARC file.
    Extract {
        /// HTML or WARC file.
        file: PathBuf,
    },
    /// Train a quality classifier, or score texts with one.
    #[command(subcommand)]
    Classifier(run::Classifier),
    /// Train an n-gram language model, or find the perplexities that divide texts into buckets.
    #[command(subcommand)]
    Ngram(run::Ngram),
    /// Select documents like a target by importance resampling (DSIR).
    #[command(subcommand)]
    Dsir(run::Dsir),
    /// Find the fastest layout of a job's model on a cluster, its memory and time, without running it.
    Plan(run::PlanArgs),
    /// Show this machine's processor, memory, disk and libraries, and which of them Millrace would use.
    Doctor {
        /// Print JSON to stdout.
        #[arg(long)]
        json: bool,
        /// Compile all CUDA kernels into this folder instead; needs NVRTC and no GPU. The folder is the one that `train`
        /// reads: `$XDG_CACHE_HOME/millrace/kernels`.
        #[arg(long, value_name = "DIR")]
        compile_kernels: Option<PathBuf>,
        /// Architecture of compiled kernels, by NVIDIA's name.
        #[arg(long, default_value = "sm_90", requires = "compile_kernels", conflicts_with_all = ["measure", "node"])]
        architecture: String,
        /// Measure this machine's processor with Millrace's own kernels instead, and write a cluster file for `plan`; without FILE,
        /// print it. A file that exists is not replaced.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "compile_kernels"])]
        measure: Option<Option<PathBuf>>,
        /// Seconds of the measurement.
        #[arg(long, default_value_t = 10.0, requires = "measure")]
        seconds: f64,
        #[command(flatten)]
        node: run::NodeArgs,
    },
}

/// Parses `args`, runs the verb, reports. Returns the exit code of `exit_code.rs`.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    panics::hide_expected();
    let cli = match parse(args) {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { exit_code::USAGE } else { 0 };
            // stderr is closed: nothing can be done
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    let ready = cli.log.set_up().map_err(anyhow::Error::from);
    exit_code::of(ready.and_then(|()| dispatch(cli.verb)))
}

/// Parses a command line. Flags take numbers below 0 as values, so that a wrong one is answered with what the flag wants.
fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

fn with_negative_numbers(command: Command) -> Command {
    let taking = |arg: Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command
        .mut_args(taking)
        .mut_subcommands(with_negative_numbers)
}

fn dispatch(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::New(args) => run::new(&args),
        Verb::Run {
            job,
            plan: true,
            json,
            ..
        } => match checked_to_train(&job, &Files::ALL)? {
            Some(job) => run::outlook(&Context::open_to_look(job)?, json),
            None => Ok(()),
        },
        Verb::Run { job, dry_run, .. } => run_or_submit(&job, dry_run),
        Verb::Task {
            job,
            stage,
            index,
            of,
        } => {
            let cx = Context::open_for_task(job::load(&job.job, &job.set)?)?;
            run::task(&cx, &stage, index, of)
        }
        Verb::Launch(args) => run::launch(&args),
        Verb::Status { job, set, json } => run::status(&run::job_at(&job, &set)?, json),
        Verb::Watch(args) => watch::watch(&args),
        Verb::Curate(args) => with_job(&args, &[Files::Inputs, Files::Curation], run::curate),
        Verb::Dedup(j) => with_job(&j, &[Files::Inputs, Files::Dedup], run::dedup),
        Verb::Tokenize(args) => match args.job.clone() {
            Some(job) => {
                let (set, check) = (args.set.clone(), args.check);
                let files = [Files::Inputs, Files::Tokens];
                with_job(&JobArgs { job, set, check }, &files, run::tokenize)
            }
            None => run::tokenize_files(&args),
        },
        Verb::Merge { out, parts } => run::merge(&out, &parts),
        Verb::Mixer { config, out } => run::mixer(&config, out.as_deref()),
        Verb::Blend { job, dump, json } => reading(&job, |cx| run::blend(cx, dump, json)),
        Verb::Train(j) => match checked_to_train(&j, &[Files::Training])? {
            Some(job) => {
                run::expect_training(&job)?;
                with_ranks(job, run::train)
            }
            None => Ok(()),
        },
        Verb::Finetune(j) => match checked_with(&j, &Files::ALL, &expect_finetune, &|_| Ok(()))? {
            Some(job) => with_ranks(job, run::all),
            None => Ok(()),
        },
        Verb::Eval {
            job, set, tasks, ..
        } if tasks.is_given() => run::eval_tasks(&job, &set, &tasks),
        Verb::Eval {
            job, set, check, ..
        } => match checked(&JobArgs { job, set, check }, &[])? {
            Some(job) => run::eval(&Context::open_or_read(job)?),
            None => Ok(()),
        },
        Verb::Generate(args) => run::generate(&args),
        Verb::Chat(args) => run::chat(&args),
        Verb::Serve(args) => serve::serve(&args),
        Verb::Report {
            job,
            compare,
            limits,
        } if limits.is_empty() => reading(&job, |cx| run::report(cx, compare.as_deref())),
        Verb::Report { job, limits, .. } => reading(&job, |cx| run::refilter(cx, &limits)),
        Verb::Convert(args) => run::convert(&args),
        Verb::Quantize(args) => run::quantize(&args),
        Verb::Explain { name, json } => run::explain(&name, json, &Cli::command()),
        Verb::Filters { json } => run::filters(json),
        Verb::Formats { json } => run::formats(json),
        Verb::Schema => run::schema(),
        Verb::Completions(args) => run::completions(&args, Cli::command()),
        Verb::Man { dir } => run::man(&dir, Cli::command()),
        Verb::Export(args) => run::export(&args),
        Verb::Takedown(args) => run::takedown(&args),
        Verb::Inspect { path, json } => run::inspect(&path, json),
        Verb::Extract { file } => run::extract(&file),
        Verb::Classifier(verb) => run::classifier(verb),
        Verb::Ngram(verb) => run::ngram(verb),
        Verb::Dsir(verb) => run::dsir(verb),
        Verb::Doctor {
            compile_kernels: Some(folder),
            architecture,
            ..
        } => run::compile_kernels(&folder, &architecture),
        Verb::Doctor {
            measure: Some(file),
            seconds,
            ..
        } => run::measure(file.as_deref(), seconds),
        Verb::Doctor { node, .. } if node.is_given() => node.check(),
        Verb::Doctor { json, .. } => run::doctor(json),
        Verb::Plan(args) => run::plan(&args),
    }
}

/// `RULE=NUMBER`.
fn limit(text: &str) -> Result<(String, f64), String> {
    let (rule, number) = text.split_once('=').ok_or("expected RULE=NUMBER")?;
    let parsed = number.trim().parse().ok();
    let finite = parsed.filter(|number: &f64| number.is_finite());
    let number = finite.ok_or_else(|| format!("{number:?} is no number"))?;
    Ok((rule.trim().to_string(), number))
}

/// An entry of `train.resume.allow`.
fn allowed(text: &str) -> Result<String, String> {
    let mut known = resume_entries();
    match known.any(|entry| entry == text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "wanted some of {}{}",
            resume_entries().collect::<Vec<_>>().join(", "),
            or_nearest(text, resume_entries())
        )),
    }
}

/// Like [`checked`], with what may change on the command line.
fn checked_to_train(args: &TrainingArgs, files: &[Files]) -> anyhow::Result<Option<Job>> {
    let TrainingArgs { job, allow } = args;
    let add = |job: &mut Job| match &mut job.train {
        _ if allow.is_empty() => Ok(()),
        Some(train) => {
            let own = &mut train.resume.allow;
            for entry in allow {
                if !own.contains(entry) {
                    own.push(entry.clone());
                }
            }
            Ok(())
        }
        None => Err(WrongUse::new(
            "--allow: the job has no [train] table, so that nothing resumes",
        )),
    };
    checked_with(job, files, &|_| Vec::new(), &add)
}

/// `run`: here, or by handing the job to its executor.
fn run_or_submit(args: &TrainingArgs, dry_run: bool) -> anyhow::Result<()> {
    match checked_to_train(args, &Files::ALL)? {
        None => Ok(()),
        Some(job) if job.executor != Executor::Local => {
            let problems = run::node_problems(&job);
            if !problems.is_empty() {
                let JobArgs { job, set, .. } = &args.job;
                return Err(job::LoadError::of_job(job, set, problems).into());
            }
            run::note_of_fewest(&job);
            if !dry_run {
                run::refuse_submission(&job)?;
            }
            let cx = match dry_run {
                true => Context::open_to_read(job)?,
                false => Context::open_to_submit(job)?,
            };
            executor::submit(&cx, dry_run)
        }
        Some(_) if dry_run => {
            bail!(
                "--dry-run shows what would be submitted to an executor; this job has executor = \"local\""
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

/// Runs a verb that works in the job's folder and reads these files.
fn with_job(
    args: &JobArgs,
    files: &[Files],
    verb: impl FnOnce(&Context) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match checked(args, files)? {
        Some(job) => verb(&Context::open(job)?),
        None => Ok(()),
    }
}

/// Runs a verb that reads a job's folder, beside a process that works there or without one.
fn reading(
    args: &JobArgs,
    verb: impl FnOnce(&Context) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match checked(args, &[])? {
        Some(job) => verb(&Context::open_to_read(job)?),
        None => Ok(()),
    }
}

/// The checked job, for a verb that reads these files; None if it was only to be printed (`--check`), with all of its files looked
/// for.
fn checked(args: &JobArgs, files: &[Files]) -> anyhow::Result<Option<Job>> {
    checked_with(args, files, &|_| Vec::new(), &|_| Ok(()))
}

/// Like [`checked`], with the problems that a verb has with a job which is right for others, and with what its flags `add` to a job.
fn checked_with(
    args: &JobArgs,
    files: &[Files],
    more: &dyn Fn(&Job) -> Vec<Problem>,
    add: &dyn Fn(&mut Job) -> Result<(), WrongUse>,
) -> anyhow::Result<Option<Job>> {
    // a job for another verb is not asked for its files
    let all = |job: &Job| match (more(job), args.check) {
        (more, _) if !more.is_empty() => more,
        (_, true) => {
            let nodes = run::node_problems(job);
            [job.missing_inputs(), job.missing_files(), nodes].concat()
        }
        (_, false) => job.missing(files_here(job, files)),
    };
    let mut job: Job = job::load_with(&args.job, &args.set, &all)?;
    add(&mut job)?;
    let tasks = job.train.as_ref().map(|train| &train.eval_tasks);
    let tasks = tasks.filter(|tasks| tasks.every > 0);
    let tasks = tasks.and_then(|tasks| Asked::of_training(tasks).err());
    let mut problems: Vec<Problem> = (tasks.into_iter())
        .map(|error| Problem {
            key: "train.eval_tasks".into(),
            found: error.to_string(),
            wanted: "tasks of `millrace eval --task list` and files that exist".into(),
        })
        .collect();
    if args.check {
        problems.extend(job.init_problems());
    }
    if !problems.is_empty() {
        return Err(job::LoadError::of_job(&args.job, &args.set, problems).into());
    }
    if args.check {
        // of a fine-tuning the steps follow from its data
        if let Some(train) = job.train.as_ref().filter(|_| job.finetune.is_none()) {
            run::note_of_rate("train", train);
        }
        run::note_left_out(&job);
        run::note_of_fewest(&job);
        crate::log::print(&job.to_toml())?;
        return Ok(None);
    }
    Ok(Some(job))
}

/// A problem for a job that has nothing to fine-tune on.
fn expect_finetune(job: &Job) -> Vec<Problem> {
    let problem = job.finetune.is_none().then(|| Problem {
        key: "finetune".into(),
        found: "no table".into(),
        wanted: "a table; `millrace train` trains with [blend] or [classify]".into(),
    });
    problem.into_iter().collect()
}

/// Those of a verb's files that must be on this machine.
fn files_here<'a>(job: &Job, files: &'a [Files]) -> &'a [Files] {
    match job.executor {
        // one of the processes that a launcher started reads inputs, and each finds what it lacks when it reads it
        _ if train::dist::is_one_of_many() => &[],
        Executor::Local => files,
        // the shards are listed here; the tasks may run on machines with other files
        Executor::Slurm | Executor::Ray | Executor::Kubernetes => {
            let inputs = files.first().is_some_and(|first| *first == Files::Inputs);
            &files[..usize::from(inputs)]
        }
    }
}
