//! Next-sentence prediction: whether the second segment really follows the first (Devlin et al. 2019, sec. 3.1,
//! task 2), from the first token's row: two scores = tanh(x W^T + b) U^T + c; cross entropy, the mean over the
//! sequences of the step's batch.

use kernels::activation::{self, Kind};
use kernels::{DType, Tensor, cross_entropy, rows};

use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::linear::FullLinear;
use crate::model::slots::Slots;

/// Follows, or is another.
const CLASSES: usize = 2;

pub(crate) struct NextSentence {
    pooler: FullLinear,
    scores: FullLinear,
}

/// Kept from forward: `[b, d]` three times, `[b, 2]`, `[b]` twice.
pub(crate) struct Saved {
    x: Tensor,
    before: Tensor,
    pooled: Tensor,
    scores: Tensor,
    max: Tensor,
    sum: Tensor,
}

impl NextSentence {
    pub(crate) fn named(slots: &Slots<'_>) -> NextSentence {
        NextSentence {
            pooler: FullLinear::named("head.pooler", slots),
            scores: FullLinear::named("head.order", slots),
        }
    }

    /// x: `[b, d]`, classes: `[b]` -> loss of each sequence, as `cross_entropy::losses`. `cx` is for sequences of one row.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        classes: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        let before = self.pooler.forward(&x, cx)?;
        let pooled = activation::forward(&before, None, Kind::Tanh)?;
        let scores = self.scores.forward(&pooled, cx)?;
        let (max, sum, target) = cross_entropy::statistics(&scores, classes, 0, CLASSES, CLASSES)?;
        // one slice is all of them
        let b = max.elements();
        let (max, sum) = (max.reshape(&[b])?, sum.reshape(&[b])?);
        let losses = cross_entropy::losses(&max, &sum, &target, None, 1)?;
        let saved = Saved {
            x,
            before,
            pooled,
            scores,
            max,
            sum,
        };
        Ok((losses, saved))
    }

    /// `weight`: weight of each sequence in the step's loss -> dx: `[b, d]`
    pub(crate) fn backward(
        &self,
        (classes, weight): (&Tensor, f32),
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            before,
            pooled,
            mut scores,
            max,
            sum,
        } = saved;
        let mut weights = Tensor::empty(max.dims(), DType::F32, max.device())?;
        rows::fill(weights.view_mut(), weight)?;
        let slopes = cross_entropy::Slopes::of_loss(&weights);
        cross_entropy::backward(&mut scores, &max, &sum, classes, slopes, 0, CLASSES)?;
        let dpooled = self.scores.backward(&scores, &pooled, gradients, cx)?;
        let dbefore = activation::backward(&dpooled, &before, None, Kind::Tanh)?;
        self.pooler.backward(&dbefore, &x, gradients, cx)
    }
}
