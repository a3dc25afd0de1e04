//! Settings of tokenizer training.

use serde::{Deserialize, Serialize};

/// Algorithm to train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainKind {
    /// Byte-level BPE, GPT-2's kind.
    #[default]
    Bpe,
    /// WordPiece, BERT's kind.
    WordPiece,
    /// Unigram language model, T5's kind.
    Unigram,
}

/// Settings of a tokenizer training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainSettings {
    /// Algorithm. Default: `bpe`.
    pub kind: TrainKind,
    /// Entries, special tokens included. Default: 8192, for small models.
    pub vocab: usize,
    /// Minimum occurrences of a merged pair (BPE, WordPiece) or candidate (Unigram). Default: 2, as Hugging Face's.
    pub min_frequency: u64,
    /// Bytes of text to learn from; the rest is not counted. 0: all.
    pub max_bytes: u64,
    /// Special tokens besides the usual ones of the kind (`<|endoftext|>`; `[PAD] [UNK] [CLS] [SEP] [MASK]`; `<unk>`,
    /// `<pad>`, `</s>`), for instance T5's sentinels `<extra_id_0>`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<String>,
    /// Fold case first; WordPiece also strips accents. Not for BPE.
    pub lowercase: bool,
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings {
            kind: TrainKind::Bpe,
            vocab: 8192,
            min_frequency: 2,
            max_bytes: 0,
            special: Vec::new(),
            lowercase: false,
        }
    }
}

impl TrainSettings {
    /// Reports every setting out of range as (key, found, wanted).
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let fewest = match self.kind {
            TrainKind::Bpe => 256,
            _ => 16,
        } + self.specials().len();
        if !(fewest..=1_000_000).contains(&self.vocab) {
            let wanted = "at least the special tokens and the alphabet, at most 1000000";
            problem("vocab", self.vocab.to_string(), wanted);
        }
        if self.min_frequency == 0 {
            problem("min_frequency", "0".into(), "1 or more");
        }
        if self.lowercase && self.kind == TrainKind::Bpe {
            problem("lowercase", "true".into(), "false for byte-level BPE");
        }
        let mut sorted = self.specials();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|p| p[0] == p[1]);
        if let Some(token) = twice
            .map(|p| p[0])
            .or(sorted.first().filter(|t| t.is_empty()).copied())
        {
            problem(
                "special",
                format!("{token:?}"),
                "different tokens, none empty, none of the usual ones",
            );
        }
    }

    /// The usual special tokens of the kind, then the requested ones.
    pub(super) fn specials(&self) -> Vec<&str> {
        let usual: &[&str] = match self.kind {
            TrainKind::Bpe => &["<|endoftext|>"],
            TrainKind::WordPiece => &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            TrainKind::Unigram => &["<unk>", "<pad>", "</s>"],
        };
        let asked = self.special.iter().map(String::as_str);
        usual.iter().copied().chain(asked).collect()
    }
}
