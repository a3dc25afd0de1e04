//! What comes after the last block: the final norm and the vocabulary for a decoder (here), the
//! transform and the vocabulary at masked places for an encoder (`masked`).

pub(crate) mod masked;
pub(crate) mod vocabulary;

use kernels::Tensor;

use crate::data::Targets;
use crate::model::context::{Context, Slots};
use crate::model::gradients::Gradients;
use crate::model::head::vocabulary::{Losses, Vocabulary, total};
use crate::model::norm::{Norm, Statistics};
use crate::plan::Plan;

/// Predicts the next token of every row.
pub(crate) struct Head {
    norm: Norm,
    vocabulary: Vocabulary,
}

/// Kept from forward: `[m, d]` twice, and what the vocabulary keeps.
pub(crate) struct Saved {
    x: Tensor,
    statistics: Statistics,
    normed: Tensor,
    vocabulary: vocabulary::Saved,
}

impl Head {
    /// `gradient` is the slot of the head's own gradient.
    pub(crate) fn named(
        plan: &Plan,
        (tp, tp_rank): (usize, usize),
        slots: &Slots<'_>,
        gradient: usize,
    ) -> Head {
        Head {
            norm: Norm::named("norm", plan.model.norm_eps, slots),
            vocabulary: Vocabulary::named(plan, (tp, tp_rank), slots, gradient),
        }
    }

    /// x: `[n, d]` -> this rank's logits `[n, v]`
    pub(crate) fn logits(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let (normed, _) = self.norm.forward(x, cx)?;
        self.vocabulary.logits(&normed, cx)
    }

    /// x: `[m, d]` -> summed losses of each chunk of `loss_chunk` tokens.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        targets: &Targets,
        cx: &Context<'_>,
    ) -> kernels::Result<(Vec<Losses>, Saved)> {
        let (normed, statistics) = self.norm.forward(&x, cx)?;
        let (tokens, vocabulary) = self.vocabulary.forward(&normed, targets, cx)?;
        let losses = tokens.chunks(cx.loss_chunk()).map(total).collect();
        Ok((
            losses,
            Saved {
                x,
                statistics,
                normed,
                vocabulary,
            },
        ))
    }

    /// `weight`: of each token that counts in the step's loss -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        of: (&Targets, f32),
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            statistics,
            normed,
            vocabulary,
        } = saved;
        let dnormed = self
            .vocabulary
            .backward(of, vocabulary, &normed, gradients, cx)?;
        drop(normed);
        self.norm.backward(&dnormed, &x, &statistics, gradients, cx)
    }
}
