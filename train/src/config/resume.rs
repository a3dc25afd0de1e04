//! Settings that differ between a checkpoint and the run that resumes from it; `checkpoint/changes.rs` finds them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Keys of `[train]` that may differ if `train.resume.allow` names them.
pub(crate) const ON_REQUEST: [&str; 18] = [
    "steps",
    "time_budget",
    "lr",
    "min_lr",
    "warmup_steps",
    "schedule",
    "decay_steps",
    "wsd_decay_steps",
    "wsd_decay",
    "muon",
    "ema_decay",
    "weight_decay",
    "beta1",
    "beta2",
    "eps",
    "z_loss",
    "clip_norm",
    "on_bad_step",
];

/// Entry of `train.resume.allow` by which another order of samples may follow, and the key of that change.
pub(crate) const DATA: &str = "data";

/// The entries that `train.resume.allow` may have.
pub fn resume_entries() -> impl Iterator<Item = &'static str> {
    ON_REQUEST.into_iter().chain([DATA])
}

/// A setting that changed after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Steps done when it changed: it holds from the next one on.
    pub after_step: u64,
    /// Key path in the job, such as `train.lr`; `data` for another order of samples, whose values are fingerprints.
    pub key: String,
    /// Value of the checkpoint.
    pub before: Value,
    /// Value of the job.
    pub after: Value,
}

/// A setting that must not differ and does.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Key path in the job.
    pub key: String,
    /// Its value in the checkpoint.
    pub found: String,
    /// Its value in the job.
    pub wanted: String,
    /// The entry of `train.resume.allow` that would let it differ, if there is one.
    pub allowed_by: Option<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference {
            key, found, wanted, ..
        } = self;
        write!(f, "{key}: {found} there, {wanted} here")?;
        match &self.allowed_by {
            Some(entry) => write!(f, " (train.resume.allow = [{entry:?}] allows it)"),
            None => Ok(()),
        }
    }
}
