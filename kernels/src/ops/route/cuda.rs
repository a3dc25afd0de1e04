//! Router on CUDA: a thread per token. The sums over tokens stay on the device until they are read.

use std::sync::Arc;

use super::capacity::Drop;
use super::router::{Groups, Router, Score};
use super::statistics::{Losses, MORE_SUMS, SlopeFactors, Unread, Words};
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::ops::permute;
use crate::{DType, Device, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "route.cu",
    text: include_str!("route.cu"),
};

/// Threads of a block that goes over an expert's choices, one per digit of the weights' keys.
const DROP_THREADS: u32 = 256;

/// Words of a number of 64 bits.
const WORDS: usize = 2;

fn number(score: Score) -> u32 {
    match score {
        Score::SoftmaxTopK => 0,
        Score::TopKSoftmax => 1,
        Score::Sigmoid => 2,
    }
}

pub(super) fn forward(
    on: &Arc<Cuda>,
    choices: &mut Tensor,
    weights: &mut Tensor,
    logits: &Tensor,
    bias: Option<&Tensor>,
    router: &Router,
) -> Result<Unread> {
    let (device, (n, experts), k) = (logits.device(), logits.rows_cols(), router.k);
    let sums = (3 * experts + MORE_SUMS) * WORDS;
    let mut sums = Tensor::zeros(&[sums], DType::U32, device)?;
    let largest = bias.map(|_| Tensor::empty(&[n, k], DType::U32, device));
    let largest = largest.transpose()?;
    let groups = router.groups.unwrap_or(Groups { count: 1, kept: 1 });
    let args = [
        choices.into(),
        weights.into(),
        (&mut sums).into(),
        largest.as_ref().into(),
        logits.into(),
        bias.into(),
        n.into(),
        experts.into(),
        k.into(),
        number(router.score).into(),
        router.scale.into(),
        groups.count.into(),
        groups.kept.into(),
    ];
    on.launch(&SOURCE, "route_forward", Grid::over(n), &args)?;
    let tokens = n;
    Ok(Unread::Words(Words { sums, tokens, k }))
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    dlogits: &mut Tensor,
    dweights: &Tensor,
    logits: &Tensor,
    experts: &Tensor,
    router: &Router,
    losses: &Losses<'_>,
) -> Result<()> {
    let (n, count) = logits.rows_cols();
    let (balance, z) = slopes(on, losses, logits.device())?;
    let args = [
        dlogits.into(),
        dweights.into(),
        logits.into(),
        experts.into(),
        (&balance).into(),
        Arg::F64(z),
        n.into(),
        count.into(),
        router.k.into(),
        number(router.score).into(),
        router.scale.into(),
    ];
    on.launch(&SOURCE, "route_backward", Grid::over(n), &args)
}

/// The load balance's derivative by each expert's probability, two words each, and that of the z-loss by a squared log-sum.
fn slopes(on: &Arc<Cuda>, losses: &Losses<'_>, device: &Device) -> Result<(Tensor, f64)> {
    let unread = match losses.statistics {
        Unread::Words(unread) => unread,
        Unread::Known(statistics) => {
            let slopes = statistics.slopes(losses.coefficients);
            let words: &[u32] = bytemuck::cast_slice(&slopes.balance);
            return Ok((Tensor::from_u32(&[words.len()], words, device)?, slopes.z));
        }
    };
    let experts = unread.experts();
    let of = SlopeFactors::of(unread.tokens as u64, experts, unread.k, losses.coefficients);
    let balance = Tensor::empty(&[experts * WORDS], DType::U32, device)?;
    let args = [
        (&balance).into(),
        (&unread.sums).into(),
        experts.into(),
        Arg::F64(of.scale),
        Arg::F64(of.divisor),
    ];
    on.launch(&SOURCE, "route_slopes", Grid::over(experts), &args)?;
    Ok((balance, of.z))
}

/// Marks the choices over `capacity` as dropped and counts them in `dropped`: an expert's are those of its rows, in order.
pub(super) fn drop_over(
    on: &Arc<Cuda>,
    dropped: &mut Tensor,
    experts: &mut Tensor,
    weights: &Tensor,
    capacity: usize,
    policy: Drop,
) -> Result<()> {
    let count = dropped.elements();
    let lists = permute::cuda::lists(on, experts, 0..count)?;
    let args = [
        experts.into(),
        dropped.into(),
        weights.into(),
        (&lists.choices).into(),
        (&lists.offsets).into(),
        capacity.into(),
        u32::from(policy == Drop::ByWeight).into(),
    ];
    on.launch(
        &SOURCE,
        "route_drop",
        Grid::blocks(count, DROP_THREADS),
        &args,
    )
}
