//! `metrics.jsonl` as other programs of a run read it: while it grows, without a lock, line by line, as numbers with names.
//!
//! The file is described in `train/src/metrics.rs`. A resumed run cuts it back to its checkpoint, so a reader that follows it
//! reads it again from its start ([`Follower`]). In files that somebody has joined, a step's line stands for all earlier lines
//! from its step on.

mod follow;
mod line;

pub(crate) use follow::{Follower, Lines};
pub(crate) use line::{Kind, Line};

/// Name of the file in a run's folder.
pub(crate) const FILE: &str = "metrics.jsonl";
