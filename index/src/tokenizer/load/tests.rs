//! Tests of the loaders with files that are broken, mixed up or random.

use super::*;
use crate::tokenizer::Split;
use crate::tokenizer::alphabet::byte_alphabet;
use proptest::prelude::*;

fn loaded(name: &str, bytes: &[u8], options: &LoadOptions) -> Result<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    Tokenizer::load_with(&path, options)
}

fn refused(name: &str, bytes: &[u8], options: &LoadOptions, parts: &[&str]) {
    let why = loaded(name, bytes, options).expect_err(name).to_string();
    for part in parts {
        assert!(why.contains(part), "{name}: {why:?} lacks {part:?}");
    }
    assert!(why.contains(name), "{why:?} does not name the file");
}

/// The small SentencePiece model with symbols and control pieces, trained by the reference program.
fn model(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer_torture.json.zst");
    let bytes = zstd::decode_all(std::fs::read(path).unwrap().as_slice()).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let models = golden["models"].as_array().unwrap();
    let found = models.iter().find(|m| m["name"] == name).unwrap();
    let (_, data) = found["files"].as_object().unwrap().iter().next().unwrap();
    base64::decode(data.as_str().unwrap()).unwrap()
}

fn tiktoken_lines(count: u32) -> String {
    (0..=255u8)
        .map(|b| vec![b])
        .chain((0..count).map(|i| vec![b'a'; i as usize + 2]))
        .zip(0u32..)
        .map(|(token, rank)| format!("{} {rank}\n", base64::encode(&token)))
        .collect()
}

#[test]
fn broken_files_are_refused_with_place_found_and_wanted() {
    let none = LoadOptions::default();
    let vocab = "[PAD]\n[UNK]\nthe\ncat\nthe\n";
    refused(
        "vocab.txt",
        vocab.as_bytes(),
        &none,
        &["line 5", "\"the\"", "line 3"],
    );
    refused(
        "vocab.txt",
        b"the\ncat\n",
        &none,
        &["2 lines without [UNK]"],
    );
    let named = LoadOptions {
        split: Some(Split::Cl100k),
        ..LoadOptions::default()
    };
    let good = tiktoken_lines(2);
    for (change, parts) in [
        (
            good.replace("YWE= 256", "YWE= x"),
            ["line 257", "BASE64 NUMBER"],
        ),
        (
            good.replace("YWE= 256", "Y*E= 256"),
            ["line 257", "BASE64 NUMBER"],
        ),
        (
            good.replace("YWE= 256", "YWE= 255"),
            ["line 257", "line 256"],
        ),
        (
            good.replace("YWE= 256", "YQ== 256"),
            ["line 257", "no line before"],
        ),
        (
            good.replace("YWE= 256", "YWE= 4294967296"),
            ["line 257", "NUMBER"],
        ),
        (good.replace("YQ== 97\n", ""), ["without the byte", "0x61"]),
    ] {
        refused("t.tiktoken", change.as_bytes(), &named, &parts);
    }
    refused("t.tiktoken", good.as_bytes(), &none, &["split", "cl100k"]);
    let json =
        r#"{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"],["a","c"]]}}"#;
    refused(
        "tokenizer.json",
        json.as_bytes(),
        &none,
        &["merges[1]", "\"c\""],
    );
    for (from, to, parts) in [
        ("\"ab\":2", "\"ab\":1", ["id 1", "\"b\""]),
        ("\"ab\":2", "\"ab\":-1", ["id of \"ab\"", "-1"]),
        (
            "\"ab\":2",
            "\"ab\":4294967296",
            ["id of \"ab\"", "4294967296"],
        ),
        ("{\"a\":0,\"b\":1,\"ab\":2}", "7", ["model.vocab", "7"]),
    ] {
        let changed = json.replace(",[\"a\",\"c\"]", "").replace(from, to);
        refused("tokenizer.json", changed.as_bytes(), &none, &parts);
    }
}

#[test]
fn gpt2_files_that_do_not_fit_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocab.json");
    let alphabet: String = (byte_alphabet().iter().enumerate())
        .map(|(i, c)| format!("{}:{i},", serde_json::Value::from(c.to_string())))
        .collect();
    std::fs::write(&path, format!("{{{alphabet}\"ab\":256,\"version\":257}}")).unwrap();
    let why = |merges: Option<&str>| {
        let beside = folder.path().join("merges.txt");
        match merges {
            Some(text) => std::fs::write(&beside, text).unwrap(),
            None => drop(std::fs::remove_file(&beside)),
        }
        Tokenizer::load(&path).map_err(|e| e.to_string())
    };
    for (merges, parts) in [
        (None, ["no merges.txt", "wanted"]),
        (Some("#version: 0.2\na c\n"), ["line 2", "\"ac\""]),
        (Some("a b\na b\n"), ["line 2", "new pair"]),
        (Some("ab\n"), ["line 1", "one blank"]),
        (Some(""), ["merges.txt", "no merge"]),
    ] {
        let why = why(merges).unwrap_err();
        assert!(parts.iter().all(|p| why.contains(p)), "{why}");
    }
    let good = why(Some("#version: 0.2\na b\n")).unwrap();
    assert_eq!(good.kind(), Kind::Gpt2);
    assert_eq!(good.encode("abc").unwrap(), [256, 99]);
    assert_eq!(good.vocab(), 258);
}

