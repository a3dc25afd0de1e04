//! Loader of OpenAI's rank files: one token per line, its bytes in base64 and its rank, which is its id.
//!
//! Facts: tiktoken 0.14 (`tiktoken/load.py`, `tiktoken_ext/openai_public.py`: patterns and special tokens of the
//! published vocabularies). A word that is a token becomes it; else the two neighbours whose join has the lowest
//! rank are joined, leftmost first. Inside a token's bytes, lower ranks join in the same order in any context, so
//! each token comes from one pair, the last two parts of its own joins; this converts ranks to the usual list of
//! merges.

use super::source::Parts;
use super::{base64, library};
use crate::tokenizer::alphabet::byte_alphabet;
use crate::tokenizer::byte_bpe::{self, ByteBpe, Merges};
use crate::tokenizer::engine::{Engine, Later};
use crate::tokenizer::format::Split;
use crate::tokenizer::vocabulary;
use rustc_hash::FxHashMap;
use serde_json::json;

/// `\s++$`: white space at the end is one word. The possessive forms are tiktoken's own.
const GPT2: &str =
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";
const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen's `tokenization_qwen.py`: LLaMA 3's with one digit per word.
const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Bytes that no UTF-8 holds; GPT-NeoX's vocabulary lacks them.
const NOT_IN_UTF8: [u8; 13] = [
    0xc0, 0xc1, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff,
];

/// No token is longer: GPT-4o's longest has 128 bytes.
pub(super) const LONGEST: usize = 4096;

/// The split and special tokens of a vocabulary known by its file's name.
pub(super) fn known_by_name(name: &str) -> Option<(Split, Vec<(String, u32)>)> {
    let special = |list: &[(&str, u32)]| list.iter().map(|(t, id)| (t.to_string(), *id)).collect();
    let name = name.to_lowercase();
    let has = |part: &str| name.contains(part);
    if has("o200k") {
        let list = [("<|endoftext|>", 199_999), ("<|endofprompt|>", 200_018)];
        return Some((Split::O200k, special(&list)));
    }
    if has("cl100k") {
        let list = [
            ("<|endoftext|>", 100_257),
            ("<|fim_prefix|>", 100_258),
            ("<|fim_middle|>", 100_259),
            ("<|fim_suffix|>", 100_260),
            ("<|endofprompt|>", 100_276),
        ];
        return Some((Split::Cl100k, special(&list)));
    }
    if has("r50k") || has("p50k") || has("gpt2") {
        return Some((Split::Gpt2, special(&[("<|endoftext|>", 50_256)])));
    }
    if has("neox") {
        return Some((Split::Gpt2, special(&[("<|endoftext|>", 0)])));
    }
    if has("qwen") {
        let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(String::from);
        let extra = (0..205).map(|n| format!("<|extra_{n}|>"));
        let special = named.into_iter().chain(extra).zip(151_643..);
        return Some((Split::Qwen, special.collect()));
    }
    has("llama").then_some((Split::Llama3, Vec::new()))
}

/// From the file's text. The error names the line.
pub(super) fn parts(text: &str, split: Split) -> Result<Parts, String> {
    let mut ranks: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
    let mut lines: FxHashMap<u32, usize> = FxHashMap::default();
    for (number, line) in (1..).zip(text.lines()) {
        if line.is_empty() {
            continue;
        }
        let wrong = |wanted: &str| {
            let found: String = line.chars().take(80).collect();
            Err(format!("line {number}: found {found:?}, wanted {wanted}"))
        };
        let Some((token, rank)) = line.split_once(' ') else {
            return wrong("BASE64 NUMBER");
        };
        let (Some(token), Ok(rank)) = (base64::decode(token), rank.trim_end().parse::<u32>())
        else {
            return wrong("BASE64 NUMBER");
        };
        if token.len() > LONGEST {
            return wrong("a token of at most 4096 bytes");
        }
        if let Some(first) = lines.insert(rank, number) {
            return wrong(&format!("another rank than line {first} has"));
        }
        if ranks.insert(token, rank).is_some() {
            return wrong("a token that no line before has");
        }
    }
    parts_of(ranks, pattern(split), &[])
}

