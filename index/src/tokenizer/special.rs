//! Special ids by role, found by the names that vocabularies use.
//!
//! A `tokenizer_config.json` beside the file gives the roles explicitly and takes precedence over names
//! (`load/roles.rs`).

use super::vocabulary::Vocabulary;
use std::collections::BTreeMap;

/// Known names of each role, the first that the vocabulary has counts.
const NAMES: [(&str, &[&str]); 7] = [
    (
        "bos",
        &["<s>", "<|begin_of_text|>", "<bos>", "[BOS]", "<BOS>"],
    ),
    (
        "eos",
        &[
            "</s>",
            "<|endoftext|>",
            "<|end_of_text|>",
            "<eos>",
            "[EOS]",
            "<EOS>",
        ],
    ),
    (
        "pad",
        &[
            "<pad>",
            "[PAD]",
            "<PAD>",
            "<|pad|>",
            "<|padding|>",
            "<|finetune_right_pad_id|>",
        ],
    ),
    ("unk", &["<unk>", "[UNK]", "<UNK>"]),
    ("cls", &["[CLS]", "<cls>", "<CLS>"]),
    ("sep", &["[SEP]", "<sep>", "<SEP>"]),
    ("mask", &["[MASK]", "<mask>", "<MASK>"]),
];

/// Ids of tokens with a role; none where the vocabulary has no such token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Special {
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Unknown token.
    pub unk: Option<u32>,
    /// First token of BERT's sequences.
    pub cls: Option<u32>,
    /// Separator between and after BERT's segments.
    pub sep: Option<u32>,
    /// Mask token.
    pub mask: Option<u32>,
    /// T5's `<extra_id_0>`, `<extra_id_1>` and so on, in that order, as many as follow without a gap.
    pub sentinels: Vec<u32>,
}

impl Special {
    /// Roles by name; `said` (role to token) comes before the known names.
    pub(super) fn find(vocabulary: &Vocabulary, said: &BTreeMap<String, String>) -> Special {
        let mut special = Special::default();
        for (role, names) in NAMES {
            let said = said.get(role).and_then(|t| vocabulary.id_of(t));
            let id = said.or_else(|| names.iter().find_map(|n| vocabulary.id_of(n)));
            match role {
                "bos" => special.bos = id,
                "eos" => special.eos = id,
                "pad" => special.pad = id,
                "unk" => special.unk = id,
                "cls" => special.cls = id,
                "sep" => special.sep = id,
                _ => special.mask = id,
            }
        }
        special.sentinels = (0u32..)
            .map_while(|n| vocabulary.id_of(&format!("<extra_id_{n}>")))
            .collect();
        special
    }
}
