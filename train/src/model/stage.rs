//! One piece of the model as a list of parts that run one after the other: the embedding in the
//! first piece, its blocks, norm and head and loss in the last. With one piece it is the whole model.
//! A part names its weights and gradients, so that others can gather, sum and drop them by part.

use kernels::Tensor;

use crate::data::{Batch, Picks, Targets};
use crate::mesh::Place;
use crate::model::block::{self, Block};
use crate::model::context::{Context, Noise, Slot, Slots};
use crate::model::embedding::{self, Embedding};
use crate::model::gradients::Gradients;
use crate::model::head::masked::{self, MaskedHead};
use crate::model::head::vocabulary::Losses;
use crate::model::head::{self, Head};
use crate::model::moe::router::Report;
use crate::model::param::{self, Spec};
use crate::plan::Plan;

/// Parts of one piece; the weights are elsewhere, in slot order.
pub(crate) struct Stage {
    pub parts: Vec<Part>,
}

/// Layers whose weights are needed at the same time.
pub(crate) struct Part {
    layer: Layer,
    pub weights: Vec<Slot>,
    /// Slots of the gradients of `weights`.
    pub gradients: Vec<Slot>,
}

enum Layer {
    Embedding(Embedding),
    Block(Box<Block>),
    Head(Head),
    Masked(MaskedHead),
}

/// Kept from forward for one micro-batch.
pub(crate) enum Saved {
    Embedding(embedding::Saved),
    Block(block::Saved),
    Head(Box<head::Saved>),
    Masked(Box<masked::Saved>),
}

/// The micro-batch that goes through the model.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub batch: &'a Batch,
    /// Of each prediction that counts, in the step's loss.
    pub weight: f32,
    /// `None`: nothing is dropped.
    pub noise: Option<Noise>,
}

/// What goes into and comes out of a part.
pub(crate) enum Flow {
    /// Into the embedding, which reads the batch.
    Start,
    /// Rows between layers: `[m, d]`.
    Hidden(Tensor),
    /// Out of the head: summed loss of each chunk of tokens.
    Losses(Vec<Losses>),
}

impl Saved {
    /// What the router of a mixture did.
    pub(crate) fn report(&self) -> Option<&Report> {
        match self {
            Saved::Block(saved) => saved.report.as_ref(),
            _ => None,
        }
    }
}

impl Stage {
    /// Chunk `chunk` of the rank's pieces.
    pub(crate) fn of(plan: &Plan, place: &Place, chunk: usize, specs: &[Spec]) -> Stage {
        let slots = Slots::on(place, specs);
        let ranges = plan.parallel.stages(plan.model.layers);
        let piece = chunk * place.pp + place.pp_rank;
        let before: usize = (0..chunk)
            .map(|chunk| ranges[chunk * place.pp + place.pp_rank].len())
            .sum();
        let mut parts = Vec::new();
        if piece == 0 {
            let embedding = Embedding::named(plan, place.tp, place.tp_rank, &slots);
            let weights = slots.starting(&["embedding.", "position.", "segment."]);
            parts.push(Part::new(Layer::Embedding(embedding), weights));
        }
        for (index, layer) in ranges[piece].clone().enumerate() {
            let at = format!("layers.{layer}");
            let recompute = plan.train.recompute_of(place.pp_rank, before + index);
            let block = Block::named(layer, plan, (place.tp, recompute), &slots);
            let weights = slots.starting(&[&format!("{at}.")]);
            parts.push(Part::new(Layer::Block(Box::new(block)), weights));
        }
        if piece + 1 == ranges.len() {
            let name = param::head_name(plan);
            let weights = slots.starting(&["norm.", "head.", name]);
            let own = slots.get(name);
            // an embedding on the same rank keeps its gradient apart from the head's
            let gradient = if plan.model.is_tied() && place.pp == 1 {
                slots.len()
            } else {
                own
            };
            let tp = (place.tp, place.tp_rank);
            let head = if plan.model.architecture().is_masked {
                Layer::Masked(MaskedHead::named(plan, tp, &slots, gradient))
            } else {
                Layer::Head(Head::named(plan, tp, &slots, gradient))
            };
            let mut part = Part::new(head, weights);
            for slot in &mut part.gradients {
                if *slot == own {
                    *slot = gradient;
                }
            }
            parts.push(part);
        }
        Stage { parts }
    }

