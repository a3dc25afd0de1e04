//! Copies of matrix panels in the order the tile kernel reads them.
//!
//! A panel is `width` rows of A (or columns of B) for all k: element (lane, k) goes to
//! `out[k * width + lane]`. Lanes past the matrix's edge are zero; the kernel discards what they give.

use super::Isa;
use super::simd::{LANES, vector_fn};

/// A read-only matrix in memory: element (row, column) at `row * row_stride + column * col_stride`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
}

impl<'a> View<'a> {
    /// A row-major matrix whose rows start `row_stride` apart.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> View<'a> {
        View {
            data,
            rows,
            cols,
            row_stride,
            col_stride: 1,
        }
    }

    /// The same memory, rows and columns swapped.
    pub(crate) fn transposed(self) -> View<'a> {
        View {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    /// Columns first .. end.
    pub(crate) fn columns(self, first: usize, end: usize) -> View<'a> {
        let start = (first * self.col_stride).min(self.data.len());
        View {
            data: &self.data[start..],
            cols: end - first,
            ..self
        }
    }

    /// Panics unless every element lies in the slice.
    pub(crate) fn check(&self) {
        if self.rows > 0 && self.cols > 0 {
            let last = (self.rows - 1) * self.row_stride + (self.cols - 1) * self.col_stride;
            assert!(
                last < self.data.len(),
                "a matrix view lies inside its slice"
            );
        }
    }
}

/// Packs rows `first .. first + width` of `a` for all columns (which are k).
pub(crate) fn pack(isa: Isa, a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
    let present = width.min(a.rows - first);
    let out = &mut out[..a.cols * width];
    if a.row_stride == 1 {
        for (k, out) in out.chunks_exact_mut(width).enumerate() {
            let start = k * a.col_stride + first;
            out[..present].copy_from_slice(&a.data[start..start + present]);
            out[present..].fill(0.0);
        }
    } else if a.col_stride == 1 && width > 4 {
        pack_rows(isa, a, first, width, out);
    } else {
        out.fill(0.0);
        for lane in 0..present {
            let row = a.data[(first + lane) * a.row_stride..]
                .iter()
                .step_by(a.col_stride);
            for (o, x) in out[lane..].iter_mut().step_by(width).zip(row) {
                *o = *x;
            }
        }
    }
}

vector_fn! {
    /// Packs contiguous rows: squares of 16 rows and 16 k are turned in registers.
    fn pack_rows<L>(a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
        for lane0 in (0..width).step_by(LANES) {
            let lanes = LANES.min(width - lane0);
            let present = lanes.min(a.rows.saturating_sub(first + lane0));
            for k0 in (0..a.cols).step_by(LANES) {
                let len = LANES.min(a.cols - k0);
                let start = (first + lane0) * a.row_stride + k0;
                let out = &mut out[k0 * width + lane0..];
                // Lanes past this panel's width spill into the next k, which is written later.
                let room = (len - 1) * width + LANES;
                let spill = lanes == LANES || (width < LANES && out.len() >= room);
                if present == lanes && len == LANES && spill {
                    // Constant trip counts keep the square in registers.
                    let mut square = [L::splat(0.0); LANES];
                    for (r, x) in square.iter_mut().enumerate() {
                        // Lanes past the panel's width take its last row; they are overwritten.
                        let r = r.min(lanes - 1);
                        *x = L::load(&a.data[start + r * a.row_stride..][..LANES]);
                    }
                    for (k, x) in L::transpose(square).into_iter().enumerate() {
                        x.store(&mut out[k * width..][..LANES]);
                    }
                    continue;
                }
                let mut square = [L::splat(0.0); LANES];
                for (r, x) in square.iter_mut().enumerate().take(present) {
                    *x = L::load_part(&a.data[start + r * a.row_stride..][..len], 0.0);
                }
                for (k, x) in L::transpose(square).into_iter().enumerate().take(len) {
                    x.store_part(&mut out[k * width..][..lanes]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_packs_the_same_panel() {
        let data: Vec<f32> = (0..40_u16 * 50).map(f32::from).collect();
        for isa in [Isa::Avx512, Isa::Avx2, Isa::Portable] {
            if !isa.is_available() {
                continue;
            }
            for width in [1, 4, 6, 12, 16, 32] {
                for (rows, cols, first) in [(40, 37, 0), (40, 16, 33), (19, 1, 12), (40, 48, 3)] {
                    let at = |r: usize, k: usize| data[r * 50 + k];
                    let turned: Vec<f32> = (0..50)
                        .flat_map(|k| (0..40).map(move |r| at(r, k)))
                        .collect();
                    let strided: Vec<f32> = data.iter().flat_map(|&x| [x, -1.0]).collect();
                    let layouts = [(&data, 50, 1), (&turned, 1, 40), (&strided, 100, 2)];
                    for (data, row_stride, col_stride) in layouts {
                        let a = View {
                            data,
                            rows,
                            cols,
                            row_stride,
                            col_stride,
                        };
                        let mut out = vec![7.0; cols * width];
                        pack(isa, a, first, width, &mut out);
                        for (i, x) in out.iter().enumerate() {
                            let (k, r) = (i / width, first + i % width);
                            let want = if r < rows { at(r, k) } else { 0.0 };
                            assert_eq!(*x, want, "{isa:?} {width} {rows} {cols} {first} {r} {k}");
                        }
                    }
                }
            }
        }
    }
}
