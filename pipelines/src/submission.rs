//! Record of the jobs submitted to an executor, in `executor.json`.

use crate::context::Context;
use crate::machine::write_atomically;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A submission to an executor, in `executor.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// `slurm` or `ray`.
    pub executor: String,
    /// The submitted jobs.
    pub jobs: Vec<SubmittedJob>,
}

/// One submitted job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubmittedJob {
    /// Its id at the executor.
    pub id: String,
    /// The tasks it runs; empty for the job of the remaining stages.
    pub tasks: Vec<usize>,
}

impl Submission {
    pub(crate) const FILE: &'static str = "executor.json";

    /// The latest submission of the job in `out`.
    pub(crate) fn read(out: &Path) -> Option<Submission> {
        let text = std::fs::read_to_string(out.join(Submission::FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write(&self, cx: &Context) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        write_atomically(&cx.out.join(Submission::FILE), text.as_bytes())?;
        cx.manifest.share(Submission::FILE)
    }
}
