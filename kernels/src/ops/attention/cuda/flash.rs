//! Attention on tensor cores (`Numbers::Bf16Mma`, `Numbers::F16Mma`): FlashAttention-2's tiles (Dao 2023,
//! arXiv:2307.08691), backward without atomics, and decode over splits of the keys (split-KV).
//!
//! Factors are rounded to 16 bits, the probabilities and the gradients of scores too; sums and the softmax are f32. Heads
//! wider than 128 and capped scores use the exact kernels, with pairs of bf16, or with f32 factors in place of halves.

use std::sync::Arc;

use super::call::Prepared;
use super::rows;
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::attention::{Call, Next, Passed, Scores};
use crate::descriptor::numbers::Numbers;
use crate::ops::attention::state::{Running, Slopes, TENSOR_CORE_ROWS as ROWS};
use crate::{DType, Result, Tensor};

pub(in crate::ops) static FORWARD: Source = Source {
    name: "attention/flash_forward.cu",
    text: include_str!("flash_forward.cu"),
};

pub(in crate::ops) static BACKWARD: Source = Source {
    name: "attention/flash_backward.cu",
    text: include_str!("flash_backward.cu"),
};

/// Threads of a block, and keys of a split of decode.
const THREADS: u32 = 128;
const SPLIT: usize = 256;

/// The compiled form of a kernel: its factors, and the width of heads that it has room for.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Bf16Narrow,
    Bf16Wide,
    F16Narrow,
    F16Wide,
}

impl Form {
    /// The form for a call's heads, or `None` if the exact kernels run it.
    pub(super) fn of(numbers: Numbers, width: usize, scores: Scores) -> Option<Form> {
        if scores.cap > 0.0 {
            return None;
        }
        match (numbers, width) {
            (Numbers::Bf16Mma, 0..=64) => Some(Form::Bf16Narrow),
            (Numbers::Bf16Mma, 65..=128) => Some(Form::Bf16Wide),
            (Numbers::F16Mma, 0..=64) => Some(Form::F16Narrow),
            (Numbers::F16Mma, 65..=128) => Some(Form::F16Wide),
            (Numbers::Bf16Mma | Numbers::F16Mma, _) => None,
            (Numbers::F32 | Numbers::Bf16 | Numbers::Bf16Tiles, _) => None,
        }
    }

    /// One of a kernel's names, in the order of the variants.
    fn name(self, names: [&'static str; 4]) -> &'static str {
        names[self as usize]
    }
}

/// The numbers of the exact kernels that stand in for tensor cores.
pub(super) fn exact(numbers: Numbers) -> Numbers {
    match numbers {
        Numbers::Bf16Mma => Numbers::Bf16,
        Numbers::F16Mma => Numbers::F32,
        Numbers::F32 | Numbers::Bf16 | Numbers::Bf16Tiles => numbers,
    }
}

/// Where forward puts its results.
pub(super) enum Results<'a> {
    Whole {
        out: &'a mut Tensor,
        lse: &'a mut Tensor,
    },
    State(&'a mut Running),
}

/// Runs the query rows over the call's keys.
pub(super) fn forward(
    on: &Arc<Cuda>,
    results: Results<'_>,
    form: Form,
    qkv: &Tensor,
    call: &Call<'_>,
) -> Result<()> {
    let blocks = call.b * call.heads.heads * call.t.div_ceil(ROWS);
    if blocks == 0 {
        return Ok(());
    }
    let prepared = Prepared::of(qkv, call)?;
    let results = match results {
        Results::Whole { out, lse } => [out.into(), lse.into(), Arg::NULL, Arg::NULL],
        Results::State(running) => {
            let state = [(&mut running.values).into(), (&mut running.sums).into()];
            [Arg::NULL, Arg::NULL, state[0], state[1]]
        }
    };
    let function = form.name([
        "attention_flash_bf16_64",
        "attention_flash_bf16_128",
        "attention_flash_f16_64",
        "attention_flash_f16_128",
    ]);
    let args = [&results[..], &prepared.args].concat();
    on.launch(&FORWARD, function, Grid::blocks(blocks, THREADS), &args)
}

/// Adds to the gradients of queries and writes those of keys and values. Leaves of query rows are tiles of 64.
pub(super) fn backward(
    on: &Arc<Cuda>,
    slopes: &mut Slopes,
    dkv: &mut Tensor,
    form: Form,
    dots: &Tensor,
    of: (&Passed<'_>, &Call<'_>),
) -> Result<()> {
    let (passed, call) = of;
    let heads = call.heads;
    let prepared = Prepared::of(passed.qkv, call)?;
    let shared = [
        passed.dout.into(),
        (passed.dout.dtype() == DType::Bf16).into(),
        passed.lse.into(),
        dots.into(),
    ];
    let shared = [&shared[..], &prepared.args].concat();
    let distances = slopes.plan.distances;
    let sums = match distances {
        0 => Arg::NULL,
        _ => (&mut slopes.by_distance).into(),
    };
    let args = [(&mut slopes.dq).into(), sums, distances.into()];
    let args = [&args[..], &shared].concat();
    let function = form.name([
        "attention_flash_queries_bf16_64",
        "attention_flash_queries_bf16_128",
        "attention_flash_queries_f16_64",
        "attention_flash_queries_f16_128",
    ]);
    let blocks = call.b * heads.heads * call.t.div_ceil(ROWS);
    on.launch(&BACKWARD, function, Grid::blocks(blocks, THREADS), &args)?;
    let keys = call.visible() - call.keys.start();
    if keys < call.held() {
        dkv.clear()?;
    }
    let args = [dkv.into(), call.held().into()];
    let args = [&args[..], &shared].concat();
    let function = form.name([
        "attention_flash_keys_bf16_64",
        "attention_flash_keys_bf16_128",
        "attention_flash_keys_f16_64",
        "attention_flash_keys_f16_128",
    ]);
    let blocks = call.b * heads.kv_heads * keys.div_ceil(ROWS);
    on.launch(&BACKWARD, function, Grid::blocks(blocks, THREADS), &args)
}

/// Decode over splits of the keys, which are joined in ascending order.
pub(super) fn decode(
    on: &Arc<Cuda>,
    out: &mut Tensor,
    packed: &Tensor,
    caches: [&mut Tensor; 2],
    next: &Next<'_>,
) -> Result<()> {
    let [k_cache, v_cache] = caches;
    let heads = next.heads;
    rows::append(on, k_cache, v_cache, packed, next)?;
    let (tasks, rows) = (packed.dims()[0] * heads.kv_heads, heads.per_group());
    if tasks == 0 {
        return Ok(());
    }
    let prepared = Prepared::of_next(packed, k_cache, v_cache, next)?;
    let splits = (next.position + 1).div_ceil(SPLIT);
    let dims = [tasks * splits * rows * (heads.width + 2)];
    let mut partial = Tensor::empty(&dims, DType::F32, packed.device())?;
    let function = match next.numbers {
        Numbers::F16Mma => "attention_split_f16",
        _ => "attention_split_bf16",
    };
    let args = [(&mut partial).into(), splits.into()];
    let args = [&args[..], &prepared.args].concat();
    let grid = Grid::blocks(tasks * splits, THREADS);
    on.launch(&FORWARD, function, grid, &args)?;
    let sizes = [tasks, splits, rows, heads.width, heads.kv_heads].map(Arg::from);
    let args = [
        &[out.into(), (&partial).into(), next.sinks.into()][..],
        &sizes,
    ]
    .concat();
    let grid = Grid::over(tasks * rows * heads.width);
    on.launch(&FORWARD, "attention_join", grid, &args)
}
