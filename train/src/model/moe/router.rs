//! Router of a mixture: chooses each token's experts and weights, and adds the auxiliary losses' gradients. logits
//! = x W^T + b in f32, b only if the mixture has biases; the rule and the losses: `kernels::route`.
//!
//! Every tensor-parallel rank routes the same whole rows and gets the same bits. The scope of a loss (a sequence,
//! or a micro-batch) is one group of rows; its statistics are integers, so context-parallel ranks, which have parts
//! of each group, add theirs in any order. A sequence weighs 1 / (sequences of the step) in the step's losses,
//! whichever rank computes it.
//!
//! On a GPU a step does not wait for the router: statistics, drops and the check of the logits stay in its memory until the
//! step's one download (`report.rs`). Context-parallel ranks exchange statistics, and wait for them.

use std::sync::Arc;

use kernels::matmul::{Op, matmul};
use kernels::permute::Order;
use kernels::route::{self, Coefficients, Drop, Losses, Statistics, Unread};
use kernels::rows::{self, Runs};
use kernels::{DType, Tensor, add, reduce};

use crate::config::moe::{DropPolicy, MoeConfig, RouterScope};
use crate::model::context::Context;
use crate::model::context::tensor_parallel::gather_rows;
use crate::model::gradients::Gradients;
use crate::model::lora::{Lora, Outputs};
use crate::model::moe::report::{Dropped, Logits, Report};
use crate::model::slots::{Slot, Slots};

pub(crate) struct Router {
    weight: Slot,
    /// Multiplies in f32, as the router does.
    lora: Option<Lora>,
    /// Added to the logits.
    logit_bias: Option<Slot>,
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

/// Kept from forward: `[n, experts]`, and `[n, k]` twice.
pub(crate) struct Routed {
    logits: Tensor,
    chosen: Tensor,
    pub weights: Tensor,
    pub report: Arc<Report>,
}

impl Router {
    /// That of block `layer`, whose tensors' names start with `at`.
    pub(crate) fn named(
        (layer, at): (usize, &str),
        config: &MoeConfig,
        slots: &Slots<'_>,
    ) -> Router {
        let drop = match config.drop {
            DropPolicy::Position => Drop::ByPosition,
            DropPolicy::Probability => Drop::ByWeight,
        };
        Router {
            weight: slots.get(&format!("{at}.router.weight")),
            lora: Lora::find(&format!("{at}.router"), slots),
            logit_bias: slots.find(&format!("{at}.router.logit_bias")),
            bias: (config.expert_bias).then(|| slots.get(&format!("{at}.router.bias"))),
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
        if let Some(lora) = &self.lora {
            lora.add_columns(&mut logits, x, &cx.of_whole_rows().in_f32())?;
        }
        if let Some(bias) = self.logit_bias {
            add::bias(&mut logits, cx.weight(bias))?;
        }
        let not_finite = rows::not_finite(logits.view())?;
        let k = self.rule.k;
        let mut chosen = Tensor::empty(&[n, k], DType::U32, x.device())?;
        let mut weights = Tensor::empty(&[n, k], DType::F32, x.device())?;
        let mut groups = Vec::new();
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
            groups.push(part.unread);
        }
        let mut report = Report {
            layer: self.layer,
            groups,
            dropped: Vec::new(),
            logits: Some(Logits {
                not_finite,
                experts: self.experts,
                rows: n,
                time: cx.sequence.time,
                first: cx.sequence.first,
            }),
        };
        // outside a step nobody reads the report later
        let is_step = cx.routing.drops;
        if x.device().is_host() || !is_step || cx.groups.cp.size() > 1 {
            let mut known = report.known()?.groups;
            add_over_context(&mut known, k, cx)?;
            report.groups = known.into_iter().map(Unread::from).collect();
            report.logits = None;
        }
        let kept = match self.capacity {
            Some(limit) if is_step => {
                let (kept, dropped) = self.limit(&chosen, &weights, limit, cx)?;
                report.dropped = dropped;
                Some(kept)
            }
            _ => {
                let none = || Dropped::Known(vec![0; self.experts]);
                report.dropped.resize_with(report.groups.len(), none);
                None
            }
        };
        let order = Order::new(
            kept.as_ref().unwrap_or(&chosen),
            self.experts,
            0..self.experts,
        )?;
        let routed = Routed {
            logits,
            chosen,
            weights,
            report: Arc::new(report),
        };
        Ok((routed, order))
    }

