//! Settings of profile `decon`: search for evaluation records, and scoring.

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};

/// Search and scoring settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampledRules {
    /// Field of the question.
    pub question_field: String,
    /// Field of the answer.
    pub answer_field: String,
    /// Field of the passage that the question is about.
    pub passage_field: String,
    /// Sampling interval in tokens. decon: 10.
    pub sample_every: usize,
    /// A question is followed until this many n-grams in a row contain nothing of it. decon: 11.
    pub max_misses: usize,
    /// A document with a score of this or more is dropped. decon: 0.8.
    pub min_score: f64,
    /// Records of up to this many tokens must match completely. decon: 20.
    pub whole_tokens: usize,
    /// Records of at least this many tokens need only `min_score`; between the two the required score falls
    /// linearly. decon: 50.
    pub free_tokens: usize,
    /// Records with fewer tokens are not searched for. decon: 20.
    pub min_tokens: usize,
    /// Records with fewer different words are not searched for. decon: 4.
    pub min_unique_words: usize,
}

impl Default for SampledRules {
    fn default() -> Self {
        SampledRules {
            question_field: "question".to_string(),
            answer_field: "answer".to_string(),
            passage_field: "passage".to_string(),
            sample_every: 10,
            max_misses: 11,
            min_score: 0.8,
            whole_tokens: 20,
            free_tokens: 50,
            min_tokens: 20,
            min_unique_words: 4,
        }
    }
}

impl SampledRules {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(
            problem,
            "sample_every",
            self.sample_every as f64,
            1.0,
            1000.0,
        );
        range(problem, "max_misses", self.max_misses as f64, 1.0, 1000.0);
        range(problem, "min_score", self.min_score, 0.1, 1.0);
        let (whole, free) = (self.whole_tokens as f64, self.free_tokens as f64);
        range(problem, "whole_tokens", whole, 0.0, free);
    }
}
