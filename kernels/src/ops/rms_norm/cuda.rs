//! RMS norm on CUDA: 16 threads per row, as the CPU's 16 lanes; a thread per column of the weight's gradient.

use std::sync::Arc;

use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::ops::reduce::leaf_rows;
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "rms_norm.cu",
    text: include_str!("rms_norm.cu"),
};

pub(super) fn forward(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    inv_rms: &mut Tensor,
    x: &Tensor,
    w: &Tensor,
    eps: f32,
) -> Result<()> {
    run(
        on,
        [y.into(), inv_rms.into(), x.into(), Arg::NULL],
        x,
        w,
        eps,
    )
}

pub(super) fn forward_sum(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    inv_rms: &mut Tensor,
    x: &mut Tensor,
    more: &Tensor,
    w: &Tensor,
    eps: f32,
) -> Result<()> {
    let tensors = [y.into(), inv_rms.into(), (&*x).into(), more.into()];
    run(on, tensors, x, w, eps)
}

/// `tensors`: y, the rows' statistics, x, and what is added to it.
fn run(on: &Arc<Cuda>, tensors: [Arg; 4], x: &Tensor, w: &Tensor, eps: f32) -> Result<()> {
    let (rows, d) = x.rows_cols();
    let others = [w.into(), rows.into(), d.into(), eps.into()];
    let args = [&tensors[..], &others].concat();
    on.launch(&SOURCE, "rms_norm_forward", Grid::over(rows * 16), &args)
}

pub(super) fn backward_input(
    on: &Arc<Cuda>,
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    inv_rms: &Tensor,
    more: Option<&Tensor>,
) -> Result<()> {
    let (rows, d) = x.rows_cols();
    let args = [
        dx.into(),
        dy.into(),
        x.into(),
        w.into(),
        inv_rms.into(),
        more.into(),
        rows.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "rms_norm_backward", Grid::over(rows * 16), &args)
}

pub(super) fn backward_weights(
    on: &Arc<Cuda>,
    dw: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    inv_rms: &Tensor,
    leaf: usize,
) -> Result<()> {
    let ((n, d), parts) = (x.rows_cols(), dw.rows_cols().0);
    let rows = n / parts;
    let args = [
        dw.into(),
        dy.into(),
        x.into(),
        inv_rms.into(),
        parts.into(),
        rows.into(),
        d.into(),
        leaf_rows(leaf, rows).into(),
    ];
    on.launch(&SOURCE, "rms_norm_weights", Grid::over(parts * d), &args)
}
