//! A request in progress.

use crate::data::is_virtual;
use crate::infer::engine::adapters::AdapterId;
use crate::infer::engine::blocks::{BLOCK, Blocks, Serial};
use crate::infer::engine::request::{Finish, Request};
use crate::infer::options::GenerateOptions;
use crate::infer::pair::Writer;
use crate::infer::sample::{Before, Scored};

/// A request, its tokens so far and the blocks that have their keys and values.
pub(super) struct Sequence {
    pub id: u64,
    pub options: GenerateOptions,
    pub adapter: Option<AdapterId>,
    /// Number in front of its first block.
    root: Serial,
    /// Virtual tokens, prompt and answer.
    pub tokens: Vec<u32>,
    /// Virtual tokens that were put in front; those that the prompt places itself are tokens of its text.
    pub virtual_tokens: usize,
    /// Position after the last virtual token.
    text_from: usize,
    /// Tokens of the prompt, the virtual ones included.
    pub prompt: usize,
    /// Tokens that the decoder of an encoder-decoder reads before its first choice; a decoder has them in `tokens`.
    pub beginning: Vec<u32>,
    /// First token that the model still sees.
    pub start: usize,
    /// The tokens that the model sees if virtual tokens stand in front of a later `start`.
    window: Option<Vec<u32>>,
    /// Tokens of those seen whose keys and values are in the cache.
    pub computed: usize,
    pub blocks: Vec<u32>,
    /// Full blocks whose contents are known to the cache, and the serial of the last.
    known: (usize, Serial),
    /// Guesses for the next tokens.
    pub drafts: Vec<u32>,
    /// Log-probabilities of the prompt's tokens so far; the first has none.
    pub scores: Vec<Option<Scored>>,
    /// Tokens of the prompt, the virtual ones included, whose keys and values were in the cache already.
    pub cached: usize,
    /// Whether it left the queue once.
    pub is_started: bool,
    /// Whether the end of the prompt was reached and reported.
    pub is_past_prompt: bool,
    /// The decoder of an encoder-decoder model with its own cache.
    pub writer: Option<Writer>,
}

impl Sequence {
    /// Of a request whose prompt begins with so many virtual tokens; `limit`: most tokens that the model sees; `root`: number
    /// in front of its first block.
    pub(super) fn new(
        id: u64,
        request: Request,
        [virtual_tokens, limit]: [usize; 2],
        root: Serial,
    ) -> Sequence {
        let Request {
            prompt,
            beginning,
            options,
            adapter,
            slides: _,
        } = request;
        let longest = limit - virtual_tokens;
        let text = prompt.len() - virtual_tokens;
        let mut sequence = Sequence {
            id,
            start: 0,
            window: None,
            virtual_tokens,
            text_from: prompt
                .iter()
                .rposition(|&id| is_virtual(id))
                .map_or(0, |at| at + 1),
            prompt: prompt.len(),
            tokens: prompt,
            beginning,
            computed: 0,
            blocks: Vec::new(),
            known: (0, root),
            root,
            adapter,
            drafts: Vec::new(),
            scores: Vec::new(),
            cached: 0,
            is_started: false,
            is_past_prompt: false,
            writer: None,
            options,
        };
        if text > longest {
            sequence.see_last(longest);
        }
        sequence
    }

    /// Lets the model see the virtual tokens and the last `count` others.
    pub(super) fn see_last(&mut self, count: usize) {
        self.start = self.tokens.len() - count;
        let before = &self.tokens[..self.virtual_tokens];
        self.window = (!before.is_empty()).then(|| [before, &self.tokens[self.start..]].concat());
    }

    /// The tokens that the model sees.
    pub(super) fn seen(&self) -> &[u32] {
        match &self.window {
            Some(window) => window,
            None => &self.tokens[self.start..],
        }
    }

    /// Tokens to be computed before the next can be chosen.
    pub(super) fn missing(&self) -> usize {
        self.seen().len() - self.computed
    }

    pub(super) fn answer(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// The tokens before the token that follows `self.tokens` and `drafts` of its guesses.
    pub(super) fn before<'a>(&'a self, answer: &'a [u32]) -> Before<'a> {
        Before {
            prompt: &self.tokens[self.virtual_tokens..self.prompt],
            answer,
        }
    }

    /// Tokens of the prompt, the virtual ones left out, whose keys and values were in the cache already.
    pub(super) fn cached_of_text(&self) -> usize {
        self.cached.saturating_sub(self.virtual_tokens)
    }

    /// The prompt and answer that a model without virtual tokens sees: what follows the last of them.
    pub(super) fn text(&self) -> &[u32] {
        &self.tokens[self.start.max(self.text_from)..]
    }

    /// Whether log-probabilities of the prompt's tokens are still missing.
    pub(super) fn scores_prompt(&self) -> bool {
        self.options.prompt_logprobs.is_some() && !self.is_past_prompt
    }

    /// Shares the blocks of the longest known beginning; at least one token is left to compute.
    pub(super) fn share(&mut self, blocks: &mut Blocks) {
        if self.scores_prompt() {
            return;
        }
        let whole = (self.seen().len() - 1) / BLOCK;
        while self.known.0 < whole {
            let (number, serial) = self.known;
            let Some((block, serial)) = blocks.share(serial, self.tokens_of(number)) else {
                break;
            };
            self.blocks.push(block);
            self.known = (number + 1, serial);
        }
        self.computed = self.known.0 * BLOCK;
        if !self.is_past_prompt {
            self.cached = self.computed;
        }
    }

    /// Takes blocks for `rows` more tokens; false and nothing taken if there are too few.
    pub(super) fn reserve(&mut self, rows: usize, blocks: &mut Blocks) -> bool {
        let wanted = (self.computed + rows).div_ceil(BLOCK);
        if wanted.saturating_sub(self.blocks.len()) > blocks.free() {
            return false;
        }
        while self.blocks.len() < wanted {
            match blocks.take() {
                Some(block) => self.blocks.push(block),
                None => return false,
            }
        }
        true
    }

    /// Makes full blocks known to other sequences.
    pub(super) fn publish(&mut self, blocks: &mut Blocks) {
        while (self.known.0 + 1) * BLOCK <= self.computed {
            let (number, serial) = self.known;
            let serial = blocks.know(self.blocks[number], serial, self.tokens_of(number));
            self.known = (number + 1, serial);
        }
    }

    fn tokens_of(&self, block: usize) -> [u32; BLOCK] {
        let tokens = &self.seen()[block * BLOCK..];
        std::array::from_fn(|i| tokens[i])
    }

    /// Lets all blocks go; everything is to be computed again.
    pub(super) fn release(&mut self, blocks: &mut Blocks) {
        blocks.release(&self.blocks);
        self.blocks.clear();
        self.drafts.clear();
        (self.computed, self.known) = (0, (0, self.root));
    }

    /// Adds a token of the answer; returns why it is complete, if it is.
    pub(super) fn push(&mut self, token: u32) -> Option<Finish> {
        self.tokens.push(token);
        if let Some(window) = &mut self.window {
            window.push(token);
        }
        let answer = &self.tokens[self.prompt..];
        let ends = |stop: &Vec<u32>| !stop.is_empty() && answer.ends_with(stop);
        if let Some(number) = self.options.stop.iter().position(ends) {
            return Some(Finish::Stop(number));
        }
        (answer.len() >= self.options.max_tokens).then_some(Finish::Length)
    }
}
