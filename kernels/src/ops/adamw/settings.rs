//! Settings and state of one AdamW step.

use crate::ViewMut;

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
    pub m: ViewMut<'a>,
    /// Mean of squares.
    pub v: ViewMut<'a>,
}

/// Scalars of a step as loops over weights use them.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub grad_scale: f32,
    pub keep: f32,
    pub one_minus_beta1: f32,
    pub beta2: f32,
    pub one_minus_beta2: f32,
    pub root_correction2: f32,
    pub eps: f32,
    pub step_size: f32,
}

impl Factors {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each scalar is rounded to f32 once"
    )]
    pub(super) fn new(p: &AdamW) -> Factors {
        let [lr, beta1, beta2] = [p.lr, p.beta1, p.beta2].map(f64::from);
        let steps = p.step as f64;
        Factors {
            grad_scale: p.grad_scale,
            keep: (1.0 - lr * f64::from(p.weight_decay)) as f32,
            one_minus_beta1: (1.0 - beta1) as f32,
            beta2: p.beta2,
            one_minus_beta2: (1.0 - beta2) as f32,
            root_correction2: (1.0 - beta2.powf(steps)).sqrt() as f32,
            eps: p.eps,
            step_size: (lr / (1.0 - beta1.powf(steps))) as f32,
        }
    }
}
