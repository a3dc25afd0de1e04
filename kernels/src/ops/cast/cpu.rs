//! Rounding on the CPU, elementwise, in integers: bits below the format's last are rounded off, and the
//! carry runs into the exponent by itself.

use crate::Tensor;
use crate::cpu::simd::vector_fn;
use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

/// The numbers of a format, as bits of positive f32.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// Fraction bits that f32 has more.
    pub dropped: u32,
    /// Smallest normal number.
    pub least: u32,
    /// 2^23 steps of the numbers below it.
    pub steps: f32,
    /// Largest finite number.
    pub largest: u32,
    /// What larger ones become.
    pub beyond: u32,
}

pub(super) fn round(x: &mut Tensor, grid: Grid) {
    let isa = x.device().isa();
    let chunks = x.f32_mut().par_chunks_mut(CHUNK);
    chunks.for_each(|x| to_grid(isa, x, grid));
}

pub(super) fn rounded(y: &mut Tensor, x: &Tensor, grid: Grid) {
    let isa = x.device().isa();
    let chunks = y.f32_mut().par_chunks_mut(CHUNK);
    chunks.zip(x.f32().par_chunks(CHUNK)).for_each(|(y, x)| {
        y.copy_from_slice(x);
        to_grid(isa, y, grid);
    });
}

vector_fn! {
    fn to_grid<L>(x: &mut [f32], grid: Grid) {
        for x in x {
            *x = nearest(*x, grid);
        }
    }
}

#[inline(always)]
fn nearest(x: f32, grid: Grid) -> f32 {
    let size = x.to_bits() & 0x7fff_ffff;
    let is_odd = (size >> grid.dropped) & 1;
    let half = (1 << (grid.dropped - 1)) - 1 + is_odd;
    let normal = (size + half) & !((1 << grid.dropped) - 1);
    let small = (f32::from_bits(size) + grid.steps) - grid.steps;
    let near = if size < grid.least {
        small.to_bits()
    } else {
        normal
    };
    let near = if near > grid.largest {
        grid.beyond
    } else {
        near
    };
    let near = if size > super::INFINITE {
        super::NAN
    } else {
        near
    };
    f32::from_bits(x.to_bits() & 0x8000_0000 | near)
}
