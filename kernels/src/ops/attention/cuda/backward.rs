//! Backward on CUDA. Leaves of query rows are merged on the way: a tensor per block of leaves that waits for its partner.

use std::sync::Arc;

use super::call::Prepared;
use super::flash::{self, Form};
use super::rows;
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::attention::{Call, Passed};
use crate::descriptor::rope::Way;
use crate::ops::attention::state::{Plan, Slopes, TILE};
use crate::ops::matmul::cuda::kernel;
use crate::ops::{add, cast, reduce, rope};
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "attention/backward.cu",
    text: include_str!("backward.cu"),
};

/// Threads of a block that works on tiles.
const THREADS: u32 = 256;

pub(in crate::ops::attention) fn backward(
    on: &Arc<Cuda>,
    (slopes, dkv): (&mut Slopes, &mut Tensor),
    passed: &Passed<'_>,
    call: &Call<'_>,
) -> Result<()> {
    let (heads, device, plan) = (call.heads, passed.qkv.device(), slopes.plan);
    let keys = call.visible() - call.keys.start();
    if call.b == 0 || call.t == 0 || keys == 0 {
        return dkv.clear();
    }
    let dots = dots(on, passed, call)?;
    if let Some(form) = Form::of(call.numbers, heads.width, call.scores) {
        return flash::backward(on, slopes, dkv, form, &dots, (passed, call));
    }
    let numbers = flash::exact(call.numbers);
    let names = ["attention_queries_f32", "attention_queries_bf16_pairs"];
    let of_queries = kernel(numbers, names, device)?;
    let names = ["attention_keys_f32", "attention_keys_bf16_pairs"];
    let of_keys = kernel(numbers, names, device)?;
    let prepared = Prepared::of(passed.qkv, call)?;
    let shared = [
        passed.dout.into(),
        (passed.dout.dtype() == DType::Bf16).into(),
        passed.lse.into(),
        (&dots).into(),
        plan.leaf.into(),
        plan.leaves().into(),
        plan.tiles_per_leaf().into(),
    ];
    let shared = [&shared[..], &prepared.args].concat();
    let (sums, units) = match plan.distances {
        0 => (Arg::NULL, plan.tiles()),
        _ => ((&mut slopes.by_distance).into(), plan.leaves()),
    };
    let args = [(&mut slopes.dq).into(), sums, plan.distances.into()];
    let args = [&args[..], &shared].concat();
    let grid = Grid::blocks(call.b * heads.heads * units, THREADS);
    on.launch(&SOURCE, of_queries, grid, &args)?;
    let grid = Grid::blocks(call.b * heads.kv_heads * keys.div_ceil(TILE), THREADS);
    let one = |sum: &mut Tensor, leaf: usize| {
        let args = [sum.into(), call.held().into(), leaf.into()];
        let args = [&args[..], &shared].concat();
        on.launch(&SOURCE, of_keys, grid, &args)
    };
    over_leaves(on, dkv, plan.leaves(), one)?;
    rows::unsigned_zeros(on, dkv)
}

/// Makes dkv the tree over leaves, each of which `one` adds to zeros.
fn over_leaves(
    on: &Arc<Cuda>,
    dkv: &mut Tensor,
    leaves: usize,
    one: impl Fn(&mut Tensor, usize) -> Result<()>,
) -> Result<()> {
    if leaves == 1 {
        dkv.clear()?;
        return one(dkv, 0);
    }
    let mut waiting: Vec<Tensor> = Vec::new();
    let merge = |waiting: &mut Vec<Tensor>, right: Tensor| {
        let Some(mut older) = waiting.pop() else {
            return Ok(right);
        };
        add::cuda::add_into(on, &mut older, &right)?;
        Ok::<Tensor, crate::Error>(older)
    };
    for leaf in 0..leaves {
        let mut sum = Tensor::zeros(dkv.dims(), DType::F32, dkv.device())?;
        one(&mut sum, leaf)?;
        for _ in 0..leaf.trailing_ones() {
            sum = merge(&mut waiting, sum)?;
        }
        waiting.push(sum);
    }
    while waiting.len() > 1 {
        if let Some(right) = waiting.pop() {
            let sum = merge(&mut waiting, right)?;
            waiting.push(sum);
        }
    }
    match waiting.pop() {
        Some(sum) => crate::copy(dkv.view_mut(), sum.view()),
        None => dkv.clear(),
    }
}

