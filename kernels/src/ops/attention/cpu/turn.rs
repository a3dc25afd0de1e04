//! Results as rows: of turned tiles, 32 query rows a number, and of gradients of keys and values.

use super::TILE;
use crate::Tensor;
use crate::cpu::simd::{LANES, vector_fn};

vector_fn! {
    /// Writes a tile, `[width, 32]`, as (rows, width): each row divided by its number of `by`, no -0.0, and so many floats
    /// of `out` from the last.
    pub(super) fn turn_back<L>(
        turned: &[f32], by: Option<&[f32]>, size: (usize, usize), out: (&mut [f32], usize),
    ) {
        let ((rows, width), (out, apart)) = (size, out);
        let zero = L::splat(0.0);
        for row in (0..rows).step_by(LANES) {
            let by = by.map(|by| L::load(&by[row..]));
            for column in (0..width).step_by(LANES) {
                let columns = LANES.min(width - column);
                let mut square = [zero; LANES];
                for (i, x) in square.iter_mut().enumerate().take(columns) {
                    let found = L::load(&turned[(column + i) * TILE + row..]);
                    *x = by.map_or(found, |by| found.div(by)).add(zero);
                }
                let lines = L::transpose(square).into_iter().take(rows - row);
                for (i, line) in lines.enumerate() {
                    line.store_part(&mut out[(row + i) * apart + column..][..columns]);
                }
            }
        }
    }
}

vector_fn! {
    /// Writes rows of both halves, padded, as rows of 2 * width without the padding, as many as `out` has; no -0.0.
    pub(super) fn side_by_side<L>(
        out: &mut [f32], halves: (&[f32], &[f32]), size: (usize, usize),
    ) {
        let (width, padded) = size;
        let lines = halves.0.chunks_exact(padded).zip(halves.1.chunks_exact(padded));
        for (out, (left, right)) in out.chunks_exact_mut(2 * width).zip(lines) {
            let (to_left, to_right) = out.split_at_mut(width);
            for (to, from) in [(to_left, left), (to_right, right)] {
                for (to, from) in to.chunks_mut(LANES).zip(from.chunks_exact(LANES)) {
                    L::load(from).add(L::splat(0.0)).store_part(to);
                }
            }
        }
    }
}

/// Gradients of keys and values, `[b, kv_heads, t, 2*width]`, as rows: `[b * t, kv_width]`.
pub(in crate::ops::attention) fn settle_rows(
    rows: &mut Tensor,
    dkv: &Tensor,
    (t, width): (usize, usize),
) {
    let dkv = dkv.f32();
    let row = rows.dims()[1];
    let kv_heads = row / (2 * width);
    for (i, out) in rows.f32_mut().chunks_exact_mut(2 * width).enumerate() {
        let (n, group) = (i / kv_heads, i % kv_heads);
        let at = ((n / t * kv_heads + group) * t + n % t) * 2 * width;
        out.copy_from_slice(&dkv[at..at + 2 * width]);
    }
}
