//! AdamW on the CPU; memory bound: 16 bytes read and 12 written per weight.

use super::settings::{AdamW, Moments};
use crate::cpu::Isa;
use crate::cpu::simd::{AHEAD, vector_fn};
use rayon::prelude::*;

const CHUNK: usize = 1 << 13;

/// Scalars of a step as the loop uses them.
#[derive(Clone, Copy)]
struct Factors {
    grad_scale: f32,
    keep: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    root_correction2: f32,
    eps: f32,
    step_size: f32,
}

impl Factors {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each scalar is rounded to f32 once"
    )]
    fn new(p: &AdamW) -> Factors {
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

pub(super) fn step(isa: Isa, w: &mut [f32], g: &[f32], moments: Moments<'_>, p: &AdamW) {
    let Moments { m, v } = moments;
    let factors = Factors::new(p);
    let moments = m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK));
    let parts = w
        .par_chunks_mut(CHUNK)
        .zip(g.par_chunks(CHUNK))
        .zip(moments);
    parts.for_each(|((w, g), (m, v))| update(isa, w, g, m, v, factors));
}

vector_fn! {
    fn update<L>(w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], f: Factors) {
        let ins = w.chunks_mut(16).zip(g.chunks(16));
        for ((w, g), (m, v)) in ins.zip(m.chunks_mut(16).zip(v.chunks_mut(16))) {
            L::prefetch(g.as_ptr().wrapping_add(AHEAD));
            for written in [&*w, &*m, &*v] {
                L::prefetch_to_write(written.as_ptr().wrapping_add(AHEAD));
            }
            let g = L::load_part(g, 0.0).mul(L::splat(f.grad_scale));
            let old_m = L::load_part(m, 0.0);
            let new_m = g.sub(old_m).fma(L::splat(f.one_minus_beta1), old_m);
            let decayed = L::load_part(v, 0.0).mul(L::splat(f.beta2));
            let new_v = g.mul(g).fma(L::splat(f.one_minus_beta2), decayed);
            let denominator =
                new_v.sqrt().div(L::splat(f.root_correction2)).add(L::splat(f.eps));
            let kept = L::load_part(w, 0.0).mul(L::splat(f.keep));
            let change = new_m.div(denominator);
            change.fma(L::splat(-f.step_size), kept).store_part(w);
            new_m.store_part(m);
            new_v.store_part(v);
        }
    }
}
