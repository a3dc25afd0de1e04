//! Cross entropy on CUDA: 16 threads per slice of a row, as the CPU's 16 lanes; a thread per logit backward.

use std::sync::Arc;

use super::shard::{Found, Rows, Shard};
use crate::cuda::{Cuda, Grid, Source};
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "cross_entropy.cu",
    text: include_str!("cross_entropy.cu"),
};

pub(super) fn statistics(
    on: &Arc<Cuda>,
    found: Found<'_>,
    logits: &Tensor,
    targets: &Tensor,
    shard: Shard,
    slice: usize,
) -> Result<()> {
    let (n, rows) = logits.rows_cols();
    let args = [
        found.maxima.into(),
        found.sums.into(),
        found.target.into(),
        logits.into(),
        targets.into(),
        n.into(),
        rows.into(),
        shard.first.into(),
        shard.real(rows).into(),
        slice.into(),
    ];
    let grid = Grid::over(n * (rows / slice) * 16);
    on.launch(&SOURCE, "cross_entropy_statistics", grid, &args)
}

pub(super) fn merge_maxima(on: &Arc<Cuda>, max: &mut Tensor, maxima: &Tensor) -> Result<()> {
    let (slices, n) = maxima.rows_cols();
    let args = [max.into(), maxima.into(), n.into(), slices.into()];
    on.launch(&SOURCE, "cross_entropy_maxima", Grid::over(n), &args)
}

pub(super) fn rescale(
    on: &Arc<Cuda>,
    sums: &mut Tensor,
    maxima: &Tensor,
    max: &Tensor,
) -> Result<()> {
    let (slices, n) = maxima.rows_cols();
    let args = [
        sums.into(),
        maxima.into(),
        max.into(),
        n.into(),
        slices.into(),
    ];
    on.launch(
        &SOURCE,
        "cross_entropy_rescale",
        Grid::over(slices * n),
        &args,
    )
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    logits: &mut Tensor,
    of: Rows<'_>,
    shard: Shard,
) -> Result<()> {
    let (n, rows) = logits.rows_cols();
    let args = [
        logits.into(),
        of.max.into(),
        of.sum.into(),
        of.targets.into(),
        of.weights.into(),
        of.pull.into(),
        n.into(),
        rows.into(),
        shard.first.into(),
        shard.real(rows).into(),
    ];
    on.launch(
        &SOURCE,
        "cross_entropy_backward",
        Grid::over(n * rows),
        &args,
    )
}
