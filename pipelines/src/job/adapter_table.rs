//! `[[finetune.adapters]]`: one of several low-rank adapters that are trained together over one base.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One of several adapters. Its training is a job of its own in the folder `adapters/NAME`, whose `job.toml` the other verbs take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterTable {
    /// Name of the adapter and of its folder: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Files of conversations to train on. Empty: those of `finetune.train`.
    pub train: Vec<PathBuf>,
    /// Files of conversations to validate on. Empty: those of `finetune.valid`.
    pub valid: Vec<PathBuf>,
    /// Its matrices; the targets are those of all adapters. Absent: those of `finetune.lora`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<train::config::LoraConfig>,
    /// Seed of its first weights, its dropout and the order of its samples. Absent: the job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Epochs of its training. Absent: `finetune.epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
}

impl AdapterTable {
    /// Whether its name can be that of a folder.
    pub(super) fn is_named(&self) -> bool {
        let is_apt = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !self.name.is_empty() && !self.name.starts_with('.') && self.name.chars().all(is_apt)
    }
}
