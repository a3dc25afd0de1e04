//! A model chunk (virtual pipeline stage) as a list of layers that run one after the other: the embedding in the
//! first chunk, then blocks, and norm, depths of multi-token prediction, head and loss in the last. With one chunk it is the whole model. Layers name
//! their weights and gradients, so that these can be gathered, reduced and dropped by layer.

use std::sync::Arc;

use kernels::{DType, Tensor};

use crate::config::Recompute;
use crate::config::mtp::depth_name;
use crate::config::plan::Plan;
use crate::data::{Batch, Picks, Targets};
use crate::dist::mesh::RankCoord;
use crate::model::block::{self, Block};
use crate::model::context::{Context, Noise};
use crate::model::decoder_block::{self, DecoderBlock};
use crate::model::depth::{self, Depth};
use crate::model::embedding::{self, Embedding};
use crate::model::encoder_norm::{self, EncoderNorm};
use crate::model::gradients::Gradients;
use crate::model::head::classes::{self, ClassesHead};
use crate::model::head::further::{self, FurtherHead, Predicted};
use crate::model::head::masked::{self, MaskedHead};
use crate::model::head::{self, Head};
use crate::model::moe::report::Report;
use crate::model::norm::{Norm, Statistics};
use crate::model::packed_rows;
use crate::model::param::{self, Spec};
use crate::model::slots::{Slot, Slots};

/// Layers of one model chunk; the weights are stored separately, in slot order.
pub(crate) struct Stage {
    pub layers: Vec<Layer>,
}

/// Layers whose weights are needed at the same time.
pub(crate) struct Layer {
    /// Common prefix of its weights' names: `embedding`, `layers.3`, `head`.
    name: String,
    kind: LayerKind,
    pub weights: Vec<Slot>,
    /// Slots of the gradients of `weights`.
    pub gradients: Vec<Slot>,
    /// True if its activations are offloaded to a file.
    pub is_offloaded: bool,
}

enum LayerKind {
    Embedding(Embedding),
    Block(Box<Block>),
    /// A block of an encoder before a decoder.
    Encoder(Box<Block>),
    EncoderNorm(EncoderNorm),
    Decoder(Box<DecoderBlock>),
    /// The last norm, where depths of multi-token prediction read its rows beside the head.
    LastNorm(Norm),
    Depth(Box<Depth>),
    Head(Head),
    Further(Box<FurtherHead>),
    Masked(MaskedHead),
    Classes(ClassesHead),
}

/// Kept from forward for one micro-batch.
pub(crate) enum Saved {
    Embedding(embedding::Saved),
    Block(block::Saved),
    EncoderNorm(encoder_norm::Saved),
    Decoder(decoder_block::Saved),
    /// Into the last norm: `[m, d]`.
    LastNorm(Tensor, Statistics),
    /// `None`: the pass left the depth out.
    Depth(Option<depth::Saved>),
    Head(Box<head::Saved>),
    Further(further::Saved),
    Masked(Box<masked::Saved>),
    Classes(Box<classes::Saved>),
}

/// The micro-batch that goes through the model.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub batch: &'a Batch,
    /// Weight in the step's loss of each prediction that counts.
    pub weight: f32,
    /// The same of a prediction of a depth of multi-token prediction; `None`: the pass leaves the depths out.
    pub further_weight: Option<f32>,
    /// `None`: nothing is dropped.
    pub noise: Option<Noise>,
}

/// Input or output of a layer.
pub(crate) enum Flow {
    /// Into the embedding, which reads the batch.
    Start,
    /// Rows between layers: `[m, d]`.
    Hidden(Tensor),
    /// Rows of an encoder and of a decoder, within a chunk.
    Pair(Arc<Tensor>, Tensor),
    /// Rows after the last norm, and those of the depths of multi-token prediction so far: `[m, d]` each.
    Depths(Vec<Arc<Tensor>>),
    /// Out of the head.
    Losses(Box<head::Losses>),
}

/// Gradient of a layer's output; after its backward pass, of its input.
pub(crate) enum FlowGrad {
    /// For the head, where backward starts, and below the embedding.
    None,
    /// `[m, d]`
    Hidden(Tensor),
    /// Gradients of an encoder's rows and of a decoder's, within a chunk.
    Pair(Tensor, Tensor),
    /// Gradients of rows after the last norm and of those of depths, within a chunk.
    Depths(Vec<Tensor>),
}

