//! Router of a mixture: chooses each token's experts and weights, and adds the auxiliary losses' gradients. logits
//! = x W^T in f32; the rule and the losses: `kernels::route`.
//!
//! Every tensor-parallel rank routes the same whole rows and gets the same bits. The scope of a loss (a sequence,
//! or a micro-batch) is one group of rows; its statistics are integers, so context-parallel ranks, which have parts
//! of each group, add theirs in any order. A sequence weighs 1 / (sequences of the step) in the step's losses,
//! whichever rank computes it.

use kernels::matmul::{Op, matmul};
use kernels::permute::Order;
use kernels::route::{self, Coefficients, Drop, Statistics, Unread};
use kernels::rows::{self, Runs};
use kernels::{DType, Error, Tensor, download_words};

use crate::config::moe::{DropPolicy, MoeConfig, RouterScope};
use crate::model::context::Context;
use crate::model::context::tensor_parallel::gather_rows;
use crate::model::gradients::Gradients;
use crate::model::slots::{Slot, Slots};

pub(crate) struct Router {
    weight: Slot,
    /// Added to scores for the choice alone.
    bias: Option<Slot>,
    layer: usize,
    /// Experts in the layer.
    pub experts: usize,
    rule: route::Router,
    losses: Coefficients,
    scope: RouterScope,
    /// Capacity factor if experts are limited, and which choices to drop when one is full.
    capacity: Option<(f64, Drop)>,
}

/// Statistics of a micro-batch's tokens.
#[derive(Clone)]
pub(crate) struct Report {
    pub layer: usize,
    /// Whole groups, also where this rank has a part of each.
    pub groups: Vec<Statistics>,
    /// Choices of each expert that were dropped, by group.
    pub dropped: Vec<Vec<u64>>,
}

/// Kept from forward: `[n, experts]`, and `[n, k]` twice.
pub(crate) struct Routed {
    logits: Tensor,
    chosen: Tensor,
    pub weights: Tensor,
    pub report: Report,
}

impl Router {
    pub(crate) fn named(layer: usize, config: &MoeConfig, slots: &Slots<'_>) -> Router {
        let drop = match config.drop {
            DropPolicy::Position => Drop::ByPosition,
            DropPolicy::Probability => Drop::ByWeight,
        };
        Router {
            weight: slots.get(&format!("layers.{layer}.router.weight")),
            bias: (config.expert_bias).then(|| slots.get(&format!("layers.{layer}.router.bias"))),
            layer,
            experts: config.experts,
            rule: config.router(),
            losses: Coefficients {
                balance: config.balance_loss,
                z: config.z_loss,
            },
            scope: config.scope,
            capacity: (config.capacity_factor > 0.0).then_some((config.capacity_factor, drop)),
        }
    }

    /// Rows of a group on this rank.
    fn group(&self, n: usize, cx: &Context<'_>) -> usize {
        match self.scope {
            RouterScope::Sequence => cx.sequence.time,
            RouterScope::MicroBatch => n,
        }
    }