    pub(crate) fn embedding(&self) -> Option<&Embedding> {
        self.parts.iter().find_map(|part| match &part.layer {
            Layer::Embedding(embedding) => Some(embedding),
            _ => None,
        })
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().filter_map(|part| match &part.layer {
            Layer::Block(block) => Some(block.as_ref()),
            _ => None,
        })
    }

    pub(crate) fn masked_head(&self) -> Option<&MaskedHead> {
        self.parts.iter().find_map(|part| match &part.layer {
            Layer::Masked(head) => Some(head),
            _ => None,
        })
    }

    pub(crate) fn head(&self) -> Option<&Head> {
        self.parts.iter().find_map(|part| match &part.layer {
            Layer::Head(head) => Some(head),
            _ => None,
        })
    }
}

impl Part {
    fn new(layer: Layer, weights: Vec<Slot>) -> Part {
        let gradients = weights.clone();
        Part {
            layer,
            weights,
            gradients,
        }
    }

    pub(crate) fn forward(
        &self,
        input: Flow,
        pass: Pass<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Flow, Saved)> {
        match (&self.layer, input) {
            (Layer::Embedding(embedding), Flow::Start) => {
                let inputs = inputs(pass.batch);
                let (x, saved) = embedding.forward(inputs, cx)?;
                Ok((Flow::Hidden(x), Saved::Embedding(saved)))
            }
            (Layer::Block(block), Flow::Hidden(x)) => {
                let (y, saved) = block.forward(x, cx)?;
                Ok((Flow::Hidden(y), Saved::Block(saved)))
            }
            (Layer::Head(head), Flow::Hidden(x)) => {
                let (losses, saved) = head.forward(x, targets(pass.batch), cx)?;
                Ok((Flow::Losses(losses), Saved::Head(Box::new(saved))))
            }
            (Layer::Masked(head), Flow::Hidden(x)) => {
                let (losses, saved) = head.forward(&x, picked(pass.batch), cx)?;
                Ok((Flow::Losses(losses), Saved::Masked(Box::new(saved))))
            }
            _ => unreachable!("parts lie in the order embedding, blocks, head"),
        }
    }

    /// `dy` from the part after, nothing for the head -> dx for the part before.
    pub(crate) fn backward(
        &self,
        dy: Option<Tensor>,
        pass: Pass<'_>,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Tensor>> {
        match (&self.layer, saved, dy) {
            (Layer::Embedding(embedding), Saved::Embedding(saved), Some(dy)) => {
                embedding.backward(dy, inputs(pass.batch), saved, gradients, cx)?;
                Ok(None)
            }
            (Layer::Block(block), Saved::Block(saved), Some(dy)) => {
                block.backward(dy, saved, gradients, cx).map(Some)
            }
            (Layer::Head(head), Saved::Head(saved), _) => {
                let of = (targets(pass.batch), pass.weight);
                head.backward(of, *saved, gradients, cx).map(Some)
            }
            (Layer::Masked(head), Saved::Masked(saved), _) => {
                let (targets, picks) = picked(pass.batch);
                let of = (targets, picks, pass.weight);
                head.backward(of, *saved, gradients, cx).map(Some)
            }
            _ => unreachable!("each part gets back what its forward pass kept"),
        }
    }
}

fn inputs(batch: &Batch) -> (&Tensor, Option<&Tensor>) {
    let inputs = batch.inputs.as_ref();
    let inputs = inputs.expect("a rank with the first piece reads its inputs");
    (inputs, batch.segments.as_ref())
}

fn picked(batch: &Batch) -> (&Targets, &Picks) {
    let picks = batch.picks.as_ref();
    let picks = picks.expect("a rank with a masked model's last piece reads its places");
    (targets(batch), picks)
}

fn targets(batch: &Batch) -> &Targets {
    let targets = batch.targets.as_ref();
    targets.expect("a rank with the last piece reads its targets")
}