    /// The choices, of which those beyond an expert's capacity are marked as dropped, and their numbers by group and expert.
    /// They are counted over whole groups.
    fn limit(
        &self,
        chosen: &Tensor,
        weights: &Tensor,
        (factor, policy): (f64, Drop),
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Vec<Dropped>)> {
        let (k, n) = (self.rule.k, chosen.dims()[0]);
        let parts = cx.groups.cp.size();
        let mut ids = whole_ids(chosen, cx)?;
        let gathered;
        let weights = match parts {
            1 => weights,
            _ => {
                gathered = gather_rows(cx.groups.cp, weights, cx.sequence.time)?;
                &gathered
            }
        };
        let group = self.group(n, cx) * parts;
        let capacity = route::capacity(group, k, self.experts, factor);
        let mut dropped = Vec::new();
        for first in (0..n * parts).step_by(group) {
            let weights = some_rows(weights, first, group)?;
            let mut some = some_rows(&ids, first, group)?;
            let gone = route::drop_over(&mut some, &weights, self.experts, capacity, policy)?;
            dropped.push(Dropped::of(gone)?);
            let at = first * k..(first + group) * k;
            rows::copy_runs(ids.flat_mut(at)?, some.view(), Runs::one(group * k))?;
        }
        if parts == 1 {
            return Ok((ids, dropped));
        }
        let run = cx.sequence.time * k;
        let mut kept = Tensor::empty(&[n, k], DType::U32, chosen.device())?;
        let own = Runs {
            count: n / cx.sequence.time,
            run,
            from_stride: run * parts,
            to_stride: run,
        };
        let first = cx.groups.cp.rank() * run;
        rows::copy_runs(kept.view_mut(), ids.flat(first..n * parts * k)?, own)?;
        Ok((kept, dropped))
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
                Losses {
                    statistics,
                    coefficients: &losses,
                },
            )?;
            let at = first * self.experts..(first + group) * self.experts;
            kernels::copy(dlogits.flat_mut(at)?, part.view())?;
        }
        if let Some(bias) = self.bias.filter(|bias| gradients.has(*bias)) {
            // no loss depends on it: token counts move it after the step
            gradients.sums([bias])?;
        }
        let leaf = cx.sums.token_leaf;
        if let Some(bias) = self.logit_bias.filter(|bias| gradients.has(*bias)) {
            let (dbias, accumulate) = gradients.target(bias);
            reduce::sum_rows(dbias, &dlogits, leaf, accumulate)?;
        }
        if gradients.has(self.weight) {
            let (dweight, accumulate) = gradients.target(self.weight);
            let (dlogits, x) = ((&dlogits, Op::Transposed), (x, Op::Plain));
            matmul(dweight, dlogits, x, leaf, accumulate)?;
        }
        let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
        let weight = cx.weight(self.weight);
        matmul(
            &mut dx,
            (&dlogits, Op::Plain),
            (weight, Op::Plain),
            0,
            false,
        )?;
        if let Some(lora) = &self.lora {
            let cx = &cx.of_whole_rows().in_f32();
            let du = lora.backward_columns(&dlogits, x, Outputs::Whole, gradients, cx)?;
            lora.add_column_inputs(&mut dx, &du, cx)?;
        }
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

/// The choices of whole sequences, of which this rank has parts. Waits for the device if other ranks have the others.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of experts that traveled as f32, exact below 2^24"
)]
fn whole_ids(chosen: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
    if cx.groups.cp.size() == 1 {
        return chosen.try_clone();
    }
    let ids = chosen.view().read::<u32>()?;
    let ids: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
    let ids = Tensor::from_f32(chosen.dims(), &ids, chosen.device())?;
    let ids = gather_rows(cx.groups.cp, &ids, cx.sequence.time)?;
    let all: Vec<u32> = (ids.view().read::<f32>()?.iter())
        .map(|&id| id as u32)
        .collect();
    Tensor::from_u32(ids.dims(), &all, chosen.device())
}
