//! Norm of query and key heads on CUDA: 16 threads per head, as the CPU's 16 lanes; a thread per column of the weights'
//! gradients.

use std::sync::Arc;

use super::weights::{Normed, Sums, Totals, Weights};
use crate::cuda::{Arg, Cuda, Grid, Source};
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

/// Groups, query heads of a group and width.
fn sizes(heads: &Heads) -> [Arg; 3] {
    [
        heads.kv_heads.into(),
        heads.per_group().into(),
        heads.width.into(),
    ]
}

/// Both totals of a row.
fn totals(of: Totals<'_>) -> [Arg; 2] {
    [of.q.into(), of.k.into()]
}

/// Widths of the totals.
fn widths(of: Totals<'_>) -> [Arg; 2] {
    [of.q_width.into(), of.k_width.into()]
}

pub(super) fn squares(
    on: &Arc<Cuda>,
    [q, k]: [&mut Tensor; 2],
    qkv: &Tensor,
    heads: &Heads,
) -> Result<()> {
    let (rows, _) = qkv.rows_cols();
    let args = [q.into(), k.into(), qkv.into(), rows.into()];
    let args = [&args[..], &sizes(heads)].concat();
    let grid = Grid::over(rows * (heads.heads + heads.kv_heads) * 16);
    on.launch(&SOURCE, "qk_joint_squares", grid, &args)
}

pub(super) fn joint_forward(
    on: &Arc<Cuda>,
    qkv: &mut Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    squares: Totals<'_>,
    eps: f32,
) -> Result<()> {
    let (rows, _) = qkv.rows_cols();
    let args = [qkv.into(), weights.q.into(), weights.k.into()];
    let (of, width) = (totals(squares), widths(squares));
    let last = [eps.into()];
    let args = [&args[..], &of, &width, &[rows.into()], &sizes(heads), &last].concat();
    let grid = Grid::over(rows * (heads.heads + heads.kv_heads) * heads.width);
    on.launch(&SOURCE, "qk_joint_forward", grid, &args)
}

pub(super) fn joint_products(
    on: &Arc<Cuda>,
    [q, k]: [&mut Tensor; 2],
    dqkv: &Tensor,
    normed: Normed<'_>,
    heads: &Heads,
    weights: Weights<'_>,
) -> Result<()> {
    let (rows, _) = dqkv.rows_cols();
    let args = [
        q.into(),
        k.into(),
        dqkv.into(),
        normed.qkv.into(),
        weights.q.into(),
        weights.k.into(),
    ];
    let (of, width) = (totals(normed.squares), widths(normed.squares));
    let last = [normed.eps.into()];
    let args = [&args[..], &of, &width, &[rows.into()], &sizes(heads), &last].concat();
    let grid = Grid::over(rows * (heads.heads + heads.kv_heads) * 16);
    on.launch(&SOURCE, "qk_joint_products", grid, &args)
}

pub(super) fn joint_backward(
    on: &Arc<Cuda>,
    dqkv: &mut Tensor,
    sums: Sums<'_>,
    (normed, products): (Normed<'_>, Totals<'_>),
    heads: &Heads,
    weights: Weights<'_>,
) -> Result<()> {
    let (rows, _) = dqkv.rows_cols();
    let normed_heads = heads.heads + heads.kv_heads;
    let leaves = sums.q.dims()[0];
    let (of, width) = (totals(normed.squares), widths(normed.squares));
    let (sizes, last) = (sizes(heads), [normed.eps.into()]);
    let args = [
        sums.q.into(),
        sums.k.into(),
        (&*dqkv).into(),
        normed.qkv.into(),
    ];
    let counts = [leaves.into(), sums.leaf.into()];
    let args = [&args[..], &of, &width, &counts, &sizes, &last].concat();
    let grid = Grid::over(leaves * normed_heads * heads.width);
    on.launch(&SOURCE, "qk_joint_weights", grid, &args)?;
    let args = [
        dqkv.into(),
        normed.qkv.into(),
        weights.q.into(),
        weights.k.into(),
    ];
    let of = [of, totals(products)].concat();
    let args = [&args[..], &of, &width, &[rows.into()], &sizes, &last].concat();
    let grid = Grid::over(rows * normed_heads * heads.width);
    on.launch(&SOURCE, "qk_joint_backward", grid, &args)
}
