//! SwiGLU on the CPU: dgate = dy up (s + g s (1 - s)), dup = dy g s, s = logistic(g).

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::math::logistic;
use crate::cpu::simd::vector_fn;
use rayon::prelude::*;

pub(super) fn forward(y: &mut Tensor, gate_up: &Tensor) {
    let isa = y.device().isa();
    let (_, f) = y.rows_cols();
    let parts = y.f32_mut().par_chunks_mut(f * ROW_BLOCK);
    parts
        .zip(gate_up.f32().par_chunks(2 * f * ROW_BLOCK))
        .for_each(|(y, x)| {
            for (y, x) in y.chunks_exact_mut(f).zip(x.chunks_exact(2 * f)) {
                gated(isa, y, &x[..f], &x[f..]);
            }
        });
}

pub(super) fn backward(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor) {
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
            let (dgate, dup) = dx.split_at_mut(f);
            slopes(isa, (dgate, dup), dy, (&x[..f], &x[f..]));
        }
    });
}

vector_fn! {
    fn gated<L>(y: &mut [f32], gate: &[f32], up: &[f32]) {
        for ((y, gate), up) in y.chunks_mut(16).zip(gate.chunks(16)).zip(up.chunks(16)) {
            let (g, up) = (L::load_part(gate, 0.0), L::load_part(up, 0.0));
            g.mul(logistic(g)).mul(up).store_part(y);
        }
    }
}

vector_fn! {
    fn slopes<L>(d: (&mut [f32], &mut [f32]), dy: &[f32], x: (&[f32], &[f32])) {
        let outs = d.0.chunks_mut(16).zip(d.1.chunks_mut(16));
        let ins = dy.chunks(16).zip(x.0.chunks(16).zip(x.1.chunks(16)));
        for ((dgate, dup), (dy, (gate, up))) in outs.zip(ins) {
            let (g, up, dy) =
                (L::load_part(gate, 0.0), L::load_part(up, 0.0), L::load_part(dy, 0.0));
            let s = logistic(g);
            let silu = g.mul(s);
            let slope = silu.fma(L::splat(1.0).sub(s), s);
            dy.mul(up).mul(slope).store_part(dgate);
            dy.mul(silu).store_part(dup);
        }
    }
}
