//! Rotary embedding of packed queries, keys and values while their rows are in the nearest caches: fused with a
//! product, with attention's gradients, or as a separate op. All use the same operations, hence give the same bits.
#![expect(unsafe_code, reason = "tasks write disjoint parts of one output")]

use super::bf16::{Step, Task, perform_on_floats};
use super::element::{Element, TWO};
use super::output::{DataMut, Shared};
use super::simd::{LANES, Lanes};
use super::{Isa, ROW_BLOCK};
use crate::descriptor::frequencies::Frequencies;
use crate::descriptor::rope::{Positions, Turn, Way};
use crate::{Device, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// Angles of all rows.
pub(crate) struct Rotary<'a> {
    turn: Turn<'a>,
    /// Per position: cosines of all pairs, then sines.
    table: Arc<Vec<f32>>,
    way: Way,
}

/// Some rows, and some columns of each, from (row, column) on; heads are whole.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl<'a> Rotary<'a> {
    /// Angles, sines and cosines are made in f64 and kept as one f32 table per device.
    pub(crate) fn new(turn: Turn<'a>, way: Way, device: &Device) -> Rotary<'a> {
        let table = device.cached_table(key_of(&turn), || table_of(&turn));
        Rotary { turn, table, way }
    }

    /// Columns of a head.
    pub(crate) fn width(&self) -> usize {
        self.turn.heads.width
    }

    /// Rotates heads of one row, from a column on.
    #[inline(always)]
    fn turn_row<L: Lanes>(&self, x: &mut [f32], row: usize, column: usize) {
        let (heads, half) = (self.turn.heads, self.turn.frequencies.steps().len());
        let (width, slots) = (heads.width, heads.per_group() + 2);
        let position = match self.turn.positions {
            Positions::Run { t, .. } => row % t,
            Positions::Each { of, .. } => of[row] as usize,
        };
        let (cos, sin) = self.table[position * 2 * half..][..2 * half].split_at(half);
        let direction = L::splat(match self.way {
            Way::Forward => 1.0,
            Way::Back => -1.0,
        });
        for (slot, head) in (column / width..).zip(x.chunks_exact_mut(width)) {
            if slot % slots == slots - 1 {
                continue; // values stay
            }
            let (left, right) = head[..2 * half].split_at_mut(half);
            for at in (0..half).step_by(LANES) {
                let end = half.min(at + LANES);
                let (left, right) = (&mut left[at..end], &mut right[at..end]);
                let (cos, sin) = (f32::load_part::<L>(&cos[at..end]), &sin[at..end]);
                let sin = f32::load_part::<L>(sin).mul(direction);
                let (a, b) = (f32::load_part::<L>(left), f32::load_part::<L>(right));
                a.mul(cos).sub(b.mul(sin)).store_part(left);
                b.mul(cos).add(a.mul(sin)).store_part(right);
            }
        }
    }

    /// Rotates rows that are `stride` apart.
    pub(crate) fn in_place(&self, isa: Isa, x: &mut [f32], stride: usize, part: Part) {
        let start = x.as_mut_ptr();
        let last = (part.rows.saturating_sub(1)) * stride + part.columns;
        assert!(part.rows == 0 || last <= x.len(), "rows are in their slice");
        // SAFETY: the rows are inside `x` by the assert, and `x` is exclusively borrowed.
        unsafe { self.in_place_at(isa, start, stride, part) }
    }

    /// Like `in_place`, for rows from `start` on.
    /// # Safety
    /// The rows exist, and no other task uses these columns of them.
    pub(crate) unsafe fn in_place_at(&self, isa: Isa, start: *mut f32, stride: usize, part: Part) {
        // SAFETY: the rows are there and this task's, by this function's contract.
        let rows = unsafe { Rows::new(self, start, stride, part) };
        perform_on_floats(isa, rows);
    }

    /// Adds a bias, rotates, and writes rows that are `stride` apart to the same part of an output whose rows are
    /// `out.1` apart, rounded last if it is in bf16.
    /// # Safety
    /// The output has the part, which nobody else uses.
    pub(crate) unsafe fn settle<E: Element>(
        &self,
        isa: Isa,
        (x, stride): (&mut [f32], usize),
        (out, bias): ((*mut E, usize), Option<&[f32]>),
        part: Part,
    ) {
        let settled = Settled {
            rotary: self,
            x,
            stride,
            bias,
            out,
            part,
        };
        E::perform(isa, settled);
    }

    /// Rotates all rows of x, which are in f32, and writes them to `out`, rounded if that is in bf16.
    pub(crate) fn settle_all(&self, x: &mut Tensor, out: &mut Tensor) {
        let (isa, (_, columns)) = (x.device().isa(), x.rows_cols());
        assert_eq!(x.dims(), out.dims(), "callers check shapes");
        let out = DataMut::of(out).shared();
        let blocks = x.f32_mut().par_chunks_mut(columns * ROW_BLOCK);
        blocks.enumerate().for_each(|(block, x)| {
            let part = Part {
                row: block * ROW_BLOCK,
                column: 0,
                rows: x.len() / columns,
                columns,
            };
            let x = (x, columns);
            // SAFETY: each task writes only the rows of its block.
            unsafe {
                match out {
                    Shared::F32(out) => self.settle(isa, x, ((out, columns), None), part),
                    Shared::Bf16(out) => self.settle(isa, x, ((out, columns), None), part),
                }
            }
        });
    }
}

