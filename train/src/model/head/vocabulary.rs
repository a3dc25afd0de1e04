//! Vocabulary-parallel logits and cross entropy.
//! loss = ln(sum_v exp(logit_v)) - logit_target; dlogit = (softmax - onehot) weight.
//! Paper: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3 (three numbers per token cross ranks).
//!
//! z-loss: z (ln sum_v exp(logit_v))^2 more, whose gradient is 2 z ln(sum) softmax (Chowdhery et al. 2022,
//! arXiv:2204.02311, sec. 5). It is reported separately from the loss.
//!
//! Online softmax: sums of exponentials are kept per eighth of the padded vocabulary, each relative to its own
//! largest logit, and merged in the feature tree. Token losses are f64.
//!
//! In chunks (`train.chunked_cross_entropy`), an eighth's logits are computed, read and dropped before the next,
//! and recomputed in the backward pass (`sliced.rs`), so a rank never holds more than one eighth of them. Wijmans
//! et al. 2024, arXiv:2411.09009 (Cut Cross-Entropy) do the same in smaller blocks; here the bits are those of
//! logits that are kept.

use kernels::comm::tensors;
use kernels::cross_entropy::Slopes;
use kernels::{DType, Tensor, cross_entropy, reduce};

use crate::config::adapted_layers::HEAD;
use crate::config::plan::{FEATURE_CHUNKS, Plan};
use crate::data::Targets;
use crate::dist::mesh::RankCoord;
use crate::model::context::Context;
use crate::model::context::tensor_parallel::gather_rows;
use crate::model::gradients::Gradients;
use crate::model::head::sliced;
use crate::model::linear::ColumnLinear;
use crate::model::lora::Lora;
use crate::model::param;
use crate::model::slots::Slots;

pub(crate) struct Vocabulary {
    linear: ColumnLinear,
    /// Ids, before padding.
    ids: usize,
    /// First token id of this rank's rows.
    first: usize,
    /// Vocabulary rows per sum of exponentials.
    slice: usize,
    /// True if only one slice's logits exist at a time.
    is_chunked: bool,
    /// Coefficient of the z-loss.
    z: f64,
    /// Bound of the logits (Gemma 2, arXiv:2408.00118, sec. 2); 0: none.
    cap: f32,
}

/// Kept from forward: `[n, v]` unless in chunks, and `[n]` twice.
pub(crate) struct Saved {
    logits: Option<Tensor>,
    max: Tensor,
    sum: Tensor,
}

impl Vocabulary {
    /// `gradient` is the slot of the matrix's own gradient here.
    pub(crate) fn named(
        plan: &Plan,
        place: &RankCoord,
        slots: &Slots<'_>,
        gradient: usize,
    ) -> Vocabulary {
        let out = plan.padded_vocab();
        Vocabulary {
            linear: ColumnLinear {
                weight: slots.get(param::head_name(plan)),
                bias: slots.find("head.bias"),
                gradient,
                out,
                lora: Lora::find(HEAD, slots),
            },
            ids: plan.vocab,
            first: out / place.tp * place.tp_rank,
            slice: out / FEATURE_CHUNKS,
            is_chunked: plan.train.chunked_cross_entropy,
            z: plan.train.z_loss,
            cap: plan.model.logit_cap,
        }
    }

    /// The same without a z-loss.
    pub(crate) fn without_z_loss(self) -> Vocabulary {
        Vocabulary { z: 0.0, ..self }
    }

    /// normed: `[n, d]` -> logits of the whole padded vocabulary, `[n, v]`, on every rank, for inference
    pub(crate) fn logits(&self, normed: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let own = self.capped(normed, cx)?;
        if cx.groups.tp.size() == 1 {
            return Ok(own);
        }
        let dims = [own.dims()[0], own.dims()[1] * cx.groups.tp.size()];
        gather_rows(cx.groups.tp, &own, 1)?.reshape(&dims)
    }

    /// normed: `[m, d]` -> this rank's logits, `[n, v]`
    fn capped(&self, normed: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let mut logits = self.linear.forward(normed, DType::F32, cx)?;
        self.cap(&mut logits)?;
        Ok(logits)
    }

