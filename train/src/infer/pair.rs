//! Generation with an encoder-decoder model: the encoder reads the prompt once, which gives every block its keys
//! and values for cross attention; then the decoder runs one row per token, with its own key-value cache of `[1, k,
//! room, e]` per block.

use std::sync::Arc;

use kernels::{DType, Tensor, add, attention};

use crate::checkpoint::whole_model::Model;
use crate::data::documents::PairRows;
use crate::error::{Error, OnRank, Result};
use crate::model::context::{Context, Pair};

/// An encoder's rows after its norm, `[tokens, d]`.
fn encode(model: &Model, tokens: &[u32]) -> Result<Tensor> {
    let limit = model.plan.seq_length;
    if tokens.is_empty() || tokens.len() > limit {
        return Err(Error::Request {
            what: "text for the encoder",
            found: format!("{} tokens", tokens.len()),
            wanted: format!("1 to {limit}"),
        });
    }
    let (ids, stage) = (model.tokens(tokens)?, &model.stage);
    let cx = model.context_of_pair(tokens.len(), 1).encoder();
    let run = || {
        let embedding = stage.embedding().expect("the only stage is the first");
        let (mut x, _) = embedding.forward((&ids, None), &cx)?;
        for block in stage.blocks() {
            (x, _) = block.forward(x, &cx)?;
        }
        let norm = stage
            .encoder_norm()
            .expect("the only stage has both stacks");
        Ok(norm.forward(x, &cx)?.0)
    };
    let encoded: kernels::Result<Tensor> = run();
    encoded.on_rank(model.rank(), "run the encoder")
}

/// Logits of every row of a decoder whose input is `decoder_tokens`: `[tokens, padded vocabulary]`.
pub(crate) fn logits(model: &Model, tokens: &[u32], decoder_tokens: &[u32]) -> Result<Tensor> {
    let (encoded, ids) = (
        Arc::new(encode(model, tokens)?),
        model.tokens(decoder_tokens)?,
    );
    let cx = model.context_of_pair(tokens.len(), decoder_tokens.len());
    let run = || {
        let stage = &model.stage;
        let embedding = stage.embedding().expect("the only stage is the first");
        let (mut x, _) = embedding.forward((&ids, None), &cx.decoder())?;
        for block in stage.decoder_blocks() {
            (x, _) = block.forward(x, &encoded, &cx)?;
        }
        let head = stage.head().expect("the only stage is the last");
        head.logits(&x, &cx.decoder())
    };
    run().on_rank(model.rank(), "run the decoder")
}

/// A prompt that the encoder has read.
pub(crate) struct Encoded {
    prompt: Vec<u32>,
    /// Keys and values of the encoder's rows, one tensor a block of the decoder.
    keys: Vec<Tensor>,
}

impl Encoded {
    pub(crate) fn new(model: &Model, prompt: &[u32]) -> Result<Encoded> {
        let rows = encode(model, prompt)?;
        let cx = model.context_of_pair(prompt.len(), 1).encoder();
        let blocks = model.stage.decoder_blocks();
        let keys = blocks.map(|block| block.cross.keys(&rows, &cx.in_block(block.number)));
        let keys: kernels::Result<Vec<Tensor>> = keys.collect();
        Ok(Encoded {
            prompt: prompt.to_vec(),
            keys: keys.on_rank(model.rank(), "allocate keys of the prompt")?,
        })
    }

    pub(crate) fn is_of(&self, prompt: &[u32]) -> bool {
        self.prompt == prompt
    }
}

/// An answer in progress.
pub(crate) struct Writer {
    encoded: Arc<Encoded>,
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
    position: usize,
}

impl Writer {
    /// For an answer of at most `room` tokens.
    pub(crate) fn new(model: &Model, encoded: Arc<Encoded>, room: usize) -> Result<Writer> {
        let shape = model.plan.shape();
        let kv_heads = shape.kv_heads / model.groups.place.tp;
        let dims = [1, kv_heads, room.max(1), shape.d_head];
        let caches = || {
            let blocks = model.stage.decoder_blocks();
            let caches = blocks.map(|_| Tensor::zeros(&dims, DType::F32, &model.device));
            let caches: kernels::Result<Vec<Tensor>> = caches.collect();
            caches.on_rank(model.rank(), "allocate caches")
        };
        Ok(Writer {
            encoded,
            keys: caches()?,
            values: caches()?,
            position: 0,
        })
    }

    /// Reads those tokens of an answer that it has not read yet, at least one; returns the logits after the last.
    pub(crate) fn read(&mut self, model: &Model, answer: &[u32]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for &token in &answer[self.position..] {
            logits = self.step(model, token)?;
        }
        Ok(logits)
    }

    /// Adds one token; returns the logits after it.
    fn step(&mut self, model: &Model, token: u32) -> Result<Vec<f32>> {
        let ids = model.tokens(&[token])?;
        let logits = self
            .forward(model, &ids)
            .on_rank(model.rank(), "run one token")?;
        self.position += 1;
        Ok(logits)
    }

    fn forward(&mut self, model: &Model, ids: &Tensor) -> kernels::Result<Vec<f32>> {
        let stage = &model.stage;
        let mut cx = model.context_of_pair(1, 1).decoder();
        cx.sequence.first = self.position;
        let embedding = stage.embedding().expect("the only stage is the first");
        let (mut x, _) = embedding.forward((ids, None), &cx)?;
        for (i, block) in stage.decoder_blocks().enumerate() {
            let cx = cx.in_block(block.number);
            let (normed, _) = block.norms[0].forward(&x, &cx)?;
            let qkv = block.attention.project(&normed, &cx)?;
            let next = block.attention.next(self.position, 0, &cx);
            let (keys, values) = (&mut self.keys[i], &mut self.values[i]);
            let mixed = attention::decode(&qkv, keys, values, &next)?;
            let own = block.attention.join(mixed, &cx)?;
            add::add_into(&mut x, &own)?;
            let (normed, _) = block.norms[1].forward(&x, &cx)?;
            let seen = block.cross.look(&normed, &self.encoded.keys[i], &cx)?;
            add::add_into(&mut x, &seen)?;
            let (normed, _) = block.norms[2].forward(&x, &cx)?;
            let (more, _) = block.feed_forward.forward(normed, &cx)?;
            add::add_into(&mut x, &more)?;
        }
        let head = stage.head().expect("the only stage is the last");
        let logits = head.logits(&x, &cx)?;
        logits.flat(0..model.plan.vocab)?.download()
    }
}

impl Model {
    /// For sequences of `encoder` and of `decoder` tokens without padding.
    fn context_of_pair(&self, encoder: usize, decoder: usize) -> Context<'_> {
        let cx = self.context(0..encoder + decoder, None);
        let rows = PairRows {
            encoder,
            decoder,
            seen: &[],
        };
        Context {
            pair: cx.pair.map(|pair| Pair { rows, ..pair }),
            ..cx
        }
    }
}