impl Flow {
    /// The rows of the encoder and those of the decoder.
    fn pair(self, cx: &Context<'_>) -> kernels::Result<(Arc<Tensor>, Tensor)> {
        match self {
            Flow::Pair(encoder, decoder) => Ok((encoder, decoder)),
            Flow::Hidden(x) => {
                let [encoder, decoder] = packed_rows::split(&x, cx)?;
                Ok((Arc::new(encoder), decoder))
            }
            Flow::Start | Flow::Depths(_) | Flow::Losses(_) => unreachable!("layers are in order"),
        }
    }

    /// Rows in the form that is sent between chunks.
    pub(crate) fn joined(self, cx: &Context<'_>) -> kernels::Result<Flow> {
        match self {
            Flow::Pair(encoder, decoder) => {
                packed_rows::join([&encoder, &decoder], cx).map(Flow::Hidden)
            }
            other => Ok(other),
        }
    }
}

impl FlowGrad {
    fn pair(self, cx: &Context<'_>) -> kernels::Result<(Tensor, Tensor)> {
        match self {
            FlowGrad::Pair(encoder, decoder) => Ok((encoder, decoder)),
            FlowGrad::Hidden(dy) => {
                let [encoder, decoder] = packed_rows::split(&dy, cx)?;
                Ok((encoder, decoder))
            }
            FlowGrad::None | FlowGrad::Depths(_) => {
                unreachable!("only the head starts a gradient, and depths are after decoders")
            }
        }
    }

    /// `[m, d]`, if there is one.
    pub(crate) fn joined(self, cx: &Context<'_>) -> kernels::Result<Option<Tensor>> {
        match self {
            FlowGrad::None => Ok(None),
            FlowGrad::Hidden(dy) => Ok(Some(dy)),
            FlowGrad::Depths(_) => unreachable!("a chunk with depths has their norm"),
            FlowGrad::Pair(encoder, decoder) => {
                packed_rows::join([&encoder, &decoder], cx).map(Some)
            }
        }
    }
}

impl Saved {
    /// The router's report, for a mixture.
    pub(crate) fn report(&self) -> Option<&Arc<Report>> {
        match self {
            Saved::Block(saved) => saved.report.as_ref(),
            Saved::Depth(Some(saved)) => saved.report.as_ref(),
            _ => None,
        }
    }

    /// The scores of each question, if it is a classification head's.
    pub(crate) fn into_scores(self) -> Option<Tensor> {
        match self {
            Saved::Classes(saved) => Some(saved.into_scores()),
            _ => None,
        }
    }

    /// The large tensors that a block keeps.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        match self {
            Saved::Block(saved) => saved.large(),
            Saved::Decoder(saved) => saved.large(),
            _ => Vec::new(),
        }
    }
}

impl Stage {
    /// Chunk `chunk` of the rank's model chunks.
    pub(crate) fn of(plan: &Plan, place: &RankCoord, chunk: usize, specs: &[Spec]) -> Stage {
        let slots = Slots::on(place, specs);
        let model_chunks = plan.model_chunks();
        let model_chunk = chunk * place.pp + place.pp_rank;
        let before: usize = (0..chunk)
            .map(|chunk| model_chunks[chunk * place.pp + place.pp_rank].len())
            .sum();
        let mut layers = Vec::new();
        if model_chunk == 0 {
            let embedding = Embedding::named(plan, place.tp, place.tp_rank, &slots);
            let weights = slots.starting(&["embedding.", "position.", "segment.", "prompt."]);
            layers.push(Layer::new(
                "embedding",
                LayerKind::Embedding(embedding),
                weights,
            ));
        }
        for (index, block) in model_chunks[model_chunk].clone().enumerate() {
            let recompute = plan.train.recompute_of(place.pp_rank, before + index);
            let mut layer = Layer::of_block(block, plan, (place.tp, recompute), &slots);
            layer.is_offloaded = before + index < plan.train.offload.layers;
            layers.push(layer);
            if plan.model.is_last_of_encoder(block) {
                let weights = slots.starting(&["encoder.norm."]);
                let norm = EncoderNorm::named(plan, &slots);
                layers.push(Layer::new(
                    "encoder.norm",
                    LayerKind::EncoderNorm(norm),
                    weights,
                ));
            }
        }
        if model_chunk + 1 == model_chunks.len() {
            let first = before + model_chunks[model_chunk].len();
            layers.extend(Layer::of_depths(plan, (place, first), &slots));
            layers.push(Layer::of_head(plan, place, &slots));
        }
        Stage { layers }
    }

    pub(crate) fn embedding(&self) -> Option<&Embedding> {
        self.layers.iter().find_map(|layer| match &layer.kind {
            LayerKind::Embedding(embedding) => Some(embedding),
            _ => None,
        })
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.layers.iter().filter_map(|layer| match &layer.kind {
            LayerKind::Block(block) | LayerKind::Encoder(block) => Some(block.as_ref()),
            _ => None,
        })
    }

