//! Gated linear units on CUDA: a thread per pair of gate and up.

use std::sync::Arc;

use super::gate::Gate;
use crate::cuda::{Cuda, Grid, Source};
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "glu.cu",
    text: include_str!("glu.cu"),
};

pub(super) fn forward(on: &Arc<Cuda>, y: &mut Tensor, gate_up: &Tensor, gate: Gate) -> Result<()> {
    let (n, (_, f)) = (y.elements(), y.rows_cols());
    let args = [
        y.into(),
        gate_up.into(),
        (gate_up.dtype() == DType::Bf16).into(),
        n.into(),
        f.into(),
        gate.number().into(),
    ];
    on.launch(&SOURCE, "glu_forward", Grid::over(n), &args)
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    dx: &mut Tensor,
    dy: &Tensor,
    gate_up: &Tensor,
    gate: Gate,
) -> Result<()> {
    let (n, (_, f)) = (dy.elements(), dy.rows_cols());
    let args = [
        dx.into(),
        dy.into(),
        gate_up.into(),
        (gate_up.dtype() == DType::Bf16).into(),
        n.into(),
        f.into(),
        gate.number().into(),
    ];
    on.launch(&SOURCE, "glu_backward", Grid::over(n), &args)
}
