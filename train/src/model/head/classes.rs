//! Classification head: the final norm (if blocks are pre-norm) of one row of a sequence, then a matrix of one row per
//! class. Cross entropy, the mean over the questions of the step's batch; of a regression the squared error, as torch's
//! `MSELoss`.
//!
//! A masked model takes the row of the first token through its pooler, p = dropout(tanh(x W^T + b)), as BERT (Devlin et
//! al. 2019, sec. 4.1) and Megatron-LM's `tasks/` do; a decoder takes the row of the last token (Radford et al. 2018).
//! With choices, `choices` sequences in a row have one score each, and the softmax is over these.
//!
//! A sequence's row is one leaf of the token tree, as in `masked`, whose picking of rows this head shares.

use kernels::activation::{self, Kind};
use kernels::comm::tensors;
use kernels::{DType, Tensor, cross_entropy, rows};

use crate::config::plan::Plan;
use crate::data::{Picks, Targets};
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::head::Losses;
use crate::model::head::masked::{pick, put, within};
use crate::model::linear::FullLinear;
use crate::model::norm::{Norm, Statistics};
use crate::model::param::{CLASSES, POOLER};
use crate::model::slots::Slots;

pub(crate) struct ClassesHead {
    norm: Option<Norm>,
    pooler: Option<FullLinear>,
    /// Dropout of the pooled row: probability and tensor number.
    dropout: (f32, u32),
    classes: FullLinear,
    /// Scores that a label selects from.
    labels: usize,
}

/// Kept from forward: rows are `[b, d]`.
pub(crate) struct Saved {
    /// Rows of the last block that this rank has.
    rows: usize,
    norm: Option<(Tensor, Statistics)>,
    x: Tensor,
    /// The pooler's product, and the pooled rows.
    pooled: Option<(Tensor, Tensor)>,
    /// `[questions, labels]`
    scores: Tensor,
    fit: Fit,
}

/// Derivatives of the losses come from these.
enum Fit {
    /// Largest score of each question, and the sum of the powers: `[questions]`.
    Classes { max: Tensor, sum: Tensor },
    /// Score less the right number: `[questions, 1]`.
    Number(Tensor),
}

impl Fit {
    /// The loss of each question beside it, in the form of `cross_entropy::losses`.
    fn of(scores: &Tensor, targets: &Targets) -> kernels::Result<(Fit, Tensor)> {
        let [questions, labels] = [scores.dims()[0], scores.dims()[1]];
        let Some(numbers) = &targets.numbers else {
            let (max, sum, target) =
                cross_entropy::statistics(scores, &targets.ids, 0, labels, labels)?;
            // one slice is all of them
            let (max, sum) = (max.reshape(&[questions])?, sum.reshape(&[questions])?);
            let losses = cross_entropy::losses(&max, &sum, &target, None, 1)?;
            return Ok((Fit::Classes { max, sum }, losses));
        };
        let flat = |value: f32| {
            let mut tensor = Tensor::empty(&[questions], DType::F32, scores.device())?;
            rows::fill(tensor.view_mut(), value)?;
            kernels::Result::Ok(tensor)
        };
        let mut error = Tensor::empty(&[questions, 1], DType::F32, scores.device())?;
        kernels::copy(error.view_mut(), numbers.view())?;
        rows::scale(error.view_mut(), -1.0)?;
        rows::add(error.view_mut(), scores.view())?;
        let squares = rows::dot_rows(&error, &error)?.reshape(&[questions])?;
        // ln 1 + square - 0
        let losses = cross_entropy::losses(&squares, &flat(1.0)?, &flat(0.0)?, None, 1)?;
        Ok((Fit::Number(error), losses))
    }

    /// The derivative by each score: `[questions, labels]`. `weight`: of each question in the step's loss.
    fn slopes(self, mut scores: Tensor, targets: &Targets, weight: f32) -> kernels::Result<Tensor> {
        match self {
            Fit::Classes { max, sum } => {
                let mut weights = Tensor::empty(max.dims(), DType::F32, max.device())?;
                rows::fill(weights.view_mut(), weight)?;
                let slopes = cross_entropy::Slopes::of_loss(&weights);
                let (ids, labels) = (&targets.ids, scores.dims()[1]);
                cross_entropy::backward(&mut scores, &max, &sum, ids, slopes, 0, labels)?;
                Ok(scores)
            }
            Fit::Number(mut error) => {
                rows::scale(error.view_mut(), 2.0 * weight)?;
                Ok(error)
            }
        }
    }
}

