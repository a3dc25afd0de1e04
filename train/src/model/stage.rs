//! One pipeline stage of the model: embedding on the first, an even share of blocks on each, norm,
//! head and loss on the last. With one stage it is the whole model.

use kernels::Tensor;

use crate::mesh::Place;
use crate::model::block::{self, Block};
use crate::model::context::{Context, Slots};
use crate::model::embedding::Embedding;
use crate::model::gradients::Gradients;
use crate::model::head::{self, Head};
use crate::model::param::Spec;
use crate::plan::Plan;

/// Layers of one rank; the weights are elsewhere, in slot order.
pub(crate) struct Stage {
    pub embedding: Option<Embedding>,
    pub blocks: Vec<Block>,
    pub head: Option<Head>,
    /// Dims of each gradient buffer: one per weight, then the tied head's own if it is here.
    pub gradient_dims: Vec<Vec<usize>>,
    /// (slot of the embedding, slot of the tied head's gradient)
    pub tied: Option<(usize, usize)>,
}

/// Kept from forward for one micro-batch.
pub(crate) struct Saved {
    tokens: Option<Tensor>,
    blocks: Vec<block::Saved>,
    head: Option<head::Saved>,
}

/// What a stage hands on.
pub(crate) enum Output {
    /// To the next stage: `[n, d]`.
    Hidden(Tensor),
    /// Of the last stage: summed loss of each sequence.
    Losses(Vec<f64>),
}

impl Stage {
    pub(crate) fn of(plan: &Plan, place: &Place, specs: &[Spec]) -> Stage {
        let slots = Slots::on(place, specs);
        let per_stage = plan.model.layers / place.pp;
        let layers = place.pp_rank * per_stage..(place.pp_rank + 1) * per_stage;
        let mut gradient_dims: Vec<Vec<usize>> = specs
            .iter()
            .filter(|spec| spec.is_on(place.pp_rank))
            .map(|spec| spec.local_dims(place.tp))
            .collect();
        let mut tied = None;
        let head = place.is_last_stage().then(|| {
            let mut gradient = slots.get(crate::model::param::head_name(plan));
            if plan.model.is_tied() {
                tied = Some((gradient, gradient_dims.len()));
                gradient_dims.push(gradient_dims[gradient].clone());
                gradient = gradient_dims.len() - 1;
            }
            Head::named(plan, (place.tp, place.tp_rank), &slots, gradient)
        });
        Stage {
            embedding: place
                .is_first_stage()
                .then(|| Embedding::named(plan, place.tp, place.tp_rank, &slots)),
            blocks: layers
                .map(|layer| Block::named(&format!("layers.{layer}"), plan, place.tp, &slots))
                .collect(),
            head,
            gradient_dims,
            tied,
        }
    }

    /// `tokens` on the first stage, `hidden` on the others, `targets` on the last.
    pub(crate) fn forward(
        &self,
        input: Input,
        targets: Option<Tensor>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Output, Saved)> {
        let (mut x, tokens) = self.enter(input, cx)?;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            let (y, saved) = block.forward(x, cx)?;
            blocks.push(saved);
            x = y;
        }
        match (&self.head, targets) {
            (Some(head), Some(targets)) => {
                let (losses, saved) = head.forward(x, targets, cx)?;
                Ok((
                    Output::Losses(losses),
                    Saved {
                        tokens,
                        blocks,
                        head: Some(saved),
                    },
                ))
            }
            _ => Ok((
                Output::Hidden(x),
                Saved {
                    tokens,
                    blocks,
                    head: None,
                },
            )),
        }
    }

    /// As `forward`, keeping nothing for backward.
    pub(crate) fn evaluate(
        &self,
        input: Input,
        targets: Option<Tensor>,
        cx: &Context<'_>,
    ) -> kernels::Result<Output> {
        let (mut x, _) = self.enter(input, cx)?;
        for block in &self.blocks {
            (x, _) = block.forward(x, cx)?;
        }
        match (&self.head, targets) {
            (Some(head), Some(targets)) => Ok(Output::Losses(head.forward(x, targets, cx)?.0)),
            _ => Ok(Output::Hidden(x)),
        }
    }

    /// `dy` from the next stage, nothing on the last -> dx for the previous stage.
    pub(crate) fn backward(
        &self,
        dy: Option<Tensor>,
        weight: f32,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let mut dx = match (&self.head, saved.head, dy) {
            (Some(head), Some(saved), _) => head.backward(weight, saved, gradients, cx)?,
            (_, _, Some(dy)) => dy,
            _ => unreachable!("a stage without head gets its gradient from the next stage"),
        };
        for (block, saved) in self.blocks.iter().zip(saved.blocks).rev() {
            dx = block.backward(dx, saved, gradients, cx)?;
        }
        if let (Some(embedding), Some(tokens)) = (&self.embedding, &saved.tokens) {
            embedding.backward(&dx, tokens, gradients, cx)?;
        }
        Ok(dx)
    }

    fn enter(&self, input: Input, cx: &Context<'_>) -> kernels::Result<(Tensor, Option<Tensor>)> {
        match (&self.embedding, input) {
            (Some(embedding), Input::Tokens(tokens)) => {
                Ok((embedding.forward(&tokens, cx.time, 0, cx)?, Some(tokens)))
            }
            (_, Input::Hidden(x)) => Ok((x, None)),
            _ => unreachable!("only the first stage is given tokens"),
        }
    }
}

/// What a stage works on.
pub(crate) enum Input {
    /// First stage: ids `[n]`.
    Tokens(Tensor),
    /// Other stages: `[n, d]`.
    Hidden(Tensor),
}
