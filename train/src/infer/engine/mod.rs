//! Inference engine: continues many prompts at once (continuous batching, Yu et al. 2022, OSDI, "Orca"), with keys and
//! values in pages (PagedAttention, Kwon et al. 2023, arXiv:2309.06180), prompts in chunks beside answers in progress
//! (chunked prefill, Agrawal et al. 2023, arXiv:2308.16369), and shared beginnings computed once (prefix caching).
//!
//! A step runs one batch: a row for each answer in progress (more with guesses, `draft`), then rows of prompts up to
//! `Limits::max_batch_tokens`. When blocks run out, the request that came last lets its blocks go and is computed again
//! later (preemption). A row's bits depend on no other row, so a request's tokens and log-probabilities are the same
//! whatever runs beside it, however its prompt is cut, and whether its beginning was cached or guessed.

mod blocks;
mod draft;
mod forward;
mod request;
mod sequence;
#[cfg(test)]
mod tests;

pub use request::{Counts, Event, Finish, Request};

use std::collections::VecDeque;
use std::path::Path;

use kernels::{DType, Tensor};

use crate::checkpoint::whole_model::Model;
use crate::dist::devices::Devices;
use crate::error::{Error, OnRank, Result};
use crate::infer::engine::blocks::{BLOCK, Blocks};
use crate::infer::engine::forward::{Batch, Outcome, Slice};
use crate::infer::engine::sequence::Sequence;
use crate::infer::pair::Writer;

/// Bounds of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that run at once; others wait.
    pub max_sequences: usize,
    /// Tokens of a batch.
    pub max_batch_tokens: usize,
    /// Tokens whose keys and values the cache holds, rounded up to blocks of 16; 0: as many as 1 GiB holds, but no more
    /// than `max_sequences` of full length, and at least one of full length if 8 GiB hold it.
    pub cache_tokens: usize,
    /// Guesses per token: of a draft model if there is one, else tokens that followed the same last tokens earlier in
    /// the text (prompt lookup); 0: none.
    pub draft_tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_sequences: 64,
            max_batch_tokens: 512,
            cache_tokens: 0,
            draft_tokens: 0,
        }
    }
}

/// A model that answers many requests at once. All calls come from one thread.
pub struct Engine {
    model: Model,
    limits: Limits,
    /// Keys and values, `[blocks * 16, kv_width]` for each layer.
    cache: Vec<Tensor>,
    blocks: Blocks,
    waiting: VecDeque<Sequence>,
    /// In the order of their arrival.
    running: Vec<Sequence>,
    events: Vec<Event>,
    next_id: u64,
    counts: Counts,
    draft: Option<Box<Engine>>,
}

impl Engine {
    /// Opens a checkpoint, a folder of checkpoints (the newest that is whole), or a Hugging Face folder, on the first of
    /// these devices.
    ///
    /// # Errors
    /// A damaged checkpoint or folder; a model that does not continue texts; `Device`; memory.
    pub fn open(path: &Path, devices: &Devices, limits: Limits) -> Result<Engine> {
        Engine::of(Model::open(path, devices)?, limits)
    }

    pub(crate) fn of(model: Model, limits: Limits) -> Result<Engine> {
        let architecture = model.plan.model.architecture();
        if architecture.is_masked {
            return Err(Error::Request {
                what: "model to generate with",
                found: format!("{:?}", model.plan.model.family),
                wanted: "a decoder: a masked model does not continue a text".into(),
            });
        }
        let one = "at least 1";
        for (what, found) in [
            ("max_sequences", limits.max_sequences),
            ("max_batch_tokens", limits.max_batch_tokens),
        ] {
            if found == 0 {
                let (found, wanted) = (found.to_string(), one.to_owned());
                return Err(Error::Request {
                    what,
                    found,
                    wanted,
                });
            }
        }
        let shape = model.plan.shape();
        let width = 2 * shape.kv_heads * shape.d_head;
        let layers = match architecture.is_encoder_decoder {
            // an answer of an encoder-decoder has a cache of its own
            true => 0,
            false => model.stage.blocks().count(),
        };
        let blocks = match layers {
            0 => 0,
            layers => limits.blocks(model.plan.seq_length, 4 * width * layers),
        };
        let cache = (0..layers).map(|_| {
            let dims = [blocks * BLOCK, width];
            Tensor::zeros(&dims, DType::F32, &model.device)
        });
        let cache: kernels::Result<Vec<Tensor>> = cache.collect();
        Ok(Engine {
            cache: cache.on_rank(0, "allocate the key-value cache")?,
            blocks: Blocks::new(blocks),
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: Vec::new(),
            next_id: 0,
            counts: Counts::default(),
            draft: None,
            limits,
            model,
        })
    }

