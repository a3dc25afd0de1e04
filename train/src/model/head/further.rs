//! The head of a model with multi-token prediction (`model/depth.rs`): its vocabulary reads the rows of the model and those of each
//! depth, which have gone through their norms. Each use of the matrix has a gradient of its own. The z-loss is of the model's own
//! logits alone.

use std::sync::Arc;

use kernels::{Tensor, rows};

use crate::config::plan::Plan;
use crate::data::{Ahead, Targets};
use crate::dist::mesh::RankCoord;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::head::vocabulary::{self, Vocabulary};
use crate::model::head::{Head, Losses};
use crate::model::slots::{Slot, Slots};

pub(crate) struct FurtherHead {
    /// The model's own, with the last norm, for inference.
    pub head: Head,
    /// Of each depth.
    depths: Vec<Vocabulary>,
}

/// Kept from forward: the rows of the model and of the depths, `[m, d]` each, and the vocabulary's tensors of each.
pub(crate) struct Saved(Vec<(Arc<Tensor>, vocabulary::Saved)>);

/// The predictions of the model and of its depths.
#[derive(Clone, Copy)]
pub(crate) struct Predicted<'a> {
    pub targets: &'a Targets,
    pub ahead: &'a [Ahead],
    /// Weight in the step's loss of each prediction of the model that counts.
    pub weight: f32,
    /// The same of a depth's.
    pub further_weight: f32,
}

impl FurtherHead {
    /// `gradient` is the slot of the matrix's gradient by the model's own use.
    pub(crate) fn named(
        plan: &Plan,
        place: &RankCoord,
        slots: &Slots<'_>,
        gradient: Slot,
    ) -> FurtherHead {
        let own = gradients(plan, slots).into_iter().map(|gradient| {
            let vocabulary = Vocabulary::named(plan, place, slots, gradient);
            vocabulary.without_z_loss()
        });
        FurtherHead {
            head: Head::named(plan, place, slots, gradient),
            depths: own.collect(),
        }
    }

    fn vocabularies(&self) -> impl Iterator<Item = &Vocabulary> {
        [&self.head.vocabulary].into_iter().chain(&self.depths)
    }

    /// x: `[m, d]` each, of the model and its depths -> summed losses of each chunk of `loss_chunk` tokens
    pub(crate) fn forward(
        &self,
        x: Vec<Arc<Tensor>>,
        of: Predicted<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Losses, Saved)> {
        let (mut losses, mut saved) = (Vec::new(), Vec::new());
        let all = self.vocabularies().zip(of.targets());
        for ((vocabulary, targets), x) in all.zip(x) {
            let (sums, kept) = vocabulary.forward(&x, (targets, cx.loss_chunk()), cx)?;
            losses.push(sums);
            saved.push((x, kept));
        }
        let further = losses.split_off(1.min(losses.len()));
        let losses = Losses {
            predictions: losses.pop(),
            further,
            orders: None,
            scores: None,
            pairs: Vec::new(),
        };
        Ok((losses, Saved(saved)))
    }

    /// -> dx: `[m, d]` of the model and of each depth
    pub(crate) fn backward(
        &self,
        of: Predicted<'_>,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Vec<Tensor>> {
        let weights = [of.weight]
            .into_iter()
            .chain(self.depths.iter().map(|_| of.further_weight));
        let all = self.vocabularies().zip(of.targets()).zip(weights);
        let mut slopes = Vec::new();
        for (((vocabulary, targets), weight), (x, kept)) in all.zip(saved.0) {
            let mut weights = targets.counts.try_clone()?;
            rows::scale(weights.view_mut(), weight)?;
            let of = (&targets.ids, weights);
            slopes.push(vocabulary.backward(of, kept, &x, gradients, cx)?);
        }
        Ok(slopes)
    }
}

impl<'a> Predicted<'a> {
    fn targets(self) -> impl Iterator<Item = &'a Targets> {
        let ahead = self.ahead.iter().map(|ahead| &ahead.targets);
        [self.targets].into_iter().chain(ahead)
    }
}

/// Slots of the gradients of the head's matrix by each depth.
pub(crate) fn gradients(plan: &Plan, slots: &Slots<'_>) -> Vec<Slot> {
    let depths = 0..plan.model.mtp_num_layers;
    let slot = |depth| {
        let [_, head] = plan.model.uses_of_depth(depth);
        slots.gradient(head.name, head.number)
    };
    depths.map(slot).collect()
}
