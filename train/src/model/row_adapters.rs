//! Adapters of some rows of a batch: each request to an engine may have its own beside the same frozen weights (Chen et al.
//! 2023, arXiv:2310.18547; Sheng et al. 2023, arXiv:2311.03285).
//!
//! Rows with the same adapter are gathered, pass through it as they would alone, and return to their places. A row's bits
//! depend on no other row, so an answer is the same as that of a model with this adapter alone.

use std::ops::Range;

use kernels::{Tensor, copy};

use crate::model::slots::Slot;

/// An adapter's matrices on one rank.
pub(crate) struct AdapterWeights {
    /// A and B of the layers that it has, by slot; none elsewhere.
    pub weights: Vec<Option<Tensor>>,
    /// Factor of its output.
    pub scale: f32,
}

/// Rows of a batch that have the same adapter.
pub(crate) struct AdapterRows<'a> {
    pub adapter: &'a AdapterWeights,
    /// In order, apart from each other.
    pub ranges: Vec<Range<usize>>,
}

impl AdapterRows<'_> {
    /// Whether its layer is adapted that has A in this slot.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.adapter.weights[slot].is_some()
    }

    /// Changes its rows of y, `[n, out]`: `add` gets them and the same rows of x, `[n, in]`.
    pub(crate) fn change(
        &self,
        y: &mut Tensor,
        x: &Tensor,
        add: impl Fn(&mut Tensor, &Tensor) -> kernels::Result<()>,
    ) -> kernels::Result<()> {
        let all = 0..x.dims()[0];
        if self.ranges == [all] {
            return add(y, x);
        }
        let own_x = self.gathered(x)?;
        let mut own_y = self.gathered(y)?;
        add(&mut own_y, &own_x)?;
        let (width, mut first) = (y.dims()[1], 0);
        for rows in &self.ranges {
            let last = first + rows.len();
            let to = y.flat_mut(rows.start * width..rows.end * width)?;
            copy(to, own_y.flat(first * width..last * width)?)?;
            first = last;
        }
        Ok(())
    }

    /// Its rows of x, `[n, width]`, one after another.
    fn gathered(&self, x: &Tensor) -> kernels::Result<Tensor> {
        let (width, mut first) = (x.dims()[1], 0);
        let count = self.ranges.iter().map(ExactSizeIterator::len).sum();
        let mut out = Tensor::empty(&[count, width], x.dtype(), x.device())?;
        for rows in &self.ranges {
            let last = first + rows.len();
            let to = out.flat_mut(first * width..last * width)?;
            copy(to, x.flat(rows.start * width..rows.end * width)?)?;
            first = last;
        }
        Ok(out)
    }
}
