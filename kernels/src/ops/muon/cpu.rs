//! Muon's elementwise parts on the CPU, memory bound; no multiplication is fused with an addition, so that every
//! instruction set rounds alike.

use super::unit;
use crate::{Tensor, View, ViewMut, reduce};
use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

pub(super) fn momentum(
    m: &mut ViewMut<'_>,
    u: &mut ViewMut<'_>,
    g: View<'_>,
    grad_scale: f32,
    momentum: f32,
) {
    let (m, u, g) = (m.f32_mut(), u.f32_mut(), g.f32());
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

/// `squares`: the sum of squares in two words.
pub(super) fn normalize(x: &mut Tensor, squares: &Tensor) {
    let factor = unit::factor(reduce::numbers(squares.u32())[0]);
    x.f32_mut()
        .par_chunks_mut(CHUNK)
        .for_each(|x| x.iter_mut().for_each(|x| *x *= factor));
}

/// x = x a + y b.
pub(super) fn combine(x: &mut ViewMut<'_>, a: f32, y: View<'_>, b: f32) {
    let (x, y) = (x.f32_mut(), y.f32());
    let chunks = x.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK));
    chunks.for_each(|(x, y)| {
        for (x, y) in x.iter_mut().zip(y) {
            *x = *x * a + y * b;
        }
    });
}
