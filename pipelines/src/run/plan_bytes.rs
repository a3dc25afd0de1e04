//! Bytes of a rank as gigabytes by purpose, for `plan --json`.

use crate::plan::RankBytes;
use serde_json::{Value, json};
use train::trainer::memory::RankMemory;

/// Bytes as gigabytes.
pub(super) fn gb(bytes: f64) -> f64 {
    bytes / 1e9
}

/// Gigabytes of a rank by purpose.
pub(super) fn bytes(of: &RankBytes) -> Value {
    json!({
        "weights": gb(of.weights), "gradients": gb(of.gradients), "optimizer": gb(of.optimizer),
        "activations": gb(of.activations), "total": gb(of.total()),
    })
}

/// The same as Millrace holds them; other bytes are packed weights and copies for checkpoints.
pub(super) fn exact(of: &RankMemory) -> Value {
    let gb = |bytes: usize| gb(bytes as f64);
    let named = of.weights + of.gradients + of.optimizer + of.activations;
    json!({
        "weights": gb(of.weights), "gradients": gb(of.gradients), "optimizer": gb(of.optimizer),
        "activations": gb(of.activations), "other": gb(of.total() - named), "total": gb(of.total()),
    })
}
