//! Parameters of the next step, passed from the run to the passes and the optimizer, and the good steps before it.

use serde::{Deserialize, Serialize};

use crate::config::TrainConfig;
use crate::config::exact::Exact;

/// Parameters of the next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Next {
    /// Counted from 1.
    pub step: u64,
    /// First sample of the batch.
    pub first: u64,
    /// Sequences of the batch.
    pub batch: usize,
    /// Number of the update, from 1: steps that were not skipped.
    pub update: u64,
    /// Learning rate.
    pub rate: f64,
    /// Loss scale of the backward pass.
    pub loss_scale: f64,
}

/// An update of the weights, as optimizers take it.
#[derive(Clone, Copy)]
pub(crate) struct Update<'a> {
    pub config: &'a TrainConfig,
    pub next: &'a Next,
    /// Scale of the gradients: clipping.
    pub factor: f32,
}

/// Loss and gradient norm of a step. In a checkpoint: an array of the two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[Exact; 2]", into = "[Exact; 2]")]
pub(crate) struct GoodStep {
    pub loss: Exact,
    pub grad_norm: Exact,
}

impl GoodStep {
    pub(crate) fn new(loss: f64, grad_norm: f64) -> GoodStep {
        GoodStep {
            loss: Exact(loss),
            grad_norm: Exact(grad_norm),
        }
    }
}

impl From<[Exact; 2]> for GoodStep {
    fn from([loss, grad_norm]: [Exact; 2]) -> GoodStep {
        GoodStep { loss, grad_norm }
    }
}

impl From<GoodStep> for [Exact; 2] {
    fn from(step: GoodStep) -> [Exact; 2] {
        [step.loss, step.grad_norm]
    }
}