    /// Guesses tokens with a smaller model (speculative decoding, Leviathan et al. 2023, arXiv:2211.17192). The answers
    /// stay the same, as a guess counts only if it is the token that is chosen without it.
    ///
    /// # Errors
    /// Vocabularies that differ in size.
    pub fn with_draft(mut self, draft: Engine) -> Result<Engine> {
        let (found, wanted) = (draft.vocab(), self.vocab());
        if found != wanted {
            return Err(Error::Request {
                what: "vocabulary of the draft model",
                found: found.to_string(),
                wanted: format!("{wanted}, as the model's"),
            });
        }
        self.draft = Some(Box::new(draft));
        Ok(self)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens that the model sees at once.
    pub fn max_length(&self) -> usize {
        self.model.plan.seq_length
    }

    /// Entries of the model's vocabulary.
    pub fn vocab(&self) -> usize {
        self.model.plan.vocab
    }

    /// Whether the prompt is an encoder's: it has room of its own, apart from the answer's.
    pub fn is_encoder_decoder(&self) -> bool {
        self.cache.is_empty()
    }

    /// The model's end-of-document token, if its plan has one.
    pub fn end_of_document(&self) -> Option<u32> {
        self.model.plan.eod
    }

    /// Parameters of the model.
    pub fn parameters(&self) -> u64 {
        self.model.plan.parameters()
    }

    /// Bytes of weights that a batch reads: the packed copies once a batch has run, else all parameters in f32.
    pub fn weight_bytes(&self) -> usize {
        let packed = self.model.packs.as_ref().map_or(0, |packs| packs.bytes());
        match packed {
            0 => 4 * usize::try_from(self.parameters()).unwrap_or(usize::MAX / 4),
            packed => packed,
        }
    }

    /// Takes a request; its events come from `step`.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, options out of range, a text longer than the model's sequences or
    /// than the cache.
    pub fn submit(&mut self, request: Request) -> Result<u64> {
        request.options.check()?;
        self.check(&request)?;
        let id = self.next_id;
        self.next_id += 1;
        let sequence = Sequence::new(id, request, self.max_length());
        self.waiting.push_back(sequence);
        Ok(id)
    }

    fn check(&self, request: &Request) -> Result<()> {
        let Request {
            prompt,
            options,
            slides,
        } = request;
        let refuse = |what, found: String, wanted: String| {
            Err(Error::Request {
                what,
                found,
                wanted,
            })
        };
        if prompt.is_empty() {
            return refuse("prompt", "0 tokens".into(), "at least 1".into());
        }
        let known = |id: u32| (id as usize) < self.vocab();
        let biased = options.logit_bias.iter().map(|(id, _)| id);
        let ids = prompt.iter().chain(options.stop.iter().flatten());
        let ids = ids
            .chain(options.never_after.iter().flatten())
            .chain(biased);
        if let Some(id) = ids.copied().find(|&id| !known(id)) {
            let wanted = format!("below the vocabulary of {}", self.vocab());
            return refuse("token", id.to_string(), wanted);
        }
        let limit = self.max_length();
        if self.is_encoder_decoder() {
            if options.prompt_logprobs.is_some() {
                let found = "an encoder's text".into();
                return refuse("prompt to score", found, "a decoder's".into());
            }
            if prompt.len() > limit {
                let found = format!("{} tokens", prompt.len());
                return refuse(
                    "text for the encoder",
                    found,
                    format!("1 to {limit} tokens"),
                );
            }
            return Ok(());
        }
        let whole = prompt.len().saturating_add(options.max_tokens);
        let found = || format!("{} tokens and {} to add", prompt.len(), options.max_tokens);
        if whole > limit && (!slides || options.prompt_logprobs.is_some()) {
            return refuse("prompt", found(), format!("at most {limit} together"));
        }
        let room = self.blocks.total() * BLOCK;
        if whole.min(limit) > room {
            let wanted = format!("at most {room} together, the tokens of the cache");
            return refuse("prompt", found(), wanted);
        }
        Ok(())
    }

    /// Ends a request without further events; false if there is none of this number.
    pub fn cancel(&mut self, id: u64) -> bool {
        let is_it = |sequence: &Sequence| sequence.id == id;
        if let Some(at) = self.waiting.iter().position(is_it) {
            self.waiting.remove(at);
        } else if let Some(at) = self.running.iter().position(is_it) {
            let mut sequence = self.running.remove(at);
            sequence.release(&mut self.blocks);
        } else {
            return false;
        }
        true
    }

    /// Ends all requests, as after a failed step; returns their numbers.
    pub fn cancel_all(&mut self) -> Vec<u64> {
        let all = self.waiting.drain(..).chain(self.running.drain(..));
        let mut ids = Vec::new();
        for mut sequence in all {
            sequence.release(&mut self.blocks);
            ids.push(sequence.id);
        }
        self.events.clear();
        ids
    }

    /// Forgets cached beginnings that no request uses.
    pub fn clear_prefix_cache(&mut self) {
        self.blocks.forget();
    }

    /// Whether no request runs or waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// State and totals.
    pub fn counts(&self) -> Counts {
        Counts {
            running: self.running.len(),
            waiting: self.waiting.len(),
            blocks: self.blocks.total(),
            blocks_held: self.blocks.held(),
            ..self.counts
        }
    }

    /// Runs one batch; returns what happened, in order. Without requests it does nothing.
    ///
    /// # Errors
    /// A failed operation. The requests stay; `cancel_all` ends them.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        self.propose()?;
        let slices = self.schedule()?;
        if !slices.is_empty() {
            let outcomes = self.run(&slices)?;
            self.counts.steps += 1;
            self.counts.batch_rows = slices.iter().map(|slice| slice.rows).sum();
            self.accept(&slices, outcomes);
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Rows of this step's batch by running sequence; all of them have their blocks.
    fn schedule(&mut self) -> Result<Vec<Slice>> {
        let (mut budget, mut slices) = (self.limits.max_batch_tokens, Vec::new());
        let (mut number, mut preempted) = (0, false);
        while number < self.running.len() && budget > 0 {
            let sequence = &mut self.running[number];
            if sequence.missing() > 1 || budget <= sequence.drafts.len() {
                sequence.drafts.clear();
            }
            let rows = sequence.missing().min(budget);
            let drafts = sequence.drafts.len();
            if !sequence.reserve(rows + drafts, &mut self.blocks) {
                if drafts > 0 {
                    sequence.drafts.clear();
                    continue;
                }
                preempted = true;
                self.preempt_last();
                continue;
            }
            budget -= rows + drafts;
            slices.push(self.running[number].slice(number, rows));
            number += 1;
        }
        while !preempted && budget > 0 && self.running.len() < self.limits.max_sequences {
            let Some(mut sequence) = self.waiting.pop_front() else {
                break;
            };
            if !self.is_encoder_decoder() {
                sequence.share(&mut self.blocks);
            }
            let rows = match self.is_encoder_decoder() {
                true => 1,
                false => sequence.missing().min(budget),
            };
            if !self.is_encoder_decoder() && !sequence.reserve(rows, &mut self.blocks) {
                sequence.release(&mut self.blocks);
                self.waiting.push_front(sequence);
                break;
            }
            if self.is_encoder_decoder() && sequence.writer.is_none() {
                let (prompt, room) = (&sequence.tokens, sequence.options.max_tokens);
                sequence.writer = Some(Writer::new(&self.model, prompt, room)?);
            }
            if !sequence.is_past_prompt {
                self.counts.prompt_tokens += sequence.prompt as u64;
                self.counts.cached_tokens += sequence.cached as u64;
            }
            if !std::mem::replace(&mut sequence.is_started, true) {
                self.events.push(Event::Started { id: sequence.id });
            }
            budget -= rows;
            slices.push(match &sequence.writer {
                Some(_) => Slice::of_pair(self.running.len()),
                None => sequence.slice(self.running.len(), rows),
            });
            self.running.push(sequence);
        }
        Ok(slices)
    }

    /// The request that came last lets its blocks go and waits in front of the others.
    fn preempt_last(&mut self) {
        if let Some(mut last) = self.running.pop() {
            last.release(&mut self.blocks);
            self.waiting.push_front(last);
            self.counts.preemptions += 1;
        }
    }

    /// Outcomes of the rows that each slice wants.
    fn run(&mut self, slices: &[Slice]) -> Result<Vec<Vec<Outcome>>> {
        if self.is_encoder_decoder() {
            return self.run_pairs(slices);
        }
        let batch = Batch::new(&self.model.plan, &self.running, slices);
        forward::run(&self.model, &mut self.cache, &batch, &self.running, slices)
    }

    /// Answers of encoder-decoders, one after another.
    fn run_pairs(&mut self, slices: &[Slice]) -> Result<Vec<Vec<Outcome>>> {
        let start = self.model.plan.start.unwrap_or_default();
        let mut outcomes = Vec::new();
        for slice in slices {
            let sequence = &mut self.running[slice.number];
            let last = sequence.answer().last().copied().unwrap_or(start);
            let logits = match &mut sequence.writer {
                Some(writer) => writer.step(&self.model, last)?,
                None => unreachable!("a running answer has its writer"),
            };
            outcomes.push(vec![forward::next(&logits, sequence, &[])]);
        }
        Ok(outcomes)
    }

    /// Gives each sequence its outcomes; finished ones leave.
    fn accept(&mut self, slices: &[Slice], outcomes: Vec<Vec<Outcome>>) {
        let is_pair = self.is_encoder_decoder();
        let mut finished = Vec::new();
        for (slice, outcomes) in slices.iter().zip(outcomes) {
            let sequence = &mut self.running[slice.number];
            if !is_pair {
                sequence.computed += slice.rows - sequence.drafts.len();
            }
            let of = (sequence, slice.is_last);
            let finish = self.counts.take(of, outcomes, &mut self.events);
            let sequence = &mut self.running[slice.number];
            if !is_pair {
                // guesses that were right are in the cache, all but the newest token
                let right = sequence.seen().len().saturating_sub(1);
                if slice.is_last {
                    sequence.computed = right.min(sequence.computed + sequence.drafts.len());
                }
                sequence.publish(&mut self.blocks);
            }
            sequence.drafts.clear();
            if let Some(finish) = finish {
                let id = sequence.id;
                self.events.push(Event::Finished { id, finish });
                finished.push(slice.number);
                continue;
            }
            let limit = self.model.plan.seq_length;
            if !is_pair && sequence.seen().len() > limit {
                sequence.release(&mut self.blocks);
                sequence.start = sequence.tokens.len() - limit.div_ceil(2);
            }
        }
        for number in finished.into_iter().rev() {
            self.running.remove(number).release(&mut self.blocks);
        }
    }
}

impl Counts {
    /// Adds outcomes to a sequence; guesses after a wrong one are dropped.
    fn take(
        &mut self,
        (sequence, is_last): (&mut Sequence, bool),
        outcomes: Vec<Outcome>,
        events: &mut Vec<Event>,
    ) -> Option<Finish> {
        let id = sequence.id;
        let drafts = sequence.drafts.clone();
        self.drafted_tokens += drafts.len() as u64;
        let mut next = 0;
        let mut finish = None;
        for outcome in outcomes {
            let (token, scored) = match outcome {
                Outcome::Prompt(scored) => {
                    sequence.scores.push(Some(scored));
                    continue;
                }
                Outcome::Next { token, scored } => (token, scored),
            };
            sequence.report_prompt(events);
            events.push(Event::Token { id, token, scored });
            self.generated_tokens += 1;
            finish = sequence.push(token);
            let is_right = drafts.get(next) == Some(&token);
            next += 1;
            self.accepted_tokens += u64::from(is_right);
            if finish.is_some() || !is_right {
                break;
            }
        }
        if is_last && sequence.options.max_tokens == 0 {
            sequence.report_prompt(events);
            finish = Some(Finish::Length);
        }
        finish
    }
}

impl Sequence {
    /// Reports the end of the prompt once.
    fn report_prompt(&mut self, events: &mut Vec<Event>) {
        if self.is_past_prompt {
            return;
        }
        self.is_past_prompt = true;
        let mut scores = Vec::new();
        if self.options.prompt_logprobs.is_some() {
            scores.push(None);
            scores.append(&mut self.scores);
        }
        events.push(Event::Prompt {
            id: self.id,
            scores,
            cached: self.cached,
        });
    }
}

impl Limits {
    /// Blocks of the cache. `token`: bytes of a token's keys and values in all layers.
    fn blocks(&self, length: usize, token: usize) -> usize {
        const BYTES: usize = 1 << 30;
        if self.cache_tokens > 0 {
            return self.cache_tokens.div_ceil(BLOCK);
        }
        let held_by = |bytes: usize| bytes / (token * BLOCK).max(1);
        let whole = length.div_ceil(BLOCK);
        let most = whole.saturating_mul(self.max_sequences);
        let least = whole.min(held_by(8 * BYTES)).max(1);
        held_by(BYTES).min(most).max(least)
    }
}
