//! Settings and state of one AdamW step.

/// Settings of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled weight decay, times lr per step.
    pub weight_decay: f32,
    /// Factor on every gradient: the clip coefficient, 1 for none.
    pub grad_scale: f32,
    /// Number of this step, from 1.
    pub step: u64,
}

/// Both moments of the gradient, to update.
pub struct Moments<'a> {
    /// Mean.
    pub m: &'a mut [f32],
    /// Mean of squares.
    pub v: &'a mut [f32],
}
