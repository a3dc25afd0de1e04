//! One piece of the model as a list of parts that run one after the other: the embedding in the
//! first piece, its blocks, norm and head and loss in the last. With one piece it is the whole model.
//! A part names its weights and gradients, so that others can gather, sum and drop them by part.

use std::sync::Arc;

use kernels::{DType, Tensor};

use crate::config::Recompute;
use crate::config::plan::Plan;
use crate::data::{Batch, Picks, Targets};
use crate::dist::mesh::Place;
use crate::model::block::{self, Block};
use crate::model::context::{Context, Noise};
use crate::model::decoder_block::{self, DecoderBlock};
use crate::model::embedding::{self, Embedding};
use crate::model::encoder_norm::{self, EncoderNorm};
use crate::model::gradients::Gradients;
use crate::model::head::masked::{self, MaskedHead};
use crate::model::head::{self, Head};
use crate::model::moe::router::Report;
use crate::model::packed_rows;
use crate::model::param::{self, Spec};
use crate::model::slots::{Slot, Slots};

/// Parts of one piece; the weights are elsewhere, in slot order.
pub(crate) struct Stage {
    pub parts: Vec<Part>,
}

/// Layers whose weights are needed at the same time.
pub(crate) struct Part {
    /// As its weights begin: `embedding`, `layers.3`, `head`.
    name: String,
    layer: Layer,
    pub weights: Vec<Slot>,
    /// Slots of the gradients of `weights`.
    pub gradients: Vec<Slot>,
    /// True if what it keeps waits in a file.
    pub is_offloaded: bool,
}

enum Layer {
    Embedding(Embedding),
    Block(Box<Block>),
    /// A block of an encoder before a decoder.
    Encoder(Box<Block>),
    EncoderNorm(EncoderNorm),
    Decoder(Box<DecoderBlock>),
    Head(Head),
    Masked(MaskedHead),
}

/// Kept from forward for one micro-batch.
pub(crate) enum Saved {
    Embedding(embedding::Saved),
    Block(block::Saved),
    EncoderNorm(encoder_norm::Saved),
    Decoder(decoder_block::Saved),
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
    /// Those of an encoder and of a decoder, within a piece.
    Halves(Arc<Tensor>, Tensor),
    /// Out of the head.
    Losses(head::Losses),
}

/// Gradient of what went into a part.
pub(crate) enum Slope {
    /// Of what goes into the head, which starts it, or into the embedding.
    None,
    /// `[m, d]`
    Hidden(Tensor),
    /// Of an encoder's rows and of a decoder's, within a piece.
    Halves(Tensor, Tensor),
}

impl Flow {
    /// Both halves of the rows of an encoder-decoder.
    fn halves(self, cx: &Context<'_>) -> kernels::Result<(Arc<Tensor>, Tensor)> {
        match self {
            Flow::Halves(encoder, decoder) => Ok((encoder, decoder)),
            Flow::Hidden(x) => {
                let [encoder, decoder] = packed_rows::split(&x, cx)?;
                Ok((Arc::new(encoder), decoder))
            }
            Flow::Start | Flow::Losses(_) => unreachable!("parts lie in order"),
        }
    }

    /// Rows as pieces hand them on.
    pub(crate) fn joined(self, cx: &Context<'_>) -> kernels::Result<Flow> {
        match self {
            Flow::Halves(encoder, decoder) => {
                packed_rows::join([&encoder, &decoder], cx).map(Flow::Hidden)
            }
            other => Ok(other),
        }
    }
}

impl Slope {
    fn halves(self, cx: &Context<'_>) -> kernels::Result<(Tensor, Tensor)> {
        match self {
            Slope::Halves(encoder, decoder) => Ok((encoder, decoder)),
            Slope::Hidden(dy) => {
                let [encoder, decoder] = packed_rows::split(&dy, cx)?;
                Ok((encoder, decoder))
            }
            Slope::None => unreachable!("only the head starts a gradient"),
        }
    }

    /// `[m, d]`, if there is one.
    pub(crate) fn joined(self, cx: &Context<'_>) -> kernels::Result<Option<Tensor>> {
        match self {
            Slope::None => Ok(None),
            Slope::Hidden(dy) => Ok(Some(dy)),
            Slope::Halves(encoder, decoder) => {
                packed_rows::join([&encoder, &decoder], cx).map(Some)
            }
        }
    }
}

