//! A training: a plan with its data and folder.

use std::path::Path;

use crate::config::plan::Plan;
use crate::data::Samples;
use crate::metrics::Events;

/// Samples that loss is measured on, never trained on.
#[derive(Clone, Copy)]
pub struct ValidationSet<'a> {
    /// Name in `metrics.jsonl`, events and `train.early_stop.set`; `valid` for the blend's own.
    pub name: &'a str,
    /// The first `train.eval_samples` are used.
    pub samples: &'a dyn Samples,
}

/// A training with its data and its folder.
#[derive(Clone, Copy)]
pub struct Training<'a> {
    /// Model, layout and schedule.
    pub plan: &'a Plan,
    /// Samples to learn from.
    pub train_set: &'a dyn Samples,
    /// Samples to validate on.
    pub sets: &'a [ValidationSet<'a>],
    /// Folder for its checkpoints, metrics and bad steps.
    pub out: &'a Path,
    /// Told of its steps, validations and checkpoints.
    pub events: &'a dyn Events,
}
