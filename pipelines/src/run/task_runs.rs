//! Evaluation tasks during training (`train.eval_tasks`): each checkpoint that is due is opened when it is written, and
//! evaluated on the CPU beside the steps that follow. Results of a step are one file, `tasks/step-NNNNNNNN.json`, which exists
//! only once they are whole; a resumed training first evaluates the checkpoints whose file is missing.

use crate::context::{Context, relative};
use crate::generation::tokenizer_of;
use crate::machine::write_atomically;
use crate::tasks::{self, Asked, Results, TextModel};
use anyhow::{Context as _, Result, anyhow};
use index::tokenizer::Tokenizer;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use train::checkpoint::path_of;
use train::config::{EvalTasks, Plan};
use train::dist::Devices;
use train::eval::{LanguageModel, Scorer};

/// Folder of the results.
const FOLDER: &str = "tasks";

/// The evaluations of a training.
pub(super) struct TaskRuns {
    config: EvalTasks,
    /// Steps of the training.
    steps: u64,
    asked: Arc<Asked>,
    tokenizer: Arc<Tokenizer>,
    out: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The step that is evaluated, and its thread.
    running: Option<(u64, JoinHandle<Result<()>>)>,
    /// Steps that could not be evaluated.
    failed: Vec<(u64, anyhow::Error)>,
}

impl TaskRuns {
    /// `None` without `train.eval_tasks`.
    ///
    /// # Errors
    /// A wrong task, another number of files than the tasks need, a file that is not there, no tokenizer.
    pub(super) fn of(cx: &Context, plan: &Plan) -> Result<Option<TaskRuns>> {
        let config = plan.train.eval_tasks.clone();
        if config.every == 0 {
            return Ok(None);
        }
        Ok(Some(TaskRuns {
            asked: Arc::new(Asked::of_training(&config)?),
            tokenizer: Arc::new(tokenizer_of(cx)?),
            steps: plan.train.steps,
            out: cx.out.clone(),
            state: Mutex::default(),
            config,
        }))
    }

    /// Begins the evaluation of a checkpoint if it is due and has no results yet. Waits for the one before it.
    pub(super) fn checkpoint(&self, step: u64, path: &Path) {
        if !self.config.is_due(step, self.steps) || file_of(&self.out, step).exists() {
            return;
        }
        if let Err(error) = self.begin(step, path) {
            let error = told(step, error);
            self.state().failed.push((step, error));
        }
    }

    /// Evaluates the checkpoints up to `step` that are due and that no earlier process has evaluated to the end. A
    /// checkpoint that has been dropped or damaged since is named in the log.
    pub(super) fn resumed(&self, step: u64, checkpoints: &Path) {
        let is_missing = |&step: &u64| {
            self.config.is_due(step, self.steps) && !file_of(&self.out, step).exists()
        };
        let mut gone = Vec::new();
        for step in (1..=step).filter(is_missing) {
            let path = path_of(checkpoints, step);
            if !path.exists() {
                gone.push(step.to_string());
            } else if let Err(error) = self.begin(step, &path) {
                told(step, error);
            }
        }
        if !gone.is_empty() {
            let steps = gone.join(", ");
            log!("train: no task results of steps {steps}: their checkpoints are gone");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // every change is a single assignment
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the evaluation before and begins that of a checkpoint.
    fn begin(&self, step: u64, path: &Path) -> Result<()> {
        self.wait();
        // opened before the next checkpoint can drop this one
        let scorer = Scorer::open(path, Devices::Cpu.whole())?;
        let (asked, tokenizer) = (Arc::clone(&self.asked), Arc::clone(&self.tokenizer));
        let (out, limit) = (self.out.clone(), self.config.limit);
        let run = move || {
            let model = TextModel {
                model: &scorer,
                tokenizer: &tokenizer,
                adds_special_tokens: true,
            };
            let mut results = Results::default();
            for request in asked.requests() {
                tasks::evaluate(&request, &model, &mut results, &mut Vec::new())?;
            }
            let config = json!({
                "model": "millrace", "step": step, "millrace_version": env!("CARGO_PKG_VERSION"),
                "tokenizer": tokenizer.identity(), "max_length": scorer.max_length(),
                "limit": (limit > 0).then_some(limit), "fewshot_seed": 1234,
            });
            let file = file_of(&out, step);
            let folder = out.join(FOLDER);
            std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            write_atomically(&file, format!("{:#}\n", results.to_json(config)).as_bytes())?;
            log!(
                "train: step {step}: tasks\n{}",
                results.to_table().trim_end()
            );
            Ok(())
        };
        let thread = std::thread::Builder::new().name(format!("tasks of step {step}"));
        self.state().running = Some((step, thread.spawn(run)?));
        Ok(())
    }

    /// Waits for the evaluation that runs.
    fn wait(&self) {
        let running = self.state().running.take();
        let Some((step, thread)) = running else {
            return;
        };
        let done = thread.join().unwrap_or_else(|_| Err(anyhow!("panicked")));
        if let Err(error) = done {
            self.state().failed.push((step, told(step, error)));
        }
    }

    /// Waits for what runs; evaluates the last checkpoint if an earlier process has not. Returns the files of results,
    /// relative to the job's folder.
    ///
    /// # Errors
    /// The first evaluation that failed.
    pub(super) fn finish(&self, step: u64, checkpoint: &Path) -> Result<Vec<PathBuf>> {
        self.checkpoint(step, checkpoint);
        self.wait();
        let failed = std::mem::take(&mut self.state().failed);
        if let Some((step, error)) = failed.into_iter().next() {
            return Err(error.context(format!("train.eval_tasks: step {step}")));
        }
        let folder = self.out.join(FOLDER);
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .map(|one| relative(&self.out, &one.path()))
            .collect();
        files.sort();
        Ok(files)
    }
}

/// Logs why a step could not be evaluated.
fn told(step: u64, error: anyhow::Error) -> anyhow::Error {
    log!("train: step {step}: tasks failed: {error:#}");
    error
}

fn file_of(out: &Path, step: u64) -> PathBuf {
    out.join(FOLDER).join(format!("step-{step:08}.json"))
}