    pub(crate) fn encoder_norm(&self) -> Option<&EncoderNorm> {
        self.layers.iter().find_map(|layer| match &layer.kind {
            LayerKind::EncoderNorm(norm) => Some(norm),
            _ => None,
        })
    }

    pub(crate) fn decoder_blocks(&self) -> impl Iterator<Item = &DecoderBlock> {
        self.layers.iter().filter_map(|layer| match &layer.kind {
            LayerKind::Decoder(block) => Some(block.as_ref()),
            _ => None,
        })
    }

    pub(crate) fn masked_head(&self) -> Option<&MaskedHead> {
        self.layers.iter().find_map(|layer| match &layer.kind {
            LayerKind::Masked(head) => Some(head),
            _ => None,
        })
    }

    pub(crate) fn head(&self) -> Option<&Head> {
        self.layers.iter().find_map(|layer| match &layer.kind {
            LayerKind::Head(head) => Some(head),
            LayerKind::Further(further) => Some(&further.head),
            _ => None,
        })
    }
}

impl Layer {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn new(name: &str, kind: LayerKind, weights: Vec<Slot>) -> Layer {
        let gradients = weights.clone();
        Layer {
            name: name.to_owned(),
            kind,
            weights,
            gradients,
            is_offloaded: false,
        }
    }

    fn of_block(
        block: usize,
        plan: &Plan,
        options: (usize, Recompute),
        slots: &Slots<'_>,
    ) -> Layer {
        let name = plan.model.block_name(block);
        let mut weights = slots.starting(&[&format!("{name}.")]);
        let mut own = weights.clone();
        let kind = if plan.model.is_decoder_block(block) {
            let block = DecoderBlock::named(block, plan, options, slots);
            if let Some([table, gradient]) = block.attention.bias() {
                weights.push(table);
                own.push(gradient);
            }
            LayerKind::Decoder(Box::new(block))
        } else {
            let block = Box::new(Block::named(block, plan, options, slots));
            if let Some([table, gradient]) = block.attention.bias() {
                weights.push(table);
                own.push(gradient);
            }
            if plan.model.architecture().is_encoder_decoder {
                LayerKind::Encoder(block)
            } else {
                LayerKind::Block(block)
            }
        };
        Layer {
            name,
            kind,
            weights,
            gradients: own,
            is_offloaded: false,
        }
    }

    /// The last norm and the depths of multi-token prediction, if there are any. `first`: blocks of the rank before them.
    fn of_depths(
        plan: &Plan,
        (place, first): (&RankCoord, usize),
        slots: &Slots<'_>,
    ) -> Vec<Layer> {
        let depths = plan.model.mtp_num_layers;
        if depths == 0 {
            return Vec::new();
        }
        let name = plan.model.final_norm();
        let norm = LayerKind::LastNorm(Norm::named(name, plan, slots));
        let norm = Layer::new(name, norm, slots.starting(&[&format!("{name}.")]));
        let depth = |number: usize| {
            let recompute = plan.train.recompute_of(place.pp_rank, first + number);
            let name = depth_name(number);
            let depth = Depth::named(number, plan, (place, recompute), slots);
            let [table, gradient] = depth.table();
            let mut layer = Layer::new(
                &name,
                LayerKind::Depth(Box::new(depth)),
                slots.starting(&[&format!("{name}.")]),
            );
            layer.weights.push(table);
            layer.gradients.push(gradient);
            layer
        };
        [norm].into_iter().chain((0..depths).map(depth)).collect()
    }

    fn of_head(plan: &Plan, place: &RankCoord, slots: &Slots<'_>) -> Layer {
        let norm = format!("{}.", plan.model.final_norm());
        if plan.model.classify.is_some() {
            let head = LayerKind::Classes(ClassesHead::named(plan, slots));
            return Layer::new("head", head, slots.starting(&[&norm, "head."]));
        }
        let name = param::head_name(plan);
        let has_depths = plan.model.mtp_num_layers > 0;
        let weights = match has_depths {
            true => slots.starting(&["head.", name]),
            false => slots.starting(&[&norm, "head.", name]),
        };
        let own = slots.get(name);
        // an embedding on the same rank keeps its gradient apart from the head's
        let gradient = slots.gradient(name, usize::from(plan.model.is_tied()));
        let head = if plan.model.architecture().is_masked {
            LayerKind::Masked(MaskedHead::named(plan, place, slots, gradient))
        } else if has_depths {
            let head = FurtherHead::named(plan, place, slots, gradient);
            LayerKind::Further(Box::new(head))
        } else {
            LayerKind::Head(Head::named(plan, place, slots, gradient))
        };
        let mut layer = Layer::new("head", head, weights);
        for slot in &mut layer.gradients {
            if *slot == own {
                *slot = gradient;
            }
        }
        if has_depths {
            layer.gradients.extend(further::gradients(plan, slots));
        }
        layer
    }

