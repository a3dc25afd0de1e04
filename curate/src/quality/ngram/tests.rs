//! Parity with KenLM: models made by its tools, and its scores (recorded by `tests/oracles/kenlm_scores.py`).

use std::sync::LazyLock;

use serde_json::Value;

use super::NgramModel;

/// KenLM's scores, and its files by kind.
type Golden = (Value, Vec<(String, Vec<u8>)>);

static GOLDEN: LazyLock<Golden> = LazyLock::new(read_golden);

fn golden() -> &'static Golden {
    &GOLDEN
}

fn read_golden() -> Golden {
    let packed = include_bytes!("../../../tests/data/kenlm.json.zst");
    let golden: Value = serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let files = golden["files"].as_object().unwrap().iter();
    let files = files.map(|(name, hex)| {
        let hex = hex.as_str().unwrap().as_bytes();
        let digit = |b: u8| u8::try_from(char::from(b).to_digit(16).unwrap()).unwrap();
        let bytes = hex.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1]));
        (name.clone(), bytes.collect())
    });
    let files = files.collect();
    (golden, files)
}

fn open(bytes: &[u8]) -> crate::Result<NgramModel> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    NgramModel::open(file.path())
}

#[test]
fn every_kind_of_file_gives_kenlms_scores() {
    let (golden, files) = golden();
    assert!(files.len() >= 7);
    for (name, bytes) in files {
        let model = open(bytes).unwrap();
        assert_eq!(model.order(), 4, "{name}");
        let scores = golden["scores"][name].as_array().unwrap();
        for (sentence, wanted) in golden["sentences"].as_array().unwrap().iter().zip(scores) {
            let (sentence, wanted) = (sentence.as_str().unwrap(), wanted.as_f64().unwrap());
            let found = model.score(sentence);
            assert!(
                (found - wanted).abs() < 1e-4 * wanted.abs().max(1.0),
                "{name}: {sentence:?}: {found}, {wanted}"
            );
        }
        let perplexity = golden["perplexity"][name].as_f64().unwrap();
        let found = model.perplexity(golden["sentences"][0].as_str().unwrap());
        assert!(
            (found / perplexity - 1.0).abs() < 1e-4,
            "{name}: {found}, {perplexity}"
        );
    }
}

#[test]
fn a_documents_perplexity_is_that_of_its_lines_together() {
    let (golden, files) = golden();
    let model = open(&files[0].1).unwrap();
    let [a, b] = [0, 1].map(|i| golden["sentences"][i].as_str().unwrap());
    let words = |s: &str| s.split_ascii_whitespace().count() + 1;
    let mean = (model.score(a) + model.score(b)) / (words(a) + words(b)) as f64;
    let found = model.document_perplexity(&format!("{a}\n{b}"));
    assert!((found / 10f64.powf(-mean) - 1.0).abs() < 1e-12);
}

#[test]
fn what_is_no_model_is_refused_with_what_was_found_and_wanted() {
    for (bytes, wanted) in [
        (&b""[..], "found no line \\data\\"),
        (
            b"\\data\\\nngram 2=1\n",
            "line 2: found \"ngram 2=1\", wanted \"ngram 1=COUNT\"",
        ),
        (
            b"\\data\\\nngram 1=3\n\n\\1-grams:\n-1 a\n",
            "found the end, wanted 3 1-grams",
        ),
        (
            b"\\data\\\nngram 1=1\n\n\\1-grams:\n1.5 a\n\\end\\\n",
            "line 5: found \"1.5 a\", wanted a log10 probability",
        ),
        (
            b"\\data\\\nngram 1=1\n\n\\1-grams:\n-1 a\n\\end\\\n",
            "found no <s> among the words",
        ),
        (
            b"\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1 a\n\\2-grams:\n-1 a b\n\\end\\",
            "line 7: found \"-1 a b\", wanted words of the 1-grams",
        ),
        (
            b"mmap lm http://kheafield.com/code format version 4\n",
            "byte 48: found another version",
        ),
        (b"\x1f\x8b\x08nothing", "found damaged compression"),
    ] {
        let message = open(bytes).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn every_cut_of_a_binary_file_is_refused_or_scores() {
    let (golden, files) = golden();
    let sentence = golden["sentences"][0].as_str().unwrap();
    for (name, bytes) in files.iter().filter(|(name, _)| name != "arpa") {
        for cut in (0..bytes.len().min(200))
            .step_by(3)
            .chain((200..bytes.len()).step_by(bytes.len() / 50))
        {
            if let Ok(model) = open(&bytes[..cut]) {
                assert!(!model.score(sentence).is_nan(), "{name}");
            }
        }
        assert!(open(&bytes[..bytes.len() / 2]).is_err(), "{name}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn flipped_bytes_never_make_it_panic_or_hang(
        which in 0usize..8,
        flips in proptest::collection::vec((proptest::num::usize::ANY, 1u8..=255), 1..12),
        early in proptest::bool::ANY,
    ) {
        let (golden, files) = golden();
        let mut bytes = files[which % files.len()].1.clone();
        for (at, flip) in flips {
            let range = if early { bytes.len().min(200) } else { bytes.len() };
            bytes[at % range] ^= flip;
        }
        if let Ok(model) = open(&bytes) {
            model.score(golden["sentences"][0].as_str().unwrap());
        }
    }
}
