//! Rows in other layouts on CUDA.

use std::sync::Arc;

use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::attention::{Call, Keys, Next};
use crate::descriptor::heads::Heads;
use crate::ops::attention::state::Slopes;
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "attention/rows.cu",
    text: include_str!("rows.cu"),
};

fn is_bf16(x: &Tensor) -> Arg {
    (x.dtype() == DType::Bf16).into()
}

/// Keys and values of packed rows as f32.
pub(in crate::ops::attention) fn take_kv(
    on: &Arc<Cuda>,
    kv: &mut Tensor,
    qkv: &Tensor,
    heads: &Heads,
) -> Result<()> {
    let n = kv.elements();
    let args = [
        kv.into(),
        qkv.into(),
        is_bf16(qkv),
        (n / (2 * heads.width)).into(),
        heads.per_group().into(),
        heads.width.into(),
    ];
    on.launch(&SOURCE, "attention_take_kv", Grid::over(n), &args)
}

/// The inverse of `take_kv`.
pub(in crate::ops::attention) fn put_kv(
    on: &Arc<Cuda>,
    qkv: &mut Tensor,
    kv: &Tensor,
    heads: &Heads,
) -> Result<()> {
    let n = kv.elements();
    let args = [
        qkv.into(),
        kv.into(),
        (n / (2 * heads.width)).into(),
        heads.per_group().into(),
        heads.width.into(),
    ];
    on.launch(&SOURCE, "attention_put_kv", Grid::over(n), &args)
}

/// Gradients of keys and values, `[b, kv_heads, t, 2*width]`, as rows: `[b * t, kv_width]`.
pub(in crate::ops::attention) fn settle_rows(
    on: &Arc<Cuda>,
    rows: &mut Tensor,
    dkv: &Tensor,
    t: usize,
    width: usize,
) -> Result<()> {
    let n = rows.elements();
    let groups = rows.dims()[1] / (2 * width);
    let args = [
        rows.into(),
        dkv.into(),
        n.into(),
        groups.into(),
        t.into(),
        (2 * width).into(),
    ];
    on.launch(&SOURCE, "attention_dkv_rows", Grid::over(n), &args)
}

/// Makes zeros of either sign 0.0.
pub(super) fn unsigned_zeros(on: &Arc<Cuda>, x: &mut Tensor) -> Result<()> {
    let n = x.elements();
    let args = [x.into(), n.into()];
    on.launch(&SOURCE, "attention_unsigned_zeros", Grid::over(n), &args)
}

/// Writes dqkv, with keys and values from dkv or 0.
pub(super) fn write(
    on: &Arc<Cuda>,
    dqkv: &mut Tensor,
    slopes: &Slopes,
    dkv: Option<&Tensor>,
    call: &Call<'_>,
) -> Result<()> {
    let (heads, plan) = (call.heads, slopes.plan);
    if call.b == 0 || call.t == 0 {
        return Ok(());
    }
    let args = [
        (&*dqkv).into(),
        is_bf16(dqkv),
        (&slopes.dq).into(),
        call.b.into(),
        heads.heads.into(),
        heads.per_group().into(),
        heads.width.into(),
        call.t.into(),
        call.query_width().into(),
        plan.leaf.into(),
        plan.leaves().into(),
        plan.tiles_per_leaf().into(),
    ];
    let grid = Grid::over(call.b * call.t * heads.heads * heads.width);
    on.launch(&SOURCE, "attention_write_queries", grid, &args)?;
    match call.keys {
        Keys::Other { .. } => return Ok(()),
        Keys::Own | Keys::Part { .. } => {}
    }
    let args = [
        (&*dqkv).into(),
        is_bf16(dqkv),
        dkv.into(),
        call.b.into(),
        heads.kv_heads.into(),
        heads.per_group().into(),
        heads.width.into(),
        call.t.into(),
    ];
    let grid = Grid::over(call.b * call.t * heads.kv_width());
    on.launch(&SOURCE, "attention_write_kv", grid, &args)
}

/// Puts the keys and values of packed rows at the caches' next position.
pub(super) fn append(
    on: &Arc<Cuda>,
    k_cache: &mut Tensor,
    v_cache: &mut Tensor,
    packed: &Tensor,
    next: &Next<'_>,
) -> Result<()> {
    let heads = next.heads;
    let tasks = packed.dims()[0] * heads.kv_heads;
    let length = k_cache.dims()[2];
    let args = [
        k_cache.into(),
        v_cache.into(),
        packed.into(),
        tasks.into(),
        heads.per_group().into(),
        heads.width.into(),
        length.into(),
        next.position.into(),
    ];
    on.launch(
        &SOURCE,
        "attention_append",
        Grid::over(tasks * heads.width),
        &args,
    )
}
