//! Split expressions of byte-level BPE by the names that GGUF files give them (`tokenizer.ggml.pre`).
//!
//! A name stands for everything beside vocabulary and merges: the expression, whether a whole word that is a token is
//! taken without merges, and whether texts begin with a token by default. Source: the names in llama.cpp's
//! `llama-vocab.cpp`; the expressions and normalizers are those of the models' own `tokenizer.json`.

use serde_json::{Value as Json, json};

/// Normalizer of a tokenizer that Millrace wrote: `none` or `nfc`. llama.cpp does not normalize and passes over it.
pub(super) const NORMALIZER_KEY: &str = "millrace.tokenizer.normalizer";

/// Steps that cut a text into words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Steps {
    /// GPT-2's expression, which the `ByteLevel` step has.
    Gpt2,
    /// Each digit alone, then GPT-2's expression.
    DigitsThenGpt2,
    /// Expressions in turn.
    Expressions(&'static [&'static str]),
}

/// A way to split and its names.
pub(super) struct Split {
    pub names: &'static [&'static str],
    pub steps: Steps,
    pub ignores_merges: bool,
    /// Texts begin with the token that begins them unless the file says otherwise.
    pub adds_bos: bool,
    /// Composes characters first (NFC), as the models' own tokenizers do.
    composes: bool,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// All ways that are known.
pub(super) const NAMES: [Split; 7] = [
    Split {
        names: &["gpt-2", "phi-2"],
        steps: Steps::Gpt2,
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    // GPT-NeoX's
    Split {
        names: &["olmo", "mpt"],
        steps: Steps::Gpt2,
        ignores_merges: false,
        adds_bos: false,
        composes: true,
    },
    Split {
        names: &["llama-bpe", "llama3", "llama-v3"],
        steps: Steps::Expressions(&[LLAMA3]),
        ignores_merges: true,
        adds_bos: true,
        composes: false,
    },
    Split {
        names: &["qwen2", "deepseek-r1-qwen"],
        steps: Steps::Expressions(&[QWEN2]),
        ignores_merges: false,
        adds_bos: false,
        composes: true,
    },
    Split {
        names: &["starcoder", "refact", "smollm", "codeshell"],
        steps: Steps::DigitsThenGpt2,
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["gpt-4o"],
        steps: Steps::Expressions(&[GPT4O]),
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["tekken"],
        steps: Steps::Expressions(&[TEKKEN]),
        ignores_merges: true,
        adds_bos: true,
        composes: false,
    },
];

/// The way with this name.
pub(super) fn find(name: &str) -> Option<&'static Split> {
    const ALL: &[Split] = &NAMES;
    ALL.iter().find(|split| split.names.contains(&name))
}

/// The first name of the way with these expressions, which come before the `ByteLevel` step.
pub(super) fn name_of(expressions: &[String]) -> Option<&'static str> {
    let is_it = |split: &&Split| match split.steps {
        Steps::Gpt2 => expressions.is_empty(),
        Steps::DigitsThenGpt2 => false,
        Steps::Expressions(known) => known == expressions,
    };
    NAMES.iter().find(is_it).map(|split| split.names[0])
}

impl Split {
    /// `pre_tokenizer` of `tokenizer.json`. `prefix`: a blank goes before a text that begins with none.
    pub(super) fn pre_tokenizer(&self, prefix: bool) -> Json {
        let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex});
        let steps = match self.steps {
            Steps::Gpt2 => return bytes(true),
            Steps::DigitsThenGpt2 => {
                vec![
                    json!({"type": "Digits", "individual_digits": true}),
                    bytes(true),
                ]
            }
            Steps::Expressions(all) => {
                let of = |regex: &&str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
                all.iter().map(of).chain([bytes(false)]).collect()
            }
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }

    /// `normalizer` of `tokenizer.json`.
    pub(super) fn normalizer(&self) -> Json {
        match self.composes {
            true => json!({"type": "NFC"}),
            false => Json::Null,
        }
    }
}
