//! Results as rows: of turned tiles, 32 query rows a number, and of gradients of keys and values.

use super::TILE;
use crate::Tensor;
use crate::cpu::Isa;
use crate::cpu::bf16::{Step, Task, perform};
use crate::cpu::element::{Element, TWO};
use crate::cpu::simd::{LANES, Lanes, vector_fn};

/// Writes a tile, `[width, 32]`, as (rows, width): each row divided by its number of `by`, no -0.0, and so many numbers
/// of `out` from the last.
pub(super) fn turn_back<E: Element>(
    isa: Isa,
    turned: &[f32],
    by: Option<&[f32]>,
    size: (usize, usize),
    out: (&mut [E], usize),
) {
    let tile = Turned {
        turned,
        by,
        size,
        out,
    };
    perform(isa, E::IN_PAIRS, tile);
}

struct Turned<'a, E> {
    turned: &'a [f32],
    by: Option<&'a [f32]>,
    size: (usize, usize),
    out: (&'a mut [E], usize),
}

impl<E: Element> Task for Turned<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Turned {
            turned,
            by,
            size: (rows, width),
            out: (out, apart),
        } = self;
        for row in (0..rows).step_by(LANES) {
            let by = by.map(|by| L::load(&by[row..]));
            for column in (0..width).step_by(TWO) {
                let columns = TWO.min(width - column);
                let low = square::<L>(&turned[column * TILE + row..], by, columns.min(LANES));
                let high = match columns.checked_sub(LANES) {
                    None | Some(0) => low,
                    Some(rest) => square::<L>(&turned[(column + LANES) * TILE + row..], by, rest),
                };
                for i in 0..LANES.min(rows - row) {
                    let out = &mut out[(row + i) * apart + column..][..columns];
                    E::settle::<L, N>([low[i], high[i]], out);
                }
            }
        }
    }
}

/// Sixteen rows of so many columns, of which the first row's first lies at the start.
#[inline(always)]
fn square<L: Lanes>(turned: &[f32], by: Option<L>, columns: usize) -> [L; LANES] {
    let zero = L::splat(0.0);
    let mut square = [zero; LANES];
    for (i, x) in square.iter_mut().enumerate().take(columns) {
        let mut found = L::load(&turned[i * TILE..]);
        if let Some(by) = by {
            found = found.div(by);
        }
        *x = found.add(zero);
    }
    L::transpose(square)
}

/// Writes a row as its numbers are stored.
pub(super) fn write_row<E: Element>(isa: Isa, from: &[f32], to: &mut [E]) {
    perform(isa, E::IN_PAIRS, Written { from, to });
}

struct Written<'a, E> {
    from: &'a [f32],
    to: &'a mut [E],
}

impl<E: Element> Task for Written<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        for (to, from) in self.to.chunks_mut(TWO).zip(self.from.chunks(TWO)) {
            E::settle::<L, N>(f32::two(from), to);
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
