//! Activations on CUDA: a thread per element.

use std::sync::Arc;

use crate::cuda::{Cuda, Grid, Source};
use crate::descriptor::activation::Kind;
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "activation.cu",
    text: include_str!("activation.cu"),
};

pub(super) fn forward(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    x: &Tensor,
    bias: Option<&Tensor>,
    kind: Kind,
) -> Result<()> {
    let (n, (_, d)) = (x.elements(), x.rows_cols());
    let args = [
        y.into(),
        x.into(),
        bias.into(),
        n.into(),
        d.into(),
        kind.number().into(),
    ];
    on.launch(&SOURCE, "activation_forward", Grid::over(n), &args)
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    bias: Option<&Tensor>,
    kind: Kind,
) -> Result<()> {
    let (n, (_, d)) = (x.elements(), x.rows_cols());
    let args = [
        dx.into(),
        dy.into(),
        x.into(),
        bias.into(),
        n.into(),
        d.into(),
        kind.number().into(),
    ];
    on.launch(&SOURCE, "activation_backward", Grid::over(n), &args)
}
