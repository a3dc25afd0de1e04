//! Inference engine: continues many prompts at once (continuous batching, Yu et al. 2022, OSDI, "Orca"), with keys and
//! values in pages (PagedAttention, Kwon et al. 2023, arXiv:2309.06180), prompts in chunks beside answers in progress
//! (chunked prefill, Agrawal et al. 2023, arXiv:2308.16369), and shared beginnings computed once (prefix caching).
//!
//! A step runs one batch: a row for each answer in progress (more with guesses, `draft`), then rows of prompts up to
//! `Limits::max_batch_tokens`. When blocks run out, the request that came last lets its blocks go and is computed again
//! later (preemption). A row's bits depend on no other row, so a request's tokens and log-probabilities are the same
//! whatever runs beside it, however its prompt is cut, and whether its beginning was cached or guessed.
//!
//! Tensor-parallel ranks are threads of this process, each with its part of the weights and of the cache, and on a GPU of its
//! own if there are enough. Each makes the whole schedule and every choice from the gathered logits, so that
//! requests are the only thing that crosses the ranks.

mod adapters;
mod blocks;
mod draft;
mod forward;
mod limits;
mod rank;
mod request;
mod sequence;
#[cfg(test)]
mod tests;

pub use adapters::{Adapter, AdapterId, AdapterReader};
pub use limits::Limits;
pub use request::{Counts, Event, Finish, Request};

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::checkpoint::whole_model::Model;
use crate::config::plan::Plan;
use crate::config::{PromptConfig, TaskMarkers};
use crate::data::virtual_tokens::most_of_text;
use crate::dist::devices::InferenceOptions;
use crate::dist::team::Team;
use crate::error::{Error, Result};
use crate::infer::engine::rank::RankEngine;

/// A model that answers many requests at once. All calls come from one thread.
pub struct Engine {
    ranks: Team<RankEngine>,
    plan: Plan,
    /// Requests that run or wait.
    live: BTreeSet<u64>,
    /// Whether requests can choose adapters.
    takes_adapters: bool,
    max_adapters: usize,
    next_adapter: u64,
}

impl Engine {
    /// Opens a checkpoint, a folder of checkpoints (the newest that is whole), or a Hugging Face folder.
    ///
    /// # Errors
    /// A damaged checkpoint or folder; a model that does not continue texts or cannot be split so; `Device`; memory.
    pub fn open(path: &Path, on: InferenceOptions, limits: Limits) -> Result<Engine> {
        Engine::of(Model::open(path, on)?, limits)
    }

    /// Like `open`, for a decoder beside which requests choose adapters (`load_adapter`). As in fine-tuning, a model in bf16
    /// keeps activations between its linear layers in f32.
    ///
    /// # Errors
    /// As `open`; a model with adapters or virtual tokens of its own.
    pub fn open_for_adapters(path: &Path, on: InferenceOptions, limits: Limits) -> Result<Engine> {
        Engine::of(Model::open_for_adapters(path, on)?, limits)
    }

    pub(crate) fn of(models: Team<Model>, limits: Limits) -> Result<Engine> {
        limits.check()?;
        let first = models.first().expect("a team has a rank");
        let (mut plan, takes_adapters) = (first.plan.clone(), first.takes_adapters);
        let max_adapters = limits.max_adapters;
        if takes_adapters {
            // the slots for adapters are no part of the model
            plan.model.lora = None;
        }
        Ok(Engine {
            plan,
            ranks: models.map(|model| RankEngine::new(model, limits.clone()))?,
            live: BTreeSet::new(),
            takes_adapters,
            max_adapters,
            next_adapter: 0,
        })
    }

    /// Reads adapters for this model, on any thread.
    ///
    /// # Errors
    /// An engine that was not opened for adapters.
    pub fn adapter_reader(&self) -> Result<AdapterReader> {
        if !self.takes_adapters {
            return Err(Error::Request {
                what: "engine to load an adapter",
                found: "one that was opened without adapters".into(),
                wanted: "one of `open_for_adapters`".into(),
            });
        }
        let plan = self.plan.clone();
        Ok(AdapterReader { plan })
    }