/// Products of the result's rows and their gradients: `[b, heads, t]`.
fn dots(on: &Arc<Cuda>, passed: &Passed<'_>, call: &Call<'_>) -> Result<Tensor> {
    let (heads, rows) = (call.heads, call.b * call.t);
    let mut dots = Tensor::empty(&[rows * heads.heads], DType::F32, passed.out.device())?;
    let args = [
        (&mut dots).into(),
        passed.dout.into(),
        (passed.dout.dtype() == DType::Bf16).into(),
        passed.out.into(),
        rows.into(),
        heads.heads.into(),
        call.t.into(),
        heads.width.into(),
    ];
    let grid = Grid::over(rows * heads.heads * 16);
    on.launch(&SOURCE, "attention_dots", grid, &args)?;
    Ok(dots)
}

pub(in crate::ops::attention) fn sink_gradients(
    on: &Arc<Cuda>,
    rows: &mut Tensor,
    sinks: &Tensor,
    passed: &Passed<'_>,
    call: &Call<'_>,
) -> Result<()> {
    let n = rows.elements();
    let dots = dots(on, passed, call)?;
    let args = [
        rows.into(),
        (&dots).into(),
        passed.lse.into(),
        sinks.into(),
        n.into(),
        call.heads.heads.into(),
        call.t.into(),
    ];
    on.launch(&SOURCE, "attention_sink_gradients", Grid::over(n), &args)
}

pub(in crate::ops::attention) fn backward_end(
    on: &Arc<Cuda>,
    slopes: Slopes,
    (dqkv, dtable): (&mut Tensor, Option<&mut Tensor>),
    dkv: Option<&Tensor>,
    (passed, call): (&Passed<'_>, &Call<'_>),
) -> Result<()> {
    match &passed.turn {
        None => rows::write(on, dqkv, &slopes, dkv, call)?,
        Some(turn) if dqkv.dtype() == DType::F32 => {
            rows::write(on, dqkv, &slopes, dkv, call)?;
            rope::cuda::turn(on, dqkv, turn, Way::Back)?;
        }
        Some(turn) => {
            let mut all = Tensor::empty(dqkv.dims(), DType::F32, dqkv.device())?;
            rows::write(on, &mut all, &slopes, dkv, call)?;
            rope::cuda::turn(on, &mut all, turn, Way::Back)?;
            cast::cuda::to_bf16(on, dqkv, &all)?;
        }
    }
    let Some(dtable) = dtable else {
        return Ok(());
    };
    let by_bucket = by_bucket(on, &slopes.by_distance, slopes.plan, (passed, call))?;
    add::cuda::add_into(on, dtable, &reduce::tree_sum_slices(&by_bucket)?)
}

/// `[b, heads * buckets]` of sums by distance.
fn by_bucket(
    on: &Arc<Cuda>,
    by_distance: &Tensor,
    plan: Plan,
    (passed, call): (&Passed<'_>, &Call<'_>),
) -> Result<Tensor> {
    let (heads, device) = (call.heads, by_distance.device());
    let prepared = Prepared::of(passed.qkv, call)?;
    let buckets = call.bias.map_or(1, |bias| bias.buckets.buckets);
    let dims = [call.b, heads.heads * buckets];
    let mut sums = Tensor::empty(&dims, DType::F32, device)?;
    let tasks = call.b * heads.kv_heads;
    let Some(numbers) = prepared.numbers else {
        return Ok(sums);
    };
    let distances = call.t + call.total() - 1;
    let args = [
        (&mut sums).into(),
        by_distance.into(),
        Arg::Pointer(numbers.address()),
        tasks.into(),
        heads.per_group().into(),
        plan.leaves().into(),
        plan.distances.into(),
        distances.into(),
        buckets.into(),
    ];
    let grid = Grid::over(tasks * heads.per_group() * buckets);
    on.launch(&SOURCE, "attention_by_bucket", grid, &args)?;
    Ok(sums)
}

pub(in crate::ops::attention) fn backward_whole(
    on: &Arc<Cuda>,
    outs: (&mut Tensor, Option<&mut Tensor>),
    passed: &Passed<'_>,
    call: &Call<'_>,
    leaf: usize,
) -> Result<()> {
    let (heads, device) = (call.heads, passed.qkv.device());
    let mut slopes = Slopes::new(call, leaf, device)?;
    let dims = [call.b, heads.kv_heads, call.t, 2 * heads.width];
    let mut dkv = Tensor::empty(&dims, DType::F32, device)?;
    backward(on, (&mut slopes, &mut dkv), passed, call)?;
    backward_end(on, slopes, outs, Some(&dkv), (passed, call))
}
