//! Layer norm on CUDA: 16 threads per row, as the CPU's 16 lanes; a thread per column of the weights' gradients.

use std::sync::Arc;

use super::tensors::{Gradients, Kept, Statistics, Weights};
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::ops::reduce::leaf_rows;
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "layer_norm.cu",
    text: include_str!("layer_norm.cu"),
};

pub(super) fn forward(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    kept: Kept<'_>,
    x: &Tensor,
    weights: Weights<'_>,
    eps: f32,
) -> Result<()> {
    run(on, y, kept, [x.into(), Arg::NULL], weights, eps)
}

pub(super) fn forward_sum(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    kept: Kept<'_>,
    x: &mut Tensor,
    more: &Tensor,
    weights: Weights<'_>,
    eps: f32,
) -> Result<()> {
    run(on, y, kept, [x.into(), more.into()], weights, eps)
}

/// `inputs`: x and what is added to it; y has the dims of x.
fn run(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    kept: Kept<'_>,
    inputs: [Arg; 2],
    weights: Weights<'_>,
    eps: f32,
) -> Result<()> {
    let (rows, d) = y.rows_cols();
    let [x, more] = inputs;
    let args = [
        y.into(),
        kept.mean.into(),
        kept.inv_std.into(),
        x,
        more,
        weights.w.into(),
        weights.b.into(),
        rows.into(),
        d.into(),
        eps.into(),
    ];
    on.launch(&SOURCE, "layer_norm_forward", Grid::over(rows * 16), &args)
}

pub(super) fn backward_input(
    on: &Arc<Cuda>,
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    statistics: &Statistics<'_>,
    more: Option<&Tensor>,
) -> Result<()> {
    let (rows, d) = x.rows_cols();
    let args = [
        dx.into(),
        dy.into(),
        x.into(),
        w.into(),
        statistics.mean.into(),
        statistics.inv_std.into(),
        more.into(),
        rows.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "layer_norm_backward", Grid::over(rows * 16), &args)
}

pub(super) fn backward_weights(
    on: &Arc<Cuda>,
    sums: Gradients<'_>,
    dy: &Tensor,
    x: &Tensor,
    statistics: &Statistics<'_>,
    leaf: usize,
) -> Result<()> {
    let ((n, d), parts) = (x.rows_cols(), sums.dw.rows_cols().0);
    let rows = n / parts;
    let args = [
        sums.dw.into(),
        sums.db.into(),
        dy.into(),
        x.into(),
        statistics.mean.into(),
        statistics.inv_std.into(),
        parts.into(),
        rows.into(),
        d.into(),
        leaf_rows(leaf, rows).into(),
    ];
    on.launch(&SOURCE, "layer_norm_weights", Grid::over(parts * d), &args)
}
