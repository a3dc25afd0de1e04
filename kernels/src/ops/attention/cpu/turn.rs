//! Results as rows: tiles with 32 query rows per number are transposed back, gradients of keys and values and keys and
//! values themselves copied.

#![expect(unsafe_code, reason = "tasks write disjoint columns of one output")]

use super::tile::TILE;
use crate::cpu::Isa;
use crate::cpu::bf16::{Step, Task};
use crate::cpu::element::{Element, TWO};
use crate::cpu::simd::{LANES, Lanes};
use crate::descriptor::heads::Heads;
use crate::{DType, Tensor};
use std::marker::PhantomData;

/// An output of whose rows tasks write some columns each, for as long as it is borrowed.
pub(super) struct Columns<'a, E> {
    start: *mut E,
    len: usize,
    /// Numbers per row.
    width: usize,
    borrowed: PhantomData<&'a mut [E]>,
}

// SAFETY: the pointer is to an exclusively borrowed output, and `Place::row` requires disjoint parts of its callers.
unsafe impl<E: Send> Send for Columns<'_, E> {}
// SAFETY: shared threads reach disjoint parts of the output alone (`Place::row`).
unsafe impl<E: Send> Sync for Columns<'_, E> {}

impl<'a, E> Columns<'a, E> {
    pub(super) fn of(out: &'a mut [E], width: usize) -> Columns<'a, E> {
        Columns {
            start: out.as_mut_ptr(),
            len: out.len(),
            width,
            borrowed: PhantomData,
        }
    }

    /// The start of the output, and numbers per row.
    pub(super) fn start(&self) -> (*mut E, usize) {
        (self.start, self.width)
    }

    /// From a row and a column on.
    pub(super) fn from(&self, row: usize, column: usize) -> Place<'_, E> {
        Place {
            columns: self,
            row,
            column,
        }
    }
}

/// Start of a task's rows in an output.
pub(super) struct Place<'a, E> {
    columns: &'a Columns<'a, E>,
    row: usize,
    column: usize,
}

impl<E> Clone for Place<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Place<'_, E> {}

impl<'a, E> Place<'a, E> {
    /// This many rows and columns further.
    pub(super) fn after(self, rows: usize, columns: usize) -> Self {
        Place {
            row: self.row + rows,
            column: self.column + columns,
            ..self
        }
    }

    /// `len` numbers of a row.
    /// # Safety
    /// No other task uses them as long as they are borrowed.
    /// # Panics
    /// If they are not inside the output.
    #[inline(always)]
    unsafe fn row(self, row: usize, len: usize) -> &'a mut [E] {
        let Columns {
            start,
            len: all,
            width,
            ..
        } = *self.columns;
        let at = (self.row + row) * width + self.column;
        assert!(
            self.column + len <= width && at + len <= all,
            "a place is inside its output"
        );
        // SAFETY: inside the output by the assert; no other task has this part, by the contract of `row`.
        unsafe { std::slice::from_raw_parts_mut(start.add(at), len) }
    }
}

/// Writes a tile, `[width, 32]`, as (rows, width): each row divided by its number of `by`, no -0.0.
/// # Safety
/// Nobody else uses these columns of these rows of the output.
pub(super) unsafe fn turn_back<E: Element>(
    isa: Isa,
    turned: &[f32],
    by: Option<&[f32]>,
    rows: usize,
    width: usize,
    out: Place<'_, E>,
) {
    let tile = Turned {
        turned,
        by,
        rows,
        width,
        out,
    };
    E::perform(isa, tile);
}

/// Created by `turn_back` alone, whose contract covers the output.
struct Turned<'a, E> {
    turned: &'a [f32],
    by: Option<&'a [f32]>,
    rows: usize,
    width: usize,
    out: Place<'a, E>,
}

impl<E: Element> Task for Turned<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Turned {
            turned,
            by,
            rows,
            width,
            out,
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
                    // SAFETY: no other task has these columns of the output, by this function's contract.
                    let out = unsafe { out.after(0, column).row(row + i, columns) };
                    E::settle::<L, N>([low[i], high[i]], out);
                }
            }
        }
    }
}

/// Transposes sixteen rows of this many columns, from the first row's start on.
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

/// Writes `rows` rows of both halves, padded, as rows of 2 * width without the padding, no -0.0; without halves zeros.
/// # Safety
/// Nobody else uses these columns of these rows of the output.
pub(super) unsafe fn side_by_side<E: Element>(
    isa: Isa,
    halves: Option<[&[f32]; 2]>,
    rows: usize,
    width: usize,
    padded: usize,
    out: Place<'_, E>,
) {
    let sides = Sides {
        halves,
        rows,
        width,
        padded,
        out,
    };
    E::perform(isa, sides);
}

/// Created by `side_by_side` alone, whose contract covers the output.
struct Sides<'a, E> {
    halves: Option<[&'a [f32]; 2]>,
    rows: usize,
    width: usize,
    padded: usize,
    out: Place<'a, E>,
}

impl<E: Element> Task for Sides<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Sides {
            halves,
            rows,
            width,
            padded,
            out,
        } = self;
        for row in 0..rows {
            // SAFETY: no other task has these columns of the output, by this function's contract.
            let out = unsafe { out.row(row, 2 * width) };
            let Some([left, right]) = halves else {
                out.fill(E::default());
                continue;
            };
            let (to_left, to_right) = out.split_at_mut(width);
            for (to, from) in [(to_left, left), (to_right, right)] {
                let from = &from[row * padded..(row + 1) * padded];
                for (to, from) in to.chunks_mut(TWO).zip(from.chunks(TWO)) {
                    let [low, high] = f32::two::<L>(from);
                    let zero = L::splat(0.0);
                    E::settle::<L, N>([low.add(zero), high.add(zero)], to);
                }
            }
        }
    }
}

/// Gradients of keys and values, `[b, kv_heads, t, 2*width]`, as rows: `[b * t, kv_width]`.
pub(crate) fn settle_rows(rows: &mut Tensor, dkv: &Tensor, t: usize, width: usize) {
    let dkv = dkv.f32();
    let row = rows.dims()[1];
    let kv_heads = row / (2 * width);
    for (i, out) in rows.f32_mut().chunks_exact_mut(2 * width).enumerate() {
        let (n, group) = (i / kv_heads, i % kv_heads);
        let at = ((n / t * kv_heads + group) * t + n % t) * 2 * width;
        out.copy_from_slice(&dkv[at..at + 2 * width]);
    }
}

/// Keys and values of packed rows as f32.
pub(crate) fn take_kv(kv: &mut Tensor, qkv: &Tensor, heads: &Heads) {
    let (first, width) = (heads.per_group() * heads.width, heads.group_width());
    let rows = kv.f32_mut().chunks_exact_mut(2 * heads.width);
    if qkv.dtype() == DType::Bf16 {
        for (to, from) in rows.zip(qkv.bf16().chunks_exact(width)) {
            (to.iter_mut().zip(&from[first..])).for_each(|(to, from)| *to = (*from).into());
        }
    } else {
        for (to, from) in rows.zip(qkv.f32().chunks_exact(width)) {
            to.copy_from_slice(&from[first..]);
        }
    }
}

/// The inverse of `take_kv`.
pub(crate) fn put_kv(qkv: &mut Tensor, kv: &Tensor, heads: &Heads) {
    let groups = qkv.f32_mut().chunks_exact_mut(heads.group_width());
    for (to, from) in groups.zip(kv.f32().chunks_exact(2 * heads.width)) {
        to[heads.per_group() * heads.width..].copy_from_slice(from);
    }
}
