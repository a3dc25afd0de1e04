//! Muon's elementwise parts on the CPU, memory bound; no multiplication is fused with an addition, so that every
//! instruction set rounds alike.

use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

pub(super) fn momentum(m: &mut [f32], u: &mut [f32], g: &[f32], grad_scale: f32, momentum: f32) {
    let fresh = 1.0 - momentum;
    let chunks = m.par_chunks_mut(CHUNK).zip(u.par_chunks_mut(CHUNK));
    chunks.zip(g.par_chunks(CHUNK)).for_each(|((m, u), g)| {
        for ((m, u), g) in m.iter_mut().zip(u).zip(g) {
            let g = g * grad_scale;
            *m += (g - *m) * fresh;
            *u = g + (*m - g) * momentum;
        }
    });
}

pub(super) fn scale(x: &mut [f32], factor: f32) {
    x.par_chunks_mut(CHUNK)
        .for_each(|x| x.iter_mut().for_each(|x| *x *= factor));
}

/// x = x a + y b.
pub(super) fn combine(x: &mut [f32], a: f32, y: &[f32], b: f32) {
    let chunks = x.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK));
    chunks.for_each(|(x, y)| {
        for (x, y) in x.iter_mut().zip(y) {
            *x = *x * a + y * b;
        }
    });
}
