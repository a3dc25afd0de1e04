//! Parity with fastText's training and prediction with two labels (recorded by `tests/oracles/fasttext_train.py`).

use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use super::*;
use crate::corpus::Corpus;
use crate::progress::Silent;
use crate::quality::fasttext::{Body, FastTextScratch};

static GOLDEN: LazyLock<Value> = LazyLock::new(|| {
    let packed = include_bytes!("../../../../tests/data/fasttext_train.json.zst");
    serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap()
});

fn strings(value: &Value) -> Vec<&str> {
    let all = value.as_array().unwrap().iter();
    all.map(|s| s.as_str().unwrap()).collect()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn corpus(path: PathBuf, lines: &[&str]) -> Corpus {
    std::fs::write(&path, lines.join("\n")).unwrap();
    Corpus::find(&[path.display().to_string()], "text").unwrap()
}

/// Share of lines whose best label is theirs.
fn right(model: &FastText, lines: &[&str]) -> f64 {
    let (mut scratch, mut found) = (FastTextScratch::new(), Vec::new());
    let hits = lines.iter().filter(|line| {
        let (label, text) = line.split_once(' ').unwrap();
        model.predict(text, 1, &mut scratch, &mut found);
        model.label(label) == found.first().map(|f| f.0)
    });
    hits.count() as f64 / lines.len() as f64
}

#[test]
fn accuracy_is_within_a_point_of_fasttexts() {
    let (train, test) = (strings(&GOLDEN["train"]), strings(&GOLDEN["test"]));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.bin");
    let lines = ClassifierInput::Labelled(corpus(folder.path().join("train.txt"), &train));
    let cases = GOLDEN["accuracy"].as_array().unwrap();
    assert!(cases.len() >= 4);
    for case in cases {
        let mut sum = 0.0;
        for seed in 1..=3 {
            let training = ClassifierTraining {
                dim: number(&case["dim"]),
                rate: case["lr"].as_f64().unwrap(),
                epochs: number(&case["epoch"]),
                word_ngrams: number(&case["wordNgrams"]),
                min_count: case["minCount"].as_i64().unwrap(),
                buckets: u32::try_from(number(&case["bucket"])).unwrap(),
                min_chars: number(&case["minn"]),
                max_chars: number(&case["maxn"]),
                loss: match case["loss"].as_str().unwrap() {
                    "hs" => ClassifierLoss::Hs,
                    "ova" => ClassifierLoss::Ova,
                    _ => ClassifierLoss::Softmax,
                },
                seed,
                held_out: 0.0,
                balanced: false,
                ..ClassifierTraining::default()
            };
            let report = training
                .train(std::slice::from_ref(&lines), &out, &Silent)
                .unwrap();
            assert_eq!(report.examples, train.len());
            assert!(
                report.losses.is_sorted_by(|a, b| a > b),
                "{:?}",
                report.losses
            );
            sum += right(&FastText::open(&out).unwrap(), &test);
        }
        let wanted = case["mean"].as_f64().unwrap();
        assert!(sum / 3.0 > wanted - 0.01, "{case}: {}", sum / 3.0);
    }
}

#[test]
fn folded_models_score_as_fasttext_does() {
    let texts = strings(&GOLDEN["texts"]);
    let mut folded = 0;
    for case in GOLDEN["two"].as_array().unwrap() {
        let hex = case["model"].as_str().unwrap().as_bytes();
        let digit = |b: u8| u8::try_from(char::from(b).to_digit(16).unwrap()).unwrap();
        let bytes: Vec<u8> = hex
            .chunks(2)
            .map(|two| digit(two[0]) << 4 | digit(two[1]))
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let model = FastText::open(file.path()).unwrap();
        folded += u32::from(matches!(model.body, Body::Folded(_)));
        let (mut scratch, mut found) = (FastTextScratch::new(), Vec::new());
        for (text, wanted) in texts.iter().zip(case["answers"].as_array().unwrap()) {
            model.predict(text, 2, &mut scratch, &mut found);
            assert_eq!(found.len(), wanted.as_array().unwrap().len(), "{text:?}");
            for pair in wanted.as_array().unwrap() {
                let label = model.label(pair[0].as_str().unwrap()).unwrap();
                let (found, wanted) = (
                    found.iter().find(|f| f.0 == label).unwrap().1,
                    pair[1].as_f64().unwrap(),
                );
                assert!(
                    (f64::from(found) - wanted).abs() < 1e-5,
                    "{text:?}: {found} {wanted}"
                );
            }
            assert!(found.is_sorted_by(|a, b| a.1 >= b.1));
        }
    }
    // those with one logistic a label and with character n-grams are not
    assert_eq!(folded, 4);
}

fn two(folder: &Path) -> Vec<ClassifierInput> {
    let lines = strings(&GOLDEN["train"]);
    let of = |label: &str, name: &str| {
        let texts = lines.iter().filter_map(|l| l.strip_prefix(label));
        let texts: Vec<&str> = texts.map(str::trim).collect();
        ClassifierInput::Of {
            label: name.to_string(),
            corpus: corpus(folder.join(format!("{name}.txt")), &texts),
        }
    };
    vec![of("__label__spa", "hq"), of("__label__por_PT", "lq")]
}

fn small() -> ClassifierTraining {
    ClassifierTraining {
        dim: 10,
        rate: 0.5,
        epochs: 20,
        buckets: 1000,
        held_out: 0.2,
        ..ClassifierTraining::default()
    }
}

#[test]
fn a_model_does_not_depend_on_threads_and_order_and_its_report_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.bin");
    let mut inputs = two(folder.path());
    let train = |inputs: &[ClassifierInput], threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let report = pool
            .install(|| small().train(inputs, &out, &Silent))
            .unwrap();
        (std::fs::read(&out).unwrap(), report)
    };
    let (bytes, report) = train(&inputs, 1);
    assert!(train(&inputs, 3).0 == bytes, "threads");
    if let ClassifierInput::Of { corpus: texts, .. } = &mut inputs[0] {
        let path = folder.path().join("hq.txt");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.reverse();
        *texts = corpus(path, &lines);
    }
    assert!(train(&inputs, 2).0 == bytes, "order of texts");
    let held = &report.held_out;
    assert!(held.accuracy > 0.8, "{}", held.accuracy);
    let sum: u64 = held.confusion.iter().flatten().sum();
    assert_eq!(sum, held.texts);
    assert_eq!(
        held.confusion
            .iter()
            .map(|r| r.iter().sum::<u64>())
            .collect::<Vec<_>>(),
        [held.labels[0].texts, held.labels[1].texts]
    );
    let hits = held.confusion[0][0] + held.confusion[1][1];
    assert!((hits as f64 / held.texts as f64 - held.accuracy).abs() < 1e-12);
    for label in &held.labels {
        assert_eq!(label.scores.iter().sum::<u64>(), label.texts);
        assert_eq!(
            label.scores_of_others.iter().sum::<u64>(),
            held.texts - label.texts
        );
        assert!(label.thresholds.is_sorted_by(|a, b| a.1 >= b.1));
    }
    // balanced: as many of each, four fifths of them
    assert_eq!(report.examples % 2, 0);
    let scored = |buckets| {
        let ClassifierInput::Of { corpus, .. } = &inputs[1] else {
            unreachable!()
        };
        score_corpus(&out, "__label__hq", buckets, corpus, &Silent)
    };
    let scores = scored(20).unwrap();
    assert_eq!((scores.buckets.len(), scores.label.as_str()), (19, "hq"));
    assert!(scores.buckets.is_sorted());
    assert_eq!(scores.scores.iter().sum::<u64>(), scores.documents);
    assert!(
        scored(0)
            .unwrap_err()
            .to_string()
            .starts_with("buckets: found 0, wanted")
    );
}

