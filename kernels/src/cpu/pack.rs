//! Copies of matrix panels in the order the tile kernel reads them.
//!
//! A panel is `width` rows of A (or columns of B), its lanes, for all k. A word is the element of one k, or those
//! of two neighbouring ones rounded to bf16 (`bf16.rs`): word (lane, step) goes to `out[step * width + lane]`.
//! Lanes past the matrix's edge and the partner of an odd last k are zero; the kernel discards their results.
//! Packing is bound by memory latency, so lines are prefetched.

use super::bf16::{Step, Task, perform};
use super::element::Element;
use super::output::Data;
use super::simd::{LANES, Lanes};
use super::{Isa, Numbers};
use crate::Bf16;

/// A read-only matrix in memory: element (row, column) at `row * row_stride + column * col_stride`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, E = f32> {
    pub(crate) data: &'a [E],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
}

impl<'a, E> View<'a, E> {
    /// A row-major matrix whose rows start `row_stride` apart.
    pub(crate) fn new(data: &'a [E], rows: usize, cols: usize, row_stride: usize) -> View<'a, E> {
        View {
            data,
            rows,
            cols,
            row_stride,
            col_stride: 1,
        }
    }

    /// The same memory, rows and columns swapped.
    pub(crate) fn transposed(self) -> View<'a, E> {
        View {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    /// Columns first .. end.
    fn columns(self, first: usize, end: usize) -> View<'a, E> {
        let start = (first * self.col_stride).min(self.data.len());
        View {
            data: &self.data[start..],
            cols: end - first,
            ..self
        }
    }

    /// Panics unless every element is inside the slice.
    pub(crate) fn check(&self) {
        if self.rows > 0 && self.cols > 0 {
            let last = (self.rows - 1) * self.row_stride + (self.cols - 1) * self.col_stride;
            assert!(last < self.data.len(), "a matrix view is inside its slice");
        }
    }
}

/// A matrix of either kind of number.
#[derive(Clone, Copy)]
pub(crate) enum Matrix<'a> {
    F32(View<'a>),
    Bf16(View<'a, Bf16>),
}

impl<'a> From<View<'a>> for Matrix<'a> {
    fn from(x: View<'a>) -> Self {
        Matrix::F32(x)
    }
}

/// The same done with the view of either kind.
macro_rules! each_kind {
    ($matrix:expr, $x:ident => $value:expr) => {
        match $matrix {
            Matrix::F32($x) => $value,
            Matrix::Bf16($x) => $value,
        }
    };
}
pub(crate) use each_kind;

impl<'a> Matrix<'a> {
    /// Rows of an operand that start `stride` apart, from element `first` on.
    pub(crate) fn of(
        data: Data<'a>,
        first: usize,
        [rows, cols]: [usize; 2],
        stride: usize,
    ) -> Matrix<'a> {
        match data {
            Data::F32(x) => Matrix::F32(View::new(&x[first..], rows, cols, stride)),
            Data::Bf16(x) => Matrix::Bf16(View::new(&x[first..], rows, cols, stride)),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        each_kind!(self, x => x.rows)
    }

    pub(crate) fn cols(&self) -> usize {
        each_kind!(self, x => x.cols)
    }

    pub(crate) fn check(&self) {
        each_kind!(self, x => x.check());
    }

    /// `View::transposed`
    pub(crate) fn transposed(self) -> Matrix<'a> {
        match self {
            Matrix::F32(x) => Matrix::F32(x.transposed()),
            Matrix::Bf16(x) => Matrix::Bf16(x.transposed()),
        }
    }

    /// `View::columns`
    pub(crate) fn columns(self, first: usize, end: usize) -> Matrix<'a> {
        match self {
            Matrix::F32(x) => Matrix::F32(x.columns(first, end)),
            Matrix::Bf16(x) => Matrix::Bf16(x.columns(first, end)),
        }
    }

    /// Rows first .. end.
    pub(crate) fn rows_of(self, first: usize, end: usize) -> Matrix<'a> {
        self.transposed().columns(first, end).transposed()
    }

    /// Its first rows.
    pub(crate) fn up_to(self, rows: usize) -> Matrix<'a> {
        match self {
            Matrix::F32(x) => Matrix::F32(View { rows, ..x }),
            Matrix::Bf16(x) => Matrix::Bf16(View { rows, ..x }),
        }
    }
}

/// Rows of k read concurrently where lanes are adjacent: each is a hardware stream.
const STREAMS: usize = 16;
/// Lanes of them that are read at once: a few cache lines.
const TOGETHER: usize = 64;
/// Prefetch distance in lanes.
const AHEAD: usize = 2 * TOGETHER;

/// Rows up to this many bytes: prefetch from the next vector's rows; longer rows: prefetch ahead in each row.
const SHORT: usize = 32 << 10;

