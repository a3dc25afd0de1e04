//! The interface between a model and the tasks that measure it: log-likelihoods of continuations and of whole texts,
//! and greedy text. An engine that batches or caches differently implements the same three methods.
//!
//! Windows of long texts are lm-evaluation-harness 0.4.13's (`get_rolling_token_windows`, `make_disjoint_window`).

use crate::config::TaskMarkers;
use crate::error::Result;

/// A continuation to score after a context, as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// At least one token. If both are longer than the model reads, its first tokens are left out; of a context with virtual
    /// tokens none is, and one that is too long is refused.
    pub context: Vec<u32>,
    /// One to `max_length` tokens.
    pub continuation: Vec<u32>,
}

/// Score of a continuation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Sum of the natural logarithms of the probabilities of its tokens. Each is an f32; the sum is an f64 over
    /// ascending positions.
    pub log: f64,
    /// Whether every token is the likeliest at its position, the lowest id among equals.
    pub is_greedy: bool,
}

/// A model that continues texts.
pub trait LanguageModel {
    /// Tokens that the model reads at once, without the virtual tokens that it has of its own.
    fn max_length(&self) -> usize;

    /// The markers of virtual tokens of each task. Empty, the default: the model has none.
    fn markers(&self) -> Vec<TaskMarkers> {
        Vec::new()
    }

    /// Scores in the order of `queries`; calls `on_done` with the number of queries that each step has finished.
    ///
    /// # Errors
    /// An empty context or continuation, a continuation beyond `max_length`, a token outside the vocabulary.
    fn log_likelihoods(
        &self,
        queries: &[Query],
        on_done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Likelihood>>;

    /// The likeliest continuations of prompts, in their order, each until `is_done` accepts the prompt's number and the
    /// tokens so far or there are `max_tokens`; calls `on_done` for each that is complete.
    ///
    /// # Errors
    /// An empty prompt, one that with `max_tokens` is longer than `max_length`, a token outside the vocabulary.
    fn generate(
        &self,
        prompts: &[Vec<u32>],
        max_tokens: usize,
        is_done: &mut dyn FnMut(usize, &[u32]) -> bool,
        on_done: &mut dyn FnMut(),
    ) -> Result<Vec<Vec<u32>>>;

    /// Queries whose log-likelihoods add up to that of `tokens`, each token predicted once: windows of
    /// `max_length` tokens, the first after `prefix`, each other one after the last token of the one before
    /// it (and, if it is shorter, after as many earlier tokens as fit).
    fn windows(&self, tokens: &[u32], prefix: u32) -> Vec<Query> {
        windows(tokens, prefix, self.max_length())
    }
}

fn windows(tokens: &[u32], prefix: u32, length: usize) -> Vec<Query> {
    let first = tokens.len().min(length);
    let mut queries = Vec::new();
    if first > 0 {
        queries.push(Query {
            context: vec![prefix],
            continuation: tokens[..first].to_vec(),
        });
    }
    let mut predicted = first;
    while predicted < tokens.len() {
        let end = tokens.len().min(predicted + length);
        queries.push(Query {
            context: tokens[end - length - 1..predicted].to_vec(),
            continuation: tokens[predicted..end].to_vec(),
        });
        predicted = end;
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::*;

    // lm-evaluation-harness 0.4.13: the examples of `tests/test_utils.py` with a context of 1, made disjoint
    #[test]
    fn windows_predict_every_token_once_and_fill_the_last_with_context() {
        let tokens: Vec<u32> = (0..11).collect();
        let found = windows(&tokens, 100, 4);
        let of = |context: &[u32], continuation: &[u32]| Query {
            context: context.to_vec(),
            continuation: continuation.to_vec(),
        };
        assert_eq!(
            found,
            [
                of(&[100], &[0, 1, 2, 3]),
                of(&[3], &[4, 5, 6, 7]),
                of(&[6, 7], &[8, 9, 10]),
            ]
        );
        assert_eq!(windows(&[], 100, 4), []);
        assert_eq!(windows(&[7], 100, 4), [of(&[100], &[7])]);
    }
}
