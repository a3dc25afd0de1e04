//! Key-value cache of a decoder: keys and values of the tokens so far, one pair of tensors per block, `[1, k, room,
//! e]`.

use kernels::rows::{self, Runs};
use kernels::{DType, Tensor, add, attention};

use crate::checkpoint::whole_model::Model;
use crate::data::documents::Documents;
use crate::error::{OnRank, Result};
use crate::model::block::Block;

/// A sequence in progress.
pub(crate) struct Decoder<'a> {
    model: &'a Model,
    /// Tokens that the caches hold at most.
    room: usize,
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
    position: usize,
    /// First token of the document in progress.
    start: usize,
}

impl<'a> Decoder<'a> {
    /// For at most `room` tokens.
    pub(crate) fn new(model: &'a Model, room: usize) -> kernels::Result<Decoder<'a>> {
        let shape = model.plan.shape();
        let dims = [1, shape.kv_heads, room, shape.d_head];
        let caches = || {
            let blocks = model.stage.blocks();
            blocks
                .map(|_| Tensor::zeros(&dims, DType::F32, &model.device))
                .collect()
        };
        let (keys, values): (kernels::Result<_>, kernels::Result<_>) = (caches(), caches());
        Ok(Decoder {
            model,
            room,
            keys: keys?,
            values: values?,
            position: 0,
            start: 0,
        })
    }

    /// Tokens in the caches.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Starts over with `tokens`; returns the logits after the last.
    pub(crate) fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        (self.position, self.start) = (0, 0);
        let ids = self.model.tokens(tokens)?;
        let documents = self.model.documents(tokens);
        let logits = self.forward(&ids, documents.as_ref());
        let logits = logits.on_rank(0, "run the prompt")?;
        self.advance(tokens);
        Ok(logits)
    }

    /// Adds one token; returns the logits after it.
    pub(crate) fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        let ids = self.model.tokens(&[token])?;
        let documents = self.document_in_progress();
        let logits = self.forward(&ids, documents.as_ref());
        let logits = logits.on_rank(0, "run one token")?;
        self.advance(&[token]);
        Ok(logits)
    }

    fn advance(&mut self, tokens: &[u32]) {
        let ends = tokens
            .iter()
            .rposition(|&token| Some(token) == self.model.plan.eod);
        if let Some(end) = ends {
            self.start = self.position + end + 1;
        }
        self.position += tokens.len();
    }

    /// Document bounds and position of the next token.
    fn document_in_progress(&self) -> Option<Documents> {
        let number = |n: usize| u32::try_from(n).expect("positions are below seq_length");
        let asked = Documents::asked_for(&self.model.plan)?;
        let bounds = [number(self.start), number(self.position + 1)];
        Some(Documents {
            bounds: asked.bounds.map(|_| vec![bounds]),
            positions: asked
                .positions
                .map(|_| vec![number(self.position - self.start)]),
        })
    }

    /// First key that the next token attends to.
    fn first_key(&self, window: usize, documents: Option<&Documents>) -> usize {
        let bounds = documents.and_then(|documents| documents.bounds.as_ref());
        let start = bounds.map_or(0, |_| self.start);
        let outside = (self.position + 1).saturating_sub(window);
        if window > 0 {
            start.max(outside)
        } else {
            start
        }
    }

    fn forward(
        &mut self,
        ids: &Tensor,
        documents: Option<&Documents>,
    ) -> kernels::Result<Vec<f32>> {
        let (model, time) = (self.model, ids.elements());
        let cx = model.context(self.position..self.position + time, documents);
        let embedding = model
            .stage
            .embedding()
            .expect("the only stage is the first");
        let head = model.stage.head().expect("the only stage is the last");
        let (mut x, _) = embedding.forward((ids, None), &cx)?;
        for (i, block) in model.stage.blocks().enumerate() {
            let cx = cx.in_block(block.number);
            let (normed, _) = block.norm1.forward(&x, &cx)?;
            let (qkv, _) = block.attention.project(&normed, &cx)?;
            let mixed = if self.position == 0 {
                self.fill(i, &qkv, block)?;
                attention::forward(&qkv, &block.attention.call(&qkv, None, &cx))?.0
            } else {
                let first = self.first_key(block.attention.window, documents);
                let next = block.attention.next(self.position, first, &cx);
                let (keys, values) = (&mut self.keys[i], &mut self.values[i]);
                attention::decode(&qkv, keys, values, &next)?
            };
            let mut middle = block.attention.join(&mixed, &cx)?;
            add::add_into(&mut middle, &x)?;
            x = block.feed_forward(&middle, &cx)?;
        }
        let d_model = model.plan.model.d_model;
        let mut last = Tensor::empty(&[1, d_model], DType::F32, &model.device)?;
        let row = x.flat((time - 1) * d_model..time * d_model)?;
        kernels::copy(last.view_mut(), row)?;
        let logits = head.logits(&last, &cx)?;
        logits.flat(0..model.plan.vocab)?.download()
    }

    /// Copies the keys and values of packed rows into the caches: each group of a row is its
    /// queries, one key, one value.
    fn fill(&mut self, i: usize, qkv: &Tensor, block: &Block) -> kernels::Result<()> {
        let heads = &block.attention.heads;
        let (e, room) = (heads.width, self.room);
        let queries = heads.heads / heads.kv_heads;
        let group = (queries + 2) * e;
        let row = group * heads.kv_heads;
        let runs = Runs {
            count: qkv.elements() / row,
            run: e,
            from_stride: row,
            to_stride: e,
        };
        for head in 0..heads.kv_heads {
            let at = head * room * e;
            let from = head * group + queries * e;
            for (cache, from) in [(&mut self.keys[i], from), (&mut self.values[i], from + e)] {
                let to = cache.flat_mut(at..at + room * e)?;
                rows::copy_runs(to, qkv.flat(from..qkv.elements())?, runs)?;
            }
        }
        Ok(())
    }
}