/// Rows to rotate in place. Its owner may write them, by the contract of `new`.
struct Rows<'a> {
    rotary: &'a Rotary<'a>,
    start: *mut f32,
    stride: usize,
    part: Part,
}

impl<'a> Rows<'a> {
    /// # Safety
    /// As `Rotary::in_place_at`, for as long as it lives.
    unsafe fn new(rotary: &'a Rotary<'a>, start: *mut f32, stride: usize, part: Part) -> Rows<'a> {
        Rows {
            rotary,
            start,
            stride,
            part,
        }
    }
}

impl Task for Rows<'_> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Part { row, column, .. } = self.part;
        for i in 0..self.part.rows {
            // SAFETY: row i of the part is there and this task's, by the contract of `Rows::new`.
            let x = unsafe {
                let start = self.start.add(i * self.stride);
                std::slice::from_raw_parts_mut(start, self.part.columns)
            };
            self.rotary.turn_row::<L>(x, row + i, column);
        }
    }
}

/// Rows to rotate on their way to an output. Made by `Rotary::settle` alone, whose contract is for the output's part.
struct Settled<'a, 'x, E> {
    rotary: &'a Rotary<'a>,
    x: &'x mut [f32],
    stride: usize,
    bias: Option<&'x [f32]>,
    out: (*mut E, usize),
    part: Part,
}

impl<E: Element> Task for Settled<'_, '_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Settled {
            rotary,
            x,
            stride,
            bias,
            out: (out, apart),
            part,
        } = self;
        let Part { row, column, .. } = part;
        for (i, x) in x.chunks_mut(stride).take(part.rows).enumerate() {
            let x = &mut x[..part.columns];
            if let Some(bias) = bias {
                let bias = &bias[column..column + part.columns];
                for (x, bias) in x.chunks_mut(LANES).zip(bias.chunks(LANES)) {
                    let sum = f32::load_part::<L>(x).add(f32::load_part::<L>(bias));
                    sum.store_part(x);
                }
            }
            rotary.turn_row::<L>(x, row + i, column);
            // SAFETY: row i of the part is in the output and this task's, by the contract of `Rotary::settle`.
            let out = unsafe {
                let start = out.add((row + i) * apart + column);
                std::slice::from_raw_parts_mut(start, part.columns)
            };
            for (out, x) in out.chunks_mut(TWO).zip(x.chunks(TWO)) {
                E::settle::<L, N>(f32::two::<L>(x), out);
            }
        }
    }
}

/// Rows of a table of angles and the position of the first.
fn rows_of(turn: &Turn<'_>) -> (usize, usize) {
    match turn.positions {
        Positions::Run { t, offset } => (t, offset),
        Positions::Each { limit, .. } => (limit, 0),
    }
}

/// The cache key of a turn's table.
pub(crate) fn key_of<'a>(turn: &Turn<'a>) -> impl Iterator<Item = u64> + Clone + use<'a> {
    let (t, offset) = rows_of(turn);
    key(t, offset, turn.frequencies)
}

/// A turn's table: per position the cosines of all pairs, then their sines.
pub(crate) fn table_of(turn: &Turn<'_>) -> Vec<f32> {
    let (t, offset) = rows_of(turn);
    table(t, offset, turn.frequencies)
}

/// The cache key of a table of angles.
fn key(t: usize, offset: usize, angles: &Frequencies) -> impl Iterator<Item = u64> + Clone {
    let numbers = angles.steps().iter().copied().chain([angles.magnitude()]);
    let place = [t as u64, offset as u64];
    place.into_iter().chain(numbers.map(f64::to_bits))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "f64 angles become an f32 table"
)]
fn table(t: usize, offset: usize, frequencies: &Frequencies) -> Vec<f32> {
    let half = frequencies.steps().len();
    let size = frequencies.magnitude();
    let mut table = vec![0.0; t * 2 * half];
    table
        .par_chunks_mut(2 * half)
        .enumerate()
        .for_each(|(row, out)| {
            let position = (row + offset) as f64;
            for (i, step) in frequencies.steps().iter().enumerate() {
                let (sin, cos) = (position * step).sin_cos();
                (out[i], out[half + i]) = ((cos * size) as f32, (sin * size) as f32);
            }
        });
    table
}
