//! Running averages on the CPU; memory bound, 12 bytes per element.

use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

pub(super) fn towards(x: &mut [f32], y: &[f32], share: f32) {
    let chunks = x.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK));
    chunks.for_each(|(x, y)| {
        for (x, y) in x.iter_mut().zip(y) {
            *x += (y - *x) * share;
        }
    });
}