/// Some panels to pack; `k` are the columns of `a`.
#[derive(Clone, Copy)]
pub(crate) struct Panels<M> {
    pub(crate) a: M,
    /// First lane of the first panel.
    pub(crate) first: usize,
    /// Lanes of a panel.
    pub(crate) width: usize,
    pub(crate) count: usize,
    /// Words from one panel to the next.
    pub(crate) apart: usize,
}

/// Packs panels, each from `out[panel * apart]` on.
pub(crate) fn pack(isa: Isa, numbers: Numbers, panels: Panels<Matrix<'_>>, out: &mut [f32]) {
    if panels.a.cols() == 0 {
        return;
    }
    let Panels {
        first,
        width,
        count,
        apart,
        ..
    } = panels;
    each_kind!(panels.a, a => {
        let panels = Panels { a, first, width, count, apart };
        perform(isa, numbers.are_pairs(), Pack { panels, out });
    });
}

struct Pack<'a, 'o, E> {
    panels: Panels<View<'a, E>>,
    out: &'o mut [f32],
}

impl<E: Element> Task for Pack<'_, '_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Pack { panels, out } = self;
        if panels.a.row_stride == 1 {
            across::<L, N, E>(panels, out);
        } else if panels.a.col_stride == 1 {
            along::<L, N, E>(panels, out);
        } else {
            strided::<L, N, E>(panels, out);
        }
    }
}

impl<E> Panels<View<'_, E>> {
    fn steps(&self, per_word: usize) -> usize {
        self.a.cols.div_ceil(per_word)
    }

    /// Vectors of some panels: panel, first lane in it, its lanes in the vector, those in the matrix.
    #[inline(always)]
    fn vectors(
        self,
        panels: std::ops::Range<usize>,
    ) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        panels.flat_map(move |panel| {
            (0..self.width).step_by(LANES).map(move |lane| {
                let lanes = LANES.min(self.width - lane);
                let row = self.first + panel * self.width + lane;
                let present = lanes.min(self.a.rows.saturating_sub(row));
                (panel, lane, lanes, present)
            })
        })
    }
}

/// Packs where rows are adjacent: a step is read as it is, or two are interleaved.
#[inline(always)]
fn across<L: Lanes, N: Step<L>, E: Element>(panels: Panels<View<'_, E>>, out: &mut [f32]) {
    let Panels { a, width, .. } = panels;
    let steps = panels.steps(N::PER_WORD);
    let (streams, together) = (STREAMS / N::PER_WORD, (TOGETHER / width).max(1));
    // Few lanes: prefetch the next rows; many lanes: prefetch ahead in each row.
    let soon = if panels.count * width <= 2 * AHEAD {
        STREAMS * a.col_stride
    } else {
        AHEAD
    };
    // The last step has no next one to spill into.
    let plain = (steps - 1) / streams * streams;
    for step0 in (0..steps).step_by(streams) {
        for panel0 in (0..panels.count).step_by(together) {
            let some = panel0..panels.count.min(panel0 + together);
            let end = steps.min(step0 + streams);
            let first = panels.first + panel0 * width;
            let lanes = together * width;
            let last = (end * N::PER_WORD - 1) * a.col_stride + first + lanes + LANES;
            let inside = some.len() == together && first + lanes <= a.rows && last <= a.data.len();
            let out = &mut out[panel0 * panels.apart..];
            if step0 < plain && inside {
                match width {
                    12 => several::<L, N, E, 12, 5>(panels, first, soon, step0..end, out),
                    32 => several::<L, N, E, 32, 2>(panels, first, soon, step0..end, out),
                    16 => several::<L, N, E, 16, 4>(panels, first, soon, step0..end, out),
                    _ => one_by_one::<L, N, E>(panels, some, step0..end, out),
                }
            } else {
                one_by_one::<L, N, E>(panels, some, step0..end, out);
            }
        }
    }
}

/// Packs steps of COUNT panels inside the matrix, each followed by another step: lanes above WIDTH spill into it
/// and are overwritten.
#[inline(always)]
fn several<L: Lanes, N: Step<L>, E: Element, const WIDTH: usize, const COUNT: usize>(
    panels: Panels<View<'_, E>>,
    first: usize,
    soon: usize,
    steps: std::ops::Range<usize>,
    out: &mut [f32],
) {
    let Panels { a, apart, .. } = panels;
    for step in steps {
        let start = step * N::PER_WORD * a.col_stride + first;
        let even = &a.data[start..][..WIDTH * COUNT + LANES];
        let odd = if N::PER_WORD == 2 {
            &a.data[start + a.col_stride..][..WIDTH * COUNT + LANES]
        } else {
            even
        };
        for line in (0..WIDTH * COUNT).step_by(E::LINE) {
            L::prefetch(even.as_ptr().wrapping_add(line + soon).cast());
            if N::PER_WORD == 2 {
                L::prefetch(odd.as_ptr().wrapping_add(line + soon).cast());
            }
        }
        for panel in 0..COUNT {
            let out = &mut out[panel * apart + step * WIDTH..][..WIDTH.max(LANES)];
            for lane in (0..WIDTH).step_by(LANES) {
                let at = panel * WIDTH + lane;
                let words = N::weave(E::load(&even[at..]), E::load(&odd[at..]));
                words.store(&mut out[lane..]);
            }
        }
    }
}

