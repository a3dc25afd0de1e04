//! Flags that name evaluation tasks and their data, the same for `eval` and `quantize`.

use crate::flag_numbers::positive;
use crate::tasks::{Asked, Given, TaskError};
use clap::Args;
use std::path::PathBuf;

/// Tasks with their files.
#[derive(Args)]
pub(crate) struct TaskArgs {
    /// Evaluate a task: a name (`millrace eval PATH --task list` prints them), or the path of a definition (.toml). Repeatable, each with its --data.
    #[arg(long = "task", value_name = "NAME")]
    pub(super) tasks: Vec<String>,
    /// Rows of the task: .jsonl, .json, .csv, .tsv, .parquet or .txt, compressed or not (repeatable, one for each task).
    #[arg(long, value_name = "FILE", requires = "tasks")]
    pub(super) data: Vec<PathBuf>,
    /// Rows for examples (repeatable, one for each task), for tasks that have some or with --shots. Default: those of --data.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    pub(super) shots_data: Vec<PathBuf>,
    /// Examples in front of each question. Default: the task's own number.
    #[arg(long, value_name = "K", requires = "tasks")]
    pub(super) shots: Option<usize>,
    /// Evaluate only the first N rows.
    #[arg(long, value_name = "N", value_parser = positive, requires = "tasks")]
    pub(super) limit: Option<usize>,
    /// Resamples for standard errors by bootstrap; 0: no standard errors.
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "tasks")]
    pub(super) bootstrap: usize,
}

impl TaskArgs {
    /// Whether tasks are asked for.
    pub(crate) fn is_given(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The tasks, each with its files.
    ///
    /// # Errors
    /// Tasks that are not there or not sound; another number of files.
    pub(super) fn asked(&self) -> Result<Asked, TaskError> {
        Asked::of(&Given {
            tasks: &self.tasks,
            data: &self.data,
            shots_data: &self.shots_data,
            shots: self.shots,
            limit: self.limit,
            resamples: self.bootstrap,
        })
    }
}
