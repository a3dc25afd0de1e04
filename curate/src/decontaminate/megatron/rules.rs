//! What is cut around evaluation texts, and what becomes of the pieces.

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};

/// What is cut around a match, and what becomes of the pieces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CutRules {
    /// Evaluation texts with fewer words are not searched for. MT-NLG: 8.
    pub min_ngram: usize,
    /// Characters that go on each side of a match, before the nearest end of a sentence. MT-NLG: 200.
    pub side_chars: usize,
    /// Pieces of up to so many characters go. MT-NLG: 200.
    pub min_piece_chars: usize,
    /// A document of more pieces goes. MT-NLG: 10.
    pub max_pieces: usize,
    /// N-grams of so many documents and more are not searched for; 0: all are. MT-NLG: 10.
    pub frequent_documents: u64,
}

impl Default for CutRules {
    fn default() -> Self {
        CutRules {
            min_ngram: 8,
            side_chars: 200,
            min_piece_chars: 200,
            max_pieces: 10,
            frequent_documents: 10,
        }
    }
}

impl CutRules {
    /// Reports every contradiction; `ngram` words are the most.
    pub fn check(&self, ngram: usize, problem: Problem<'_>) {
        range(
            problem,
            "min_ngram",
            self.min_ngram as f64,
            1.0,
            ngram as f64,
        );
        let chars = [
            ("side_chars", self.side_chars),
            ("min_piece_chars", self.min_piece_chars),
        ];
        for (key, value) in chars {
            range(problem, key, value as f64, 0.0, 1e6);
        }
        range(problem, "max_pieces", self.max_pieces as f64, 1.0, 1e6);
    }
}
