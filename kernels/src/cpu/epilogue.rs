//! What is done with the tiles of a product as soon as they are whole, while they lie in the nearest cache:
//! each element goes through the same operations as in an op of its own, so bits are the same.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

use super::Isa;
use super::curve::{Curve, by_kind};
use super::simd::{LANES, Lanes, vector_fn};
use super::tile::Tile;
use crate::activation::Kind;
use std::ops::Range;

/// A bias and an activation, each if there is one; for an output whose rows follow each other.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// One number a column, added to each row.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) then: Then<'a>,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum Then<'a> {
    #[default]
    Nothing,
    /// The function of each element, into an output of the same form.
    Values(Kind, Second<'a>),
    /// Each element times the function's slope at that of an input of the same form.
    Slopes(Kind, &'a [f32]),
}

/// A second output that tasks write tile by tile.
#[derive(Clone, Copy)]
pub(crate) struct Second<'a> {
    data: *mut f32,
    len: usize,
    borrowed: std::marker::PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks write disjoint tiles of the exclusively borrowed output.
unsafe impl Send for Second<'_> {}
// SAFETY: as above.
unsafe impl Sync for Second<'_> {}

impl<'a> Second<'a> {
    pub(crate) fn new(data: &'a mut [f32]) -> Second<'a> {
        Second {
            data: data.as_mut_ptr(),
            len: data.len(),
            borrowed: std::marker::PhantomData,
        }
    }

    /// # Safety
    /// Nobody else uses these elements meanwhile.
    #[inline(always)]
    unsafe fn part(self, start: usize, len: usize) -> &'a mut [f32] {
        assert!(start + len <= self.len, "the tile lies inside the output");
        // SAFETY: inside by the assert, the caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

/// A tile of an output whose rows are `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    /// The output's first element.
    pub(crate) c: *mut f32,
    pub(crate) stride: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Whole {
    /// The tile `t` of the output `c`, at (row, column).
    pub(crate) fn of(t: &Tile, c: *mut f32, (row, column): (usize, usize)) -> Whole {
        Whole {
            c,
            stride: t.c_stride,
            row,
            column,
            rows: t.rows,
            columns: t.cols,
        }
    }
}

impl Epilogue<'_> {
    pub(crate) fn is_none(&self) -> bool {
        self.bias.is_none() && matches!(self.then, Then::Nothing)
    }

    /// Asks for the lines of a second matrix that a tile will need.
    #[inline(always)]
    pub(crate) fn ask_for<L: Lanes>(self, tile: &Whole) {
        let second = match self.then {
            Then::Nothing => return,
            Then::Values(_, second) => second.data.cast_const(),
            Then::Slopes(_, at) => at.as_ptr(),
        };
        for row in tile.row..tile.row + tile.rows {
            for column in (0..tile.columns).step_by(LANES) {
                L::ask_for(second.wrapping_add(row * tile.stride + tile.column + column));
            }
        }
    }

    /// # Safety
    /// The output has the tile, and nobody else uses its elements or those of a second output there.
    pub(crate) unsafe fn apply(self, isa: Isa, tile: Whole) {
        each_row(isa, self, tile, None);
    }

    /// As `apply`, of elements that lie in `sums`, rows of whole vectors, and not yet in the output.
    /// # Safety
    /// As `apply`.
    pub(crate) unsafe fn apply_to(self, isa: Isa, tile: Whole, (sums, width): (&[f32], usize)) {
        each_row(isa, self, tile, Some((sums, width)));
    }
}

vector_fn! {
    /// To be called by `apply` and `apply_to` alone, which have their callers' word for the tile.
    fn each_row<L>(epilogue: Epilogue<'_>, tile: Whole, sums: Option<(&[f32], usize)>) {
        let Whole { column, columns, .. } = tile;
        let bias = epilogue.bias.map(|bias| &bias[column..column + columns]);
        for (number, row) in (tile.row..tile.row + tile.rows).enumerate() {
            let start = row * tile.stride + column;
            let from = sums.map(|(sums, width)| &sums[number * width..][..columns]);
            // SAFETY: by the word for the tile.
            let c = unsafe { std::slice::from_raw_parts_mut(tile.c.add(start), columns) };
            let row = Row { c, from, bias };
            match epilogue.then {
                Then::Nothing => row.each::<L>(|x, _| x),
                Then::Values(kind, second) => {
                    // SAFETY: by the word for the tile.
                    let out = unsafe { second.part(start, columns) };
                    by_kind!(kind, C => row.each::<L>(|x, at| {
                        C::value(x).store_part(&mut out[at]);
                        x
                    }));
                }
                Then::Slopes(kind, input) => {
                    let input = &input[start..start + columns];
                    by_kind!(kind, C => row.each::<L>(|x, at| {
                        x.mul(C::slope(L::load_part(&input[at], 0.0)))
                    }));
                }
            }
        }
    }
}

/// A row of a tile: where its elements are, what is added to them, where they go.
struct Row<'a> {
    c: &'a mut [f32],
    /// They lie in c if there is nothing here.
    from: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
}

impl Row<'_> {
    /// c = then(element + bias, which of the row they are), vector by vector.
    #[inline(always)]
    fn each<L: Lanes>(self, mut then: impl FnMut(L, Range<usize>) -> L) {
        let Row { c, from, bias } = self;
        for start in (0..c.len()).step_by(LANES) {
            let at = start..c.len().min(start + LANES);
            let mut x = L::load_part(&from.unwrap_or(c)[at.clone()], 0.0);
            if let Some(bias) = bias {
                x = x.add(L::load_part(&bias[at.clone()], 0.0));
            }
            then(x, at.clone()).store_part(&mut c[at]);
        }
    }
}
