//! Loader of GPT-2's `vocab.json` and `merges.txt`, converted to one `tokenizer.json`.
//!
//! Facts: Radford et al. 2019 and Hugging Face's `GPT2Tokenizer`: bytes are written as printable characters; `merges.txt`
//! has one merge per line in order of rank, after an optional `#version` line.

use super::library;
use super::source::Parts;
use crate::error::Result as PathResult;
use crate::tokenizer::wrong::wrong;
use rustc_hash::FxHashSet;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The token that ends a document; special wherever the vocabulary has it.
const END: &str = "<|endoftext|>";

/// The merges file: `merges.txt` beside `vocab.json`, `X-merges.txt` beside `X-vocab.json`.
pub(super) fn merges_beside(vocab: &Path) -> PathResult<PathBuf> {
    let name = vocab
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let named = vocab.with_file_name(name.replace("vocab", "merges").replace(".json", ".txt"));
    [named, vocab.with_file_name("merges.txt")]
        .into_iter()
        .find(|p| p.is_file())
        .ok_or_else(|| {
            wrong(
                vocab,
                &"found no merges.txt beside it, wanted GPT-2's pair of files",
            )
        })
}

/// From the two files' bytes. The error names the file and the line or byte.
pub(super) fn parts(files: &[Vec<u8>]) -> Result<Parts, String> {
    let [vocab, merges] = files else {
        return Err("found one file, wanted vocab.json and merges.txt".into());
    };
    let vocab: BTreeMap<String, u32> =
        serde_json::from_slice(vocab).map_err(|e| format!("vocab.json: {e}"))?;
    let merges = std::str::from_utf8(merges)
        .map_err(|e| format!("merges.txt: byte {}: wanted UTF-8", e.valid_up_to()))?;
    let known: FxHashSet<&str> = vocab.keys().map(String::as_str).collect();
    let (mut pairs, mut seen) = (Vec::new(), FxHashSet::default());
    for (number, line) in (1..).zip(merges.lines()) {
        if line.is_empty() || (number == 1 && line.starts_with("#version")) {
            continue;
        }
        let wrong = |found: &str, wanted: &str| {
            Err(format!(
                "merges.txt: line {number}: found {found:?}, wanted {wanted}"
            ))
        };
        let pair = line.split_once(' ');
        let Some((left, right)) =
            pair.filter(|(l, r)| !l.is_empty() && !r.is_empty() && !r.contains(' '))
        else {
            return wrong(line, "two tokens and one blank");
        };
        let joined = format!("{left}{right}");
        if let Some(unknown) = [left, right, &joined]
            .into_iter()
            .find(|t| !known.contains(*t))
        {
            return wrong(unknown, "a token of the vocabulary");
        }
        if !seen.insert((left, right)) {
            return wrong(line, "a new pair");
        }
        pairs.push((left.to_string(), right.to_string()));
    }
    if pairs.is_empty() {
        return Err("merges.txt: found no merge, wanted at least one".into());
    }
    let mut vocab: Vec<(String, u32)> = vocab.into_iter().collect();
    vocab.sort_by_key(|(_, id)| *id);
    library::parts(tokenizer_json(&vocab, &pairs, &[END]))
}

/// A `tokenizer.json` as Hugging Face writes it for GPT-2's tokenizer; `special` tokens that the vocabulary has are
/// added tokens.
pub(crate) fn tokenizer_json(
    vocab: &[(String, u32)],
    merges: &[(String, String)],
    special: &[&str],
) -> String {
    let map: serde_json::Map<String, serde_json::Value> = vocab
        .iter()
        .map(|(t, id)| (t.clone(), (*id).into()))
        .collect();
    let added = special.iter().filter_map(|t| Some((t, map.get(*t)?)));
    let added: Vec<_> = added
        .map(|(t, id)| {
            json!({"id": id, "content": t, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": true});
    let merges: Vec<_> = merges.iter().map(|(a, b)| json!([a, b])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": map, "merges": merges},
    })
    .to_string()
}
