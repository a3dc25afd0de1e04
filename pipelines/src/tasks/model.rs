//! A model with its tokenizer: texts in, log-likelihoods and texts out.
//!
//! Source: lm-evaluation-harness 0.4.13 `api/model.py` (`_encode_pair`, `loglikelihood`), `models/huggingface.py` (`tok_encode`):
//! white space at the end of a context belongs to the continuation; the continuation's tokens are those of both texts beyond the
//! number of the context's; an empty context is the token that begins a document, else the one that ends it; the
//! tokenizer's own special tokens stand around a text that does not begin with that token.

use super::definition::Tokens;
use super::python_text::is_space;
use crate::generation::encode_marked;
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use train::data::is_virtual;
use train::eval::{LanguageModel, Likelihood, Query};

/// Names of tokens that begin a text, in vocabularies that have one.
const BEGINNINGS: [&str; 4] = ["<s>", "<|begin_of_text|>", "<bos>", "[BOS]"];

/// Model and tokenizer.
pub(crate) struct TextModel<'a> {
    pub(crate) model: &'a dyn LanguageModel,
    pub(crate) tokenizer: &'a Tokenizer,
    /// Put the tokens of the tokenizer's post-processor around texts, as transformers does.
    pub(crate) adds_special_tokens: bool,
}

/// A context and its continuation.
pub(super) type Request = (String, String);

