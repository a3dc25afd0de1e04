//! Gated linear units on the CPU: dgate = dy up f'(gate), dup = dy f(gate), where up may be a function of the number.
//! Slopes of clamped numbers are 0 beyond their bounds, and 1 at them, as in torch.

use super::gate::Gate;
use super::rows;
use crate::Tensor;
use crate::cpu::activation::{Activation, GeluErf, GeluTanh, QuickGelu, Silu};
use crate::cpu::simd::Lanes;
use rows::Unit;

/// Bound of gate and up.
const LIMIT: f32 = 7.0;

struct Clamped;

impl Unit for Clamped {
    #[inline(always)]
    fn gate<L: Lanes>(x: L) -> (L, L) {
        let limit = L::splat(LIMIT);
        let (value, slope) = QuickGelu::both(limit.min(x));
        (value, limit.select_less(x, L::splat(0.0), slope))
    }

    #[inline(always)]
    fn up<L: Lanes>(x: L) -> (L, L) {
        let (least, most) = (L::splat(-LIMIT), L::splat(LIMIT));
        let (zero, one) = (L::splat(0.0), L::splat(1.0));
        let slope = x.select_less(least, zero, most.select_less(x, zero, one));
        (least.max(most.min(x)).add(one), slope)
    }
}

impl<C: Activation> Unit for C {
    #[inline(always)]
    fn gate<L: Lanes>(x: L) -> (L, L) {
        C::both(x)
    }

    #[inline(always)]
    fn gate_value<L: Lanes>(x: L) -> L {
        C::value(x)
    }

    #[inline(always)]
    fn up<L: Lanes>(x: L) -> (L, L) {
        (x, L::splat(1.0))
    }
}

pub(super) fn forward(y: &mut Tensor, gate_up: &Tensor, gate: Gate) {
    match gate {
        Gate::Silu => rows::forward::<Silu>(y, gate_up),
        Gate::GeluTanh => rows::forward::<GeluTanh>(y, gate_up),
        Gate::GeluErf => rows::forward::<GeluErf>(y, gate_up),
        Gate::Clamped => rows::forward::<Clamped>(y, gate_up),
    }
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor, gate: Gate) {
    match gate {
        Gate::Silu => rows::backward::<Silu>(dx, dy, gate_up),
        Gate::GeluTanh => rows::backward::<GeluTanh>(dx, dy, gate_up),
        Gate::GeluErf => rows::backward::<GeluErf>(dx, dy, gate_up),
        Gate::Clamped => rows::backward::<Clamped>(dx, dy, gate_up),
    }
}
