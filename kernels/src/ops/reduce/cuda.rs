//! Sums on CUDA: a thread per column, rows in order, waiting blocks of the tree in registers; squares by 16 threads per
//! block of numbers, as the CPU's 16 lanes.

use std::sync::Arc;

use super::SQUARES;
use crate::cuda::{Cuda, Grid, Source};
use crate::{DType, Result, Tensor, View};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "reduce.cu",
    text: include_str!("reduce.cu"),
};

pub(super) fn sum_rows(
    on: &Arc<Cuda>,
    out: &mut Tensor,
    x: &Tensor,
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    let (rows, d) = x.rows_cols();
    let args = [
        out.into(),
        x.into(),
        (x.dtype() == DType::Bf16).into(),
        rows.into(),
        d.into(),
        super::leaf_rows(leaf, rows).into(),
        accumulate.into(),
    ];
    on.launch(&SOURCE, "sum_rows", Grid::over(d), &args)
}

/// One launch for the blocks of all views, and one that adds each view's blocks. A table has each view's address, length
/// and first block.
pub(super) fn squares(on: &Arc<Cuda>, out: &mut Tensor, views: &[View<'_>]) -> Result<()> {
    let device = views[0].device();
    let (mut table, mut count) = (Vec::with_capacity(views.len() * 3 + 3), 0);
    for view in views {
        table.extend([view.address().0, view.len() as u64, count as u64]);
        count += view.len().div_ceil(SQUARES);
    }
    table.extend([0, 0, count as u64]);
    let words: &[u32] = bytemuck::cast_slice(&table);
    let table = Tensor::from_u32(&[words.len()], words, device)?;
    let mut blocks = Tensor::empty(&[count.max(1) * 2], DType::U32, device)?;
    let args = [
        (&mut blocks).into(),
        (&table).into(),
        views.len().into(),
        count.into(),
    ];
    on.launch(&SOURCE, "squares_of_blocks", Grid::over(count * 16), &args)?;
    let args = [
        out.into(),
        (&blocks).into(),
        (&table).into(),
        views.len().into(),
    ];
    on.launch(&SOURCE, "squares_of_views", Grid::over(views.len()), &args)
}
