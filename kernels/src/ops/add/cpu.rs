//! Additions on the CPU; memory bound, 12 bytes per element.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::{AHEAD, vector_fn};
use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

pub(super) fn bias(x: &mut Tensor, b: &Tensor) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let b = b.f32();
    x.f32_mut().par_chunks_mut(d * ROW_BLOCK).for_each(|rows| {
        for row in rows.chunks_exact_mut(d) {
            add(isa, row, b);
        }
    });
}

pub(crate) fn add_into(x: &mut Tensor, y: &Tensor) {
    let isa = x.device().isa();
    let y = y.f32();
    x.f32_mut()
        .par_chunks_mut(CHUNK)
        .zip(y.par_chunks(CHUNK))
        .for_each(|(x, y)| add(isa, x, y));
}

vector_fn! {
    /// x += y.
    pub(crate) fn add<L>(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.chunks_mut(16).zip(y.chunks(16)) {
            L::prefetch_to_write(x.as_ptr().wrapping_add(AHEAD));
            L::prefetch(y.as_ptr().wrapping_add(AHEAD));
            L::load_part(x, 0.0).add(L::load_part(y, 0.0)).store_part(x);
        }
    }
}