/// From tokens with their ids, which are in the order of their ranks; `special` tokens are no part of the ranks.
pub(super) fn parts_of(
    ranks: FxHashMap<Vec<u8>, u32>,
    pattern: &str,
    special: &[(String, u32)],
) -> Result<Parts, String> {
    let missing = (0..=255u8).filter(|b| !ranks.contains_key(&[*b][..]));
    if let Some(byte) = missing.clone().find(|b| !NOT_IN_UTF8.contains(b)) {
        return Err(format!(
            "found {} tokens without the byte {byte:#04x}, wanted all that UTF-8 has",
            ranks.len()
        ));
    }
    let missing: Vec<u8> = missing.collect();
    let largest = ranks.values().max().copied().unwrap_or(0);
    vocabulary::refuse_sparse(ranks.len(), largest)?;
    let json = json_of(&ranks, pattern, special);
    let mut parts = library::parts(json.clone())?;
    parts.json = None;
    if let Some(bpe) = by_rank(ranks, &missing, pattern) {
        parts.engine = Engine::ByteBpe {
            bpe: Box::new(bpe),
            library: Later::new(json),
        };
    }
    Ok(parts)
}

/// The fast engine with tiktoken's own rule, where it has the pattern.
fn by_rank(ranks: FxHashMap<Vec<u8>, u32>, missing: &[u8], pattern: &str) -> Option<ByteBpe> {
    let mut tokens: Vec<(Vec<u8>, u32)> = ranks.into_iter().collect();
    // the engine needs a token for every byte; no text contains these
    let past = tokens.iter().map(|(_, rank)| *rank).max().unwrap_or(0);
    tokens.extend(
        missing
            .iter()
            .map(|b| vec![*b])
            .zip(past.saturating_add(1)..),
    );
    let split = byte_bpe::Split::from_pattern(pattern)?;
    ByteBpe::new(&tokens, Merges::ByRank, split, true).ok()
}

fn pattern(split: Split) -> &'static str {
    match split {
        Split::Gpt2 => GPT2,
        Split::Cl100k => CL100K,
        Split::O200k => O200K,
        Split::Llama3 => LLAMA3,
        Split::Qwen => QWEN,
    }
}

/// A `tokenizer.json` for the library; its pattern is not one that every version of Hugging Face reads alike.
fn json_of(ranks: &FxHashMap<Vec<u8>, u32>, pattern: &str, special: &[(String, u32)]) -> String {
    let alphabet = byte_alphabet();
    let print =
        |bytes: &[u8]| -> String { bytes.iter().map(|b| alphabet[usize::from(*b)]).collect() };
    let mut tokens: Vec<(&[u8], u32)> = ranks.iter().map(|(t, r)| (t.as_slice(), *r)).collect();
    tokens.sort_by_key(|(_, rank)| *rank);
    let mut merges = Vec::new();
    for (token, rank) in &tokens {
        for (left, right) in last_pairs(ranks, token, *rank) {
            merges.push(json!([print(left), print(right)]));
        }
    }
    let vocab: serde_json::Map<String, serde_json::Value> = tokens
        .iter()
        .map(|(token, rank)| (print(token), (*rank).into()))
        .collect();
    // `$` is the end of any line to Hugging Face's engine, of the text to tiktoken's
    let oniguruma = pattern.replace(r"\s++$", r"\s++\z");
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": false});
    let added = special.iter().map(|(t, id)| {
        json!({"id": id, "content": t, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    });
    let added: Vec<_> = added.collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": oniguruma}, "behavior": "Isolated", "invert": false},
            byte_level]},
        "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": true, "vocab": vocab, "merges": merges},
    })
    .to_string()
}

/// Pairs that join to `token`: the last two parts of its own joins by lower ranks, or, where those leave more than two
/// (only a made-up file has such tokens), every pair.
fn last_pairs<'t>(
    ranks: &FxHashMap<Vec<u8>, u32>,
    token: &'t [u8],
    rank: u32,
) -> Vec<(&'t [u8], &'t [u8])> {
    let mut ends: Vec<usize> = (0..=token.len()).collect();
    while ends.len() > 3 {
        let joins = ends.windows(3).enumerate();
        let lowest = joins
            .filter_map(|(i, w)| Some((*ranks.get(&token[w[0]..w[2]])?, i + 1)))
            .filter(|(r, _)| *r < rank)
            .min();
        match lowest {
            Some((_, middle)) => ends.remove(middle),
            None => break,
        };
    }
    let cuts = match ends.as_slice() {
        [] | [_, _] | [_] => return Vec::new(),
        [_, middle, _] => *middle..middle + 1,
        _ => 1..token.len(),
    };
    cuts.map(|at| token.split_at(at))
        .filter(|(l, r)| ranks.contains_key(*l) && ranks.contains_key(*r))
        .collect()
}