#[test]
fn a_file_of_another_kind_than_asked_for_is_refused() {
    let of = |kind| LoadOptions {
        kind: Some(kind),
        split: Some(Split::Gpt2),
        ..LoadOptions::default()
    };
    let text = b"[UNK]\nthe\ncat\n";
    for kind in [
        Kind::TokenizerJson,
        Kind::SentencePiece,
        Kind::Tiktoken,
        Kind::Null,
        Kind::Gpt2,
    ] {
        assert!(loaded("vocab.txt", text, &of(kind)).is_err(), "{kind:?}");
    }
    assert!(loaded("m.model", &model("bpe_symbols"), &of(Kind::WordPiece)).is_err());
    assert!(Tokenizer::load(Path::new("/nowhere/tokenizer.json")).is_err());
    let empty = tempfile::tempdir().unwrap();
    let why = Tokenizer::load(empty.path()).unwrap_err().to_string();
    assert!(why.contains("vocab.txt"), "{why}");
}

#[test]
fn options_reach_the_tokenizer_and_its_identity() {
    let text = b"[UNK]\n[SEP]\nthe\nThe\n";
    let with = |lowercase, eod: Option<&str>| {
        let options = LoadOptions {
            lowercase,
            eod: eod.map(str::to_string),
            ..LoadOptions::default()
        };
        loaded("vocab.txt", text, &options).unwrap()
    };
    let (cased, folded, ended) = (
        with(None, None),
        with(Some(true), None),
        with(None, Some("the")),
    );
    assert_eq!(cased.encode("The").unwrap(), [3]);
    assert_eq!(folded.encode("The").unwrap(), [2]);
    assert_eq!(
        (cased.end_of_document(), ended.end_of_document()),
        (Some(1), Some(2))
    );
    assert_ne!(cased.identity(), folded.identity());
    assert_ne!(cased.identity(), ended.identity());
    let again = Tokenizer::from_json(Path::new("again"), ended.json().into()).unwrap();
    assert_eq!(
        (again.end_of_document(), again.identity()),
        (Some(2), ended.identity())
    );
    let wrong = LoadOptions {
        eod: Some("dog".into()),
        ..LoadOptions::default()
    };
    refused("vocab.txt", text, &wrong, &["eod", "\"dog\""]);
    let config = tempfile::tempdir().unwrap();
    std::fs::write(config.path().join("vocab.txt"), text).unwrap();
    let said = r#"{"do_lower_case": true, "cls_token": {"content": "the"}}"#;
    std::fs::write(config.path().join("tokenizer_config.json"), said).unwrap();
    let t = Tokenizer::load(config.path()).unwrap();
    assert_eq!(
        (t.encode("The").unwrap(), t.special().cls),
        (vec![2], Some(2))
    );
    let again = Tokenizer::from_json(Path::new("again"), t.json().into()).unwrap();
    assert_eq!(again.special(), t.special());
}

#[test]
fn every_cut_of_a_sentencepiece_model_is_refused_or_loads() {
    let whole = model("unigram_nfkc");
    for len in (0..whole.len()).step_by(whole.len() / 300) {
        if let Ok(t) = SentencePiece::parse(&whole[..len]) {
            let mut ids = Vec::new();
            t.encode_into(
                "the \u{fb01}rst \u{2603}snow",
                &mut Default::default(),
                &mut ids,
            )
            .unwrap();
        }
    }
    let why = SentencePiece::parse(&whole[..1000]).unwrap_err();
    assert!(why.contains("byte ") && why.contains("wanted"), "{why}");
}

proptest! {
    #[test]
    fn random_bytes_never_panic_in_any_loader(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in r#"[{}\[\]":,a-z0-9 =\n#]{0,200}"#,
        kind in 0..5usize,
    ) {
        let kinds = [Kind::TokenizerJson, Kind::Gpt2, Kind::WordPiece, Kind::SentencePiece, Kind::Tiktoken];
        for kind in [None, Some(kinds[kind])] {
            let options = LoadOptions { kind, split: Some(Split::Cl100k), ..LoadOptions::default() };
            let _ = loaded("file", &bytes, &options);
            let _ = loaded("file", text.as_bytes(), &options);
        }
    }

    #[test]
    fn flipped_bytes_in_a_sentencepiece_model_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        bpe in any::<bool>(),
        text in r"(\PC|[ \n\u{2581}\u{2603}]){0,40}",
    ) {
        use std::sync::LazyLock;
        static MODELS: LazyLock<[Vec<u8>; 2]> =
            LazyLock::new(|| [model("unigram_nfkc"), model("bpe_symbols")]);
        let mut bytes = MODELS[usize::from(bpe)].clone();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(t) = SentencePiece::parse(&bytes) {
            let mut ids = Vec::new();
            t.encode_into(&text, &mut Default::default(), &mut ids).unwrap();
            prop_assert!(t.decode(&ids).is_ok());
        }
    }

    #[test]
    fn bytes_that_look_like_a_model_never_panic(
        fields in prop::collection::vec((0u8..64, prop::collection::vec(any::<u8>(), 0..30)), 0..30),
    ) {
        let mut bytes = Vec::new();
        for (tag, content) in fields {
            bytes.extend([tag, u8::try_from(content.len()).unwrap()]);
            bytes.extend(content);
        }
        let _ = SentencePiece::parse(&bytes);
    }
}