/// Rows from `row` on of column k, of which `present` of `lanes` are inside the matrix: those past its edge are
/// zero, those past the panel's width arbitrary.
#[inline(always)]
fn column<L: Lanes, E: Element>(
    a: View<'_, E>,
    k: usize,
    row: usize,
    present: usize,
    lanes: usize,
) -> L {
    if k >= a.cols || present == 0 {
        return L::splat(0.0);
    }
    let start = k * a.col_stride + row;
    if present == lanes && start + LANES <= a.data.len() {
        E::load(&a.data[start..start + LANES])
    } else {
        E::load_part(&a.data[start..start + present])
    }
}

/// Steps of panels that may cross the matrix's edge.
#[inline(always)]
fn one_by_one<L: Lanes, N: Step<L>, E: Element>(
    panels: Panels<View<'_, E>>,
    some: std::ops::Range<usize>,
    steps: std::ops::Range<usize>,
    out: &mut [f32],
) {
    let Panels { a, width, .. } = panels;
    let end = panels.steps(N::PER_WORD) * width;
    let panel0 = some.start;
    for (panel, lane, lanes, present) in panels.vectors(some) {
        let row = panels.first + panel * width + lane;
        let start = (panel - panel0) * panels.apart;
        let out = &mut out[start + lane..start + end];
        for step in steps.clone() {
            let k = step * N::PER_WORD;
            let odd = if N::PER_WORD == 2 {
                column(a, k + 1, row, present, lanes)
            } else {
                L::splat(0.0)
            };
            let words = N::weave(column(a, k, row, present, lanes), odd);
            put(words, &mut out[step * width..], lanes, width);
        }
    }
}

/// Packs where columns are adjacent: squares of 16 rows and 16 words are transposed in registers.
#[inline(always)]
fn along<L: Lanes, N: Step<L>, E: Element>(panels: Panels<View<'_, E>>, out: &mut [f32]) {
    let Panels { a, width, .. } = panels;
    let end = panels.steps(N::PER_WORD) * width;
    let side = N::PER_WORD * LANES;
    for (panel, lane, lanes, present) in panels.vectors(0..panels.count) {
        let row = panels.first + panel * width + lane;
        let out = &mut out[panel * panels.apart + lane..panel * panels.apart + end];
        let soon = if 4 * lanes * a.cols <= SHORT {
            lanes * a.row_stride
        } else {
            AHEAD
        };
        for k0 in (0..a.cols).step_by(side) {
            let len = side.min(a.cols - k0);
            let start = row * a.row_stride + k0;
            let out = &mut out[k0 / N::PER_WORD * width..];
            if len == side && present == lanes {
                let rows = &a.data[start..];
                match (width, lanes) {
                    (12, 12) => {
                        turn::<L, N, E, 12, 12>(rows, a.row_stride, soon, out);
                        continue;
                    }
                    (32, 16) => {
                        turn::<L, N, E, 16, 32>(rows, a.row_stride, soon, out);
                        continue;
                    }
                    (16, 16) => {
                        turn::<L, N, E, 16, 16>(rows, a.row_stride, soon, out);
                        continue;
                    }
                    _ => {}
                }
            }
            let mut square = [L::splat(0.0); LANES];
            for (r, words) in square.iter_mut().enumerate().take(present) {
                let row = &a.data[start + r * a.row_stride..][..len];
                let (low, high) = row.split_at(len.min(LANES));
                *words = N::join(E::load_part(low), E::load_part(high));
            }
            for (step, words) in L::transpose(square).into_iter().enumerate() {
                if step < len.div_ceil(N::PER_WORD) {
                    put(words, &mut out[step * width..], lanes, width);
                }
            }
        }
    }
}