impl TextModel<'_> {
    /// Ids of a part of a text; names of special tokens in it become their ids.
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        encode_marked(self.tokenizer, text, false, &self.model.markers())
    }

    /// Ids of a text from its beginning.
    fn encode_whole(&self, text: &str) -> Result<Vec<u32>> {
        let prefix = self.known_prefix();
        let prefix = prefix.and_then(|id| self.tokenizer.token(id));
        let has_prefix = prefix.is_some_and(|prefix| text.starts_with(prefix));
        encode_marked(
            self.tokenizer,
            text,
            self.adds_special_tokens && !has_prefix,
            &self.model.markers(),
        )
    }

    fn known_prefix(&self) -> Option<u32> {
        let mut names = BEGINNINGS.iter();
        let special = self.tokenizer.special();
        let beginning = (special.bos).or_else(|| names.find_map(|name| self.tokenizer.id_of(name)));
        beginning.or(self.tokenizer.end_of_document())
    }

    /// The token in front of a text without context.
    fn prefix(&self) -> Result<u32> {
        self.known_prefix()
            .context("the tokenizer has no token that begins or ends a document")
    }

    fn query(&self, context: &str, continuation: &str, tokens: Tokens) -> Result<Query> {
        if context.is_empty() {
            let (prefix, mut continuation) = (self.prefix()?, self.encode(continuation)?);
            if continuation.first() == Some(&prefix) {
                continuation.remove(0);
            }
            return Ok(Query {
                context: vec![prefix],
                continuation,
            });
        }
        if tokens == Tokens::Separate {
            return Ok(Query {
                context: self.encode(context)?,
                continuation: self.encode(continuation)?,
            });
        }
        let kept = context.trim_end_matches(is_space);
        let mut ids = self.encode_whole(&format!("{context}{continuation}"))?;
        let context = self.encode_whole(kept)?;
        let continuation = ids.split_off(context.len().min(ids.len()));
        Ok(Query {
            context,
            continuation,
        })
    }

    /// Scores of continuations after their contexts; `on_done` gets the number of requests that are finished. `place`: where a
    /// request comes from, for messages.
    ///
    /// # Errors
    /// A continuation that is empty or longer than the model, with its place; those of the model.
    pub(super) fn log_likelihoods(
        &self,
        requests: &[&Request],
        (tokens, place): (Tokens, &dyn Fn(usize) -> String),
        on_done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Likelihood>> {
        let (mut queries, most) = (Vec::with_capacity(requests.len()), self.model.max_length());
        for (number, (context, continuation)) in requests.iter().enumerate() {
            let query = self.query(context, continuation, tokens);
            let query = query.with_context(|| place(number))?;
            let length = query.continuation.len();
            if !(1..=most).contains(&length) {
                let place = place(number);
                bail!("{place}: found an answer of {length} tokens, want 1 to {most}");
            }
            queries.push(query);
        }
        Ok(self.model.log_likelihoods(&queries, on_done)?)
    }

    /// Log-likelihood of a whole text in windows, the first after a prefix token, each token predicted once.
    pub(super) fn rolling(&self, text: &str) -> Result<f64> {
        Ok(self.rolling_with_count(text)?.0)
    }

    /// Like `rolling`, with the number of tokens.
    pub(crate) fn rolling_with_count(&self, text: &str) -> Result<(f64, usize)> {
        let ids = self.encode_whole(text)?;
        let queries = self.model.windows(&ids, self.prefix()?);
        let found = self.model.log_likelihoods(&queries, &mut |_| {})?;
        Ok((found.iter().map(|score| score.log).sum(), ids.len()))
    }

    /// Log-likelihood of a whole text without its first token, in windows that end `stride` tokens after one
    /// another, and the number of tokens predicted. Source: Megatron-LM `tasks/zeroshot_gpt/datasets.py`.
    pub(super) fn strided(&self, text: &str, stride: usize) -> Result<(f64, usize)> {
        let ids = self.encode(text)?;
        let length = self.model.max_length();
        if ids.len() < 2 || stride > length {
            bail!(
                "found {} tokens and windows that overlap by all but {stride}, want 2 tokens and at most {length}",
                ids.len()
            );
        }
        let (mut queries, mut start, mut from) = (Vec::new(), 0, 1);
        while from < ids.len() {
            let end = ids.len().min(start + length + 1);
            queries.push(Query {
                context: ids[start..from].to_vec(),
                continuation: ids[from..end].to_vec(),
            });
            (start, from) = (start + stride, end);
        }
        let found = self.model.log_likelihoods(&queries, &mut |_| {})?;
        let log = found.iter().map(|score| score.log).sum();
        Ok((log, ids.len() - 1))
    }

    /// Ids of a prompt that `max_tokens` are to follow. A long prompt loses its beginning, but not one with virtual tokens in it, which the
    /// model refuses.
    pub(super) fn prompt(&self, prompt: &str, max_tokens: usize) -> Result<Vec<u32>> {
        let length = self.model.max_length();
        if max_tokens >= length {
            bail!("max_tokens: found {max_tokens}, want below the model's {length} tokens");
        }
        let mut ids = self.encode_whole(prompt)?;
        if ids.is_empty() {
            ids.push(self.prefix()?);
        }
        if ids.iter().any(|id| is_virtual(*id)) {
            return Ok(ids);
        }
        Ok(ids.split_off(ids.len().saturating_sub(length - max_tokens)))
    }

    /// The greedy continuations of prompts until one of `until`, which is cut off, the end of the document, or
    /// `max_tokens`; calls `on_done` for each that is complete.
    pub(super) fn generate(
        &self,
        prompts: &[Vec<u32>],
        (until, max_tokens): (&[String], usize),
        on_done: &mut dyn FnMut(),
    ) -> Result<Vec<String>> {
        let end = self.tokenizer.end_of_document();
        let mut failure = None;
        let is_done = &mut |_: usize, new: &[u32]| {
            if new.last().copied() == end {
                return true;
            }
            match self.decode(new) {
                Ok(text) => until.iter().any(|stop| text.contains(stop)),
                Err(e) => {
                    failure = Some(e);
                    true
                }
            }
        };
        let new = (self.model).generate(prompts, max_tokens, is_done, on_done)?;
        if let Some(e) = failure {
            return Err(e);
        }
        let text = |new: &Vec<u32>| {
            let mut text = self.decode(new)?;
            for stop in until {
                if let Some(at) = text.find(stop) {
                    text.truncate(at);
                }
            }
            Ok(text)
        };
        new.iter().map(text).collect()
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        // rows of the embedding beyond the tokenizer's ids have no text
        let known = ids
            .iter()
            .copied()
            .filter(|id| (*id as usize) < self.tokenizer.vocab());
        Ok(self.tokenizer.decode_text(&known.collect::<Vec<u32>>())?)
    }
}
