//! Tests of every engine against its reference program on awkward texts; `tests/oracles/tokenizer_torture.py` made
//! the answers.

use super::{Kind, LoadOptions, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer_torture.json.zst");
    let bytes = std::fs::read(path).unwrap();
    serde_json::from_slice(&zstd::decode_all(bytes.as_slice()).unwrap()).unwrap()
}

/// The script's `unfold`.
fn unfold(text: &Value) -> String {
    if let Some([part, n]) = text["repeat"].as_array().map(Vec::as_slice) {
        return part
            .as_str()
            .unwrap()
            .repeat(usize::try_from(n.as_u64().unwrap()).unwrap());
    }
    if let Some([seed, n, letters]) = text["lcg"].as_array().map(Vec::as_slice) {
        let letters: Vec<char> = letters.as_str().unwrap().chars().collect();
        let mut state = seed.as_u64().unwrap();
        return (0..n.as_u64().unwrap())
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                letters[usize::try_from(state >> 33).unwrap() % letters.len()]
            })
            .collect();
    }
    text.as_str().unwrap().to_string()
}

fn sha256(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|i| i.to_le_bytes()).collect();
    Sha256::digest(&bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// Writes a model's files into `folder`; the path and options to load it with.
fn laid_out(model: &Value, folder: &Path) -> (PathBuf, LoadOptions) {
    let files = model["files"].as_object().unwrap();
    for (name, data) in files {
        let data = super::load::decode_base64(data.as_str().unwrap()).unwrap();
        std::fs::write(folder.join(name), data).unwrap();
    }
    let options = match &model["options"] {
        Value::Null => LoadOptions::default(),
        given => serde_json::from_value(given.clone()).unwrap(),
    };
    (folder.join(files.keys().next().unwrap()), options)
}

fn each_model(check: impl Fn(&str, &Value, &Tokenizer, &[String])) {
    let golden = golden();
    let texts: Vec<String> = golden["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(unfold)
        .collect();
    assert!(texts.len() > 300);
    for model in golden["models"].as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let (path, options) = laid_out(model, folder.path());
        let tokenizer = Tokenizer::load_with(&path, &options).unwrap();
        let kind = serde_json::to_value(tokenizer.kind()).unwrap();
        assert_eq!(kind, model["kind"]);
        check(model["name"].as_str().unwrap(), model, &tokenizer, &texts);
    }
}

#[test]
fn ids_equal_the_reference_programs_on_the_torture_texts() {
    each_model(|name, model, tokenizer, texts| {
        let mut encoder = tokenizer.encoder();
        for (text, wanted) in texts.iter().zip(model["ids"].as_array().unwrap()) {
            let ids = encoder.encode(text).unwrap();
            let shown: String = text.chars().take(60).collect();
            if let Some(hash) = wanted["sha256"].as_str() {
                assert_eq!(wanted["count"], ids.len(), "{name}: {shown:?}");
                assert_eq!(sha256(ids), hash, "{name}: {shown:?}");
            } else {
                assert_eq!(&Value::from(ids), wanted, "{name}: {shown:?}");
            }
        }
    });
}

#[test]
fn decoding_equals_the_reference_programs() {
    each_model(|name, model, tokenizer, _| {
        for pair in model["decoded"].as_array().unwrap() {
            let ids: Vec<u32> = serde_json::from_value(pair[0].clone()).unwrap();
            let text = tokenizer.decode(&ids).unwrap();
            assert_eq!(Value::from(text), pair[1], "{name}: {ids:?}");
        }
    });
}

#[test]
fn one_text_keeps_a_whole_tokenizer_with_its_identity() {
    each_model(|name, _, tokenizer, texts| {
        let again = Tokenizer::from_json(Path::new("again"), tokenizer.json().to_string()).unwrap();
        assert_eq!(again.identity(), tokenizer.identity(), "{name}");
        assert_eq!(again.vocab(), tokenizer.vocab(), "{name}");
        assert_eq!(
            again.end_of_document(),
            tokenizer.end_of_document(),
            "{name}"
        );
        assert_eq!(again.special(), tokenizer.special(), "{name}");
        for text in texts.iter().filter(|t| t.len() < 1000) {
            assert_eq!(again.encode(text).unwrap(), tokenizer.encode(text).unwrap());
        }
    });
}

#[test]
fn roles_and_ends_follow_megatrons_table() {
    each_model(|name, _, t, _| {
        let (end, special) = (t.end_of_document(), t.special());
        let named = |token: &str| t.id_of(token);
        match t.kind() {
            Kind::Gpt2 | Kind::Tiktoken => assert_eq!(end, named("<|endoftext|>"), "{name}"),
            Kind::WordPiece => assert_eq!(end, named("[SEP]"), "{name}"),
            _ => {
                assert_eq!(end, named("</s>"), "{name}");
                assert_eq!((special.bos, special.unk), (Some(1), Some(0)), "{name}");
            }
        }
        assert!(end.is_some(), "{name}");
        assert_eq!(
            t.token(end.unwrap()).and_then(|s| t.id_of(s)),
            end,
            "{name}"
        );
    });
}

#[test]
fn a_lone_surrogate_is_refused_while_json_is_read() {
    // The references raise (sentencepiece, tokenizers) or encode U+FFFD (tiktoken); text here is UTF-8 by type, so the record
    // never becomes a text: the reader of JSON counts it as a bad record.
    let read: Result<String, _> = serde_json::from_str(r#""a\ud800b""#);
    let why = read.unwrap_err().to_string();
    assert!(why.contains("hex escape"), "{why}");
    for (name, answer) in golden()["surrogate"].as_object().unwrap() {
        let raises = answer.as_str().is_some_and(|s| s.ends_with("Error"));
        assert!(raises || name.starts_with("tiktoken"), "{name}: {answer}");
    }
}
