//! Router on CUDA: a thread per token. The sums over tokens stay on the device until they are read.

use std::sync::Arc;

use super::router::{Router, Score};
use super::statistics::{Slopes, Unread};
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "route.cu",
    text: include_str!("route.cu"),
};

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
    let mut sums = Tensor::zeros(&[3 * experts * WORDS], DType::U32, device)?;
    let mut log_sums = Tensor::empty(&[n * WORDS], DType::U32, device)?;
    let largest = bias.map(|_| Tensor::empty(&[n, k], DType::U32, device));
    let largest = largest.transpose()?;
    let args = [
        choices.into(),
        weights.into(),
        (&mut sums).into(),
        (&mut log_sums).into(),
        largest.as_ref().into(),
        logits.into(),
        bias.into(),
        n.into(),
        experts.into(),
        k.into(),
        number(router.score).into(),
        router.scale.into(),
    ];
    on.launch(&SOURCE, "route_forward", Grid::over(n), &args)?;
    Ok(Unread::Words { sums, log_sums, k })
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    dlogits: &mut Tensor,
    dweights: &Tensor,
    logits: &Tensor,
    experts: &Tensor,
    router: &Router,
    slopes: &Slopes,
) -> Result<()> {
    let (n, count) = logits.rows_cols();
    let words: &[u32] = bytemuck::cast_slice(&slopes.balance);
    let balance = Tensor::from_u32(&[words.len()], words, logits.device())?;
    let args = [
        dlogits.into(),
        dweights.into(),
        logits.into(),
        experts.into(),
        (&balance).into(),
        Arg::F64(slopes.z),
        n.into(),
        count.into(),
        router.k.into(),
        number(router.score).into(),
        router.scale.into(),
    ];
    on.launch(&SOURCE, "route_backward", Grid::over(n), &args)
}
