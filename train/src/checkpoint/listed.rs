//! The checkpoints of a folder, by their states alone: how far each has trained, and on which data.

use std::path::{Path, PathBuf};

use crate::checkpoint::{path_of, state, steps_in};
use crate::config::resume::DATA;
use crate::error::Result;

/// A checkpoint, described by its state; its tensors are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCheckpoint {
    /// Its folder.
    pub path: PathBuf,
    /// Steps done.
    pub step: u64,
    /// Samples used in them: those with smaller numbers.
    pub consumed_samples: u64,
    /// Identity of data set and tokenizer.
    pub data: String,
    /// Whether earlier steps were trained on other data (`train.resume.allow = ["data"]`).
    pub had_other_data: bool,
    /// Source of the initial weights, unless they were drawn from the seed.
    pub init_from: Option<String>,
}

/// The checkpoints of a folder, such as `out/checkpoints`, by step; none if it is not there.
///
/// # Errors
/// A folder that cannot be listed; `Damaged` for a state that is not as it was written.
pub fn list_checkpoints(folder: &Path) -> Result<Vec<ListedCheckpoint>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut listed = Vec::new();
    for step in steps_in(folder)? {
        let path = path_of(folder, step);
        let (state, _) = state::read(&path)?;
        listed.push(ListedCheckpoint {
            path,
            step: state.train_state.step,
            consumed_samples: state.train_state.consumed_samples,
            had_other_data: (state.changes.iter()).any(|change| change.key == DATA),
            data: state.plan.fingerprint,
            init_from: state.init.map(|init| init.path),
        });
    }
    Ok(listed)
}
