//! Turned tiles, 32 query rows a number, as the rows that they are.

use super::TILE;
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
