//! Packing of neighbouring numbers into words of two bf16 (`bf16.rs`), in the layout that strips read (`strip.rs`).

use super::bf16::{Step, Task, perform_on_pairs};
use super::element::Element;
use super::pack::{Matrix, View, each_kind};
use super::simd::{LANES, Lanes};
use super::strip::steps;
use super::{Isa, Numbers};

/// Writes a row's numbers as words; an odd last number is paired with zero.
pub(crate) fn join_row(isa: Isa, row: &[f32], out: &mut [f32]) {
    let apart = out.len();
    let row = View::new(row, 1, row.len(), row.len());
    join_rows(isa, row.into(), out, apart);
}

/// Writes the rows of x as words, `apart` from row to row, with zeros in between.
pub(crate) fn join_rows(isa: Isa, x: Matrix<'_>, out: &mut [f32], apart: usize) {
    each_kind!(x, x => {
        check(x);
        perform_on_pairs(isa, JoinRows { x, out, apart });
    });
}

/// Writes the columns of x as rows of words, `apart` from each other: whole blocks of tiles, padded with zeros.
pub(crate) fn join_columns(isa: Isa, x: Matrix<'_>, out: &mut [f32], apart: usize) {
    each_kind!(x, x => {
        check(x);
        perform_on_pairs(isa, JoinColumns { x, out, apart });
    });
}

/// Writes every two rows of x as a row of `width` words, a multiple of 16; in all the steps of a chain over rows, with
/// zeros past x.
pub(crate) fn join_pairs(isa: Isa, numbers: Numbers, x: Matrix<'_>, out: &mut [f32], width: usize) {
    let out = &mut out[..steps(numbers, x.rows()) * width];
    each_kind!(x, x => {
        check(x);
        perform_on_pairs(isa, JoinPairs { x, out, width });
    });
}

fn check<E>(x: View<'_, E>) {
    assert!(x.col_stride == 1, "numbers of a row are contiguous");
    x.check();
}

/// Numbers from `first` on of a row that has `len`; zeros past them.
#[inline(always)]
fn part<L: Lanes, E: Element>(x: &[E], first: usize, len: usize) -> L {
    if first >= len {
        return L::splat(0.0);
    }
    E::load_part(&x[first..len])
}

struct JoinRows<'a, E> {
    x: View<'a, E>,
    out: &'a mut [f32],
    apart: usize,
}

impl<E: Element> Task for JoinRows<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let JoinRows { x, out, apart } = self;
        let words = x.cols.div_ceil(2);
        for (r, out) in out.chunks_exact_mut(apart.max(1)).enumerate().take(x.rows) {
            let row = &x.data[r * x.row_stride..][..x.cols];
            for (i, out) in out[..words].chunks_mut(LANES).enumerate() {
                let at = 2 * LANES * i;
                let (low, high) = (part(row, at, x.cols), part(row, at + LANES, x.cols));
                <N as Step<L>>::join(low, high).store_part(out);
            }
            if words < apart {
                out[words..].fill(0.0);
            }
        }
    }
}

struct JoinColumns<'a, E> {
    x: View<'a, E>,
    out: &'a mut [f32],
    apart: usize,
}

impl<E: Element> Task for JoinColumns<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let JoinColumns { x, out, apart } = self;
        let words = steps(Numbers::Bf16Tiles, x.rows);
        for lane in (0..x.cols).step_by(LANES) {
            let lanes = LANES.min(x.cols - lane);
            for first in (0..words).step_by(LANES) {
                let mut square = [L::splat(0.0); LANES];
                for (step, square) in square.iter_mut().enumerate() {
                    *square = pair::<L, N, E>(x, 2 * (first + step), lane);
                }
                let words = L::transpose(square).into_iter().take(lanes);
                for (column, words) in words.enumerate() {
                    words.store(&mut out[(lane + column) * apart + first..]);
                }
            }
        }
    }
}

struct JoinPairs<'a, E> {
    x: View<'a, E>,
    out: &'a mut [f32],
    width: usize,
}

impl<E: Element> Task for JoinPairs<'_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let JoinPairs { x, out, width } = self;
        for (step, out) in out.chunks_exact_mut(width).enumerate() {
            for (i, out) in out.chunks_exact_mut(LANES).enumerate() {
                pair::<L, N, E>(x, 2 * step, LANES * i).store(out);
            }
        }
    }
}

/// Words of 16 columns from `lane` on, of `row` and the next one; zeros where x has none.
#[inline(always)]
fn pair<L: Lanes, N: Step<L>, E: Element>(x: View<'_, E>, row: usize, lane: usize) -> L {
    if row + 1 < x.rows && lane + LANES <= x.cols {
        let at = row * x.row_stride + lane;
        return N::weave(
            E::load(&x.data[at..]),
            E::load(&x.data[at + x.row_stride..]),
        );
    }
    let mut words = [L::splat(0.0); 2];
    for (row, word) in (row..x.rows).zip(&mut words) {
        *word = part(&x.data[row * x.row_stride..], lane, x.cols);
    }
    N::weave(words[0], words[1])
}
