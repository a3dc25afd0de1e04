//! One rank of an engine: schedules requests, runs their batches, and gives every request its events. All ranks of an
//! engine do the same: each has the whole schedule, its own part of the weights and its own heads' keys and values.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kernels::{DType, Tensor};

use crate::checkpoint::adapters::LoraAdapter;
use crate::checkpoint::whole_model::Model;
use crate::data::virtual_tokens::{Prompted, has_own, in_front, is_known, most_of_text, prompted};
use crate::error::{Error, OnRank, Result};
use crate::infer::engine::adapters::{self, AdapterId, Loaded};
use crate::infer::engine::blocks::{BLOCK, Blocks, ROOT};
use crate::infer::engine::forward::{self, Batch, Outcome, Slice};
use crate::infer::engine::limits::Limits;
use crate::infer::engine::request::{Counts, Event, Finish, Request};
use crate::infer::engine::sequence::Sequence;
use crate::infer::pair::{Encoded, Writer};
use crate::model::prepacked::PrepackedWeights;

/// A rank's part of a model that answers many requests at once.
pub(super) struct RankEngine {
    model: Model,
    pub(super) limits: Limits,
    /// Keys and values, `[blocks * 16, kv_width]` for each layer.
    cache: Vec<Tensor>,
    blocks: Blocks,
    waiting: VecDeque<Sequence>,
    /// In the order of their arrival.
    pub(super) running: Vec<Sequence>,
    events: Vec<Event>,
    next_id: u64,
    counts: Counts,
    adapters: BTreeMap<AdapterId, Loaded>,
    /// The same rank of the model that guesses.
    pub(super) draft: Option<Box<RankEngine>>,
    /// The newest prompt of an encoder-decoder: samples and beams of one prompt share it.
    encoded: Option<Arc<Encoded>>,
}

