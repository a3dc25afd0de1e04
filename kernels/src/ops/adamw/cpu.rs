//! AdamW on the CPU; memory bound: 16 bytes read and 12 written per weight.

use super::settings::{AdamW, Factors, Moments};
use crate::cpu::simd::{AHEAD, vector_fn};
use crate::{View, ViewMut};
use rayon::prelude::*;

const CHUNK: usize = 1 << 13;

pub(super) fn step(w: &mut ViewMut<'_>, g: View<'_>, moments: &mut Moments<'_>, p: &AdamW) {
    let isa = w.device().isa();
    let (m, v) = (moments.m.f32_mut(), moments.v.f32_mut());
    let (w, g) = (w.f32_mut(), g.f32());
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
