//! Activations on the CPU, row by row.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::activation::{Activation, by_kind};
use crate::cpu::simd::{Lanes, vector_fn};
use crate::descriptor::activation::Kind;
use rayon::prelude::*;

pub(super) fn forward(y: &mut Tensor, x: &Tensor, bias: Option<&Tensor>, kind: Kind) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (x, bias) = (x.f32(), bias.map(Tensor::f32));
    y.f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .zip(x.par_chunks(d * ROW_BLOCK))
        .for_each(|(y, x)| {
            for (y, x) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
                values(isa, y, x, bias, kind);
            }
        });
}

pub(super) fn backward(
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    bias: Option<&Tensor>,
    kind: Kind,
) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (dy, x, bias) = (dy.f32(), x.f32(), bias.map(Tensor::f32));
    let parts = dx
        .f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .zip(dy.par_chunks(d * ROW_BLOCK))
        .zip(x.par_chunks(d * ROW_BLOCK));
    parts.for_each(|((dx, dy), x)| {
        let rows = dx.chunks_exact_mut(d).zip(dy.chunks_exact(d));
        for ((dx, dy), x) in rows.zip(x.chunks_exact(d)) {
            derivatives(isa, dx, dy, x, bias, kind);
        }
    });
}

vector_fn! {
    fn values<L>(y: &mut [f32], x: &[f32], bias: Option<&[f32]>, kind: Kind) {
        by_kind!(kind, C => value_row::<L, C>(y, x, bias));
    }
}

vector_fn! {
    fn derivatives<L>(dx: &mut [f32], dy: &[f32], x: &[f32], bias: Option<&[f32]>, kind: Kind) {
        by_kind!(kind, C => slope_row::<L, C>(dx, dy, x, bias));
    }
}

#[inline(always)]
fn value_row<L: Lanes, C: Activation>(y: &mut [f32], x: &[f32], bias: Option<&[f32]>) {
    for (i, (y, x)) in y.chunks_mut(16).zip(x.chunks(16)).enumerate() {
        C::value(shifted::<L>(x, bias, i)).store_part(y);
    }
}

#[inline(always)]
fn slope_row<L: Lanes, C: Activation>(dx: &mut [f32], dy: &[f32], x: &[f32], bias: Option<&[f32]>) {
    let rows = dx.chunks_mut(16).zip(dy.chunks(16)).zip(x.chunks(16));
    for (i, ((dx, dy), x)) in rows.enumerate() {
        let derivative = C::derivative(shifted::<L>(x, bias, i));
        L::load_part(dy, 0.0).mul(derivative).store_part(dx);
    }
}

/// Vector i of x plus bias.
#[inline(always)]
fn shifted<L: Lanes>(x: &[f32], bias: Option<&[f32]>, i: usize) -> L {
    let vector = L::load_part(x, 0.0);
    match bias {
        Some(bias) => vector.add(L::load_part(&bias[16 * i..16 * i + x.len()], 0.0)),
        None => vector,
    }
}
