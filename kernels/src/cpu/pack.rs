//! Copies of matrix panels in the order the tile kernel reads them.
//!
//! A panel is `width` rows of A (or columns of B) for all k: element (lane, k) goes to
//! `out[k * width + lane]`. Lanes past the matrix's edge are zero; the kernel discards what they give.

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
pub(crate) fn pack(a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
    let present = width.min(a.rows - first);
    if a.row_stride == 1 {
        for (k, out) in out.chunks_exact_mut(width).take(a.cols).enumerate() {
            let start = k * a.col_stride + first;
            out[..present].copy_from_slice(&a.data[start..start + present]);
            out[present..].fill(0.0);
        }
        return;
    }
    if present < width {
        out[..a.cols * width].fill(0.0);
    }
    // Blocks of k keep the lines of `out` in L1 while each source row is read in order.
    const K_BLOCK: usize = 32;
    for k0 in (0..a.cols).step_by(K_BLOCK) {
        let len = K_BLOCK.min(a.cols - k0);
        let out = &mut out[k0 * width..(k0 + len) * width];
        for lane in 0..present {
            let start = (first + lane) * a.row_stride + k0 * a.col_stride;
            if a.col_stride == 1 {
                let row = &a.data[start..start + len];
                for (o, x) in out[lane..].iter_mut().step_by(width).zip(row) {
                    *o = *x;
                }
            } else {
                let row = a.data[start..].iter().step_by(a.col_stride).take(len);
                for (o, x) in out[lane..].iter_mut().step_by(width).zip(row) {
                    *o = *x;
                }
            }
        }
    }
}
