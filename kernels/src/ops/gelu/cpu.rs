//! GELU on the CPU, elementwise: y = x s, dy/dx = s + x s (1 - s) 2u', s = logistic(2u).

use crate::Tensor;
use crate::cpu::math::logistic;
use crate::cpu::simd::vector_fn;
use rayon::prelude::*;

const CHUNK: usize = 1 << 12;
// 2 sqrt(2 / pi), and that times 0.044715
const LINEAR: f32 = 1.595_769;
const CUBIC: f32 = 0.071_354_82;

pub(super) fn forward(y: &mut Tensor, x: &Tensor) {
    let isa = x.device().isa();
    let x = x.f32();
    y.f32_mut()
        .par_chunks_mut(CHUNK)
        .zip(x.par_chunks(CHUNK))
        .for_each(|(y, x)| gelu(isa, y, x));
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, x: &Tensor) {
    let isa = x.device().isa();
    let (dy, x) = (dy.f32(), x.f32());
    let parts = dx
        .f32_mut()
        .par_chunks_mut(CHUNK)
        .zip(dy.par_chunks(CHUNK))
        .zip(x.par_chunks(CHUNK));
    parts.for_each(|((dx, dy), x)| slope(isa, dx, dy, x));
}

vector_fn! {
    fn gelu<L>(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.chunks_mut(16).zip(x.chunks(16)) {
            let x = L::load_part(x, 0.0);
            let twice_u = x.mul(x.mul(x).fma(L::splat(CUBIC), L::splat(LINEAR)));
            x.mul(logistic(twice_u)).store_part(y);
        }
    }
}

vector_fn! {
    fn slope<L>(dx: &mut [f32], dy: &[f32], x: &[f32]) {
        for ((dx, dy), x) in dx.chunks_mut(16).zip(dy.chunks(16)).zip(x.chunks(16)) {
            let (dy, x) = (L::load_part(dy, 0.0), L::load_part(x, 0.0));
            let square = x.mul(x);
            let s = logistic(x.mul(square.fma(L::splat(CUBIC), L::splat(LINEAR))));
            let du = square.fma(L::splat(3.0 * CUBIC), L::splat(LINEAR));
            let rest = s.mul(L::splat(1.0).sub(s)).mul(du);
            dy.mul(x.fma(rest, s)).store_part(dx);
        }
    }
}