impl Saved {
    /// The scores of each question: `[questions, labels]`.
    pub(crate) fn into_scores(self) -> Tensor {
        self.scores
    }
}

impl ClassesHead {
    pub(crate) fn named(plan: &Plan, slots: &Slots<'_>) -> ClassesHead {
        let (model, architecture) = (&plan.model, plan.model.architecture());
        let classify = model.classify.as_ref();
        let classify = classify.expect("the plan has a classification head");
        let is_pre = !architecture.is_post_norm;
        ClassesHead {
            norm: is_pre.then(|| Norm::named(model.final_norm(), plan, slots)),
            pooler: (architecture.is_masked).then(|| FullLinear::named(POOLER, slots)),
            dropout: (model.dropout, model.first_dropout(model.blocks())),
            classes: FullLinear::named(CLASSES, slots),
            labels: classify.labels(),
        }
    }

    /// x: `[m, d]` -> loss of each question, on the first context-parallel rank alone.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        (targets, picks): (&Targets, &Picks),
        cx: &Context<'_>,
    ) -> kernels::Result<(Losses, Saved)> {
        let picked = pick(x, &picks.rows, cx)?;
        let inner = &within(cx, 1);
        let (rest, norm) = match &self.norm {
            Some(norm) => {
                let (normed, statistics) = norm.forward(&picked, inner)?;
                (normed, Some((picked, statistics)))
            }
            None => (picked, None),
        };
        let pooled = match &self.pooler {
            Some(pooler) => {
                let before = pooler.forward(&rest, inner)?;
                let mut pooled = activation::forward(&before, None, Kind::Tanh)?;
                inner.drop_rows(&mut pooled, self.dropout.0, self.dropout.1)?;
                Some((before, pooled))
            }
            None => None,
        };
        let last = pooled.as_ref().map_or(&rest, |(_, pooled)| pooled);
        let scores = self.classes.forward(last, inner)?;
        let questions = scores.elements() / self.labels;
        let scores = scores.reshape(&[questions, self.labels])?;
        let (fit, losses) = Fit::of(&scores, targets)?;
        let losses = Losses {
            predictions: (cx.groups.cp.rank() == 0).then_some(losses),
            further: Vec::new(),
            orders: None,
            scores: None,
            pairs: Vec::new(),
        };
        let saved = Saved {
            rows: x.dims()[0],
            norm,
            x: rest,
            pooled,
            scores,
            fit,
        };
        Ok((losses, saved))
    }

    /// `weight`: weight of each question in the step's loss -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        (targets, picks): (&Targets, &Picks),
        weight: f32,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            rows: m,
            norm,
            x,
            pooled,
            scores,
            fit,
        } = saved;
        let inner = &within(cx, 1);
        let is_first = if cx.groups.cp.rank() == 0 { 1.0 } else { 0.0 };
        let dscores = fit.slopes(scores, targets, weight * is_first)?;
        let b = x.dims()[0];
        let each = dscores.elements() / b;
        let dscores = dscores.reshape(&[b, each])?;
        let mut dx = match (&self.pooler, pooled) {
            (Some(pooler), Some((before, pooled))) => {
                let mut dpooled = self.classes.backward(&dscores, &pooled, gradients, inner)?;
                inner.drop_rows(&mut dpooled, self.dropout.0, self.dropout.1)?;
                let dbefore = activation::backward(&dpooled, &before, None, Kind::Tanh)?;
                pooler.backward(&dbefore, &x, gradients, inner)?
            }
            _ => self.classes.backward(&dscores, &x, gradients, inner)?,
        };
        if let (Some(norm), Some((picked, statistics))) = (&self.norm, norm) {
            dx = norm.backward(&dx, (&picked, &statistics), None, gradients, inner)?;
        }
        if cx.groups.cp.size() > 1 {
            tensors::all_reduce_sum(cx.groups.cp, dx.view_mut())?;
        }
        put(&dx, &picks.rows, m, cx)
    }
}