    pub(crate) fn forward(
        &self,
        input: Flow,
        pass: Pass<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Flow, Saved)> {
        match (&self.kind, input) {
            (LayerKind::Embedding(embedding), Flow::Start) => {
                let inputs = inputs(pass.batch);
                let (x, saved) = embedding.forward(inputs, cx)?;
                Ok((Flow::Hidden(x), Saved::Embedding(saved)))
            }
            (LayerKind::Block(block), Flow::Hidden(x)) => {
                let (y, saved) = block.forward(x, cx)?;
                Ok((Flow::Hidden(y), Saved::Block(saved)))
            }
            (LayerKind::Encoder(block), flow) => {
                let (x, other) = flow.pair(cx)?;
                let x = alone(x)?;
                let (y, saved) = block.forward(x, &cx.encoder())?;
                Ok((Flow::Pair(Arc::new(y), other), Saved::Block(saved)))
            }
            (LayerKind::EncoderNorm(norm), flow) => {
                let (x, other) = flow.pair(cx)?;
                let (y, saved) = norm.forward(alone(x)?, &cx.encoder())?;
                Ok((Flow::Pair(Arc::new(y), other), Saved::EncoderNorm(saved)))
            }
            (LayerKind::Decoder(block), flow) => {
                let (encoded, x) = flow.pair(cx)?;
                let (y, saved) = block.forward(x, &encoded, cx)?;
                Ok((Flow::Pair(encoded, y), Saved::Decoder(saved)))
            }
            (LayerKind::Head(head), flow) => {
                let x = match flow {
                    Flow::Hidden(x) if cx.pair.is_none() => x,
                    flow => flow.pair(cx)?.1,
                };
                let of = (targets(pass.batch), &pass.batch.pairs[..]);
                let (losses, saved) = head.forward(x, of, &cx.last())?;
                Ok((Flow::Losses(Box::new(losses)), Saved::Head(Box::new(saved))))
            }
            (LayerKind::LastNorm(norm), Flow::Hidden(x)) => {
                let (y, statistics) = norm.forward(&x, cx)?;
                let saved = Saved::LastNorm(x, statistics);
                Ok((Flow::Depths(vec![Arc::new(y)]), saved))
            }
            (LayerKind::Depth(depth), Flow::Depths(mut rows)) => {
                if pass.further_weight.is_none() {
                    return Ok((Flow::Depths(rows), Saved::Depth(None)));
                }
                let before = Arc::clone(&rows[depth.number()]);
                let tokens = &pass.batch.ahead[depth.number()].inputs;
                let (y, saved) = depth.forward(before, tokens, cx)?;
                rows.push(Arc::new(y));
                Ok((Flow::Depths(rows), Saved::Depth(Some(saved))))
            }
            (LayerKind::Further(head), Flow::Depths(rows)) => {
                let (losses, saved) = head.forward(rows, predicted(pass), cx)?;
                Ok((Flow::Losses(Box::new(losses)), Saved::Further(saved)))
            }
            (LayerKind::Masked(head), Flow::Hidden(x)) => {
                let (losses, saved) = head.forward(&x, picked(pass.batch), cx)?;
                Ok((
                    Flow::Losses(Box::new(losses)),
                    Saved::Masked(Box::new(saved)),
                ))
            }
            (LayerKind::Classes(head), Flow::Hidden(x)) => {
                let (losses, saved) = head.forward(&x, picked(pass.batch), cx)?;
                Ok((
                    Flow::Losses(Box::new(losses)),
                    Saved::Classes(Box::new(saved)),
                ))
            }
            _ => unreachable!("layers are in the order embedding, blocks, head"),
        }
    }

