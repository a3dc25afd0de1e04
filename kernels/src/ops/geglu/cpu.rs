//! GeGLU on the CPU: dgate = dy up gelu'(gate), dup = dy gelu(gate).

use super::Form;
use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::curve::{Curve, GeluErf, GeluTanh};
use crate::cpu::simd::{Lanes, vector_fn};
use rayon::prelude::*;

pub(super) fn forward(y: &mut Tensor, gate_up: &Tensor, form: Form) {
    let isa = y.device().isa();
    let (_, f) = y.rows_cols();
    let parts = y.f32_mut().par_chunks_mut(f * ROW_BLOCK);
    parts
        .zip(gate_up.f32().par_chunks(2 * f * ROW_BLOCK))
        .for_each(|(y, x)| {
            for (y, x) in y.chunks_exact_mut(f).zip(x.chunks_exact(2 * f)) {
                gated(isa, y, x.split_at(f), form);
            }
        });
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor, form: Form) {
    let isa = dx.device().isa();
    let (_, f) = dy.rows_cols();
    let (dy, x) = (dy.f32(), gate_up.f32());
    let parts = dx.f32_mut().par_chunks_mut(2 * f * ROW_BLOCK);
    let parts = parts
        .zip(dy.par_chunks(f * ROW_BLOCK))
        .zip(x.par_chunks(2 * f * ROW_BLOCK));
    parts.for_each(|((dx, dy), x)| {
        let rows = dx
            .chunks_exact_mut(2 * f)
            .zip(dy.chunks_exact(f))
            .zip(x.chunks_exact(2 * f));
        for ((dx, dy), x) in rows {
            slopes(isa, dx.split_at_mut(f), dy, x.split_at(f), form);
        }
    });
}

vector_fn! {
    fn gated<L>(y: &mut [f32], x: (&[f32], &[f32]), form: Form) {
        match form {
            Form::Tanh => value_row::<L, GeluTanh>(y, x),
            Form::Erf => value_row::<L, GeluErf>(y, x),
        }
    }
}

vector_fn! {
    fn slopes<L>(d: (&mut [f32], &mut [f32]), dy: &[f32], x: (&[f32], &[f32]), form: Form) {
        match form {
            Form::Tanh => slope_row::<L, GeluTanh>(d, dy, x),
            Form::Erf => slope_row::<L, GeluErf>(d, dy, x),
        }
    }
}

#[inline(always)]
fn value_row<L: Lanes, C: Curve>(y: &mut [f32], (gate, up): (&[f32], &[f32])) {
    for ((y, gate), up) in y.chunks_mut(16).zip(gate.chunks(16)).zip(up.chunks(16)) {
        let (gate, up) = (L::load_part(gate, 0.0), L::load_part(up, 0.0));
        C::value(gate).mul(up).store_part(y);
    }
}

#[inline(always)]
fn slope_row<L: Lanes, C: Curve>(d: (&mut [f32], &mut [f32]), dy: &[f32], x: (&[f32], &[f32])) {
    let outs = d.0.chunks_mut(16).zip(d.1.chunks_mut(16));
    let ins = dy.chunks(16).zip(x.0.chunks(16).zip(x.1.chunks(16)));
    for ((dgate, dup), (dy, (gate, up))) in outs.zip(ins) {
        let (gate, up, dy) = (
            L::load_part(gate, 0.0),
            L::load_part(up, 0.0),
            L::load_part(dy, 0.0),
        );
        dy.mul(up).mul(C::slope(gate)).store_part(dgate);
        dy.mul(C::value(gate)).store_part(dup);
    }
}