    /// x: `[n, d]` -> the routing, and the order of the choices that are not dropped.
    pub(crate) fn forward(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<(Routed, Order)> {
        let n = x.dims()[0];
        let weight = cx.weight(self.weight);
        let mut logits = Tensor::empty(&[n, self.experts], DType::F32, x.device())?;
        matmul(
            &mut logits,
            (x, Op::Plain),
            (weight, Op::Transposed),
            0,
            false,
        )?;
        let left = rows::not_finite(logits.view())?;
        let k = self.rule.k;
        let mut chosen = Tensor::empty(&[n, k], DType::U32, x.device())?;
        let mut weights = Tensor::empty(&[n, k], DType::F32, x.device())?;
        let mut parts = Vec::new();
        let group = self.group(n, cx);
        let bias = self.bias.map(|slot| cx.weight(slot));
        for first in (0..n).step_by(group) {
            let logits = some_rows(&logits, first, group)?;
            let part = route::start(&logits, bias, &self.rule)?;
            let at = first * k..(first + group) * k;
            let all = Runs::one(group * k);
            let (experts, shares) = (part.experts.view(), part.weights.view());
            rows::copy_runs(chosen.flat_mut(at.clone())?, experts, all)?;
            rows::copy_runs(weights.flat_mut(at)?, shares, all)?;
            parts.push(part.unread);
        }
        // everything that the host needs of this layer, in one download
        let mut all = vec![&left, &chosen];
        all.extend(parts.iter().flat_map(Unread::tensors));
        let words = download_words(&all)?;
        self.check(&logits, &words[0], cx)?;
        let each = (words.len() - 2) / parts.len().max(1);
        let of_part = |(at, part): (usize, &Unread)| {
            let first = 2 + at * each;
            part.read(&words[first..first + each])
        };
        let groups = parts.iter().enumerate().map(of_part);
        let mut groups = groups.collect::<kernels::Result<Vec<Statistics>>>()?;
        add_over_context(&mut groups, k, cx)?;
        let mut dropped = vec![vec![0; self.experts]; groups.len()];
        let kept = match self.capacity {
            Some((factor, policy)) if cx.routing.drops => {
                Some(self.limit(&chosen, &weights, (factor, policy), &mut dropped, cx)?)
            }
            _ => None,
        };
        let ids = kept.as_ref().unwrap_or(&words[1]);
        let order = Order::of_choices(ids, k, self.experts, 0..self.experts)?;
        let routed = Routed {
            logits,
            chosen,
            weights,
            report: Report {
                layer: self.layer,
                groups,
                dropped,
            },
        };
        Ok((routed, order))
    }

    /// `left`: of `rows::not_finite`.
    fn check(&self, logits: &Tensor, left: &[u32], cx: &Context<'_>) -> kernels::Result<()> {
        let Some((at, value)) = rows::first_of(logits.view(), left)? else {
            return Ok(());
        };
        let (token, expert) = (at / self.experts, at % self.experts);
        let (sequence, position) = (
            token / cx.sequence.time,
            cx.sequence.first + token % cx.sequence.time,
        );
        Err(Error::Argument {
            op: "mixture of experts",
            name: "router logit",
            found: format!(
                "{value} for expert {expert} at layers.{}, position {position} of sequence {sequence} of \
                 the micro-batch",
                self.layer
            ),
            wanted: "a finite number".into(),
        })
    }

    /// The choices, of which those beyond an expert's capacity are marked as dropped; it is counted over whole groups. On
    /// the host, which waits for the device.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers of experts that traveled as f32, exact below 2^24"
    )]
    fn limit(
        &self,
        chosen: &Tensor,
        weights: &Tensor,
        (factor, policy): (f64, Drop),
        dropped: &mut [Vec<u64>],
        cx: &Context<'_>,
    ) -> kernels::Result<Vec<u32>> {
        let (k, n) = (self.rule.k, chosen.dims()[0]);
        let parts = cx.groups.cp.size();
        let ids = chosen.view().read::<u32>()?;
        let ids: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
        let ids = Tensor::from_f32(&[n, k], &ids, chosen.device())?;
        let ids = gather_rows(cx.groups.cp, &ids, cx.sequence.time)?;
        let weights = gather_rows(cx.groups.cp, weights, cx.sequence.time)?;
        let group = self.group(n, cx) * parts;
        let capacity = route::capacity(group, k, self.experts, factor);
        let ids = ids.view().read::<f32>()?;
        let mut kept: Vec<u32> = Vec::with_capacity(n * parts * k);
        for (number, dropped) in dropped.iter_mut().enumerate() {
            let first = number * group;
            let weights = some_rows(&weights, first, group)?;
            let at = first * k..(first + group) * k;
            let before: Vec<u32> = ids[at].iter().map(|&id| id as u32).collect();
            let mut ids = Tensor::from_u32(&[group, k], &before, chosen.device())?;
            route::drop_over(&mut ids, &weights, capacity, policy)?;
            let after = ids.view().read::<u32>()?;
            let gone = before.iter().zip(&*after).filter(|(a, b)| a != b);
            gone.for_each(|(&expert, _)| dropped[expert as usize] += 1);
            kept.extend_from_slice(&after);
        }
        let run = cx.sequence.time * k;
        let all = kept.chunks(run).skip(cx.groups.cp.rank()).step_by(parts);
        Ok(all.flatten().copied().collect())
    }

    /// x: `[n, d]`, dweights: `[n, k]` -> dx: `[n, d]`, the same on every tensor-parallel rank.
    pub(crate) fn backward(
        &self,
        x: &Tensor,
        dweights: &Tensor,
        routed: &Routed,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let n = x.dims()[0];
        let group = self.group(n, cx);
        // sequences of a group over all sequences of the step
        let share = (group / cx.sequence.time) as f64 * cx.routing.sequence_weight;
        let losses = Coefficients {
            balance: self.losses.balance * share,
            z: self.losses.z * share,
        };
        let mut dlogits = Tensor::empty(&[n, self.experts], DType::F32, x.device())?;
        for (number, statistics) in routed.report.groups.iter().enumerate() {
            let first = number * group;
            let part = route::backward(
                &some_rows(dweights, first, group)?,
                &some_rows(&routed.logits, first, group)?,
                &some_rows(&routed.chosen, first, group)?,
                &self.rule,
                (statistics, &losses),
            )?;
            let at = first * self.experts..(first + group) * self.experts;
            kernels::copy(dlogits.flat_mut(at)?, part.view())?;
        }
        if let Some(bias) = self.bias {
            // no loss depends on it: token counts move it after the step
            gradients.sums([bias])?;
        }
        let (dweight, accumulate) = gradients.target(self.weight);
        let leaf = cx.sums.token_leaf;
        matmul(
            dweight,
            (&dlogits, Op::Transposed),
            (x, Op::Plain),
            leaf,
            accumulate,
        )?;
        let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
        let weight = cx.weight(self.weight);
        matmul(
            &mut dx,
            (&dlogits, Op::Plain),
            (weight, Op::Plain),
            0,
            false,
        )?;
        Ok(dx)
    }
}

/// Some rows of a matrix.
fn some_rows(x: &Tensor, first: usize, count: usize) -> kernels::Result<Tensor> {
    let width = x.dims()[1];
    let mut some = Tensor::empty(&[count, width], x.dtype(), x.device())?;
    let from = x.flat(first * width..(first + count) * width)?;
    rows::copy_runs(some.view_mut(), from, Runs::one(count * width))?;
    Ok(some)
}

/// All-reduces the statistics to those of whole groups.
fn add_over_context(groups: &mut [Statistics], k: usize, cx: &Context<'_>) -> kernels::Result<()> {
    if cx.groups.cp.size() == 1 {
        return Ok(());
    }
    let mine: Vec<f64> = groups.iter().flat_map(Statistics::words).collect();
    let len = mine.len() / groups.len();
    for (rank, all) in cx.groups.cp.all_gather_f64(&mine)?.iter().enumerate() {
        if rank == cx.groups.cp.rank() {
            continue;
        }
        for (group, words) in groups.iter_mut().zip(all.chunks(len)) {
            group.add(&Statistics::from_words(words, k)?);
        }
    }
    Ok(())
}