    /// dy from the next layer (None for the head) -> dx for the previous one.
    pub(crate) fn backward(
        &self,
        dy: FlowGrad,
        pass: Pass<'_>,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<FlowGrad> {
        match (&self.kind, saved, dy) {
            (LayerKind::Embedding(embedding), Saved::Embedding(saved), dy) => {
                // none where only layers above learn
                if let Some(dy) = dy.joined(cx)? {
                    embedding.backward(dy, inputs(pass.batch), saved, gradients, cx)?;
                }
                Ok(FlowGrad::None)
            }
            (LayerKind::Block(block), Saved::Block(saved), FlowGrad::Hidden(dy)) => {
                let dx = block.backward(dy, saved, gradients, cx)?;
                Ok(dx.map_or(FlowGrad::None, FlowGrad::Hidden))
            }
            (LayerKind::Encoder(block), Saved::Block(saved), dy) => {
                let (dy, other) = dy.pair(cx)?;
                let dx = block.backward(dy, saved, gradients, &cx.encoder())?;
                let dx = dx.expect("an encoder's rows are given back with the decoder's");
                Ok(FlowGrad::Pair(dx, other))
            }
            (LayerKind::EncoderNorm(norm), Saved::EncoderNorm(saved), dy) => {
                let (dy, other) = dy.pair(cx)?;
                let dx = norm.backward(dy, &saved, gradients, &cx.encoder())?;
                Ok(FlowGrad::Pair(dx, other))
            }
            (LayerKind::Decoder(block), Saved::Decoder(saved), dy) => {
                let (mut dencoded, dy) = dy.pair(cx)?;
                let dx = block.backward(dy, &mut dencoded, saved, gradients, cx)?;
                Ok(FlowGrad::Pair(dencoded, dx))
            }
            (LayerKind::Head(head), Saved::Head(saved), _) => {
                let of = (targets(pass.batch), pass.weight);
                let dx = head.backward(of, *saved, gradients, &cx.last())?;
                if cx.pair.is_none() {
                    return Ok(FlowGrad::Hidden(dx));
                }
                // decoder blocks add to it
                let b = dx.dims()[0] / cx.decoder().row_time();
                let rows = b * cx.encoder().row_time();
                let none = Tensor::zeros(&[rows, dx.dims()[1]], DType::F32, dx.device())?;
                Ok(FlowGrad::Pair(none, dx))
            }
            (LayerKind::Further(head), Saved::Further(saved), _) => {
                let slopes = head.backward(predicted(pass), saved, gradients, cx)?;
                Ok(FlowGrad::Depths(slopes))
            }
            (LayerKind::Depth(depth), Saved::Depth(Some(saved)), FlowGrad::Depths(mut slopes)) => {
                let dy = slopes.pop().expect("the head gives one for each depth");
                let before = &mut slopes[depth.number()];
                let tokens = &pass.batch.ahead[depth.number()].inputs;
                depth.backward((dy, before), (tokens, saved), gradients, cx)?;
                Ok(FlowGrad::Depths(slopes))
            }
            (LayerKind::LastNorm(norm), Saved::LastNorm(x, of_x), FlowGrad::Depths(mut slopes)) => {
                let dy = slopes
                    .pop()
                    .expect("the head gives one for the model's rows");
                let dx = norm.backward(&dy, (&x, &of_x), None, gradients, cx)?;
                Ok(FlowGrad::Hidden(dx))
            }
            (LayerKind::Masked(head), Saved::Masked(saved), _) => {
                let (targets, picks) = picked(pass.batch);
                head.backward((targets, picks), pass.weight, *saved, gradients, cx)
                    .map(FlowGrad::Hidden)
            }
            (LayerKind::Classes(head), Saved::Classes(saved), _) => head
                .backward(picked(pass.batch), pass.weight, *saved, gradients, cx)
                .map(FlowGrad::Hidden),
            _ => unreachable!("each layer gets back what its forward pass kept"),
        }
    }
}

/// The tensor itself if it has no other owner, as an encoder's rows before its norm; else a copy.
fn alone(x: Arc<Tensor>) -> kernels::Result<Tensor> {
    match Arc::try_unwrap(x) {
        Ok(x) => Ok(x),
        Err(shared) => shared.try_clone(),
    }
}

fn inputs(batch: &Batch) -> (&Tensor, Option<&Tensor>) {
    let inputs = batch.inputs.as_ref();
    let inputs = inputs.expect("a rank with the first model chunk reads its inputs");
    (inputs, batch.segments.as_ref())
}

fn picked(batch: &Batch) -> (&Targets, &Picks) {
    let picks = batch.picks.as_ref();
    let picks = picks.expect("a rank with the last model chunk of such a model reads its places");
    (targets(batch), picks)
}

fn predicted(pass: Pass<'_>) -> Predicted<'_> {
    Predicted {
        targets: targets(pass.batch),
        ahead: &pass.batch.ahead,
        weight: pass.weight,
        further_weight: pass.further_weight.unwrap_or(0.0),
    }
}

fn targets(batch: &Batch) -> &Targets {
    let targets = batch.targets.as_ref();
    targets.expect("a rank with the last model chunk reads its targets")
}
