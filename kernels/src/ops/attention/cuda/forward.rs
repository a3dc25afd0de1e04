//! Forward and decode on CUDA.

use std::sync::Arc;

use super::call::Prepared;
use super::flash::{self, Form, Results};
use super::rows;
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::attention::{Call, Next};
use crate::descriptor::numbers::Numbers;
use crate::ops::attention::state::{Running, TILE};
use crate::ops::matmul::cuda::kernel;
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "attention/forward.cu",
    text: include_str!("forward.cu"),
};

/// Sets the state before the first key.
pub(in crate::ops::attention) fn begin(
    on: &Arc<Cuda>,
    running: &mut Running,
    call: &Call<'_>,
) -> Result<()> {
    start(on, running, call.sinks, [call.heads.heads, call.t], false)
}

/// Sets the state of `rows` query rows, or heads, of each of `heads`.
fn start(
    on: &Arc<Cuda>,
    running: &mut Running,
    sinks: Option<&Tensor>,
    [heads, rows]: [usize; 2],
    rows_are_heads: bool,
) -> Result<()> {
    let n = running.sums.elements();
    let args = [
        (&mut running.sums).into(),
        sinks.into(),
        n.into(),
        heads.into(),
        rows.into(),
        rows_are_heads.into(),
    ];
    on.launch(&SOURCE, "attention_begin", Grid::over(n), &args)
}

pub(in crate::ops::attention) fn forward(
    on: &Arc<Cuda>,
    running: &mut Running,
    qkv: &Tensor,
    call: &Call<'_>,
) -> Result<()> {
    if call.b == 0 || call.t == 0 || call.visible() == call.keys.start() {
        return Ok(());
    }
    if let Some(form) = Form::of(call.numbers, call.heads.width, call.scores) {
        return flash::forward(on, Results::State(running), form, qkv, call);
    }
    let prepared = Prepared::of(qkv, call)?;
    visit(on, running, flash::exact(call.numbers), &prepared.args)
}

/// Runs all tiles over the keys of a call.
fn visit(on: &Arc<Cuda>, running: &mut Running, numbers: Numbers, call: &[Arg]) -> Result<()> {
    let names = ["attention_visit_f32", "attention_visit_bf16_pairs"];
    let function = kernel(numbers, names, running.device())?;
    let tiles = running.sums.elements() / (2 * TILE);
    let state = [(&mut running.values).into(), (&mut running.sums).into()];
    let args = [&state[..], call].concat();
    on.launch(&SOURCE, function, Grid::blocks(tiles, 256), &args)
}

pub(in crate::ops::attention) fn forward_end(
    on: &Arc<Cuda>,
    running: Running,
    out: &mut Tensor,
    lse: &mut Tensor,
    call: &Call<'_>,
) -> Result<()> {
    let heads = call.heads;
    let sizes = Sizes {
        tasks: call.b * heads.heads,
        heads: heads.heads,
        t: call.t,
        width: heads.width,
    };
    finish(on, &running, [out.into(), lse.into()], sizes)
}

/// Heads of all sequences, heads of one, rows of each and features.
struct Sizes {
    tasks: usize,
    heads: usize,
    t: usize,
    width: usize,
}

fn finish(on: &Arc<Cuda>, running: &Running, outs: [Arg; 2], sizes: Sizes) -> Result<()> {
    let state = [(&running.values).into(), (&running.sums).into()];
    let Sizes {
        tasks,
        heads,
        t,
        width,
    } = sizes;
    let sizes = [tasks, heads, t, width].map(Arg::from);
    let args = [&outs[..], &state, &sizes].concat();
    on.launch(
        &SOURCE,
        "attention_finish",
        Grid::over(tasks * t * width),
        &args,
    )
}

pub(in crate::ops::attention) fn forward_whole(
    on: &Arc<Cuda>,
    out: &mut Tensor,
    lse: &mut Tensor,
    qkv: &Tensor,
    call: &Call<'_>,
) -> Result<()> {
    if let Some(form) = Form::of(call.numbers, call.heads.width, call.scores) {
        return flash::forward(on, Results::Whole { out, lse }, form, qkv, call);
    }
    let mut running = Running::new(call, qkv.device())?;
    begin(on, &mut running, call)?;
    forward(on, &mut running, qkv, call)?;
    forward_end(on, running, out, lse, call)
}

pub(in crate::ops::attention) fn decode(
    on: &Arc<Cuda>,
    out: &mut Tensor,
    packed: &Tensor,
    k_cache: &mut Tensor,
    v_cache: &mut Tensor,
    next: &Next<'_>,
) -> Result<()> {
    if next.numbers.is_by_tensor_cores() && next.scores.cap == 0.0 {
        return flash::decode(on, out, packed, [k_cache, v_cache], next);
    }
    let (heads, device) = (next.heads, packed.device());
    rows::append(on, k_cache, v_cache, packed, next)?;
    let (tasks, rows) = (packed.dims()[0] * heads.kv_heads, heads.per_group());
    if tasks == 0 {
        return Ok(());
    }
    let tiles = tasks * rows.div_ceil(TILE);
    let mut running = Running {
        values: Tensor::zeros(&[tiles * heads.width * TILE], DType::F32, device)?,
        sums: Tensor::empty(&[tiles * 2 * TILE], DType::F32, device)?,
    };
    start(on, &mut running, next.sinks, [heads.kv_heads, rows], true)?;
    let prepared = Prepared::of_next(packed, k_cache, v_cache, next)?;
    visit(on, &mut running, flash::exact(next.numbers), &prepared.args)?;
    let sizes = Sizes {
        tasks,
        heads: heads.kv_heads,
        t: rows,
        width: heads.width,
    };
    finish(on, &running, [out.into(), Arg::NULL], sizes)
}
