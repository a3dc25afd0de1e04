//! Parameters of the next step, passed from the run to the passes and the optimizer.

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
