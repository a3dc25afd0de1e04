//! Requests to an engine, and their progress.

use crate::infer::engine::adapters::AdapterId;
use crate::infer::options::GenerateOptions;
use crate::infer::sample::Scored;

/// A prompt to continue.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// Tokens with which the answer begins: a decoder reads them behind the prompt, an encoder-decoder in its decoder.
    /// They count as the prompt's, but for the encoder.
    pub beginning: Vec<u32>,
    /// Sampling, stops, log-probabilities.
    pub options: GenerateOptions,
    /// Whether a text longer than the model's sequences goes on with its newest half; otherwise prompt and
    /// `max_tokens` together are at most the model's length.
    pub slides: bool,
    /// Adapter that the engine has loaded; `None`: the model as it is.
    pub adapter: Option<AdapterId>,
}

/// Progress of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request left the queue for the first time.
    Started {
        /// The request.
        id: u64,
    },
    /// The whole prompt was computed.
    Prompt {
        /// The request.
        id: u64,
        /// With `prompt_logprobs`: an entry for each token of the prompt, none for the first.
        scores: Vec<Option<Scored>>,
        /// Tokens of the prompt that the cache had.
        cached: usize,
    },
    /// A new token of the answer.
    Token {
        /// The request.
        id: u64,
        /// The token.
        token: u32,
        /// With `logprobs`.
        scored: Option<Scored>,
    },
    /// The answer is complete; nothing follows.
    Finished {
        /// The request.
        id: u64,
        /// Reason.
        finish: Finish,
    },
}

/// Reason for the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It ends with the stop of this number in the options.
    Stop(usize),
    /// It has `max_tokens`.
    Length,
}

/// State of an engine and totals since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Blocks of the cache.
    pub blocks: usize,
    /// Blocks that requests hold.
    pub blocks_held: usize,
    /// Batches run.
    pub steps: u64,
    /// Rows of the last batch.
    pub batch_rows: usize,
    /// Tokens of prompts of requests that started.
    pub prompt_tokens: u64,
    /// Those of them that the cache had.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Requests that had to let their blocks go.
    pub preemptions: u64,
    /// Guesses checked.
    pub drafted_tokens: u64,
    /// Guesses that were right.
    pub accepted_tokens: u64,
}
