//! decon's decontamination: samples every tenth token of a document for an n-gram of a question. Around a hit, it
//! scores how much of the question, its answer and its passage the document contains, weighted by how rare their
//! n-grams are.
//!
//! Program: allenai/decon e1bcb80 (0.3.0), `detect/`, with its `uniseg` tokenizer: tokens are UAX 29's segments,
//! the spaces among them, of the lower-cased text with punctuation for spaces (`clean.rs`). From an n-gram of some
//! questions the search extends left and right; a question is followed until 11 n-grams in a row contain nothing of
//! it (`cluster.rs`). The score is a mean of the parts' overlaps, each the share of the part's ln(N / n) that
//! matched, n of N records having the n-gram (`score.rs`); short records need a score nearer to 1. Sums are in
//! single precision and in decon's order, so scores are decon's to the bit for one evaluation file. We differ:
//! decon's default tokens are cl100k's, which this crate lacks: a segment is a word or a space, two of which make
//! about two and a half of such tokens, so that an n-gram of 5 spans three words instead of four or five. Records
//! are numbered in order, without a `doc_id`. With several evaluation files decon numbers n-grams in thread order,
//! which can change a score by a rounding.

mod clean;
mod cluster;
mod index;
mod rules;
mod score;

use clean::Tokens;

pub(super) use index::Index;
pub use rules::SampledRules;

/// A record of an evaluation set in a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hit {
    /// Its number.
    pub(super) record: u32,
    pub(super) score: f32,
    /// First and last token of the question.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Index {
    /// The record with the highest score in a text, the first of several: its task, the score and the matched words.
    pub(super) fn meet(&self, text: &str) -> Option<(u32, f32, String)> {
        let tokens = Tokens::of(text);
        let hits = self.hits(&tokens);
        let best = hits.into_iter().reduce(|best, hit| {
            let is_better = hit.score > best.score
                || (hit.score >= best.score && (hit.record, hit.start) < (best.record, best.start));
            if is_better { hit } else { best }
        })?;
        let words = tokens.text(best.start, best.end);
        Some((self.task(best.record), best.score, words.trim().to_string()))
    }

    /// Every record in a text.
    fn hits(&self, tokens: &Tokens) -> Vec<Hit> {
        let mut hits = Vec::new();
        if tokens.len() < 2 * self.ngram() {
            return hits;
        }
        cluster::each(self, tokens.hashes(), &mut |met| {
            for found in met {
                if let Some(score) = score::score(self, tokens.hashes(), found) {
                    hits.push(Hit {
                        record: found.record,
                        score,
                        start: found.start,
                        end: found.end + self.ngram() - 1,
                    });
                }
            }
        });
        hits
    }
}

#[cfg(test)]
mod tests;
