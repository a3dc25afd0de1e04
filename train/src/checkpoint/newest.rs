//! The one rule for choosing a checkpoint of a folder: the newest whose state and tensors all match their
//! checksums. Training resumes from it, and evaluation, generation and conversion of "the last checkpoint" of a run
//! use the same one. Damaged newer ones are skipped, never silently: the result names them and the reason.

use std::path::{Path, PathBuf};

use crate::checkpoint::read::{Opened, parts_of};
use crate::checkpoint::{EMA, OPTIMIZER, STATE, path_of, state, steps_in};
use crate::error::{Error, Result};

/// A verified checkpoint, and the newer ones that are damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Steps done when it was written.
    pub step: u64,
    /// Its folder, `step-NNNNNNNN` in a run's folder of checkpoints.
    pub path: PathBuf,
    /// Newer checkpoints that were skipped, newest first.
    pub skipped: Vec<SkippedCheckpoint>,
}

/// A checkpoint that cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedCheckpoint {
    /// Step in the name of its folder.
    pub step: u64,
    /// File, byte offset, found and wanted.
    pub reason: String,
}

impl std::fmt::Display for SkippedCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SkippedCheckpoint { step, reason } = self;
        write!(f, "checkpoint of step {step} is not used: {reason}")
    }
}

/// Result of `find`.
pub(crate) struct Found {
    /// None if the folder has no checkpoint.
    pub opened: Option<Opened>,
    pub skipped: Vec<SkippedCheckpoint>,
}

/// The newest checkpoint of a folder of checkpoints, such as `out/checkpoints`; None if it has none, or is
/// not there. Reads and verifies every byte of it.
///
/// # Errors
/// `NoWholeCheckpoint` if there are some and all are damaged; a folder that cannot be listed.
pub fn newest_checkpoint(folder: &Path) -> Result<Option<Newest>> {
    if !folder.exists() {
        return Ok(None);
    }
    let Found { opened, skipped } = find(folder)?;
    Ok(opened.map(|opened| Newest {
        step: opened.state.train_state.step,
        path: opened.path,
        skipped,
    }))
}

/// The checkpoint that a path names: the path itself if it is a checkpoint or the averages in one (the caller
/// verifies it), else the newest of a folder of checkpoints.
///
/// # Errors
/// As `newest_checkpoint`; `Damaged`; `Foreign` if the path is neither.
pub fn checkpoint_at(path: &Path) -> Result<Newest> {
    let (folder, _) = parts_of(path);
    if folder.join(STATE).exists() {
        let (state, _) = state::read(folder)?;
        return Ok(Newest {
            step: state.train_state.step,
            path: path.to_owned(),
            skipped: Vec::new(),
        });
    }
    newest_checkpoint(path)?.ok_or_else(|| Error::Foreign {
        path: path.to_owned(),
        problems: vec![format!(
            "found neither {STATE} nor folders step-NNNNNNNN, want a checkpoint or a folder of checkpoints"
        )],
    })
}

/// Whether a folder contains checkpoints rather than being one.
pub(crate) fn is_folder_of_checkpoints(folder: &Path) -> bool {
    !folder.join(STATE).exists() && steps_in(folder).is_ok_and(|steps| !steps.is_empty())
}

/// Like `newest_checkpoint`, opened.
pub(crate) fn find(folder: &Path) -> Result<Found> {
    let mut skipped = Vec::new();
    for step in steps_in(folder)?.into_iter().rev() {
        match whole(&path_of(folder, step)) {
            Ok(opened) => {
                return Ok(Found {
                    opened: Some(opened),
                    skipped,
                });
            }
            // a running job has just replaced it with a newer one
            Err(_) if !path_of(folder, step).exists() => {}
            Err(error) => skipped.push(SkippedCheckpoint {
                step,
                reason: error.with_causes(),
            }),
        }
    }
    if skipped.is_empty() {
        return Ok(Found {
            opened: None,
            skipped,
        });
    }
    let reasons: Vec<String> = skipped.into_iter().map(|one| one.reason).collect();
    Err(Error::NoWholeCheckpoint {
        path: folder.to_owned(),
        reasons: reasons.join("; "),
    })
}

/// Opens a checkpoint and verifies everything that a run needs to resume from it.
pub(crate) fn whole(path: &Path) -> Result<Opened> {
    let opened = Opened::open(path)?;
    opened.verify(OPTIMIZER)?;
    if opened.state.plan.train.ema_decay > 0.0 {
        opened.verify(EMA)?;
    }
    Ok(opened)
}
