//! Rules for cuts around evaluation texts and for the remaining pieces.

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};

/// Cuts around a match, and handling of the remaining pieces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CutRules {
    /// Evaluation texts with fewer words are not searched for. MT-NLG: 8.
    pub min_ngram: usize,
    /// Characters removed on each side of a match, before extending to the nearest end of a sentence. MT-NLG: 200.
    pub side_chars: usize,
    /// Pieces of up to this many characters are dropped. MT-NLG: 200.
    pub min_piece_chars: usize,
    /// A document with more pieces is dropped. MT-NLG: 10.
    pub max_pieces: usize,
    /// N-grams in this many documents or more are not searched for; 0: all are. MT-NLG: 10.
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
