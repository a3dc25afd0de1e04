//! The server's state, shared by all requests.

use super::adapters::{Adapters, AskedModel};
use super::admission::Admission;
use super::engine_thread::EngineHandle;
use super::error::ApiError;
use super::fields::Fields;
use super::metrics::Metrics;
use super::sampling::Vocabulary;
use super::texts::{TokenTexts, internal};
use crate::generation::{ModelFiles, encode_marked};
use crate::job::{has_marker, task_of};
use std::sync::Arc;
use std::time::Duration;

/// A model that is served.
pub(super) struct Server {
    /// Name by which clients ask for the model.
    pub(super) name: String,
    pub(super) files: ModelFiles,
    pub(super) engine: EngineHandle,
    pub(super) adapters: Adapters,
    pub(super) texts: TokenTexts,
    pub(super) metrics: Metrics,
    pub(super) admission: Arc<Admission>,
    pub(super) limits: Limits,
    /// Keys of which a client needs one; none: everybody may ask.
    pub(super) keys: Vec<String>,
    /// Seconds since 1970 at which the server started.
    pub(super) created: u64,
}

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of a body.
    pub(super) body: usize,
    /// Time for headers, and for a body.
    pub(super) read: Duration,
    /// Time for an answer.
    pub(super) answer: Duration,
    /// Tokens of a request to Megatron's route: the longest text times the texts.
    pub(super) megatron_tokens: usize,
    /// Whether all refusals of Megatron's route are 400.
    pub(super) megatron_400: bool,
}

impl Server {
    /// The model that a request asks for.
    ///
    /// # Errors
    /// 404 for one that is not there.
    pub(super) fn asked(&self, fields: &Fields) -> Result<AskedModel, ApiError> {
        self.adapters.asked(fields, &self.name)
    }

    /// Ids of a prompt, with the model's virtual tokens at its markers. `adds`: the tokens that the tokenizer puts around a text.
    ///
    /// # Errors
    /// 400 for markers that are not the model's; 500 with the tokenizer's reason.
    pub(super) fn ids_of_prompt(&self, text: &str, adds: bool) -> Result<Vec<u32>, ApiError> {
        let markers = &self.engine.facts.markers;
        if !markers.is_empty() && has_marker(text) {
            let refuse = |why| ApiError::field("prompt", format!("prompt: {why}"));
            task_of(text, markers).map_err(refuse)?;
        }
        encode_marked(&self.files.tokenizer, text, adds, markers).map_err(|e| internal(&e))
    }

    /// The ids that requests are checked against.
    pub(super) fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary {
            model: self.engine.facts.vocab,
            tokenizer: self.files.tokenizer.vocab(),
            end_ids: &self.files.end_ids,
        }
    }
}
