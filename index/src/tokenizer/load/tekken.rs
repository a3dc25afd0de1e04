//! Loader of Mistral's `tekken.json`: tiktoken's ranks with the file's own pattern, behind a block of special
//! tokens.
//!
//! `config` has the pattern, the vocabulary's size V and the special tokens' number S; the first V - S entries of
//! `vocab` are used, and entry r has id S + r. `special_tokens` names ids 0 and up; files before version 11 have
//! none and imply the twenty below; missing ids up to S are `<SPECIAL_n>`. The name of a special token in a text is
//! text. Source: mistral_common 1.13 `tekken.py` (facts).

use super::source::Parts;
use super::{base64, tiktoken};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;

/// Special tokens of files that do not name them, from id 0 on.
const UNNAMED: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Maximum number of special tokens: unnamed ones are generated from the file's count alone.
const MOST_SPECIAL: usize = 1 << 16;

#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Entry>,
    special_tokens: Option<Vec<SpecialEntry>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct Entry {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct SpecialEntry {
    rank: usize,
    token_str: String,
}

/// Whether a JSON text is a `tekken.json`.
pub(super) fn is_tekken(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Probe {
        #[expect(dead_code, reason = "that it is there is the answer")]
        config: Config,
        #[expect(dead_code, reason = "that it is there is the answer")]
        vocab: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Probe>(text).is_ok()
}

/// From the file's text. The error names the entry.
pub(super) fn parts(text: &str) -> Result<Parts, String> {
    let file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let Config {
        pattern,
        default_vocab_size: size,
        default_num_special_tokens: special_count,
    } = file.config;
    let have = file.vocab.len();
    if special_count > MOST_SPECIAL {
        return Err(format!(
            "config.default_num_special_tokens: found {special_count}, wanted at most {MOST_SPECIAL}"
        ));
    }
    let used = size.checked_sub(special_count).filter(|n| *n <= have);
    let Some(used) = used else {
        return Err(format!(
            "config.default_vocab_size: found {size}, wanted {special_count} special tokens and at most the {have} entries of vocab"
        ));
    };
    let mut ranks: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
    for (number, entry) in file.vocab.into_iter().take(used).enumerate() {
        let wrong = |found: &str, wanted: &str| {
            Err(format!("vocab[{number}]: found {found:?}, wanted {wanted}"))
        };
        if entry.rank != number {
            return wrong(&entry.rank.to_string(), "its place as rank");
        }
        let Some(bytes) = base64::decode(&entry.token_bytes) else {
            return wrong(&entry.token_bytes, "base64");
        };
        let id = u32::try_from(special_count + number).unwrap_or(u32::MAX);
        if bytes.len() > tiktoken::LONGEST || ranks.insert(bytes, id).is_some() {
            return wrong(&entry.token_bytes, "a short token that no entry before has");
        }
    }
    let named = match file.special_tokens {
        Some(named) => named.into_iter().map(|t| (t.rank, t.token_str)).collect(),
        None => UNNAMED
            .map(String::from)
            .into_iter()
            .enumerate()
            .collect::<Vec<_>>(),
    };
    let mut special: Vec<(String, u32)> = Vec::new();
    let mut taken = FxHashSet::default();
    for (number, (rank, token)) in named.into_iter().enumerate() {
        let id = u32::try_from(rank).ok().filter(|_| rank < special_count);
        match id.filter(|_| rank == number && taken.insert(token.clone())) {
            Some(id) => special.push((token, id)),
            None => {
                return Err(format!(
                    "special_tokens[{number}]: found {token:?} with rank {rank}, wanted another name, its place as rank, below {special_count}"
                ));
            }
        }
    }
    let unnamed = special.len()..special_count;
    special.extend(unnamed.map(|n| {
        let id = u32::try_from(n).unwrap_or(u32::MAX);
        (format!("<SPECIAL_{n}>"), id)
    }));
    tiktoken::parts_of(ranks, &pattern, &special)
}
