//! Reader of `tokenizer.json` for the fast engine: accepts the files it encodes exactly; the library keeps the
//! others.
//!
//! Accepted: a byte-level BPE without normalizer, truncation, padding or dropout, with a split pattern of `split.rs`
//! and no added token but special ones (which text never becomes, so they need no search).

use super::{ByteBpe, Merges, Split};
use rustc_hash::FxHashMap;
use serde_json::Value;

/// GPT-2's pattern, in Hugging Face's spelling and tiktoken's two.
const GPT2: [&str; 3] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
];
/// The cl100k family around its number rule: contractions, letters and the rest, in the three spellings in use. The last
/// one has `\s++$`: white space at the end of the text is one word, where the others cut it after its last newline.
const CL100K: [(&str, &str, bool); 3] = [
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        false,
    ),
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|",
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        false,
    ),
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|",
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        true,
    ),
];

impl Split {
    /// The split equivalent to a regular expression, if it is a known one.
    pub(crate) fn from_pattern(pattern: &str) -> Option<Split> {
        if GPT2.contains(&pattern) {
            return Some(Split::Gpt2);
        }
        CL100K.iter().find_map(|(before, after, whole_end)| {
            let number = pattern.strip_prefix(before)?.strip_suffix(after)?;
            let digits = match number {
                r"\p{N}{1,3}" | r"\p{N}{1,3}+" => 3,
                r"\p{N}" => 1,
                _ => return None,
            };
            let whole_end = *whole_end;
            Some(Split::Cl100k { digits, whole_end })
        })
    }
}

/// The engine for a `tokenizer.json`, if it is one that the engine encodes exactly.
pub(crate) fn from_tokenizer_json(value: &Value) -> Option<ByteBpe> {
    let absent = |v: &Value| v.is_null();
    let off = |v: &Value| v.is_null() || v == &Value::Bool(false);
    let empty = |v: &Value| v.is_null() || v.as_str() == Some("");
    let model = &value["model"];
    let is_bpe = match &model["type"] {
        Value::Null => model["merges"].is_array(),
        kind => kind == "BPE",
    };
    let is_plain = is_bpe
        && absent(&value["truncation"])
        && absent(&value["padding"])
        && is_identity(&value["normalizer"])
        && absent(&model["dropout"])
        && empty(&model["continuing_subword_prefix"])
        && empty(&model["end_of_word_suffix"])
        && off(&model["byte_fallback"])
        && off(&model["byte_level"]);
    let added = value["added_tokens"].as_array();
    let all_special = added.is_none_or(|a| a.iter().all(|t| t["special"] == true));
    if !is_plain || !all_special {
        return None;
    }
    let split = split_of(&value["pre_tokenizer"])?;
    let byte_of = bytes_of_alphabet();
    let mut tokens = Vec::new();
    let mut ids = FxHashMap::default();
    for (token, id) in model["vocab"].as_object()? {
        let id = u32::try_from(id.as_u64()?).ok()?;
        ids.insert(token.as_str(), id);
        // a token with characters outside the alphabet never occurs in text
        let bytes: Option<Vec<u8>> = token.chars().map(|c| byte_of.get(&c).copied()).collect();
        tokens.extend(bytes.map(|b| (b, id)));
    }
    let mut merges = Vec::new();
    for merge in model["merges"].as_array()? {
        let (left, right) = match merge {
            Value::String(both) => both.split_once(' ')?,
            pair => (pair[0].as_str()?, pair[1].as_str()?),
        };
        merges.push((*ids.get(left)?, *ids.get(right)?));
    }
    let ignore_merges = model["ignore_merges"] == true;
    ByteBpe::new(&tokens, Merges::Ranked(merges), split, ignore_merges).ok()
}

fn is_identity(normalizer: &Value) -> bool {
    let empty = || {
        normalizer["normalizers"]
            .as_array()
            .is_some_and(Vec::is_empty)
    };
    normalizer.is_null() || (normalizer["type"] == "Sequence" && empty())
}

fn split_of(pre_tokenizer: &Value) -> Option<Split> {
    let byte_level = |v: &Value| v["type"] == "ByteLevel" && v["add_prefix_space"] == false;
    // missing means true, in files older than the key
    let own_regex = |v: &Value| v["use_regex"].as_bool().unwrap_or(true);
    if byte_level(pre_tokenizer) {
        return own_regex(pre_tokenizer).then_some(Split::Gpt2);
    }
    let [cut, level] = pre_tokenizer["pretokenizers"].as_array()?.as_slice() else {
        return None;
    };
    let is_sequence = pre_tokenizer["type"] == "Sequence" && cut["type"] == "Split";
    // the patterns tile the text: keeping the matches or removing the gaps is the same
    let isolates = match cut["invert"].as_bool() {
        Some(true) => cut["behavior"] == "Removed",
        _ => cut["behavior"] == "Isolated",
    };
    if !is_sequence || !isolates || !byte_level(level) || own_regex(level) {
        return None;
    }
    let pattern = cut["pattern"]["Regex"].as_str()?;
    // to Hugging Face's engine `$` is the end of any line and `{1,3}+` a repetition; `Split` has tiktoken's meaning
    let differs = pattern.contains('$') || pattern.contains("{1,3}+");
    Split::from_pattern(pattern).filter(|_| !differs)
}

/// Byte of each character of GPT-2's alphabet.
fn bytes_of_alphabet() -> FxHashMap<char, u8> {
    let alphabet = crate::tokenizer::alphabet::byte_alphabet();
    alphabet.into_iter().zip(0..=255).collect()
}
