//! Gated linear units on the CPU: dgate = dy up f'(gate), dup = dy f(gate).

use super::gate::Gate;
use super::rows;
use crate::Tensor;
use crate::cpu::activation::{GeluErf, GeluTanh, Silu};

pub(super) fn forward(y: &mut Tensor, gate_up: &Tensor, gate: Gate) {
    match gate {
        Gate::Silu => rows::forward::<Silu>(y, gate_up),
        Gate::GeluTanh => rows::forward::<GeluTanh>(y, gate_up),
        Gate::GeluErf => rows::forward::<GeluErf>(y, gate_up),
    }
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor, gate: Gate) {
    match gate {
        Gate::Silu => rows::backward::<Silu>(dx, dy, gate_up),
        Gate::GeluTanh => rows::backward::<GeluTanh>(dx, dy, gate_up),
        Gate::GeluErf => rows::backward::<GeluErf>(dx, dy, gate_up),
    }
}