impl Saved {
    /// What the router of a mixture did.
    pub(crate) fn report(&self) -> Option<&Report> {
        match self {
            Saved::Block(saved) => saved.report.as_ref(),
            _ => None,
        }
    }

    /// What takes memory of what a block keeps.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        match self {
            Saved::Block(saved) => saved.large(),
            Saved::Decoder(saved) => saved.large(),
            _ => Vec::new(),
        }
    }
}

impl Stage {
    /// Chunk `chunk` of the rank's pieces.
    pub(crate) fn of(plan: &Plan, place: &Place, chunk: usize, specs: &[Spec]) -> Stage {
        let slots = Slots::on(place, specs);
        let pieces = plan.pieces();
        let piece = chunk * place.pp + place.pp_rank;
        let before: usize = (0..chunk)
            .map(|chunk| pieces[chunk * place.pp + place.pp_rank].len())
            .sum();
        let mut parts = Vec::new();
        if piece == 0 {
            let embedding = Embedding::named(plan, place.tp, place.tp_rank, &slots);
            let weights = slots.starting(&["embedding.", "position.", "segment."]);
            parts.push(Part::new("embedding", Layer::Embedding(embedding), weights));
        }
        for (index, block) in pieces[piece].clone().enumerate() {
            let recompute = plan.train.recompute_of(place.pp_rank, before + index);
            let mut part = Part::of_block(block, plan, (place.tp, recompute), &slots);
            part.is_offloaded = before + index < plan.train.offload.layers;
            parts.push(part);
            if plan.model.is_last_of_encoder(block) {
                let weights = slots.starting(&["encoder.norm."]);
                let norm = EncoderNorm::named(plan, &slots);
                parts.push(Part::new("encoder.norm", Layer::EncoderNorm(norm), weights));
            }
        }
        if piece + 1 == pieces.len() {
            parts.push(Part::of_head(plan, place, &slots));
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
            Layer::Block(block) | Layer::Encoder(block) => Some(block.as_ref()),
            _ => None,
        })
    }

    pub(crate) fn encoder_norm(&self) -> Option<&EncoderNorm> {
        self.parts.iter().find_map(|part| match &part.layer {
            Layer::EncoderNorm(norm) => Some(norm),
            _ => None,
        })
    }

    pub(crate) fn decoder_blocks(&self) -> impl Iterator<Item = &DecoderBlock> {
        self.parts.iter().filter_map(|part| match &part.layer {
            Layer::Decoder(block) => Some(block.as_ref()),
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
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn new(name: &str, layer: Layer, weights: Vec<Slot>) -> Part {
        let gradients = weights.clone();
        Part {
            name: name.to_owned(),
            layer,
            weights,
            gradients,
            is_offloaded: false,
        }
    }

    fn of_block(block: usize, plan: &Plan, options: (usize, Recompute), slots: &Slots<'_>) -> Part {
        let name = plan.model.block_name(block);
        let mut weights = slots.starting(&[&format!("{name}.")]);
        let mut own = weights.clone();
        let layer = if plan.model.is_decoder_block(block) {
            let block = DecoderBlock::named(block, plan, options, slots);
            if let Some([table, gradient]) = block.attention.bias() {
                weights.push(table);
                own.push(gradient);
            }
            Layer::Decoder(Box::new(block))
        } else {
            let block = Box::new(Block::named(block, plan, options, slots));
            if let Some([table, gradient]) = block.attention.bias() {
                weights.push(table);
                own.push(gradient);
            }
            if plan.model.architecture().is_encoder_decoder {
                Layer::Encoder(block)
            } else {
                Layer::Block(block)
            }
        };
        Part {
            name,
            layer,
            weights,
            gradients: own,
            is_offloaded: false,
        }
    }

    fn of_head(plan: &Plan, place: &Place, slots: &Slots<'_>) -> Part {
        let name = param::head_name(plan);
        let norm = format!("{}.", plan.model.final_norm());
        let weights = slots.starting(&[&norm, "head.", name]);
        let own = slots.get(name);
        // an embedding on the same rank keeps its gradient apart from the head's
        let gradient = slots.gradient(name, usize::from(plan.model.is_tied()));
        let tp = (place.tp, place.tp_rank);
        let head = if plan.model.architecture().is_masked {
            Layer::Masked(MaskedHead::named(plan, tp, slots, gradient))
        } else {
            Layer::Head(Head::named(plan, tp, slots, gradient))
        };
        let mut part = Part::new("head", head, weights);
        for slot in &mut part.gradients {
            if *slot == own {
                *slot = gradient;
            }
        }
        part
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
            (Layer::Encoder(block), flow) => {
                let (x, other) = flow.halves(cx)?;
                let x = alone(x)?;
                let (y, saved) = block.forward(x, &cx.encoder())?;
                Ok((Flow::Halves(Arc::new(y), other), Saved::Block(saved)))
            }
            (Layer::EncoderNorm(norm), flow) => {
                let (x, other) = flow.halves(cx)?;
                let (y, saved) = norm.forward(alone(x)?, &cx.encoder())?;
                Ok((Flow::Halves(Arc::new(y), other), Saved::EncoderNorm(saved)))
            }
            (Layer::Decoder(block), flow) => {
                let (encoded, x) = flow.halves(cx)?;
                let (y, saved) = block.forward(x, &encoded, cx)?;
                Ok((Flow::Halves(encoded, y), Saved::Decoder(saved)))
            }
            (Layer::Head(head), flow) => {
                let x = match flow {
                    Flow::Hidden(x) if cx.halves.is_none() => x,
                    flow => flow.halves(cx)?.1,
                };
                let (losses, saved) = head.forward(x, targets(pass.batch), &cx.last())?;
                Ok((Flow::Losses(losses), Saved::Head(Box::new(saved))))
            }
            (Layer::Masked(head), Flow::Hidden(x)) => {
                let (losses, saved) = head.forward(&x, picked(pass.batch), cx)?;
                Ok((Flow::Losses(losses), Saved::Masked(Box::new(saved))))
            }
            _ => unreachable!("parts lie in the order embedding, blocks, head"),
        }
    }

    /// The slope from the part after, none for the head -> that for the part before.
    pub(crate) fn backward(
        &self,
        dy: Slope,
        pass: Pass<'_>,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Slope> {
        match (&self.layer, saved, dy) {
            (Layer::Embedding(embedding), Saved::Embedding(saved), dy) => {
                let dy = dy.joined(cx)?.expect("parts lie in order");
                embedding.backward(dy, inputs(pass.batch), saved, gradients, cx)?;
                Ok(Slope::None)
            }
            (Layer::Block(block), Saved::Block(saved), Slope::Hidden(dy)) => {
                block.backward(dy, saved, gradients, cx).map(Slope::Hidden)
            }
            (Layer::Encoder(block), Saved::Block(saved), dy) => {
                let (dy, other) = dy.halves(cx)?;
                let dx = block.backward(dy, saved, gradients, &cx.encoder())?;
                Ok(Slope::Halves(dx, other))
            }
            (Layer::EncoderNorm(norm), Saved::EncoderNorm(saved), dy) => {
                let (dy, other) = dy.halves(cx)?;
                let dx = norm.backward(dy, &saved, gradients, &cx.encoder())?;
                Ok(Slope::Halves(dx, other))
            }
            (Layer::Decoder(block), Saved::Decoder(saved), dy) => {
                let (mut dencoded, dy) = dy.halves(cx)?;
                let dx = block.backward(dy, &mut dencoded, saved, gradients, cx)?;
                Ok(Slope::Halves(dencoded, dx))
            }
            (Layer::Head(head), Saved::Head(saved), _) => {
                let of = (targets(pass.batch), pass.weight);
                let dx = head.backward(of, *saved, gradients, &cx.last())?;
                if cx.halves.is_none() {
                    return Ok(Slope::Hidden(dx));
                }
                // decoder blocks add to it
                let b = dx.dims()[0] / cx.decoder().row_time();
                let rows = b * cx.encoder().row_time();
                let none = Tensor::zeros(&[rows, dx.dims()[1]], DType::F32, dx.device())?;
                Ok(Slope::Halves(none, dx))
            }
            (Layer::Masked(head), Saved::Masked(saved), _) => {
                let (targets, picks) = picked(pass.batch);
                let of = (targets, picks, pass.weight);
                head.backward(of, *saved, gradients, cx).map(Slope::Hidden)
            }
            _ => unreachable!("each part gets back what its forward pass kept"),
        }
    }
}

/// A tensor that nobody else holds, as an encoder's rows before its norm; else a copy.
fn alone(x: Arc<Tensor>) -> kernels::Result<Tensor> {
    match Arc::try_unwrap(x) {
        Ok(x) => Ok(x),
        Err(shared) => shared.try_clone(),
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