impl RankEngine {
    /// # Errors
    /// A model that does not continue texts; memory.
    pub(super) fn new(model: Model, limits: Limits) -> Result<RankEngine> {
        model.expect_vocabulary()?;
        let architecture = model.plan.model.architecture();
        if architecture.is_masked {
            return Err(Error::Request {
                what: "model to generate with",
                found: format!("{:?}", model.plan.model.family),
                wanted: "a decoder: a masked model does not continue a text".into(),
            });
        }
        let shape = model.plan.shape();
        let width = 2 * shape.kv_heads / model.groups.place.tp * shape.d_head;
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
        Ok(RankEngine {
            cache: cache.on_rank(model.rank(), "allocate the key-value cache")?,
            blocks: Blocks::new(blocks),
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: Vec::new(),
            next_id: 0,
            counts: Counts::default(),
            draft: None,
            encoded: None,
            adapters: BTreeMap::new(),
            limits,
            model,
        })
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens of a text that the model sees at once, its virtual tokens left out.
    pub(super) fn max_length(&self) -> usize {
        let plan = &self.model.plan;
        plan.seq_length.saturating_sub(self.virtual_tokens())
    }

    /// Virtual tokens of a text at most.
    fn virtual_tokens(&self) -> usize {
        most_of_text(&self.model.plan)
    }

    /// Whether the prompt is an encoder's: it has room of its own, apart from the answer's.
    pub(super) fn is_encoder_decoder(&self) -> bool {
        self.cache.is_empty()
    }

    /// Whether some products round activations to 8 bits.
    pub(super) fn rounds_activations(&self) -> bool {
        (self.model.packs.as_ref()).is_some_and(PrepackedWeights::rounds_rows)
    }

    /// Bytes of weights that a batch reads: the packed copies once a batch has run, else all parameters in f32.
    pub(super) fn weight_bytes(&self) -> usize {
        match self.model.packs.as_ref().map_or(0, |packs| packs.bytes()) {
            0 => self
                .model
                .weights
                .iter()
                .map(|one| 4 * one.elements())
                .sum(),
            packed => packed,
        }
    }

    /// Takes a request; its events come from `step`.
    ///
    /// # Errors
    /// Those of `check`.
    pub(super) fn submit(&mut self, mut request: Request) -> Result<u64> {
        self.check(&request)?;
        let id = self.next_id;
        self.next_id += 1;
        if !self.is_encoder_decoder() {
            request.prompt.append(&mut request.beginning);
        }
        let Prompted { ids, in_front } = prompted(&self.model.plan, &request.prompt)?;
        request.prompt = ids;
        let of = [in_front, self.model.plan.seq_length];
        let own = request.adapter.and_then(|id| self.adapters.get(&id));
        let root = own.map_or(ROOT, |own| own.root);
        let sequence = Sequence::new(id, request, of, root);
        self.waiting.push_back(sequence);
        Ok(id)
    }

    /// # Errors
    /// An empty prompt, a token outside the vocabulary, options out of range, a text longer than the model's sequences or
    /// than the cache.
    pub(super) fn check(&self, request: &Request) -> Result<()> {
        request.options.check()?;
        let Request {
            prompt,
            beginning,
            options,
            slides,
            adapter,
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
        let plan = &self.model.plan;
        let in_front = in_front(plan, prompt)?;
        let is_of_text = |id: u32| (id as usize) < plan.vocab;
        let biased = options.logit_bias.iter().map(|(id, _)| id);
        let ids = (beginning.iter())
            .chain(options.stop.iter().flatten())
            .chain(options.never_after.iter().flatten())
            .chain(biased);
        let mut unknown = ids.copied().filter(|&id| !is_of_text(id));
        let of_prompt = prompt.iter().copied().find(|&id| !is_known(plan, id));
        if let Some(id) = of_prompt.or_else(|| unknown.next()) {
            let wanted = format!("below the vocabulary of {}", plan.vocab);
            return refuse("token", id.to_string(), wanted);
        }
        let is_there = |id: &AdapterId| self.adapters.get(id).is_some_and(|own| !own.is_retired);
        if !adapter.iter().all(is_there) {
            let found = "one that is not loaded".into();
            return refuse("adapter", found, "one of the engine's".into());
        }
        if self.is_encoder_decoder() {
            let limit = self.max_length();
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
        let is_placed = has_own(prompt);
        if is_placed && options.prompt_logprobs.is_some() {
            let found = "one with markers of virtual tokens".into();
            return refuse("prompt to score", found, "one without them".into());
        }
        let limit = plan.seq_length.saturating_sub(in_front);
        let given = prompt.len() + beginning.len();
        let whole = given.saturating_add(options.max_tokens);
        let found = || format!("{given} tokens and {} to add", options.max_tokens);
        // a text whose beginning is forgotten would lose the virtual tokens in it
        let may_slide = *slides && !is_placed && options.prompt_logprobs.is_none();
        if whole > limit && !may_slide {
            return refuse("prompt", found(), format!("at most {limit} together"));
        }
        let room = (self.blocks.total() * BLOCK).saturating_sub(in_front);
        if whole.min(limit) > room {
            let wanted = format!("at most {room} together, the tokens of the cache");
            return refuse("prompt", found(), wanted);
        }
        Ok(())
    }

    /// Loads an adapter under a new number.
    pub(super) fn load_adapter(&mut self, id: AdapterId, adapter: &LoraAdapter) -> Result<()> {
        // taken whatever follows, so that all ranks count alike
        let root = self.blocks.new_root();
        let (plan, place) = (&self.model.plan, &self.model.groups.place);
        let weights = adapters::part_of(adapter, plan, place, &self.model.device);
        let weights = weights.on_rank(self.model.rank(), "load an adapter")?;
        let own = Loaded {
            weights,
            root,
            is_retired: false,
        };
        self.adapters.insert(id, own);
        Ok(())
    }

    /// Adapters in memory.
    pub(super) fn adapters(&self) -> usize {
        self.adapters.len()
    }

    /// Refuses an adapter to later requests, and drops it once no request has it.
    pub(super) fn unload_adapter(&mut self, id: AdapterId) {
        if let Some(own) = self.adapters.get_mut(&id) {
            own.is_retired = true;
        }
        self.drop_retired();
    }

    fn drop_retired(&mut self) {
        let (running, waiting) = (&self.running, &self.waiting);
        self.adapters.retain(|id, own| {
            let mut all = running.iter().chain(waiting);
            !own.is_retired || all.any(|sequence| sequence.adapter == Some(*id))
        });
    }

    /// Ends a request without further events; false if there is none of this number.
    pub(super) fn cancel(&mut self, id: u64) -> bool {
        let is_it = |sequence: &Sequence| sequence.id == id;
        if let Some(at) = self.waiting.iter().position(is_it) {
            self.waiting.remove(at);
        } else if let Some(at) = self.running.iter().position(is_it) {
            let mut sequence = self.running.remove(at);
            sequence.release(&mut self.blocks);
        } else {
            return false;
        }
        self.drop_retired();
        true
    }

    /// Ends all requests, as after a failed step; returns their numbers.
    pub(super) fn cancel_all(&mut self) -> Vec<u64> {
        let all = self.waiting.drain(..).chain(self.running.drain(..));
        let mut ids = Vec::new();
        for mut sequence in all {
            sequence.release(&mut self.blocks);
            ids.push(sequence.id);
        }
        self.events.clear();
        self.drop_retired();
        ids
    }

    /// Forgets cached beginnings that no request uses.
    pub(super) fn clear_prefix_cache(&mut self) {
        self.blocks.forget();
    }

    /// Whether no request runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// State and totals.
    pub(super) fn counts(&self) -> Counts {
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
    pub(super) fn step(&mut self) -> Result<Vec<Event>> {
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
                let encoded = match self.encoded.take() {
                    Some(last) if last.is_of(&sequence.tokens) => last,
                    Some(_) | None => Arc::new(Encoded::new(&self.model, &sequence.tokens)?),
                };
                self.encoded = Some(Arc::clone(&encoded));
                let room = sequence.beginning.len();
                let room = room.saturating_add(sequence.options.max_tokens);
                sequence.writer = Some(Writer::new(&self.model, encoded, room)?);
            }
            if !sequence.is_past_prompt {
                self.counts.prompt_tokens += (sequence.prompt - sequence.virtual_tokens) as u64;
                self.counts.cached_tokens += sequence.cached_of_text() as u64;
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
        let adapters = forward::adapters_of(&self.adapters, &self.running, slices);
        let (model, cache) = (&self.model, &mut self.cache);
        forward::run(model, cache, &batch, &self.running, slices, &adapters)
    }

    /// Answers of encoder-decoders, one after another.
    fn run_pairs(&mut self, slices: &[Slice]) -> Result<Vec<Vec<Outcome>>> {
        let start = self.model.plan.start.unwrap_or_default();
        let mut outcomes = Vec::new();
        for slice in slices {
            let sequence = &mut self.running[slice.number];
            let Some(mut writer) = sequence.writer.take() else {
                unreachable!("a running answer has its writer");
            };
            let written = [&[start], &sequence.beginning[..], sequence.answer()].concat();
            let logits = writer.read(&self.model, &written)?;
            sequence.writer = Some(writer);
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
                let text = limit - sequence.virtual_tokens;
                sequence.see_last(text.div_ceil(2));
            }
        }
        for number in finished.into_iter().rev() {
            self.running.remove(number).release(&mut self.blocks);
        }
        self.drop_retired();
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
            cached: self.cached_of_text(),
        });
    }
}
