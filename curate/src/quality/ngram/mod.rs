//! Backoff n-gram language models in KenLM's formats, ARPA text and its binary files: log probabilities and perplexity.
//!
//! Paper: Heafield 2011, "KenLM: Faster and Smaller Language Model Queries". The probability of a word is that of the
//! longest n-gram that the model has, times the backoff weights of the longer contexts that it lacks. CCNet (Wenzek et al.
//! 2020, arXiv:1911.00359) ranks documents by the perplexity of their lines. We differ: sums are f64, KenLM's f32.

mod arpa;
mod binary;
mod bits;
mod cuts;
mod probing;
mod search;
mod train;
mod trie;
mod weights;

pub use self::cuts::{PerplexityCuts, perplexity_cuts};
pub use self::train::{NgramReport, NgramTraining};

use std::path::Path;

use crate::error::{At, Error, Result};
use search::Search;
use weights::{MOST_ORDER, NO_UNKNOWN, Words, murmur64a};

/// No model file that is read into memory is larger.
const MOST_BYTES: u64 = 64 << 30;

/// A language model. Shared by threads.
#[derive(Debug)]
pub struct NgramModel {
    order: usize,
    words: Words,
    search: Search,
    begin: u32,
    end: u32,
}

/// Context of a model between words.
#[derive(Clone, Debug)]
pub struct NgramState {
    /// The last words, the newest first.
    history: [u32; MOST_ORDER],
    /// Backoff weights of the last 1, 2, ... words.
    backoffs: [f32; MOST_ORDER],
    length: usize,
}

/// Whether a file's first bytes may be those of a model: KenLM's mark, an ARPA file's first line, or compression.
pub(crate) fn may_be_model(head: &[u8]) -> bool {
    let compressed: [&[u8]; 2] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];
    binary::is_binary(head)
        || head.trim_ascii_start().starts_with(b"\\data\\")
        || compressed.iter().any(|magic| head.starts_with(magic))
}

impl NgramModel {
    /// Reads an ARPA file (plain, gzip or zstd) or a binary file of KenLM's, recognized by content.
    ///
    /// # Errors
    /// `Io`; `Input` naming line or byte, found and wanted, before anything is scored.
    pub fn open(path: &Path) -> Result<NgramModel> {
        let length = std::fs::metadata(path).at(path)?.len();
        let wrong = |why: String| Error::Input {
            path: path.to_path_buf(),
            why,
        };
        if length > MOST_BYTES {
            return Err(wrong(format!(
                "found {length} bytes, wanted at most {MOST_BYTES}"
            )));
        }
        let bytes = std::fs::read(path).at(path)?;
        let parts = match binary::is_binary(&bytes) {
            true => binary::parse(bytes),
            false => arpa::parse(&bytes),
        };
        let (order, words, search) = parts.map_err(wrong)?;
        let mut model = NgramModel {
            order,
            words,
            search,
            begin: 0,
            end: 0,
        };
        (model.begin, model.end) = (model.word("<s>"), model.word("</s>"));
        for (mark, number) in [("<s>", model.begin), ("</s>", model.end)] {
            if number == 0 {
                return Err(wrong(format!("found no {mark} among the words, wanted it")));
            }
        }
        Ok(model)
    }

    /// Words of its longest n-grams.
    pub fn order(&self) -> usize {
        self.order
    }

    fn word(&self, word: &str) -> u32 {
        let hash = murmur64a(word.as_bytes());
        match (&self.words, &self.search) {
            (Words::Map(map), _) => map.get(&hash).copied().unwrap_or(0),
            (Words::Sorted(hashes), _) => {
                let found = hashes.binary_search(&hash).ok();
                found.and_then(|at| u32::try_from(at + 1).ok()).unwrap_or(0)
            }
            (Words::InSearch, Search::Probing(tables)) => tables.word(hash),
            (Words::InSearch, _) => 0,
        }
    }

    /// Before the first word of a sentence.
    pub fn start(&self) -> NgramState {
        let mut state = NgramState {
            history: [0; MOST_ORDER],
            backoffs: [0.0; MOST_ORDER],
            length: 0,
        };
        if let Some((weights, _)) = self.search.unigram(self.begin) {
            state.history[0] = self.begin;
            state.backoffs[0] = weights.backoff;
            state.length = 1.min(self.order - 1);
        }
        state
    }

    /// log10 of the probability of `word` in the context `state`, and whether the model knows the word.
    pub fn next(&self, state: &mut NgramState, word: &str) -> (f64, bool) {
        let number = self.word(word);
        (self.step(state, number), number != 0)
    }

    fn step(&self, state: &mut NgramState, word: u32) -> f64 {
        let (mut prob, mut backoffs) = (NO_UNKNOWN, [0.0f32; MOST_ORDER]);
        let mut matched = 1;
        if let Some((weights, mut node)) = self.search.unigram(word) {
            prob = weights.prob;
            backoffs[0] = weights.backoff;
            for before in &state.history[..state.length] {
                match self.search.extend(matched, node, *before) {
                    Some((weights, next)) => {
                        prob = weights.prob;
                        backoffs[matched] = weights.backoff;
                        node = next;
                        matched += 1;
                    }
                    None => break,
                }
            }
        }
        // contexts longer than the one that was found
        let missed = state.backoffs[..state.length].iter().skip(matched - 1);
        let score = f64::from(prob) + missed.map(|b| f64::from(*b)).sum::<f64>();
        state.length = (state.length + 1).min(self.order - 1);
        state.history.copy_within(..MOST_ORDER - 1, 1);
        state.history[0] = word;
        state.backoffs = backoffs;
        score
    }

    /// log10 of the probability of a sentence, its end included; words are separated by white space.
    pub fn score(&self, sentence: &str) -> f64 {
        self.score_and_words(sentence).0
    }

    fn score_and_words(&self, sentence: &str) -> (f64, usize) {
        let mut state = self.start();
        let (mut score, mut words) = (0.0, 0);
        for word in sentence.split_ascii_whitespace() {
            score += self.next(&mut state, word).0;
            words += 1;
        }
        (score + self.step(&mut state, self.end), words)
    }

    /// 10 to the minus mean log10 probability of a sentence's words and its end.
    pub fn perplexity(&self, sentence: &str) -> f64 {
        let (score, words) = self.score_and_words(sentence);
        10f64.powf(-score / (words + 1) as f64)
    }

    /// The same over the lines of a document, as CCNet does it: each line a sentence.
    pub fn document_perplexity(&self, text: &str) -> f64 {
        let (mut score, mut length) = (0.0, 0);
        for line in text.split('\n') {
            let (s, words) = self.score_and_words(line);
            score += s;
            length += words + 1;
        }
        10f64.powf(-score / length as f64)
    }
}

#[cfg(test)]
mod tests;
