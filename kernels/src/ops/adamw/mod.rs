//! One AdamW step, elementwise, with torch.optim.AdamW's formula in f32:
//! w *= 1 - lr wd; m += (g - m)(1 - b1); v = b2 v + (1 - b2) g^2;
//! w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps), with g the gradient times `grad_scale`.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Scalars are made in f64 and rounded once.

mod cpu;

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

/// Updates weights and both moments.
/// # Panics
/// If the slices differ in length.
pub fn step(w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], p: &AdamW) {
    let n = w.len();
    assert!(
        g.len() == n && m.len() == n && v.len() == n,
        "one gradient and two moments per weight"
    );
    cpu::step(w, g, m, v, p);
}
