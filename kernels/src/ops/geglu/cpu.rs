//! GeGLU on the CPU: dgate = dy up gelu'(gate), dup = dy gelu(gate).

use super::Form;
use crate::Tensor;
use crate::cpu::activation::{GeluErf, GeluTanh};
use crate::cpu::gated;

pub(super) fn forward(y: &mut Tensor, gate_up: &Tensor, form: Form) {
    match form {
        Form::Tanh => gated::forward::<GeluTanh>(y, gate_up),
        Form::Erf => gated::forward::<GeluErf>(y, gate_up),
    }
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor, form: Form) {
    match form {
        Form::Tanh => gated::backward::<GeluTanh>(dx, dy, gate_up),
        Form::Erf => gated::backward::<GeluErf>(dx, dy, gate_up),
    }
}
