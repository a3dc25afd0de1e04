//! Norm of query and key heads on CUDA: 16 threads per head, as the CPU's 16 lanes; a thread per column of the weights'
//! gradients.

use std::sync::Arc;

use super::weights::{Sums, Weights};
use crate::cuda::{Cuda, Grid, Source};
use crate::descriptor::heads::Heads;
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "qk_norm.cu",
    text: include_str!("qk_norm.cu"),
};

pub(super) fn forward(
    on: &Arc<Cuda>,
    qkv: &mut Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    eps: f32,
) -> Result<()> {
    let (rows, _) = qkv.rows_cols();
    let normed = heads.heads + heads.kv_heads;
    let args = [
        qkv.into(),
        weights.q.into(),
        weights.k.into(),
        rows.into(),
        heads.kv_heads.into(),
        heads.per_group().into(),
        heads.width.into(),
        eps.into(),
    ];
    let grid = Grid::over(rows * normed * 16);
    on.launch(&SOURCE, "qk_norm_forward", grid, &args)
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    dqkv: &mut Tensor,
    sums: Sums<'_>,
    qkv: &Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    eps: f32,
) -> Result<()> {
    let (rows, _) = qkv.rows_cols();
    let leaves = sums.q.dims()[0];
    let normed = heads.heads + heads.kv_heads;
    let mut inverses = Tensor::empty(&[rows, normed], DType::F32, qkv.device())?;
    let sizes = [
        heads.kv_heads.into(),
        heads.per_group().into(),
        heads.width.into(),
    ];
    let args = [(&mut inverses).into(), qkv.into(), rows.into()];
    let args = [&args[..], &sizes, &[eps.into()]].concat();
    let over_heads = Grid::over(rows * normed * 16);
    on.launch(&SOURCE, "qk_norm_inverses", over_heads, &args)?;
    let args = [
        sums.q.into(),
        sums.k.into(),
        (&*dqkv).into(),
        qkv.into(),
        (&inverses).into(),
        leaves.into(),
        sums.leaf.into(),
    ];
    let args = [&args[..], &sizes].concat();
    let grid = Grid::over(leaves * normed * heads.width);
    on.launch(&SOURCE, "qk_norm_weights", grid, &args)?;
    let args = [
        dqkv.into(),
        qkv.into(),
        (&inverses).into(),
        weights.q.into(),
        weights.k.into(),
        rows.into(),
    ];
    let args = [&args[..], &sizes].concat();
    on.launch(&SOURCE, "qk_norm_backward", over_heads, &args)
}
