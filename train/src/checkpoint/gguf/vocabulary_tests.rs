//! Tokenizers of GGUF files give the ids of the programs that made them, come back from our own files, and are refused
//! with the place where they are wrong. Goldens: tests/oracles/gguf_tokenizers.py.

use std::fs;
use std::path::{Path, PathBuf};

use index::tokenizer::{SpecialTokens, Tokenizer};
use serde_json::Value as Json;

use crate::checkpoint::gguf::file::{Entry, Reader, Writer};
use crate::checkpoint::gguf::tokenizer::{self, Around};
use crate::checkpoint::gguf::value::{List, Metadata, Value};
use crate::checkpoint::gguf::vocabulary::{gguf_tokenizer, of_metadata};
use crate::error::Error;

const KINDS: [&str; 8] = [
    "gpt2",
    "llama3",
    "qwen2",
    "falcon",
    "command_r",
    "deepseek_coder",
    "deepseek_v3",
    "spm",
];

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles")
}

fn golden(kind: &str) -> PathBuf {
    oracles().join(format!("gguf_tokenizers/{kind}.gguf"))
}

fn record() -> Json {
    let text = fs::read_to_string(oracles().join("gguf_tokenizers.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn texts(record: &Json) -> Vec<String> {
    let all = record["texts"].as_array().unwrap().iter();
    all.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Ids with the tokens that the file puts around texts.
fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let special = SpecialTokens {
        add: true,
        parse: true,
    };
    let mut encoder = tokenizer.encoder_with(special).unwrap();
    encoder.encode(text).unwrap().to_vec()
}

fn loaded(path: &Path) -> Tokenizer {
    let found = gguf_tokenizer(path).unwrap().unwrap();
    Tokenizer::from_json(path, found.tokenizer).unwrap()
}

#[test]
fn texts_have_the_ids_of_the_program_that_made_the_tokenizer() {
    let record = record();
    for kind in KINDS {
        let tokenizer = loaded(&golden(kind));
        let want = record["ids"][kind].as_array().unwrap();
        for (text, want) in texts(&record).iter().zip(want) {
            if kind == "spm" && text.contains("<s>") {
                continue;
            }
            let want: Vec<u32> = serde_json::from_value(want.clone()).unwrap();
            let found = ids(&tokenizer, text);
            assert_eq!(found, want, "{kind} {text:?}");
        }
    }
}

#[test]
fn a_file_gives_the_same_text_every_time() {
    for kind in KINDS {
        let [one, other] = [0, 1].map(|_| gguf_tokenizer(&golden(kind)).unwrap().unwrap());
        assert_eq!(one.tokenizer, other.tokenizer, "{kind}");
    }
}

#[test]
fn special_tokens_and_the_chat_template_are_in_the_configuration() {
    let config = gguf_tokenizer(&golden("qwen2")).unwrap().unwrap().config;
    assert_eq!(config["bos_token"], "<|begin|>");
    assert_eq!(config["eos_token"], "<|end|>");
    assert_eq!(config["add_bos_token"], false);
    let template = config["chat_template"].as_str().unwrap();
    assert!(
        template.starts_with("{% for m in messages %}"),
        "{template}"
    );
    let config = gguf_tokenizer(&golden("spm")).unwrap().unwrap().config;
    assert_eq!(config["unk_token"], "<unk>");
    assert_eq!(config["add_bos_token"], true);
    assert!(config.get("chat_template").is_none());
}

fn rewritten(path: &Path, metadata: &Metadata) {
    let entries: [Entry; 0] = [];
    Writer::create(path, metadata, &entries)
        .unwrap()
        .finish()
        .unwrap();
}

/// The folder's `tokenizer.json`, written as GGUF and read again, gives the same ids, and so does a second time.
#[test]
fn tokenizers_that_are_written_come_back() {
    let record = record();
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let found = gguf_tokenizer(&golden(kind)).unwrap().unwrap();
        let json = folder.path().join("tokenizer.json");
        fs::write(&json, &found.tokenizer).unwrap();
        let beside = folder.path().join("tokenizer_config.json");
        fs::write(beside, found.config.to_string()).unwrap();
        let first = Tokenizer::load(&json).unwrap();
        let mut metadata = Metadata::default();
        let around = Around {
            vocab: first.vocab() + 3,
            eod: None,
            pre: None,
        };
        tokenizer::add(&mut metadata, &json, &around).unwrap();
        let path = folder.path().join("x.gguf");
        rewritten(&path, &metadata);
        let again = gguf_tokenizer(&path).unwrap().unwrap();
        assert_eq!(again.config, found.config, "{kind}");
        let again = Tokenizer::from_json(&path, again.tokenizer).unwrap();
        assert_eq!(again.vocab(), first.vocab(), "{kind}");
        for text in texts(&record) {
            assert_eq!(ids(&again, &text), ids(&first, &text), "{kind} {text:?}");
        }
    }
}

/// Every wrong list or id is refused with its key, what was found, and its place.
#[test]
fn wrong_metadata_is_refused_by_key() {
    let path = golden("gpt2");
    let refusal = |kind: &str, change: &dyn Fn(&mut Metadata)| {
        let mut metadata = Reader::open(&golden(kind)).unwrap().metadata;
        change(&mut metadata);
        match of_metadata(&path, &metadata) {
            Err(Error::Foreign { problems, .. }) => problems.join("\n"),
            other => panic!("{other:?}"),
        }
    };
    let whole = |number: i128| Value::Whole(number);
    let texts_of = |list: &[&str]| {
        let list = list.iter().map(|text| (*text).to_owned());
        Value::List(List::Texts(list.collect()))
    };
    type Case<'a> = (&'a str, &'a str, Value, &'a str);
    let cases: [Case<'_>; 14] = [
        (
            "gpt2",
            "pre",
            "poro-chat".into(),
            "tokenizer.ggml.pre: found \"poro-chat\", want one of gpt-2",
        ),
        ("gpt2", "pre", "poro-chat".into(), "--tokenizer FILE"),
        (
            "gpt2",
            "model",
            "bert".into(),
            "tokenizer.ggml.model: found \"bert\", want gpt2 or llama; --tokenizer",
        ),
        (
            "gpt2",
            "tokens",
            whole(3),
            "tokenizer.ggml.tokens: want a list of texts",
        ),
        (
            "gpt2",
            "tokens",
            texts_of(&["a", "b", "a"]),
            "tokenizer.ggml.token_type: found 703 items, want 3",
        ),
        (
            "gpt2",
            "token_type",
            Value::List(List::Whole(vec![1, 2])),
            "found 2 items, want 703",
        ),
        (
            "gpt2",
            "token_type",
            Value::List(List::Whole(vec![9; 703])),
            "token_type[0]: found 9, want 1 to 6",
        ),
        (
            "gpt2",
            "merges",
            texts_of(&["a b", "Gone"]),
            "tokenizer.ggml.merges[0]: found \"ab\", which is none of",
        ),
        (
            "gpt2",
            "merges",
            texts_of(&["together"]),
            "merges[0]: found \"together\", want two tokens with a blank",
        ),
        (
            "gpt2",
            "eos_token_id",
            whole(703),
            "eos_token_id: found 703, want an id below 703",
        ),
        (
            "gpt2",
            "bos_token_id",
            whole(-1),
            "bos_token_id: found -1, want an id below 703",
        ),
        (
            "gpt2",
            "add_bos_token",
            "yes".into(),
            "tokenizer.ggml.add_bos_token: want true or false",
        ),
        (
            "spm",
            "scores",
            Value::List(List::Reals(vec![0.0; 7])),
            "scores: found 7 items, want 700",
        ),
        (
            "spm",
            "scores",
            Value::List(List::Reals(vec![f64::NAN; 700])),
            "scores[0]: found NaN",
        ),
    ];
    for (kind, key, value, wanted) in cases {
        let set = |metadata: &mut Metadata| {
            metadata.set(format!("tokenizer.ggml.{key}"), value.clone());
        };
        let found = refusal(kind, &set);
        assert!(found.contains(wanted), "{wanted} in {found}");
    }
    let twice = refusal("gpt2", &|metadata| {
        let Some(Value::List(List::Texts(texts))) = metadata.get("tokenizer.ggml.tokens") else {
            panic!("a list of texts");
        };
        let mut texts = texts.clone();
        texts[9] = texts[5].clone();
        metadata.set("tokenizer.ggml.tokens", Value::List(List::Texts(texts)));
    });
    assert!(
        twice.contains("tokens[9]: found") && twice.contains("tokens[5] is"),
        "{twice}"
    );
    let lossy = refusal("gpt2", &|metadata| {
        metadata.set_lossy("tokenizer.ggml.tokens")
    });
    assert!(lossy.contains("not UTF-8"), "{lossy}");
    let no_byte = refusal("spm", &|metadata| {
        metadata.set(
            "tokenizer.ggml.token_type",
            Value::List(List::Whole(vec![1; 700])),
        );
    });
    assert!(no_byte.contains("found no byte token <0x00>"), "{no_byte}");
}