#[test]
fn what_cannot_be_trained_is_said_and_leaves_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.bin");
    let inputs = two(folder.path());
    let message = |training: ClassifierTraining, inputs: &[ClassifierInput]| {
        training
            .train(inputs, &out, &Silent)
            .unwrap_err()
            .to_string()
    };
    let wide = ClassifierTraining { dim: 0, ..small() };
    assert_eq!(message(wide, &inputs), "dim: found 0, wanted 1 to 65536");
    let chars = ClassifierTraining {
        min_chars: 3,
        max_chars: 2,
        ..small()
    };
    assert_eq!(message(chars, &inputs), "min_chars: found 3, wanted 0 to 2");
    assert_eq!(
        message(small(), &inputs[..1]),
        "labels: found examples of [\"hq\"] alone, wanted at least two labels"
    );
    let fast = ClassifierTraining {
        rate: 100.0,
        epochs: 100,
        ..small()
    };
    let diverged = message(fast, &inputs);
    assert!(
        diverged.starts_with("rate: found 100, wanted less"),
        "{diverged}"
    );
    let plain =
        ClassifierInput::Labelled(corpus(folder.path().join("plain.txt"), &["no label here"]));
    assert!(message(small(), &[plain]).starts_with("labels: found examples of [] alone"));
    assert!(!out.exists());
    small().train(&inputs, &out, &Silent).unwrap();
    let ClassifierInput::Of { corpus, .. } = &inputs[0] else {
        unreachable!()
    };
    let unknown = score_corpus(&out, "good", 4, corpus, &Silent)
        .unwrap_err()
        .to_string();
    assert!(
        unknown.starts_with("label: found \"good\", wanted a label of"),
        "{unknown}"
    );
    assert!(
        unknown.ends_with(": hq lq") || unknown.ends_with(": lq hq"),
        "{unknown}"
    );
    std::fs::write(&out, b"\\data\\").unwrap();
    assert!(
        score_corpus(&out, "hq", 4, corpus, &Silent)
            .unwrap_err()
            .to_string()
            .contains("at byte 0")
    );
}