    /// Puts an adapter beside the model. Requests that name it are answered as by a model with this adapter alone, to the bit.
    ///
    /// # Errors
    /// As many adapters as `Limits::max_adapters`; memory. The engine goes on without it.
    pub fn add_adapter(&mut self, adapter: &Adapter) -> Result<AdapterId> {
        let count = self.ranks.first().map_or(0, RankEngine::adapters);
        if count >= self.max_adapters {
            return Err(Error::Request {
                what: "adapters in memory",
                found: format!("{count} and one more"),
                wanted: format!("at most {}", self.max_adapters),
            });
        }
        let id = AdapterId(self.next_adapter);
        self.next_adapter += 1;
        // a failure of a rank alone would end all of them
        let failure = Mutex::new(None);
        self.ranks.all(|rank| {
            if let Err(error) = rank.load_adapter(id, &adapter.0) {
                let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
            }
            Ok(())
        })?;
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(id),
            Some(error) => {
                self.unload_adapter(id)?;
                Err(error)
            }
        }
    }

    /// Reads an adapter and puts it beside the model.
    ///
    /// # Errors
    /// Those of `adapter_reader`, `AdapterReader::read` and `add_adapter`.
    pub fn load_adapter(&mut self, path: &Path) -> Result<AdapterId> {
        let adapter = self.adapter_reader()?.read(path)?;
        self.add_adapter(&adapter)
    }

    /// Refuses an adapter to later requests; those that run or wait with it finish, and with the last of them it goes.
    ///
    /// # Errors
    /// After a failed step of several ranks, that.
    pub fn unload_adapter(&mut self, id: AdapterId) -> Result<()> {
        self.ranks.all(|rank| {
            rank.unload_adapter(id);
            Ok(())
        })
    }

    /// Guesses tokens with a smaller model (speculative decoding, Leviathan et al. 2023, arXiv:2211.17192). The answers
    /// stay the same, as a guess counts only if it is the token that is chosen without it.
    ///
    /// # Errors
    /// Vocabularies that differ in size; other ranks.
    pub fn with_draft(mut self, draft: Engine) -> Result<Engine> {
        let refuse = |what, found: usize, wanted: usize| {
            Err(Error::Request {
                what,
                found: found.to_string(),
                wanted: format!("{wanted}, as the model's"),
            })
        };
        if draft.vocab() != self.vocab() {
            return refuse("vocabulary of the draft model", draft.vocab(), self.vocab());
        }
        let (found, wanted) = (draft.ranks.size(), self.ranks.size());
        if found != wanted {
            return refuse("tensor-parallel ranks of the draft model", found, wanted);
        }
        let give = |rank: &mut RankEngine, draft| rank.draft = Some(Box::new(draft));
        self.ranks.join(draft.ranks, give);
        Ok(self)
    }

    /// The model's plan.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs each rank's part of the model, all at once; returns the first rank's result.
    pub(crate) fn on_models<R: Send>(
        &mut self,
        run: impl Fn(&Model) -> Result<R> + Sync,
    ) -> Result<R> {
        self.ranks.all(|rank| run(rank.model()))
    }

    /// Tokens of a text that the model sees at once, its virtual tokens left out.
    pub fn max_length(&self) -> usize {
        (self.plan.seq_length).saturating_sub(most_of_text(&self.plan))
    }

    /// The markers of virtual tokens of each task; empty: the model has none.
    pub fn markers(&self) -> Vec<TaskMarkers> {
        let prompt = self.plan.model.prompt.as_ref();
        prompt.map_or_else(Vec::new, PromptConfig::markers)
    }

    /// Entries of the model's vocabulary.
    pub fn vocab(&self) -> usize {
        self.plan.vocab
    }

    /// Whether the prompt is an encoder's: it has room of its own, apart from the answer's.
    pub fn is_encoder_decoder(&self) -> bool {
        self.plan.model.architecture().is_encoder_decoder
    }

    /// The model's end-of-document token, if its plan has one.
    pub fn end_of_document(&self) -> Option<u32> {
        self.plan.eod
    }

    /// Parameters of the model.
    pub fn parameters(&self) -> u64 {
        self.plan.parameters()
    }

    /// Bytes of weights that a batch reads on all ranks together: the packed copies once a batch has run, else all
    /// parameters in f32.
    pub fn weight_bytes(&self) -> usize {
        self.ranks.size() * self.ranks.first().map_or(0, RankEngine::weight_bytes)
    }

    /// Whether some products round activations to 8 bits.
    pub fn rounds_activations(&self) -> bool {
        (self.ranks.first()).is_some_and(RankEngine::rounds_activations)
    }

    /// Whether `submit` would take a request.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, options out of range, a text longer than the model's sequences or
    /// than the cache.
    pub fn check(&self, request: &Request) -> Result<()> {
        self.ranks
            .first()
            .map_or(Ok(()), |rank| rank.check(request))
    }

    /// Takes a request; its events come from `step`.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, options out of range, a text longer than the model's sequences or
    /// than the cache; after a failed step of several ranks, that.
    pub fn submit(&mut self, request: Request) -> Result<u64> {
        self.check(&request)?;
        let id = self.ranks.all(|rank| rank.submit(request.clone()))?;
        self.live.insert(id);
        Ok(id)
    }

    /// Ends a request without further events; false if there is none of this number.
    pub fn cancel(&mut self, id: u64) -> bool {
        let is_there = self.live.remove(&id);
        // ranks that failed have no requests
        is_there && self.ranks.all(|rank| Ok(rank.cancel(id))).is_ok()
    }

    /// Ends all requests, as after a failed step; returns their numbers.
    pub fn cancel_all(&mut self) -> Vec<u64> {
        // ranks that failed have no requests
        let _ = self.ranks.all(|rank| {
            rank.cancel_all();
            Ok(())
        });
        std::mem::take(&mut self.live).into_iter().collect()
    }

    /// Forgets cached beginnings that no request uses.
    pub fn clear_prefix_cache(&mut self) {
        // ranks that failed have no cache
        let _ = self.ranks.all(|rank| {
            rank.clear_prefix_cache();
            Ok(())
        });
    }

    /// Whether no request runs or waits.
    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// Whether every later call fails: a rank among several has failed.
    pub fn is_over(&self) -> bool {
        self.ranks.first().is_none()
    }

    /// State and totals; zeros after a failed step of several ranks.
    pub fn counts(&self) -> Counts {
        self.ranks
            .first()
            .map(RankEngine::counts)
            .unwrap_or_default()
    }

    /// Runs one batch; returns what happened, in order. Without requests it does nothing.
    ///
    /// # Errors
    /// A failed operation. The requests stay; `cancel_all` ends them. Several ranks run nothing more after it.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        let events = self.ranks.all(RankEngine::step)?;
        for event in &events {
            if let Event::Finished { id, .. } = event {
                self.live.remove(id);
            }
        }
        Ok(events)
    }
}
