//! Rounding on the CPU, elementwise, in integers: bits below the format's last are rounded off, and the carry
//! propagates into the exponent.

use super::format::{Grid, INFINITE, NAN};
use crate::Tensor;
use crate::cpu::simd::vector_fn;
use rayon::prelude::*;

const CHUNK: usize = 1 << 14;

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
pub(super) fn nearest(x: f32, grid: Grid) -> f32 {
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
    let near = if size > INFINITE { NAN } else { near };
    f32::from_bits(x.to_bits() & 0x8000_0000 | near)
}

pub(super) fn row_amax(amax: &mut Tensor, x: &Tensor, columns: usize) {
    let rows = x.f32().par_chunks(columns.max(1));
    let all = amax.f32_mut().par_iter_mut().zip(rows);
    all.for_each(|(amax, row)| *amax = largest(row));
}

/// `amax`: of each row, or one of all.
pub(super) fn scaled_rows(y: &mut Tensor, x: &Tensor, grid: Grid, amax: &Tensor) {
    let amax = amax.f32();
    let isa = x.device().isa();
    let columns = x.rows_cols().1.max(1);
    let rows = y.f32_mut().par_chunks_mut(columns).enumerate();
    rows.zip(x.f32().par_chunks(columns))
        .for_each(|((row, y), x)| {
            let amax = amax[row.min(amax.len() - 1)];
            scaled(isa, y, x, grid, scale(amax, grid));
        });
}

/// As saturating hardware does.
pub(super) fn scaled_all(y: &mut Tensor, x: &Tensor, grid: Grid, factor: f32) {
    let isa = x.device().isa();
    let grid = Grid {
        beyond: grid.largest,
        ..grid
    };
    let chunks = y.f32_mut().par_chunks_mut(CHUNK);
    chunks
        .zip(x.f32().par_chunks(CHUNK))
        .for_each(|(y, x)| scaled(isa, y, x, grid, factor));
}

/// `rows`, `columns`: 0 and the ends of runs.
pub(super) fn scaled_blocks(
    y: &mut Tensor,
    x: &Tensor,
    grid: Grid,
    rows: &[usize],
    columns: &[usize],
) {
    let isa = x.device().isa();
    let (width, x) = (x.rows_cols().1, x.f32());
    let mut rest = y.f32_mut();
    for rows in rows.windows(2) {
        let part;
        (part, rest) = rest.split_at_mut((rows[1] - rows[0]) * width);
        let x = &x[rows[0] * width..rows[1] * width];
        for columns in columns.windows(2) {
            let run = columns[0]..columns[1];
            let of_rows = x.chunks(width).map(|row| largest(&row[run.clone()]));
            let scale = scale(of_rows.fold(0.0, f32::max), grid);
            for (y, x) in part.chunks_mut(width).zip(x.chunks(width)) {
                scaled(isa, &mut y[run.clone()], &x[run.clone()], grid, scale);
            }
        }
    }
}

/// Largest size; NaN does not count.
pub(super) fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// The largest power of two by which `amax` may be multiplied, within 2^-126 and 2^126; 1 where there
/// is nothing to scale.
pub(super) fn scale(amax: f32, grid: Grid) -> f32 {
    if amax == 0.0 || !amax.is_finite() {
        return 1.0;
    }
    let parts = |bits: u32| ((bits >> 23).cast_signed(), bits & 0x7f_ffff);
    let (of_amax, of_grid) = (parts(amax.to_bits()), parts(grid.largest));
    let power = of_grid.0 - of_amax.0 - i32::from(of_amax.1 > of_grid.1);
    let power = power.clamp(-126, 126);
    f32::from_bits((127 + power).cast_unsigned() << 23)
}

vector_fn! {
    fn scaled<L>(y: &mut [f32], x: &[f32], grid: Grid, scale: f32) {
        let back = 1.0 / scale;
        for (y, x) in y.iter_mut().zip(x) {
            *y = nearest(*x * scale, grid) * back;
        }
    }
}
