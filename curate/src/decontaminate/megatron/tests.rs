//! Parity with Megatron-LM's own functions, recorded by tests/oracles/megatron_ngrams.py.

use serde_json::Value;

use super::words::is_of_word;
use super::*;
use crate::decontaminate::DecontaminateProfile;

fn golden() -> Value {
    let packed = include_bytes!("../../../tests/data/megatron_ngrams.json.zst");
    serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap()
}

fn strings(value: &Value) -> Vec<&str> {
    let list = value.as_array().unwrap().iter();
    list.map(|v| v.as_str().unwrap()).collect()
}

/// N-grams of the golden's tasks with the rules of one of its runs.
fn ngrams(golden: &Value, settings: &Value) -> CutNgrams {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for (task, texts) in golden["tasks"].as_object().unwrap() {
        for text in strings(texts) {
            lines += &format!("{}\n", serde_json::json!({"task": task, "text": text}));
        }
    }
    let file = folder.path().join("all.jsonl");
    std::fs::write(&file, lines).unwrap();
    let number = |key: &str| settings[key].as_u64();
    let size = |key: &str, own: usize| number(key).map_or(own, |n| usize::try_from(n).unwrap());
    let own = CutRules::default();
    let config = DecontaminateConfig {
        files: vec![file.to_string_lossy().into_owned()],
        profile: DecontaminateProfile::MtNlg,
        fields: vec!["text".to_string()],
        ngram: Some(size("max_ngram_size", 13)),
        cut: CutRules {
            min_ngram: size("min_ngram_size", own.min_ngram),
            side_chars: size("remove_char_each_side", own.side_chars),
            min_piece_chars: size("filter_text_char_len", own.min_piece_chars),
            max_pieces: size("splits_count", own.max_pieces),
            frequent_documents: number("key_threshold").unwrap_or(own.frequent_documents),
        },
        ..DecontaminateConfig::default()
    };
    CutNgrams::read(&config).unwrap()
}

#[test]
fn ngrams_their_documents_and_the_cuts_are_megatrons() {
    let golden = golden();
    let documents = strings(&golden["documents"]);
    let mut cut = 0;
    for run in golden["runs"].as_array().unwrap() {
        let settings = &run["settings"];
        let mut ngrams = ngrams(&golden, settings);
        let mut counts = vec![0u64; ngrams.len()];
        for text in &documents {
            for number in ngrams.of(text) {
                counts[number as usize] += 1;
            }
        }
        let want = run["ngrams"].as_object().unwrap();
        assert_eq!(ngrams.len(), want.len());
        for (number, count) in (0u32..).zip(&counts) {
            let gram = ngrams.gram(number).0;
            assert_eq!(Some(*count), want[gram][0].as_u64(), "{gram}: {settings}");
        }
        let frequent: u64 = ngrams.forget_frequent(&counts).iter().sum();
        let kept = want.values().filter(|v| v[1] == true).count() as u64;
        assert_eq!(frequent + kept, ngrams.len() as u64);
        for (text, want) in documents.iter().zip(run["cuts"].as_array().unwrap()) {
            let Some(found) = ngrams.cut(text) else {
                assert!(want.is_null(), "{settings}: not met in {text}");
                continue;
            };
            cut += 1;
            let pieces = found.pieces.iter();
            let pieces: Vec<&str> = pieces.map(|p| &text[p.0 as usize..p.1 as usize]).collect();
            match ngrams.outcome(&found) {
                Outcome::Removed | Outcome::TooManyPieces => {
                    assert_eq!(*want, serde_json::json!([]))
                }
                Outcome::Trimmed | Outcome::Split => {
                    assert_eq!(pieces, strings(want), "{settings}")
                }
            }
        }
    }
    assert!(cut > 500, "{cut}");
}

#[test]
fn parts_of_words_are_pythons() {
    let mut seen = 0;
    for range in golden()["characters"].as_array().unwrap() {
        let bound = |at: usize| u32::try_from(range[at].as_u64().unwrap()).unwrap();
        for c in (bound(0)..=bound(1)).filter_map(char::from_u32) {
            assert_eq!(is_of_word(c), range[2] == true, "{:x}", c as u32);
            seen += 1;
        }
    }
    assert!(seen > 280_000, "{seen}");
}

#[test]
fn a_text_of_nothing_but_ngrams_takes_time_in_proportion() {
    let golden = golden();
    let settings = serde_json::json!({"key_threshold": 0});
    let ngrams = ngrams(&golden, &settings);
    let one = "a b c d e f g h i,, ";
    let text = one.repeat(100_000);
    let started = std::time::Instant::now();
    assert_eq!(ngrams.of(&text).len(), 1);
    let cutting = ngrams.cut(&text).unwrap();
    assert_eq!(ngrams.outcome(&cutting), Outcome::Removed);
    let sentences = format!("{}{}. ", one.repeat(10), "x".repeat(400)).repeat(5_000);
    let cutting = ngrams.cut(&sentences).unwrap();
    assert!(cutting.met.len() > 1_000, "{}", cutting.met.len());
    // quadratic work would take minutes
    assert!(started.elapsed().as_secs() < 20);
}
