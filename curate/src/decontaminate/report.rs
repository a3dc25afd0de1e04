//! Counts of matches with evaluation sets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DecontaminateProfile;

/// Matches with evaluation sets, and their handling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decontamination {
    /// Whose words and n-grams.
    pub profile: DecontaminateProfile,
    /// Documents that were searched.
    pub documents: u64,
    /// Documents that hold an n-gram; `met == trimmed + split + removed + too_many_pieces + dropped`.
    pub met: u64,
    /// Documents that were dropped in the curation pass.
    pub dropped: u64,
    /// Documents of which one piece is left.
    pub trimmed: u64,
    /// Documents of which several pieces are left, each a document from here on.
    pub split: u64,
    /// Pieces of split documents.
    pub pieces: u64,
    /// Documents of which no piece was long enough.
    pub removed: u64,
    /// Documents that fell into too many pieces.
    pub too_many_pieces: u64,
    /// Bytes cut from documents that stay.
    pub bytes: u64,
    /// By task.
    pub tasks: BTreeMap<String, TaskHits>,
    /// Some documents that contain an n-gram, at most a few per task.
    pub examples: Vec<Contaminated>,
}

/// Matches with one evaluation set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHits {
    /// Its texts.
    pub texts: u64,
    /// Its n-grams, without those of earlier tasks.
    pub ngrams: u64,
    /// N-grams that occur in too many documents and were not searched for.
    pub frequent: u64,
    /// Documents with at least one.
    pub documents: u64,
    /// Times one was met.
    pub hits: u64,
}

/// A document with an n-gram of an evaluation set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contaminated {
    /// Document id.
    pub id: String,
    /// The task of the first matched n-gram.
    pub task: String,
    /// The matched n-gram or other evidence.
    pub ngram: String,
    /// `trimmed`, `split`, `removed`, `too_many_pieces` or `dropped`.
    pub outcome: String,
    /// The text around it, or its beginning.
    pub excerpt: String,
}
