//! Running averages on the CPU; memory bound, 12 bytes per element.

use crate::{View, ViewMut};
use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

pub(super) fn towards(x: &mut ViewMut<'_>, y: View<'_>, share: f32) {
    let (x, y) = (x.f32_mut(), y.f32());
    let chunks = x.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK));
    chunks.for_each(|(x, y)| {
        for (x, y) in x.iter_mut().zip(y) {
            *x += (y - *x) * share;
        }
    });
}
