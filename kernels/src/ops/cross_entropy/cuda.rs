//! Cross entropy on CUDA: 16 threads per slice of a row, as the CPU's 16 lanes; a thread per logit backward.

use std::sync::Arc;

use super::shard::{Found, LossRows, Rows, Shard};
use crate::cuda::{Arg, Cuda, Grid, Source};
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

pub(super) fn cap(on: &Arc<Cuda>, logits: &mut Tensor, cap: f32) -> Result<()> {
    let n = logits.elements();
    let args = [logits.into(), n.into(), cap.into()];
    on.launch(&SOURCE, "cross_entropy_cap", Grid::over(n), &args)
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
        of.cap.into(),
    ];
    on.launch(
        &SOURCE,
        "cross_entropy_backward",
        Grid::over(n * rows),
        &args,
    )
}

pub(super) fn losses(on: &Arc<Cuda>, out: &mut Tensor, of: LossRows<'_>, run: usize) -> Result<()> {
    let runs = of.max.elements() / run;
    let args = [
        out.into(),
        of.max.into(),
        of.sum.into(),
        of.target.into(),
        of.counts.into(),
        runs.into(),
        run.into(),
    ];
    let grid = Grid::over(runs * 32);
    on.launch(&SOURCE, "cross_entropy_losses", grid, &args)
}

pub(super) fn pull(
    on: &Arc<Cuda>,
    out: &mut Tensor,
    [max, sum, weights]: [&Tensor; 3],
    factor: f64,
) -> Result<()> {
    let n = max.elements();
    let args = [
        out.into(),
        max.into(),
        sum.into(),
        weights.into(),
        Arg::F64(factor),
        n.into(),
    ];
    on.launch(&SOURCE, "cross_entropy_pull", Grid::over(n), &args)
}
