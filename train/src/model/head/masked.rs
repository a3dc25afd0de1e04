//! Masked language model head: only the rows to be predicted go through it (Devlin et al. 2019, arXiv:1810.04805;
//! sparse as in Izsak et al. 2021, arXiv:2104.07705, sec. 3): z = norm(act(x W^T + b)), logits = z E^T + c, E the
//! embedding. Where blocks are pre-norm, the final norm comes before it (Megatron).
//!
//! If the model predicts the order of segments, the first row of a sequence also goes through the final norm, and
//! on to `next_sentence`.
//!
//! Each sequence reserves `predictions` slots; unused slots have weight 0, so a sequence's slots are one leaf of
//! the token tree in every layout. Ranks with other parts of the sequence contribute zeros for its picked rows, and
//! an all-reduce combines them. All ranks then do the same work except for the vocabulary, and only the first
//! context-parallel rank has the gradients.

use kernels::comm::tensors;
use kernels::rows::{self, Runs};
use kernels::{DType, Tensor, embedding};

use crate::config::Activation;
use crate::config::plan::Plan;
use crate::data::{Picks, Targets};
use crate::dist::mesh::RankCoord;
use crate::model::context::{Context, Leaves, SequenceShard};
use crate::model::gradients::Gradients;
use crate::model::head::Losses;
use crate::model::head::next_sentence::{self, NextSentence};
use crate::model::head::vocabulary::{self, Vocabulary};
use crate::model::linear::FullLinear;
use crate::model::mlp::{activate, slope};
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::Slots;

pub(crate) struct MaskedHead {
    norm: Option<Norm>,
    transform: FullLinear,
    activation: Activation,
    transform_norm: Norm,
    vocabulary: Vocabulary,
    order: Option<NextSentence>,
    /// Prediction slots per sequence.
    predictions: usize,
}

/// Kept from forward: rows are `[b * predictions, d]`.
pub(crate) struct Saved {
    /// Rows of the last block that this rank has.
    rows: usize,
    norm: Option<(Tensor, Statistics)>,
    x: Tensor,
    before: Tensor,
    hidden: Tensor,
    statistics: Statistics,
    z: Tensor,
    vocabulary: vocabulary::Saved,
    order: Option<next_sentence::Saved>,
}

impl MaskedHead {
    /// `gradient` is the slot of the embedding's gradient here.
    pub(crate) fn named(
        plan: &Plan,
        place: &RankCoord,
        slots: &Slots<'_>,
        gradient: usize,
    ) -> MaskedHead {
        let architecture = plan.model.architecture();
        let is_pre = !architecture.is_post_norm;
        MaskedHead {
            norm: is_pre.then(|| Norm::named("norm", plan, slots)),
            transform: FullLinear::named("head.transform", slots),
            activation: architecture.activation.without_gate(),
            transform_norm: Norm::named("head.norm", plan, slots),
            vocabulary: Vocabulary::named(plan, place, slots, gradient),
            order: architecture
                .next_sentence
                .then(|| NextSentence::named(slots)),
            predictions: plan.predictions,
        }
    }

    /// Rows of a sequence that are picked.
    fn picked(&self) -> usize {
        self.predictions + usize::from(self.order.is_some())
    }

    /// x: `[n, d]` -> logits of every row and the whole padded vocabulary, `[n, v]`, on every rank, for inference.
    pub(crate) fn logits(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let normed = match &self.norm {
            Some(norm) => Some(norm.forward(x, cx)?.0),
            None => None,
        };
        let before = self.transform.forward(normed.as_ref().unwrap_or(x), cx)?;
        let (z, _) = self
            .transform_norm
            .forward(&activate(&before, self.activation)?, cx)?;
        self.vocabulary.logits(&z, cx)
    }

