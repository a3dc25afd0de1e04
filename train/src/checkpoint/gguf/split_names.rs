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
    /// Falcon's: punctuation, GPT-2's expression, digits in threes.
    Falcon,
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

const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";
/// Letters of the scripts with two cases.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_MARKS: &str = r"\s?[!-/:-~！-／：-～‘-‟　-。]+";
const DEEPSEEK_CHARACTERS: &str = r"[一-龥ࠀ-一가-퟿]+";
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// All ways that are known.
pub(super) const NAMES: [Split; 14] = [
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
    Split {
        names: &["command-r"],
        steps: Steps::DigitsThenGpt2,
        ignores_merges: false,
        adds_bos: false,
        composes: true,
    },
    Split {
        names: &["qwen35"],
        steps: Steps::Expressions(&[QWEN35]),
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["falcon"],
        steps: Steps::Falcon,
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["bloom"],
        steps: Steps::Expressions(&[BLOOM]),
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["deepseek-llm"],
        steps: Steps::Expressions(&[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            DEEPSEEK_MARKS,
            r"\s+$",
            DEEPSEEK_CHARACTERS,
            r"\p{N}",
        ]),
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["deepseek-coder"],
        steps: Steps::Expressions(&[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            DEEPSEEK_CHARACTERS,
            r"\p{N}",
        ]),
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
    Split {
        names: &["deepseek-v3"],
        steps: Steps::Expressions(&[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3]),
        ignores_merges: false,
        adds_bos: false,
        composes: false,
    },
];

/// The way with this name.
pub(super) fn find(name: &str) -> Option<&'static Split> {
    const ALL: &[Split] = &NAMES;
    ALL.iter().find(|split| split.names.contains(&name))
}

/// The first name of the way that has the steps of a `pre_tokenizer` of `tokenizer.json`.
pub(super) fn name_of(json: &Json) -> Option<&'static str> {
    let steps = steps_of(json);
    let is_it = |split: &&Split| steps_of(&split.pre_tokenizer(false)) == steps;
    NAMES.iter().find(is_it).map(|split| split.names[0])
}

/// The steps of a `pre_tokenizer`, those that cut alike by one text.
pub(super) fn steps_of(json: &Json) -> Vec<String> {
    if let Some(inner) = json["pretokenizers"].as_array() {
        return inner.iter().flat_map(steps_of).collect();
    }
    let step = match json["type"].as_str().unwrap_or("none") {
        "Split" => {
            let pattern = json["pattern"].as_object();
            let pattern = pattern.and_then(|pattern| pattern.values().next());
            pattern.and_then(Json::as_str).unwrap_or("none")
        }
        "Digits" if json["individual_digits"] == true => r"\p{N}",
        "Digits" => r"\p{N}+",
        // bytes to characters alone
        "ByteLevel" if json["use_regex"] == false => return Vec::new(),
        other => other,
    };
    vec![step.to_owned()]
}

impl Split {
    /// `pre_tokenizer` of `tokenizer.json`. `prefix`: a blank goes before a text that begins with none.
    pub(super) fn pre_tokenizer(&self, prefix: bool) -> Json {
        let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex});
        let expression = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let steps = match self.steps {
            Steps::Gpt2 => return bytes(true),
            Steps::DigitsThenGpt2 => {
                vec![
                    json!({"type": "Digits", "individual_digits": true}),
                    bytes(true),
                ]
            }
            Steps::Falcon => vec![
                json!({"type": "Punctuation", "behavior": "Contiguous"}),
                bytes(true),
                json!({"type": "Digits", "individual_digits": false}),
                expression("[0-9][0-9][0-9]"),
            ],
            Steps::Expressions(all) => all
                .iter()
                .map(|regex| expression(regex))
                .chain([bytes(false)])
                .collect(),
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
