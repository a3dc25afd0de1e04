//! Errors of evaluation tasks: each names the file and, for data, row and column.

use std::path::PathBuf;

/// Why a task cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// No built-in task has this name and no file either.
    #[error("no task {name:?}{near}{known}")]
    Unknown {
        name: String,
        /// Names that may have been meant.
        near: String,
        /// All names, where none is near.
        known: String,
    },
    /// A definition that contradicts itself.
    #[error("task {name}: {why}")]
    Definition { name: String, why: String },
    /// Two tasks whose results would have one name.
    #[error(
        "tasks {first} and {second}: found the name {name:?} twice, want a name for each, under which its results are"
    )]
    Twice {
        first: String,
        second: String,
        name: String,
    },
    /// Another number of files than the tasks need.
    #[error("found {data} --data and {shots_data} --shots-data, want {wanted}")]
    Files {
        data: usize,
        shots_data: usize,
        wanted: String,
    },
    /// A file that holds no rows.
    #[error("{path}: {why}")]
    File { path: PathBuf, why: String },
    /// A row that does not fit the task.
    #[error("{path}: row {row}, column `{column}`: found {found}, want {wanted}")]
    Column {
        path: PathBuf,
        /// Counted from 1.
        row: usize,
        column: String,
        found: String,
        wanted: String,
    },
    /// A row whose prompt or answers cannot be made.
    #[error("{path}: row {row}: {key}: {why}")]
    Template {
        path: PathBuf,
        /// Counted from 1.
        row: usize,
        /// Key of the definition.
        key: &'static str,
        why: String,
    },
}

impl TaskError {
    /// True for a wrong name or definition rather than wrong data.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            TaskError::Unknown { .. }
            | TaskError::Definition { .. }
            | TaskError::Twice { .. }
            | TaskError::Files { .. } => true,
            TaskError::File { .. } | TaskError::Column { .. } | TaskError::Template { .. } => false,
        }
    }
}

pub(crate) type Result<T, E = TaskError> = std::result::Result<T, E>;
