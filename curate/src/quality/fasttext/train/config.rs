//! Settings of training a fastText classifier.

use serde::Serialize;

use crate::corpus::Corpus;

/// Loss of the output layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassifierLoss {
    /// One label of all.
    Softmax,
    /// The same through a tree, for many labels.
    Hs,
    /// Each label for itself.
    Ova,
}

/// Training settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassifierTraining {
    /// Dimension of the embeddings. fastText: 100.
    pub dim: usize,
    /// First learning rate. fastText: 0.1.
    pub rate: f64,
    /// Times that every example is read. fastText: 5.
    pub epochs: usize,
    /// Longest word n-grams. fastText: 1; MT-NLG: 2.
    pub word_ngrams: usize,
    /// Times that a word must be there. fastText: 1.
    pub min_count: i64,
    /// Rows that n-grams share. fastText: 2,000,000.
    pub buckets: u32,
    /// Shortest character n-grams. fastText: 0.
    pub min_chars: usize,
    /// Longest character n-grams; 0: none. fastText: 0.
    pub max_chars: usize,
    /// Last layer. fastText: softmax.
    pub loss: ClassifierLoss,
    /// Seed of the choice of examples, their order and the initial weights.
    pub seed: u64,
    /// Share of the examples that is not trained on.
    pub held_out: f64,
    /// Examples of a label at most; 0: all.
    pub per_label: usize,
    /// As many examples of each label as the rarest has.
    pub balanced: bool,
}

impl Default for ClassifierTraining {
    fn default() -> Self {
        ClassifierTraining {
            dim: 100,
            rate: 0.1,
            epochs: 5,
            word_ngrams: 2,
            min_count: 1,
            buckets: 2_000_000,
            min_chars: 0,
            max_chars: 0,
            loss: ClassifierLoss::Softmax,
            seed: 42,
            held_out: 0.1,
            per_label: 0,
            balanced: true,
        }
    }
}

/// Texts to train on.
#[derive(Clone, Debug)]
pub enum ClassifierInput {
    /// All of one label.
    Of {
        /// With or without `__label__`.
        label: String,
        /// The texts.
        corpus: Corpus,
    },
    /// Lines as fastText reads them, their labels among the words.
    Labelled(Corpus),
}
