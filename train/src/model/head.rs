//! Final norm, vocabulary-parallel head and cross entropy.
//! loss = ln(sum_v exp(logit_v)) - logit_target; dlogit = (softmax - onehot) / tokens of the step.
//! Paper: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3 (three numbers per token cross ranks).
//!
//! Sums of exponentials are kept per eighth of the padded vocabulary and merged in the feature
//! tree. Token losses are f64 and added per chunk of a sequence in order of tokens.

use kernels::{DType, Tensor, cross_entropy, reduce};

use crate::data::Targets;
use crate::model::context::{Context, Slots};
use crate::model::gradients::Gradients;
use crate::model::linear::ColumnLinear;
use crate::model::norm::{Norm, Statistics};
use crate::model::param;
use crate::plan::{FEATURE_CHUNKS, Plan};

pub(crate) struct Head {
    norm: Norm,
    linear: ColumnLinear,
    vocab: usize,
    /// First token id of this rank's rows.
    first: usize,
    /// Vocabulary rows per sum of exponentials.
    slice: usize,
}

/// Kept from forward: `[m, d]` twice, `[n, v]`, and a few numbers per token.
pub(crate) struct Saved {
    x: Tensor,
    statistics: Statistics,
    normed: Tensor,
    logits: Tensor,
    max: Tensor,
    sum: Tensor,
}

impl Head {
    /// `gradient` is the slot of the head's own gradient.
    pub(crate) fn named(
        plan: &Plan,
        (tp, tp_rank): (usize, usize),
        slots: &Slots<'_>,
        gradient: usize,
    ) -> Head {
        let out = plan.padded_vocab();
        let weight = slots.get(param::head_name(plan));
        Head {
            norm: Norm::named("norm", plan.model.norm_eps, slots),
            linear: ColumnLinear {
                weight,
                bias: None,
                gradient,
                out,
            },
            vocab: plan.vocab,
            first: out / tp * tp_rank,
            slice: out / FEATURE_CHUNKS,
        }
    }

    /// x: `[n, d]` -> this rank's logits `[n, v]`
    pub(crate) fn logits(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let (normed, _) = self.norm.forward(x, cx)?;
        self.linear.forward(&normed, cx)
    }

    /// x: `[m, d]` -> summed loss of each chunk of `loss_chunk` tokens.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        targets: &Targets,
        cx: &Context<'_>,
    ) -> kernels::Result<(Vec<f64>, Saved)> {
        let (normed, statistics) = self.norm.forward(&x, cx)?;
        let logits = self.linear.forward(&normed, cx)?;
        let mut max = cross_entropy::row_max(&logits, self.first, self.vocab)?;
        if cx.tp.size() > 1 {
            cx.tp.all_reduce_max(max.f32_mut())?;
        }
        let (first, vocab) = (self.first, self.vocab);
        let (slices, target) =
            cross_entropy::row_sums(&logits, &max, &targets.ids, first, vocab, self.slice)?;
        let sum = cx.sum_over_tp(reduce::tree_sum_slices(&slices)?)?;
        let target = cx.sum_over_tp(target)?;
        let numbers = max.f32().iter().zip(sum.f32()).zip(target.f32());
        let tokens: Vec<f64> = (numbers.zip(targets.counts.f32()))
            .map(|(((&max, &sum), &target), &counts)| {
                let loss = f64::from(max) + f64::from(sum).ln() - f64::from(target);
                if counts > 0.0 { loss } else { 0.0 }
            })
            .collect();
        let losses = tokens
            .chunks(cx.loss_chunk())
            .map(|chunk| chunk.iter().sum())
            .collect();
        Ok((
            losses,
            Saved {
                x,
                statistics,
                normed,
                logits,
                max,
                sum,
            },
        ))
    }

    /// `weight`: of each token that counts in the step's loss -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        (targets, weight): (&Targets, f32),
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            statistics,
            normed,
            mut logits,
            max,
            sum,
        } = saved;
        let ids = &targets.ids;
        let mut weights = Tensor::empty(ids.dims(), DType::F32, ids.device())?;
        for (to, counts) in weights.f32_mut().iter_mut().zip(targets.counts.f32()) {
            *to = weight * counts;
        }
        let (first, vocab) = (self.first, self.vocab);
        cross_entropy::backward(&mut logits, &max, &sum, ids, &weights, first, vocab)?;
        let dnormed = self.linear.backward(&logits, &normed, gradients, cx)?;
        drop((logits, normed));
        self.norm.backward(&dnormed, &x, &statistics, gradients, cx)
    }
}