    fn cap(&self, logits: &mut Tensor) -> kernels::Result<()> {
        match self.cap {
            0.0 => Ok(()),
            cap => cross_entropy::cap(logits, cap),
        }
    }

    /// normed: `[m, d]` -> cross entropy and squared logsumexp of each run of `run` of the n tokens, summed in their order over those that count,
    /// as `cross_entropy::losses` puts them out.
    pub(crate) fn forward(
        &self,
        normed: &Tensor,
        (targets, run): (&Targets, usize),
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        let (logits, (maxima, sums, target)) = if self.is_chunked {
            (None, self.statistics_in_chunks(normed, targets, cx)?)
        } else {
            let logits = self.capped(normed, cx)?;
            let ids = &targets.ids;
            let of = cross_entropy::statistics(&logits, ids, self.first, self.ids, self.slice)?;
            (Some(logits), of)
        };
        let mut max = cross_entropy::merge_maxima(&maxima)?;
        if cx.groups.tp.size() > 1 {
            tensors::all_reduce_max(cx.groups.tp, max.view_mut())?;
        }
        let sum = cx.sum_over_tp(cross_entropy::merge_sums(sums, &maxima, &max)?)?;
        let target = cx.sum_over_tp(target)?;
        let losses = cross_entropy::losses(&max, &sum, &target, Some(&targets.counts), run)?;
        Ok((losses, Saved { logits, max, sum }))
    }

    /// Like `cross_entropy::statistics`, of logits that are dropped slice by slice.
    fn statistics_in_chunks(
        &self,
        normed: &Tensor,
        targets: &Targets,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Tensor, Tensor)> {
        let (ids, n) = (&targets.ids, targets.ids.elements());
        let slices = FEATURE_CHUNKS / cx.groups.tp.size();
        let empty = || Tensor::empty(&[slices, n], DType::F32, normed.device());
        let (mut maxima, mut sums) = (empty()?, empty()?);
        let mut target = Tensor::zeros(&[n], DType::F32, normed.device())?;
        sliced::forward(&self.linear, normed, self.slice, cx, |row, logits| {
            self.cap(logits)?;
            let first = self.first + row;
            let of = cross_entropy::statistics(logits, ids, first, self.ids, self.slice)?;
            let at = row / self.slice * n;
            kernels::copy(maxima.flat_mut(at..at + n)?, of.0.view())?;
            kernels::copy(sums.flat_mut(at..at + n)?, of.1.view())?;
            // 0 in all slices but one
            reduce::tree_add_into(&mut target, &of.2)
        })?;
        Ok((maxima, sums, target))
    }

    /// ids, weights: `[n]`, the target of each token and its weight in the step's loss -> dnormed: `[m, d]`
    pub(crate) fn backward(
        &self,
        (ids, weights): (&Tensor, Tensor),
        saved: Saved,
        normed: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved { logits, max, sum } = saved;
        let pull = self.pull(&max, &sum, &weights)?;
        let slopes = Slopes {
            weights: &weights,
            pull: pull.as_ref(),
            cap: self.cap,
        };
        let slope = |row: usize, logits: &mut Tensor| {
            let first = self.first + row;
            cross_entropy::backward(logits, &max, &sum, ids, slopes, first, self.ids)
        };
        match logits {
            Some(mut logits) => {
                slope(0, &mut logits)?;
                self.linear.backward(&logits, normed, gradients, cx)
            }
            None => {
                let of_slice = |row: usize, logits: &mut Tensor| {
                    self.cap(logits)?;
                    slope(row, logits)
                };
                sliced::backward(&self.linear, normed, self.slice, (gradients, cx), of_slice)
            }
        }
    }

    /// Derivative of the z-loss by each token's ln sum exp, if there is a z-loss.
    fn pull(
        &self,
        max: &Tensor,
        sum: &Tensor,
        weights: &Tensor,
    ) -> kernels::Result<Option<Tensor>> {
        if self.z == 0.0 {
            return Ok(None);
        }
        cross_entropy::pull(max, sum, weights, 2.0 * self.z).map(Some)
    }
}
