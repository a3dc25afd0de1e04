//! `eval PATH --task NAME --data FILE`: evaluation tasks on a job's newest checkpoint, any checkpoint, or a Hugging Face
//! folder. The loss on a job's validation part is `eval.rs`.

use super::eval_adjectives;
use super::eval_classifier::{self, ClassifiedTask};
use super::new_outputs::NewFile;
use crate::generation::{Dtype, Located};
use crate::job::ClassifyTable;
use crate::log::print;
use crate::run::task_args::TaskArgs;
use crate::tasks::{self, Results, TextModel};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use train::eval::{Classifier, LanguageModel, Scorer};

/// Flags of `eval` for tasks.
#[derive(Args)]
pub(crate) struct EvalTasks {
    #[command(flatten)]
    of: TaskArgs,
    /// Texts of each prompt of the task adjectives.
    #[arg(long, value_name = "N", default_value_t = eval_adjectives::SAMPLES, requires = "tasks")]
    samples: usize,
    /// Write a JSON line for each row: prompts, answers, log-likelihoods, metrics. A file that exists is not replaced.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    records: Option<PathBuf>,
    /// Tokenizer. Default: the job's, or the one in or above the folder.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    tokenizer: Option<PathBuf>,
    /// Whether the tokenizer's special tokens, such as `<s>`, stand in front of prompts. Default: as its tokenizer.json says.
    #[arg(long, value_name = "BOOL", requires = "tasks")]
    add_bos_token: Option<bool>,
    /// Column of the texts of the task labels. Default: the job's, or text.
    #[arg(long, value_name = "KEY", requires = "tasks")]
    text_key: Option<String>,
    /// Column of the labels of the task labels. Default: the job's, or label.
    #[arg(long, value_name = "KEY", requires = "tasks")]
    label_key: Option<String>,
    /// Ranks that share the model, each with its own device or share of the threads (tensor parallelism).
    #[arg(long, value_name = "N", requires = "tasks")]
    tensor_parallel_size: Option<NonZeroUsize>,
    /// Number format of the model's products; bfloat16 takes half the memory of f32 weights, and is faster for prompts on processors with
    /// AMX.
    #[arg(long, value_enum, value_name = "DTYPE", default_value_t = Dtype::Auto, requires = "tasks")]
    dtype: Dtype,
    /// Print the results as lm-evaluation-harness's JSON instead of a table.
    #[arg(long, requires = "tasks")]
    json: bool,
}

impl EvalTasks {
    /// Whether tasks are asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.of.is_given()
    }
}

/// The verb.
pub(crate) fn eval_tasks(path: &Path, set: &[String], args: &EvalTasks) -> Result<()> {
    if args.of.tasks == ["list"] {
        let lines = tasks::built_in()?.into_iter();
        let lines: Vec<String> = lines
            .map(|[name, data]| format!("{name:<26}{data}\n"))
            .collect();
        return print(&lines.concat());
    }
    let asked = args.of.asked()?;
    // before an evaluation whose records could not be written
    let records_file = match &args.records {
        Some(file) => Some(NewFile::reserve("--records", file)?),
        None => None,
    };
    let subject = Located::find(path, set, args.tokenizer.as_deref(), "eval")?;
    let found = train::checkpoint::initial_model(&subject.path)?.model;
    if found.classify.is_some() {
        args.dtype.expect(false)?;
        let on = args.dtype.on(subject.devices.whole());
        let classifier = Classifier::open(&subject.path, on)?;
        let of_job = match path.extension().is_some_and(|ending| ending == "toml") {
            true => crate::job::load(path, set)?.classify,
            false => None,
        };
        let answered = classified((&classifier, &subject), of_job, args)?;
        return show(answered, records_file, args);
    }
    let ranks = args.tensor_parallel_size.map_or(1, NonZeroUsize::get);
    let on = args.dtype.on(subject.devices.split(ranks));
    let scorer = Scorer::open(&subject.path, on)?;
    args.dtype.expect(scorer.rounds_activations())?;
    if subject.tokenizer.vocab() > scorer.vocab() {
        bail!(
            "{}: found {} entries, want at most the model's {}",
            subject.tokenizer.path().display(),
            subject.tokenizer.vocab(),
            scorer.vocab()
        );
    }
    let model = TextModel {
        model: &scorer,
        tokenizer: &subject.tokenizer,
        adds_special_tokens: args.add_bos_token.unwrap_or(true),
    };
    let (mut results, mut records) = (Results::default(), Vec::new());
    for request in asked.requests() {
        if request.task == tasks::ADJECTIVES {
            let subject = Located::find(path, set, args.tokenizer.as_deref(), "eval")?;
            let sampling = eval_adjectives::Sampling {
                texts: args.samples,
                dtype: args.dtype,
            };
            eval_adjectives::evaluate(subject, sampling, &mut results, &mut records)?;
            continue;
        }
        tasks::evaluate(&request, &model, &mut results, &mut records)?;
    }
    let answered = Answered {
        results,
        records,
        subject: &subject,
        max_length: scorer.max_length(),
    };
    show(answered, records_file, args)
}

