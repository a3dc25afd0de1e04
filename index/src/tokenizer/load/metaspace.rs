//! Conversion of a Unigram model to a `tokenizer.json`, with the normaliser and word splitter of Hugging Face's
//! SentencePiece trainer.

use serde_json::json;

/// `pieces` with their scores, the unknown one first; `special` are added tokens with the ids after them.
pub(crate) fn json(pieces: &[(String, f64)], lowercase: bool, special: &[&str]) -> String {
    let mut steps = vec![json!({"type": "Nmt"}), json!({"type": "NFKC"})];
    if lowercase {
        steps.push(json!({"type": "Lowercase"}));
    }
    steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
    let added: Vec<_> = (pieces.len()..)
        .zip(special)
        .map(|(id, t)| {
            json!({"id": id, "content": t, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let metaspace = json!({"type": "Metaspace", "replacement": "\u{2581}",
        "prepend_scheme": "always", "split": true});
    let vocab: Vec<_> = pieces.iter().map(|(t, score)| json!([t, score])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": metaspace, "post_processor": null, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": vocab},
    })
    .to_string()
}
