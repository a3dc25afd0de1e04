//! Tests of every kind of `tokenizer.json` against tokenizers 0.23.3; `tests/oracles/tokenizer_kinds.py` made the
//! answers.

use super::{SpecialTokens, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer_kinds.json.zst");
    let bytes = std::fs::read(path).unwrap();
    serde_json::from_slice(&zstd::decode_all(bytes.as_slice()).unwrap()).unwrap()
}

/// Differences of one kind, one line each.
fn differences(kind: &Value, texts: &[&str]) -> Vec<String> {
    let name = kind["name"].as_str().unwrap();
    let tokenizer = match Tokenizer::from_json(Path::new(name), kind["json"].to_string()) {
        Ok(tokenizer) => tokenizer,
        Err(e) => return vec![format!("{name}: {e}")],
    };
    let mut found = Vec::new();
    for (answer, add, parse) in [
        ("plain", false, false),
        ("around", true, false),
        ("parsed", false, true),
    ] {
        let mut encoder = tokenizer
            .encoder_with(SpecialTokens { add, parse })
            .unwrap();
        for (text, wanted) in texts.iter().zip(kind[answer].as_array().unwrap()) {
            match encoder.encode(text) {
                Ok(ids) if Value::from(ids) == *wanted => {}
                Ok(ids) => {
                    let ours = ids.iter().map(|id| tokenizer.token(*id).unwrap_or("?"));
                    let wanted = wanted.as_array().unwrap().iter();
                    let wanted = wanted.map(|id| u32::try_from(id.as_u64().unwrap()).unwrap());
                    let wanted: Vec<_> = wanted.map(|id| tokenizer.token(id)).collect();
                    let ours: Vec<_> = ours.collect();
                    found.push(format!(
                        "{name} {answer}: {text:?}: {ours:?}, wanted {wanted:?}"
                    ));
                }
                Err(e) => found.push(format!("{name} {answer}: {text:?}: {e}")),
            }
        }
    }
    found
}

#[test]
fn every_kind_of_tokenizer_json_gives_the_ids_of_tokenizers_0_23() {
    let golden = golden();
    let texts: Vec<&str> = golden["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_str().unwrap())
        .collect();
    let kinds = golden["kinds"].as_array().unwrap();
    assert!(kinds.len() >= 60 && texts.len() >= 70);
    let found: Vec<String> = kinds
        .iter()
        .flat_map(|kind| differences(kind, &texts))
        .collect();
    let of_kind = |kind: &&Value| {
        found
            .iter()
            .any(|f| f.starts_with(kind["name"].as_str().unwrap()))
    };
    let shown: Vec<String> = found
        .iter()
        .map(|f| f.chars().take(700).collect())
        .collect();
    assert!(
        found.is_empty(),
        "{} kinds differ, {} texts:\n{}",
        kinds.iter().filter(of_kind).count(),
        found.len(),
        shown.join("\n")
    );
}

#[test]
fn every_code_point_is_one_to_bert_as_it_is_to_tokenizers_0_23() {
    let golden = golden();
    let kinds = golden["kinds"].as_array().unwrap();
    for name in ["bert_uncased", "bert_cased"] {
        let kind = kinds.iter().find(|k| k["name"] == name).unwrap();
        let tokenizer = Tokenizer::from_json(Path::new(name), kind["json"].to_string()).unwrap();
        let super::Engine::Pieces(pieces) = &tokenizer.engine else {
            panic!("{name}")
        };
        let mut hash = Sha256::new();
        for c in ('\0'..=char::MAX).filter(|c| !c.is_ascii()) {
            for word in pieces.words_of(&format!("a{c}b")).unwrap() {
                hash.update(word.as_bytes());
                hash.update([0x1f]);
            }
            hash.update(b"\n");
        }
        let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(golden["bert_points"][name], hex, "{name}");
    }
}

#[test]
fn rank_files_of_mistral_and_qwen_give_the_ids_of_their_programs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer_ranks.json.zst");
    let golden = zstd::decode_all(std::fs::read(path).unwrap().as_slice()).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    let models = golden["models"].as_array().unwrap();
    assert_eq!(models.len(), 4);
    for model in models {
        let (dir, name) = (
            tempfile::tempdir().unwrap(),
            model["name"].as_str().unwrap(),
        );
        let file = dir.path().join(model["file"].as_str().unwrap());
        std::fs::write(&file, model["content"].as_str().unwrap()).unwrap();
        let options = super::LoadOptions {
            split: (name == "qwen").then_some(super::Split::Qwen),
            ..Default::default()
        };
        let tokenizer = Tokenizer::load_with(&file, &options).unwrap();
        assert_eq!(
            tokenizer.vocab() as u64,
            model["vocab"].as_u64().unwrap(),
            "{name}"
        );
        assert_eq!(
            tokenizer.end_of_document().map(u64::from),
            model["eos"].as_u64(),
            "{name}"
        );
        let texts = golden["texts"].as_array().unwrap();
        for (text, wanted) in texts.iter().zip(model["ids"].as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(Value::from(&ids[..]), *wanted, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{name}");
        }
        // the same from its packed form, and from the folder
        let again = Tokenizer::from_json(Path::new("again"), tokenizer.json().into()).unwrap();
        assert_eq!(again.identity(), tokenizer.identity());
        if name != "qwen" {
            assert_eq!(
                Tokenizer::load(dir.path()).unwrap().kind(),
                super::Kind::Tekken
            );
            let text = "<s>a[INST]";
            let special = SpecialTokens {
                add: false,
                parse: true,
            };
            let parsed = tokenizer
                .encoder_with(special)
                .unwrap()
                .encode(text)
                .unwrap()
                .to_vec();
            assert_eq!((parsed[0], parsed[2], parsed.len()), (1, 3, 3), "{name}");
        }
    }
}