/// The tasks of a model with a classification head. `of_job`: `[classify]` of its job, if there is one.
fn classified<'a>(
    (classifier, subject): (&Classifier, &'a Located),
    of_job: Option<ClassifyTable>,
    args: &EvalTasks,
) -> Result<Answered<'a>> {
    let mut table = of_job.unwrap_or_default();
    for (key, given) in [
        (&mut table.text_key, &args.text_key),
        (&mut table.label_key, &args.label_key),
    ] {
        if let Some(given) = given {
            key.clone_from(given);
        }
    }
    if args.of.shots.is_some_and(|shots| shots > 0) || !args.of.shots_data.is_empty() {
        bail!("--shots: found examples for a classification head, want none");
    }
    if args.of.tasks.len() != args.of.data.len() {
        bail!(
            "found {} --data for {} tasks, want one for each",
            args.of.data.len(),
            args.of.tasks.len()
        );
    }
    let (mut results, mut records) = (Results::default(), Vec::new());
    for (name, data) in args.of.tasks.iter().zip(&args.of.data) {
        let task = ClassifiedTask {
            name,
            data,
            limit: args.of.limit,
            resamples: args.of.bootstrap,
            table: &table,
        };
        let with = (classifier, subject);
        eval_classifier::evaluate(with, &task, &mut results, &mut records)?;
    }
    Ok(Answered {
        results,
        records,
        subject,
        max_length: classifier.plan().seq_length,
    })
}

/// Finished tasks.
struct Answered<'a> {
    results: Results,
    /// A JSON line for each row.
    records: Vec<u8>,
    subject: &'a Located,
    max_length: usize,
}

/// Writes the records and prints the results, which are shown even if the records cannot be written.
fn show(answered: Answered<'_>, file: Option<NewFile>, args: &EvalTasks) -> Result<()> {
    let written = file.map_or(Ok(()), |file| file.write(&answered.records));
    print(&shown(&answered, args))?;
    written
}

/// The results as a table, or as lm-evaluation-harness's JSON.
fn shown(answered: &Answered<'_>, args: &EvalTasks) -> String {
    let Answered {
        results,
        subject,
        max_length,
        ..
    } = answered;
    if !args.json {
        return results.to_table();
    }
    let config = json!({
        "model": "millrace", "model_args": subject.path.display().to_string(),
        "millrace_version": env!("CARGO_PKG_VERSION"), "tokenizer": subject.tokenizer.identity(),
        "dtype": args.dtype.name(), "add_bos_token": args.add_bos_token, "max_length": max_length, "limit": args.of.limit, "bootstrap_iters": args.of.bootstrap,
        "fewshot_seed": 1234,
    });
    format!("{:#}\n", results.to_json(config))
}
