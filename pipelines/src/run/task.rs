//! `task`: one task of a stage, started by an executor. It locks its own state file, so that a second process with
//! the same task number is refused, and leaves the totals of the stage to the job.

use crate::context::{Context, relative};
use crate::folder_lock::{Lock, lock_file};
use crate::machine::{hostname, write_atomically};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// State of a task, in `records/tasks/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskState {
    /// Machine it runs on.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Set after success.
    pub is_done: bool,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `records/tasks/curate-00003-of-00010`, without extension.
pub(crate) fn state_file(out: &Path, index: usize, of: usize) -> PathBuf {
    out.join(format!("records/tasks/curate-{index:05}-of-{of:05}"))
}

/// Runs the shards of task `index` of `of` that are not recorded yet.
pub(crate) fn task(cx: &Context, stage: &str, index: usize, of: usize) -> Result<()> {
    if stage != "curate" {
        bail!("no stage {stage:?} has tasks; there is: curate");
    }
    if index >= of {
        bail!("task {index} of {of}: expected a number below {of}");
    }
    let file = state_file(&cx.out, index, of);
    let path = file.with_extension("lock");
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let lock = lock_file(&path)?;
    if lock.try_lock().is_err() {
        let who =
            read_state(&file).map_or(String::new(), |s| format!(" ({} on {})", s.pid, s.host));
        bail!("another process{who} is doing task {index} of {of} of {stage}");
    }
    let state = TaskState {
        host: hostname(),
        pid: std::process::id(),
        is_done: false,
        error: None,
    };
    let tell = |state: &TaskState| {
        let text = serde_json::to_string(state)? + "\n";
        let path = file.with_extension("json");
        write_atomically(&path, text.as_bytes())?;
        cx.manifest
            .share(&relative(&cx.out, &path).to_string_lossy())
    };
    tell(&state)?;
    let done = super::curate::run_task(cx, index, of);
    tell(&TaskState {
        is_done: done.is_ok(),
        error: done.as_ref().err().map(crate::log::message),
        ..state
    })?;
    done
}

/// The recorded state of a task.
pub(crate) fn read_state(file: &Path) -> Option<TaskState> {
    let text = std::fs::read_to_string(file.with_extension("json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// Whether a task's process is alive, that is, holds its lock.
pub(crate) fn is_alive(file: &Path) -> bool {
    let lock = File::open(file.with_extension("lock")).map(Lock::of);
    lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
}
