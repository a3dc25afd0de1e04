//! SwiGLU on the CPU: dgate = dy up (s + g s (1 - s)), dup = dy g s, s = logistic(g).

use crate::Tensor;
use crate::cpu::activation::Silu;
use crate::cpu::gated;

pub(super) fn forward(y: &mut Tensor, gate_up: &Tensor) {
    gated::forward::<Silu>(y, gate_up);
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor) {
    gated::backward::<Silu>(dx, dy, gate_up);
}
