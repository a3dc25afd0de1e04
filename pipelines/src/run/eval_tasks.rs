//! `eval PATH --task NAME --data FILE`: evaluation tasks on a job's newest checkpoint, any checkpoint, or a Hugging Face
//! folder. The loss on a job's validation part is `eval.rs`.

use crate::generation::Located;
use crate::log::print;
use crate::machine::write_atomically;
use crate::tasks::{self, Request, Results, TextModel};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use train::eval::{LanguageModel, Scorer};

/// Flags of `eval` for tasks.
#[derive(Args)]
pub(crate) struct EvalTasks {
    /// Evaluate a task: a name (`--task list` prints them), or the path of a definition (.toml). Repeatable, each with its --data.
    #[arg(long = "task", value_name = "NAME")]
    tasks: Vec<String>,
    /// Rows of the task: .jsonl, .json, .csv, .tsv, .parquet or .txt, compressed or not (repeatable, one for each task).
    #[arg(long, value_name = "FILE", requires = "tasks")]
    data: Vec<PathBuf>,
    /// Rows for examples (repeatable, one for each task). Default: those of --data.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    shots_data: Vec<PathBuf>,
    /// Examples in front of each question. Default: the task's own number.
    #[arg(long, value_name = "K", requires = "tasks")]
    shots: Option<usize>,
    /// Evaluate only the first N rows.
    #[arg(long, value_name = "N", requires = "tasks")]
    limit: Option<usize>,
    /// Resamples for standard errors by bootstrap; 0: no standard errors.
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "tasks")]
    bootstrap: usize,
    /// Write a JSON line for each row: prompts, answers, log-likelihoods, metrics.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    records: Option<PathBuf>,
    /// Tokenizer. Default: the job's, or the one in or above the folder.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    tokenizer: Option<PathBuf>,
    /// Print the results as lm-evaluation-harness's JSON instead of a table.
    #[arg(long, requires = "tasks")]
    json: bool,
}

impl EvalTasks {
    /// Whether tasks are asked for.
    pub(crate) fn is_given(&self) -> bool {
        !self.tasks.is_empty()
    }
}

/// The verb.
pub(crate) fn eval_tasks(path: &Path, set: &[String], args: &EvalTasks) -> Result<()> {
    if args.tasks == ["list"] {
        let lines = tasks::built_in()?.into_iter();
        let lines: Vec<String> = lines
            .map(|[name, data]| format!("{name:<26}{data}\n"))
            .collect();
        return print(&lines.concat());
    }
    let needs = args.tasks.iter().map(|task| tasks::check(task));
    let needs: Vec<Option<String>> = needs.collect::<Result<_, _>>()?;
    let count = needs.iter().flatten().count();
    if args.data.len() != count || ![0, count].contains(&args.shots_data.len()) {
        let of = args.tasks.iter().zip(&needs);
        let of = of.filter_map(|(task, data)| Some(format!("{task} ({})", data.as_ref()?)));
        let wanted = match count {
            0 => "neither: the tasks have rows of their own".to_owned(),
            _ => format!(
                "one --data for each of {}, and no --shots-data or as many",
                of.collect::<Vec<_>>().join(", ")
            ),
        };
        bail!(
            "found {} --data and {} --shots-data, want {wanted}",
            args.data.len(),
            args.shots_data.len()
        );
    }
    let subject = Located::find(path, set, args.tokenizer.as_deref(), "eval")?;
    let scorer = Scorer::open(&subject.path, &subject.devices)?;
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
    };
    let (mut results, mut records) = (Results::default(), Vec::new());
    let (mut data, mut shots_data) = (args.data.iter(), args.shots_data.iter());
    for (task, needs) in args.tasks.iter().zip(&needs) {
        let next = |files: &mut std::slice::Iter<'_, PathBuf>| match needs {
            Some(_) => files.next().cloned(),
            None => None,
        };
        let (data, shots_data) = (next(&mut data), next(&mut shots_data));
        let request = Request {
            task,
            data: data.as_deref(),
            shots_data: shots_data.as_deref(),
            shots: args.shots,
            limit: args.limit,
            resamples: args.bootstrap,
        };
        tasks::evaluate(&request, &model, &mut results, &mut records)?;
    }
    if let Some(path) = &args.records {
        write_atomically(path, &records)?;
    }
    if !args.json {
        return print(&results.to_table());
    }
    let config = json!({
        "model": "millrace", "model_args": subject.path.display().to_string(),
        "millrace_version": env!("CARGO_PKG_VERSION"), "tokenizer": subject.tokenizer.identity(),
        "max_length": scorer.max_length(), "limit": args.limit, "bootstrap_iters": args.bootstrap,
        "fewshot_seed": 1234,
    });
    print(&format!("{:#}\n", results.to_json(config)))
}
