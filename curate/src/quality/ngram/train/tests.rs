//! Parity with models that lmplz estimates (recorded by `tests/oracles/kenlm_train.py`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::progress::Silent;
use crate::quality::ngram::NgramModel;

fn corpus(folder: &Path, lines: &[&str]) -> Corpus {
    let path = folder.join("corpus.txt");
    std::fs::write(&path, lines.join("\n")).unwrap();
    Corpus::find(&[path.display().to_string()], "text").unwrap()
}

/// Weights by words, and the lines before the first n-gram.
fn parse(arpa: &str) -> (BTreeMap<&str, (f64, f64)>, Vec<&str>) {
    let head = arpa.lines().take_while(|l| !l.is_empty()).collect();
    let grams = arpa.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        let prob = fields.next()?.parse().ok()?;
        let words = fields.next()?;
        Some((
            words,
            (prob, fields.next().map_or(0.0, |b| b.parse().unwrap())),
        ))
    });
    (grams.collect(), head)
}

#[test]
fn probabilities_and_backoffs_are_lmplzs() {
    let packed = include_bytes!("../../../../tests/data/kenlm_train.json.zst");
    let golden: Value = serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let lines: Vec<&str> = golden["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l.as_str().unwrap())
        .collect();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() >= 8);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.arpa");
    for case in cases {
        let number = |v: &Value| usize::try_from(v.as_u64().unwrap()).unwrap();
        let corpus = corpus(folder.path(), &lines[..number(&case["sentences"])]);
        let prune = case["prune"].as_array().into_iter().flatten();
        let training = NgramTraining {
            order: number(&case["order"]),
            prune: prune.map(|p| p.as_u64().unwrap()).collect(),
            discount_fallback: case["fallback"] == true,
            ..NgramTraining::default()
        };
        training.train(&corpus, &out, &Silent).unwrap();
        let ours = std::fs::read_to_string(&out).unwrap();
        let (ours, our_head) = parse(&ours);
        let (theirs, their_head) = parse(case["arpa"].as_str().unwrap());
        assert_eq!(our_head, their_head, "{training:?}");
        assert_eq!(ours.len(), theirs.len());
        for (words, wanted) in theirs {
            let found = ours[words];
            let far = |a: f64, b: f64| (a - b).abs() > 1e-5;
            assert!(
                !far(found.0, wanted.0) && !far(found.1, wanted.1),
                "{training:?} {words}: {found:?}, {wanted:?}"
            );
        }
    }
}

#[test]
fn probabilities_of_all_words_after_a_context_add_up_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["a", "b", "c", "d", "e"];
    let mut random = 1u64;
    let lines: Vec<String> = (0..400)
        .map(|_| {
            let mut line = String::new();
            for _ in 0..6 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // the rare ones are rare enough for counts of every size
                let pick = (random >> 33) % 60;
                let word = if pick < 54 {
                    words[usize::try_from(pick % 5).unwrap()].to_string()
                } else {
                    format!("w{}", random >> 40 & 511)
                };
                line.push_str(&word);
                line.push(' ');
            }
            line
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let corpus = corpus(folder.path(), &lines);
    let out = folder.path().join("m.arpa");
    for prune in [vec![], vec![0, 1, 2]] {
        let training = NgramTraining {
            order: 3,
            prune,
            discount_fallback: true,
            memory_mb: 1,
            ..NgramTraining::default()
        };
        training.train(&corpus, &out, &Silent).unwrap();
        let arpa = std::fs::read_to_string(&out).unwrap();
        let (grams, _) = parse(&arpa);
        let vocabulary: Vec<&str> = grams
            .keys()
            .copied()
            .filter(|w| !w.contains(' ') && *w != "<s>")
            .collect();
        let model = NgramModel::open(&out).unwrap();
        for context in ["", "a", "a b", "e a c", "w7"] {
            let mut before = model.start();
            for word in context.split_whitespace() {
                model.next(&mut before, word);
            }
            let all: f64 = vocabulary
                .iter()
                .map(|w| 10f64.powf(model.next(&mut before.clone(), w).0))
                .sum();
            assert!((all - 1.0).abs() < 1e-5, "{context:?}: {all}");
        }
    }
}

#[test]
fn a_model_does_not_depend_on_memory_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..9000u64)
        .map(|i| {
            (0..8)
                .map(|j| format!("w{} ", (i * i * 7 + j * i * 13 + j) % (97 + i % 400)))
                .collect()
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let corpus = corpus(folder.path(), &lines);
    let out = folder.path().join("m.arpa");
    let train = |memory_mb, threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let training = NgramTraining {
            memory_mb,
            discount_fallback: true,
            ..NgramTraining::default()
        };
        pool.install(|| training.train(&corpus, &out, &Silent))
            .unwrap();
        std::fs::read(&out).unwrap()
    };
    let wanted = train(1024, 1);
    assert!(train(1, 1) == wanted, "spilled");
    assert!(train(1, 3) == wanted, "threads");
}

#[test]
fn what_cannot_be_is_said_before_a_model_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.arpa");
    let message = |training: NgramTraining, lines: &[&str]| {
        let corpus = corpus(folder.path(), lines);
        training
            .train(&corpus, &out, &Silent)
            .unwrap_err()
            .to_string()
    };
    let with = |order, prune: &[u64]| NgramTraining {
        order,
        prune: prune.to_vec(),
        ..NgramTraining::default()
    };
    assert_eq!(
        message(with(6, &[]), &["a"]),
        "order: found 6, wanted 2 to 5"
    );
    assert!(message(with(3, &[2, 1]), &["a"]).starts_with("prune: found [2, 1], wanted counts"));
    assert!(message(with(2, &[]), &["<s> </s>"]).ends_with("found no word, wanted text"));
    assert!(message(with(2, &[]), &["a b c"]).starts_with("discount_fallback: found 1-grams"));
    assert!(!out.exists());
}
