//! Copies on the CPU; memory bound: lines to be written are prefetched.

use crate::cpu::simd::{AHEAD, vector_fn};
use crate::{View, ViewMut};
use rayon::prelude::*;

const CHUNK: usize = 1 << 16;

pub(super) fn copy(to: &mut ViewMut<'_>, from: View<'_>) {
    let isa = from.device().isa();
    let (to, from) = (to.f32_mut(), from.f32());
    let chunks = to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK));
    chunks.for_each(|(to, from)| all(isa, to, from));
}

vector_fn! {
    fn all<L>(to: &mut [f32], from: &[f32]) {
        for (to, from) in to.chunks_mut(16).zip(from.chunks(16)) {
            L::prefetch_to_write(to.as_ptr().wrapping_add(AHEAD));
            L::prefetch(from.as_ptr().wrapping_add(AHEAD));
            L::load_part(from, 0.0).store_part(to);
        }
    }
}
