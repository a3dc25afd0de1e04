//! Parity with the authors' package (weights recorded by `tests/oracles/dsir.py`).

use std::path::PathBuf;

use super::*;
use crate::pipeline::{CurateConfig, Curator, shards};
use crate::progress::Silent;
use crate::read::Input;
use crate::steps::Step;

#[derive(Deserialize)]
struct Golden {
    target: Vec<String>,
    raw: Vec<String>,
    weights: Vec<f64>,
    words: Vec<usize>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../tests/data/dsir.json")).unwrap()
}

fn corpus(path: &Path, texts: &[String]) -> Corpus {
    let line = |text: &String| serde_json::json!({ "text": text }).to_string() + "\n";
    std::fs::write(path, texts.iter().map(line).collect::<String>()).unwrap();
    Corpus::find(&[path.display().to_string()], "text").unwrap()
}

fn fitted(folder: &Path, settings: DsirTraining) -> (PathBuf, DsirReport) {
    let golden = golden();
    let target = corpus(&folder.join("target.jsonl"), &golden.target);
    let raw = corpus(&folder.join("raw.jsonl"), &golden.raw);
    let out = folder.join("dsir.json");
    let report = settings.fit(&target, &raw, &out, &Silent).unwrap();
    (out, report)
}

#[test]
fn weights_are_the_authors() {
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = fitted(folder.path(), DsirTraining::default());
    assert!(report.divergence > 0.0);
    let model = Dsir::open(&out).unwrap();
    let golden = golden();
    let mut scratch = DsirScratch::default();
    for ((text, weight), words) in golden.raw.iter().zip(&golden.weights).zip(&golden.words) {
        let found = model.weigh(text, &mut scratch);
        assert!(
            (found.0 - weight).abs() < 1e-9 * weight.abs().max(1.0),
            "{text}: {found:?} {weight}"
        );
        assert_eq!(found.1, *words, "{text}");
    }
    let fast = DsirTraining {
        hash: DsirHash::Xxh3,
        ..DsirTraining::default()
    };
    let (out, other) = fitted(folder.path(), fast);
    assert_eq!(other.target.features, report.target.features);
    assert!(
        Dsir::open(&out)
            .unwrap()
            .weigh(&golden.target[0], &mut scratch)
            .0
            > 0.0
    );
}

/// Shares of a draw without replacement of one of n are the weights' shares.
#[test]
fn noise_draws_as_the_weights_say_whatever_the_order() {
    let weights = [0.0f64, 1.0, 2.0];
    let mut first = [0u32; 3];
    for seed in 0..30_000 {
        let config = DsirConfig {
            seed,
            ..DsirConfig::default()
        };
        let keys = weights
            .iter()
            .enumerate()
            .map(|(i, w)| w + config.noise(&format!("d{i}")));
        let best = keys
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap()
            .0;
        first[best] += 1;
    }
    let all: f64 = weights.iter().map(|w| w.exp()).sum();
    for (count, weight) in first.iter().zip(weights) {
        let wanted = 30_000.0 * weight.exp() / all;
        assert!(
            (f64::from(*count) - wanted).abs() < 4.0 * wanted.sqrt(),
            "{first:?}"
        );
    }
}

#[test]
fn a_cut_keeps_the_number_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = fitted(folder.path(), DsirTraining::default());
    let run = |name: &str, min_key| {
        let step = DsirConfig {
            model: model.display().to_string(),
            min_words: 20,
            min_key,
            ..DsirConfig::default()
        };
        let config = CurateConfig {
            inputs: vec![Input {
                path: folder.path().join("raw.jsonl").display().to_string(),
                ..Input::default()
            }],
            step: vec![Step::Dsir(step)],
            ..CurateConfig::default()
        };
        let out = folder.path().join(name);
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let shard = shards(&config).unwrap().remove(0);
        (curator.run_shard(&shard, &out, &Silent).unwrap().kept, out)
    };
    let (measured, out) = run("all", None);
    let long = golden().words.iter().filter(|w| **w >= 20).count() as u64;
    assert_eq!(measured, long);
    let cut = dsir_cut(&[&out], 17, &Silent).unwrap();
    assert_eq!((cut.documents, cut.kept), (long, 17));
    assert_eq!(run("some", Some(cut.min_key)).0, 17);
    let message =
        |folder: &Path, count| dsir_cut(&[folder], count, &Silent).unwrap_err().to_string();
    assert_eq!(
        message(&out, 1000),
        format!("count: found 1000, wanted at most {long}, the documents there are")
    );
    assert!(message(folder.path(), 3).contains("found no clean/00000"));
}

#[test]
fn what_is_no_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    let message = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Dsir::open(&path).unwrap_err().to_string()
    };
    assert!(message(b"").contains("wanted a model of `dsir fit`"));
    assert!(message(b"{\"kind\": 1}").contains("wanted a model of `dsir fit`"));
    let (whole, _) = fitted(
        folder.path(),
        DsirTraining {
            buckets: 7,
            ..DsirTraining::default()
        },
    );
    let text = std::fs::read_to_string(whole).unwrap();
    assert!(message(text.replacen("dsir", "lsir", 1).as_bytes()).contains("found kind \"lsir\""));
    let fewer = text.replacen("\"buckets\":7", "\"buckets\":8", 1);
    assert!(message(fewer.as_bytes()).contains("found 7 weights, wanted 8"));
    assert!(message(&text.as_bytes()[..text.len() / 2]).contains("EOF"));
    let bad = DsirTraining {
        ngrams: 0,
        ..DsirTraining::default()
    };
    let texts = corpus(&folder.path().join("t.jsonl"), &["a".to_string()]);
    let refused = bad
        .fit(&texts, &texts, &path, &Silent)
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "ngrams: found 0, wanted 1 to 8");
    let dots = corpus(&folder.path().join("e.jsonl"), &["\u{0}".to_string()]);
    assert!(
        DsirTraining::default()
            .fit(&texts, &dots, &path, &Silent)
            .is_ok()
    );
}