/// Transposes a whole square of ROWS rows for panels of WIDTH lanes. Constant trip counts keep it in registers.
/// `soon`: prefetch distance in floats.
#[inline(always)]
fn turn<L: Lanes, N: Step<L>, E: Element, const ROWS: usize, const WIDTH: usize>(
    rows: &[E],
    stride: usize,
    soon: usize,
    out: &mut [f32],
) {
    let out = &mut out[..(LANES - 1) * WIDTH + ROWS];
    let mut square = [L::splat(0.0); LANES];
    for (r, words) in square.iter_mut().enumerate().take(ROWS) {
        let row = &rows[r * stride..][..N::PER_WORD * LANES];
        let soon = row.as_ptr().wrapping_add(soon);
        L::prefetch(soon.cast());
        if N::PER_WORD * LANES > E::LINE {
            L::prefetch(soon.wrapping_add(LANES).cast());
        }
        *words = E::join::<L, N>(row);
    }
    for (step, words) in L::transpose(square).into_iter().enumerate() {
        // Lanes past the panel's width spill into the next step, which is written later.
        if ROWS == LANES || step < LANES - 1 {
            words.store(&mut out[step * WIDTH..][..LANES]);
        } else {
            words.store_part(&mut out[step * WIDTH..][..ROWS]);
        }
    }
}

/// Packs where neither rows nor columns are adjacent.
#[inline(always)]
fn strided<L: Lanes, N: Step<L>, E: Element>(panels: Panels<View<'_, E>>, out: &mut [f32]) {
    let Panels { a, width, .. } = panels;
    for (panel, lane, lanes, present) in panels.vectors(0..panels.count) {
        let row = panels.first + panel * width + lane;
        let out = &mut out[panel * panels.apart + lane..];
        for step in 0..panels.steps(N::PER_WORD) {
            let k = step * N::PER_WORD;
            let mut columns = [[0.0; LANES]; 2];
            for (k, x) in (k..a.cols).zip(&mut columns) {
                for (r, x) in x.iter_mut().enumerate().take(present) {
                    *x = a.data[(row + r) * a.row_stride + k * a.col_stride].value();
                }
            }
            let words = N::weave(L::load(&columns[0]), L::load(&columns[1]));
            words.store_part(&mut out[step * width..][..lanes]);
        }
    }
}

/// Stores `lanes` words; a whole vector where the following words are written later.
#[inline(always)]
fn put<L: Lanes>(words: L, out: &mut [f32], lanes: usize, width: usize) {
    if out.len() >= LANES && (lanes == LANES || lanes == width) {
        words.store(&mut out[..LANES]);
    } else {
        words.store_part(&mut out[..lanes]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::bf16::rounded;
    use super::*;

    #[test]
    fn every_layout_and_instruction_set_packs_the_same_words() {
        let special = [
            f32::NAN,
            f32::INFINITY,
            1e-40,
            -1e-39,
            f32::MAX,
            -0.0,
            1.003_906_3,
        ];
        let data: Vec<f32> = (0..50_u16 * 70)
            .map(|i| {
                if i % 11 == 0 {
                    special[usize::from(i) % 7]
                } else {
                    f32::from(i) * 1.37
                }
            })
            .collect();
        let at = |r: usize, k: usize| data[r * 70 + k];
        let turned: Vec<f32> = (0..70)
            .flat_map(|k| (0..50).map(move |r| at(r, k)))
            .collect();
        let strided: Vec<f32> = data.iter().flat_map(|&x| [x, -1.0]).collect();
        let layouts = [(&data, 70, 1), (&turned, 1, 50), (&strided, 140, 2)];
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for width in [1, 4, 6, 12, 16, 32] {
                for (rows, cols, first) in [
                    (50, 67, 0),
                    (40, 32, 33),
                    (19, 1, 12),
                    (40, 64, 3),
                    (50, 70, 2),
                ] {
                    for numbers in [Numbers::F32, Numbers::Bf16] {
                        for (data, row_stride, col_stride) in layouts {
                            let a = View {
                                data,
                                rows,
                                cols,
                                row_stride,
                                col_stride,
                            };
                            let per_word = if numbers == Numbers::F32 { 1 } else { 2 };
                            let apart = cols.div_ceil(per_word) * width;
                            let count = (rows - first).div_ceil(width);
                            let panels = Panels {
                                a: a.into(),
                                first,
                                width,
                                count,
                                apart,
                            };
                            let mut out = vec![7.0; count * apart];
                            pack(isa, numbers, panels, &mut out);
                            for (i, word) in out.iter().enumerate() {
                                let (step, lane) = (i % apart / width, i % width);
                                let r = first + i / apart * width + lane;
                                let x = |k| if r < rows && k < cols { at(r, k) } else { 0.0 };
                                let want = if numbers == Numbers::F32 {
                                    x(step).to_bits()
                                } else {
                                    rounded(x(2 * step)) >> 16 | rounded(x(2 * step + 1))
                                };
                                let place = (isa, numbers, width, rows, cols, first, r, step);
                                assert_eq!(word.to_bits(), want, "{place:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