    /// x: `[m, d]` -> summed losses of each sequence, on the first context-parallel rank alone.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        (targets, picks): (&Targets, &Picks),
        cx: &Context<'_>,
    ) -> kernels::Result<(Losses, Saved)> {
        let picked = pick(x, &picks.rows, cx)?;
        let (normed, norm) = match &self.norm {
            Some(norm) => {
                let (normed, statistics) = norm.forward(&picked, &within(cx, self.picked()))?;
                (normed, Some((picked, statistics)))
            }
            None => (picked, None),
        };
        let mut losses = Losses {
            predictions: None,
            further: Vec::new(),
            orders: None,
            scores: None,
            pairs: Vec::new(),
        };
        let (mut rest, mut order) = (normed, None);
        if let (Some(head), Some(swapped)) = (&self.order, &picks.swapped) {
            let (places, firsts) = parted(&rest, self.predictions)?;
            let (sequences, saved) = head.forward(firsts, swapped, &within(cx, 1))?;
            (losses.orders, rest, order) = (Some(sequences), places, Some(saved));
        }
        let cx = &within(cx, self.predictions);
        let before = self.transform.forward(&rest, cx)?;
        let hidden = activate(&before, self.activation)?;
        let (z, statistics) = self.transform_norm.forward(&hidden, cx)?;
        let of = (targets, self.predictions);
        let (sequences, vocabulary) = self.vocabulary.forward(&z, of, cx)?;
        losses.predictions = Some(sequences);
        if cx.groups.cp.rank() > 0 {
            (losses.predictions, losses.orders) = (None, None);
        }
        let saved = Saved {
            rows: x.dims()[0],
            norm,
            x: rest,
            before,
            hidden,
            statistics,
            z,
            vocabulary,
            order,
        };
        Ok((losses, saved))
    }

    /// `weight`: weight in the step's loss of each prediction that counts -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        (targets, picks): (&Targets, &Picks),
        weight: f32,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            rows,
            norm,
            x,
            before,
            hidden,
            statistics,
            z,
            vocabulary,
            order,
        } = saved;
        let outer = cx;
        let cx = &within(outer, self.predictions);
        let is_first = if cx.groups.cp.rank() == 0 { 1.0 } else { 0.0 };
        let mut weights = targets.counts.try_clone()?;
        rows::scale(weights.view_mut(), weight * is_first)?;
        let of = (&targets.ids, weights);
        let dz = self
            .vocabulary
            .backward(of, vocabulary, &z, gradients, cx)?;
        drop(z);
        let dhidden =
            self.transform_norm
                .backward(&dz, (&hidden, &statistics), None, gradients, cx)?;
        drop((dz, hidden));
        let dbefore = slope(&dhidden, &before, self.activation)?;
        drop((dhidden, before));
        let mut dx = self.transform.backward(&dbefore, &x, gradients, cx)?;
        drop((dbefore, x));
        if let (Some(head), Some(saved), Some(swapped)) = (&self.order, order, &picks.swapped) {
            #[expect(clippy::cast_possible_truncation, reason = "rounded once")]
            let sequence_weight = outer.routing.sequence_weight as f32;
            let of = (swapped, sequence_weight * is_first);
            let firsts = head.backward(of, saved, gradients, &within(outer, 1))?;
            dx = joined(&dx, &firsts, self.predictions)?;
        }
        if let (Some(norm), Some((picked, statistics))) = (&self.norm, norm) {
            let cx = &within(outer, self.picked());
            dx = norm.backward(&dx, (&picked, &statistics), None, gradients, cx)?;
        }
        if outer.groups.cp.size() > 1 {
            tensors::all_reduce_sum(outer.groups.cp, dx.view_mut())?;
        }
        put(&dx, &picks.rows, rows, outer)
    }
}

/// Context for the picked rows, which count as whole sequences of `rows` rows, the same on all ranks.
pub(super) fn within<'a>(cx: &Context<'a>, rows: usize) -> Context<'a> {
    let token_leaf = if cx.sums.token_leaf > 0 { rows } else { 0 };
    Context {
        sequence: SequenceShard {
            time: rows,
            first: 0,
            is_parallel: false,
            ..cx.sequence
        },
        sums: Leaves {
            token_leaf,
            ..cx.sums
        },
        ..*cx
    }
}

/// Splits off the last row of each sequence: `[b * (places + 1), d]` -> `[b * places, d]`, `[b, d]`.
fn parted(x: &Tensor, places: usize) -> kernels::Result<(Tensor, Tensor)> {
    let (all, d) = (x.dims()[0], x.dims()[1]);
    let b = all / (places + 1);
    let mut first = Tensor::empty(&[b * places, d], DType::F32, x.device())?;
    let mut last = Tensor::empty(&[b, d], DType::F32, x.device())?;
    let runs = Runs {
        count: b,
        run: places * d,
        from_stride: (places + 1) * d,
        to_stride: places * d,
    };
    rows::copy_runs(first.view_mut(), x.view(), runs)?;
    let runs = Runs {
        run: d,
        to_stride: d,
        ..runs
    };
    rows::copy_runs(last.view_mut(), x.flat(places * d..x.elements())?, runs)?;
    Ok((first, last))
}

/// The inverse of `parted`.
fn joined(first: &Tensor, last: &Tensor, places: usize) -> kernels::Result<Tensor> {
    let (b, d) = (last.dims()[0], last.dims()[1]);
    let mut x = Tensor::empty(&[b * (places + 1), d], DType::F32, last.device())?;
    let runs = Runs {
        count: b,
        run: places * d,
        from_stride: places * d,
        to_stride: (places + 1) * d,
    };
    rows::copy_runs(x.view_mut(), first.view(), runs)?;
    let runs = Runs {
        run: d,
        from_stride: d,
        ..runs
    };
    let to = x.flat_mut(places * d..b * (places + 1) * d)?;
    rows::copy_runs(to, last.view(), runs)?;
    Ok(x)
}

/// The picked rows on every rank: x `[m, d]` -> `[picks, d]`.
pub(super) fn pick(x: &Tensor, picks: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
    let mut picked = embedding::forward(x, picks, 0)?;
    if cx.sequence.is_parallel {
        picked = cx.sum_over_tp(picked)?;
    }
    if cx.groups.cp.size() > 1 {
        tensors::all_reduce_sum(cx.groups.cp, picked.view_mut())?;
    }
    // as sums with other ranks' zeros do: no -0.0 on one layout only
    rows::shift(picked.view_mut(), 0.0)?;
    Ok(picked)
}

/// Gradients of picked rows back to the rank's own: `[picks, d]` -> `[m, d]`, 0 elsewhere.
pub(super) fn put(
    dpicked: &Tensor,
    rows: &Tensor,
    m: usize,
    cx: &Context<'_>,
) -> kernels::Result<Tensor> {
    let mut dx = Tensor::zeros(&[m, dpicked.dims()[1]], DType::F32, dpicked.device())?;
    embedding::backward(&mut dx, dpicked, rows, 0, cx.sums.token_leaf)?;
    Ok(dx)
}