/// A vocabulary whose tokens all split into others makes many more pairs than it has bytes; it is refused.
#[test]
fn derived_merges_are_bounded_by_the_tokens() {
    let mut metadata = Reader::open(&golden("spm")).unwrap().metadata;
    let mut texts: Vec<String> = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut kinds = vec![6; 256];
    for length in 1..=1000 {
        texts.push("z".repeat(length));
        kinds.push(1);
    }
    let scores = vec![0.0; texts.len()];
    metadata.set("tokenizer.ggml.tokens", Value::List(List::Texts(texts)));
    metadata.set("tokenizer.ggml.token_type", Value::List(List::Whole(kinds)));
    metadata.set("tokenizer.ggml.scores", Value::List(List::Reals(scores)));
    let error = of_metadata(&golden("spm"), &metadata)
        .unwrap_err()
        .to_string();
    assert!(error.contains("bytes of pairs that make tokens"), "{error}");
}

/// Cut anywhere or with a byte changed, a file ends in a tokenizer or an error.
#[test]
fn damaged_files_end_in_tokenizers_or_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let whole = fs::read(golden("gpt2")).unwrap();
    let mut refused = 0;
    // the padding before the data may be missing
    for at in (0..whole.len() - 32).step_by(11) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        refused += usize::from(gguf_tokenizer(&path).is_err());
        fs::write(&path, &whole[..at]).unwrap();
        assert!(gguf_tokenizer(&path).is_err(), "{at}");
    }
    assert!(refused > 100, "{refused}");
}
