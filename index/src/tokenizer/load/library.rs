//! Loader of Hugging Face's `tokenizer.json` through their own library (older forms are upgraded in memory).

use super::source::Parts;
use crate::tokenizer::engine::{Engine, Later, read};
use crate::tokenizer::pieces::{self, Pieces};
use crate::tokenizer::special_tokens::{Added, Around};
use crate::tokenizer::vocabulary::refuse_sparse;
use crate::tokenizer::{byte_bpe, unicode9};
use serde_json::Value;

/// From the file's text. The error is the library's, or names the entry of the vocabulary.
pub(super) fn parts(json: String) -> Result<Parts, String> {
    let value: Value = serde_json::from_str(&json).map_err(|e| e.to_string())?;
    let entries = vocabulary(&value)?;
    let largest = entries.iter().map(|(_, id)| *id).max().unwrap_or(0);
    refuse_sparse(entries.len(), largest)?;
    let engine = match byte_bpe::from_tokenizer_json(&value) {
        Some(bpe) => Engine::ByteBpe {
            bpe: Box::new(bpe),
            library: Later::new(json.clone()),
        },
        None if pieces::are_needed(&value) || unicode9::matters_to(&value) => {
            Engine::Pieces(Box::new(Pieces::of(&value, read)?))
        }
        // the library may read parts of a file that it refuses as a whole
        None => match read(&json) {
            Ok(library) => Engine::Library(library),
            Err(why) => Engine::Pieces(Box::new(Pieces::of(&value, read).map_err(|_| why)?)),
        },
    };
    let mut named = Vec::new();
    for token in value["added_tokens"].as_array().into_iter().flatten() {
        named.extend(Added::of(token)?.filter(|(_, added)| added.special));
    }
    Ok(Parts {
        engine,
        entries,
        named,
        around: Around::of(&value["post_processor"]),
        json: Some(json),
    })
}

/// Bytes of the longest token of a WordPiece model. The library keeps them in a trie that it walks by recursion: one of
/// tens of kilobytes overflows the stack, which ends the process.
const LONGEST_WORDPIECE: usize = 4096;

/// Every (token, id): the model's vocabulary (an object, or Unigram's array of pairs) and the added tokens.
fn vocabulary(value: &Value) -> Result<Vec<(String, u32)>, String> {
    let mut entries = Vec::new();
    let id_of = |v: &Value, token: &str| {
        v.as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| format!("id of {token:?}: found {v}, wanted 0 to 4294967295"))
    };
    match &value["model"]["vocab"] {
        Value::Object(map) => {
            for (token, id) in map {
                if value["model"]["type"] == "WordPiece" && token.len() > LONGEST_WORDPIECE {
                    let bytes = token.len();
                    return Err(format!(
                        "model.vocab: found a token of {bytes} bytes with the id {id}, wanted at most {LONGEST_WORDPIECE}"
                    ));
                }
                entries.push((token.clone(), id_of(id, token)?));
            }
        }
        Value::Array(pairs) => {
            for (id, pair) in (0u32..).zip(pairs) {
                let (Some(token), Some(_)) = (pair[0].as_str(), pair[1].as_f64()) else {
                    let found = pair.to_string();
                    return Err(format!(
                        "model.vocab[{id}]: found {found}, wanted [token, score]"
                    ));
                };
                entries.push((token.to_string(), id));
            }
        }
        other => {
            let found: String = other.to_string().chars().take(80).collect();
            return Err(format!(
                "model.vocab: found {found}, wanted an object or an array"
            ));
        }
    }
    check_merges(value, &entries)?;
    for added in value["added_tokens"].as_array().into_iter().flatten() {
        if let Some(token) = added["content"].as_str() {
            entries.push((token.to_string(), id_of(&added["id"], token)?));
        }
    }
    Ok(entries)
}

/// Checks that every merge joins two tokens into a third; the library would only count the broken ones.
fn check_merges(value: &Value, entries: &[(String, u32)]) -> Result<(), String> {
    let Some(merges) = value["model"]["merges"].as_array() else {
        return Ok(());
    };
    let known: rustc_hash::FxHashSet<&str> = entries.iter().map(|(t, _)| t.as_str()).collect();
    let prefix = value["model"]["continuing_subword_prefix"]
        .as_str()
        .unwrap_or_default();
    for (number, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) if pair.len() == 2 => pair[0].as_str().zip(pair[1].as_str()),
            _ => None,
        };
        let Some((left, right)) = pair else {
            return Err(format!(
                "model.merges[{number}]: found {merge}, wanted two tokens"
            ));
        };
        let joined = format!("{left}{}", right.strip_prefix(prefix).unwrap_or(right));
        if let Some(unknown) = [left, right, &joined]
            .into_iter()
            .find(|t| !known.contains(*t))
        {
            return Err(format!(
                "model.merges[{number}]: found {unknown:?}, wanted a token of the vocabulary"
            ));
        }
    }
    Ok(())
}
