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

/// One launch for all views: a table has the address and the length of each block of them.
pub(super) fn sum_squares(on: &Arc<Cuda>, views: &[View<'_>]) -> Result<Vec<f64>> {
    let device = views[0].device();
    let mut blocks: Vec<u64> = Vec::new();
    for view in views {
        for start in (0..view.len()).step_by(SQUARES) {
            blocks.push(view.address().0 + start as u64 * 4);
            blocks.push((view.len() - start).min(SQUARES) as u64);
        }
    }
    let count = blocks.len() / 2;
    let mut sums = vec![0_u32; count * 2];
    if count > 0 {
        let words: &[u32] = bytemuck::cast_slice(&blocks);
        let table = Tensor::from_u32(&[words.len()], words, device)?;
        let mut found = Tensor::empty(&[sums.len()], DType::U32, device)?;
        let args = [(&mut found).into(), (&table).into(), count.into()];
        on.launch(&SOURCE, "sum_squares", Grid::over(count * 16), &args)?;
        sums = found.download()?;
    }
    let sums: &[[u32; 2]] = bytemuck::cast_slice(&sums);
    let mut sums = sums
        .iter()
        .map(|words| bytemuck::cast::<[u32; 2], f64>(*words));
    let of = |view: &View<'_>| {
        let blocks = view.len().div_ceil(SQUARES);
        sums.by_ref()
            .take(blocks)
            .fold(0.0, |sum, block| sum + block)
    };
    Ok(views.iter().map(of).collect())
}
