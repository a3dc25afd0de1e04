//! Records of failed stages: `records/failed/STAGE.json` exists until the stage is run again, for `millrace
//! status`.
//!
//! They decide nothing: a stage without a record in the manifest is run again, whether it failed or was killed.

use crate::context::Context;
use crate::job::WrongUse;
use crate::machine::write_atomically;
use crate::signals::Interrupted;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Why a stage failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// Its message, with causes; empty in a store where a failure was overcome, for which no right to remove objects is needed.
    pub error: String,
}

fn name(stage: &str) -> String {
    format!("records/failed/{stage}.json")
}

impl Failure {
    /// The failure of the last run of `stage` in `out`, if it failed.
    pub(crate) fn read(out: &Path, stage: &str) -> Option<Failure> {
        let text = std::fs::read(out.join(name(stage))).ok()?;
        let failure: Option<Failure> = serde_json::from_slice(&text).ok();
        failure.filter(|failure| !failure.error.is_empty())
    }

    /// Folder of the files, relative to the job's.
    pub(super) fn folder() -> PathBuf {
        PathBuf::from("records/failed")
    }
}

/// Runs a stage. If it fails, its failure is written down; a signal is no failure, nor is a stage that the job does not have.
pub(super) fn watched(
    cx: &Context,
    stage: &str,
    run: impl FnOnce(&Context) -> Result<()>,
) -> Result<()> {
    let path = cx.out.join(name(stage));
    // there only if the last run failed
    let was_failed = std::fs::remove_file(&path).is_ok();
    if was_failed && cx.manifest.url(stage).is_some() {
        note(
            cx,
            &path,
            stage,
            &Failure {
                error: String::new(),
            },
        )?;
    }
    let done = run(cx);
    if let Err(error) = &done
        && !error.is::<Interrupted>()
        && !error.is::<WrongUse>()
    {
        let failure = Failure {
            error: crate::log::message(error),
        };
        // a disk that is full is reported by the failure itself
        let _ = note(cx, &path, stage, &failure);
    }
    done
}

fn note(cx: &Context, path: &Path, stage: &str, failure: &Failure) -> Result<()> {
    let text = serde_json::to_string(failure)? + "\n";
    write_atomically(path, text.as_bytes())?;
    cx.manifest.share(&name(stage))
}
