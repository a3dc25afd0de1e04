//! Loader of BERT's `vocab.txt`: one token per line, its id the line's number from 0.
//!
//! Facts: Devlin et al. 2018, arXiv:1810.04805, and Hugging Face's `BertTokenizer`: clean and split around punctuation and
//! CJK, longest piece first, `##` inside a word, words of more than 100 characters unknown. Lower case also strips accents.

use super::library;
use super::source::Parts;
use rustc_hash::FxHashMap;
use serde_json::json;

/// Tokens with a role; found in text they are text.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// Whether a token outside brackets has a letter that lower-casing would change: then the vocabulary is cased. (Not any
/// upper-case letter: BERT's own uncased vocabulary has U+211D, which has no lower-case form.)
pub(super) fn has_upper_case(text: &str) -> bool {
    let named = |line: &str| line.starts_with('[') && line.ends_with(']') && line.len() > 2;
    text.lines()
        .any(|line| !named(line) && line.chars().any(|c| !c.to_lowercase().eq([c])))
}

/// From the file's text. The error names the line.
pub(super) fn parts(text: &str, lowercase: bool) -> Result<Parts, String> {
    let mut vocab: Vec<(String, u32)> = Vec::new();
    let mut lines: FxHashMap<&str, usize> = FxHashMap::default();
    for ((number, line), id) in (1..).zip(text.lines()).zip(0u32..) {
        // an empty line keeps its id and names no token
        if line.is_empty() {
            continue;
        }
        if line.contains('\0') {
            return Err(format!(
                "line {number}: found a NUL byte, wanted a text file"
            ));
        }
        if let Some(first) = lines.insert(line, number) {
            return Err(format!(
                "line {number}: found {line:?} of line {first} again, wanted a new token"
            ));
        }
        vocab.push((line.to_string(), id));
    }
    if !lines.contains_key("[UNK]") {
        let found = vocab.len();
        return Err(format!(
            "found {found} lines without [UNK], wanted BERT's vocabulary, one token a line"
        ));
    }
    library::parts(json(&vocab, lowercase, &SPECIAL))
}

/// A `tokenizer.json` as Hugging Face writes it for BERT.
pub(crate) fn json(vocab: &[(String, u32)], lowercase: bool, special: &[&str]) -> String {
    let id_of = |token: &str| vocab.iter().find(|(t, _)| t == token).map(|(_, id)| *id);
    let added: Vec<_> = (special.iter())
        .filter_map(|t| Some((t, id_of(t)?)))
        .map(|(t, id)| {
            json!({"id": id, "content": t, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let map: serde_json::Map<String, serde_json::Value> = (vocab.iter())
        .map(|(t, id)| (t.clone(), (*id).into()))
        .collect();
    let post = match (id_of("[SEP]"), id_of("[CLS]")) {
        (Some(sep), Some(cls)) => {
            json!({"type": "BertProcessing", "sep": ["[SEP]", sep], "cls": ["[CLS]", cls]})
        }
        _ => serde_json::Value::Null,
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": post,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": map},
    })
    .to_string()
}
