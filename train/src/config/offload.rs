//! The job's `[train.offload]` table.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Which activations are offloaded to a file, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Offload {
    /// Number of blocks to offload, the first ones of each pipeline rank. Default: 0.
    pub layers: usize,
    /// Folder on a disk with room for them. Default: the system's folder for temporary files.
    pub folder: Option<PathBuf>,
}

impl Offload {
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Calls `problem` if there is no such folder.
    pub(crate) fn check(&self, problem: Problem<'_>) {
        let folder = self.folder();
        if self.layers > 0 && !fs::metadata(&folder).is_ok_and(|found| found.is_dir()) {
            let found = folder.display().to_string();
            problem("offload.folder", found, "a folder that can be written to");
        }
    }
}
