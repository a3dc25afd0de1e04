//! Tests of `[classify] task = "labels"`: a classifier of one's own texts, from labelled rows to the curator's step.

use crate::jobs::{metrics, output, succeed, word_tokenizer};
use serde_json::{Value, json};
use std::io::BufRead;
use std::path::Path;

const WORDS: [&str; 12] = [
    "a", "cat", "dog", "red", "old", "walks", "sees", "river", "stone", "light", "well", "click",
];

/// Texts whose quality is good with the word `well`, and bad with `click`; `score` has it as a number.
fn rows(path: &Path, numbers: std::ops::Range<usize>) -> Vec<Value> {
    let row = |number: usize| {
        let (quality, word) = [("bad", "click"), ("good", "well")][number * 5 % 7 % 2];
        let length = 4 + number % 9;
        let words = (0..length).map(|at| match at == number % length {
            true => word,
            false => WORDS[(number * 7 + at * at * 5 + number * at * 3) % 10],
        });
        let text = words.collect::<Vec<_>>().join(" ");
        let score = u8::from(quality == "good");
        json!({"id": number.to_string(), "body": text, "meta": {"quality": quality, "score": score}})
    };
    let all: Vec<Value> = numbers.map(row).collect();
    let lines: String = all.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(path, lines).unwrap();
    all
}

/// The job's path.
fn job(folder: &Path, name: &str, labels: &str) -> String {
    let text = format!(
        "name = '{name}'\nout = {:?}\n[classify]\ntask = 'labels'\ntrain = [{:?}]\nvalid = [{:?}]\ntokenizer = {:?}\n\
         text_key = 'body'\n{labels}\nseq_length = 16\n[model]\nfamily = 'bert'\npost_norm = true\nlayers = 2\n\
         d_model = 32\nheads = 2\n[train]\nglobal_batch = 8\nmicro_batch = 4\nlr = 2e-3\nmin_lr = 0.0\n\
         schedule = 'linear'\n",
        folder.join(name),
        folder.join("train.jsonl"),
        folder.join("dev.jsonl"),
        word_tokenizer(folder, &["[PAD]", "[UNK]", "[CLS]", "[SEP]"], &WORDS),
    );
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Results of `eval` on the validation file, and its records.
fn evaluated(folder: &Path, job: &str) -> (Value, Vec<Value>) {
    let records = folder.join("records.jsonl");
    let (data, to) = (folder.join("dev.jsonl"), records.display().to_string());
    let data = data.to_str().unwrap();
    let flags = ["--data", data, "--json", "--records", &to];
    let found = succeed(&[&["eval", job, "--task", "labels"], &flags[..]].concat());
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let lines = std::fs::read(&records).unwrap();
    // a file that exists is refused
    std::fs::remove_file(records).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    (found["results"]["labels"].clone(), lines.collect())
}

/// Scores that the step `classifier` gives the texts of the validation file, by id.
fn curated(folder: &Path, model: &Path, settings: &str) -> Vec<f64> {
    let (path, out) = (folder.join("curate.toml"), folder.join("curated"));
    let text = format!(
        "name = 'curated'\nout = {out:?}\n[curate]\ninputs = [{{ path = {:?}, source = 'dev', text_key = 'body' }}]\n\
         [[curate.step]]\nclassifier = {{ name = 'own', model = {model:?}{settings} }}\n",
        folder.join("dev.jsonl"),
    );
    std::fs::write(&path, text).unwrap();
    succeed(&["curate", path.to_str().unwrap()]);
    let bytes = std::fs::read(out.join("clean/00000.jsonl.zst")).unwrap();
    let bytes = zstd::decode_all(&bytes[..]).unwrap();
    let score = |line: std::io::Result<String>| {
        let document: Value = serde_json::from_str(&line.unwrap()).unwrap();
        document["meta"]["classifier_own"].as_f64().unwrap()
    };
    let scores = bytes.lines().map(score).collect();
    std::fs::remove_dir_all(out).unwrap();
    scores
}

#[test]
fn a_classifier_of_own_labels_scores_documents_as_it_was_trained() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    rows(&folder.join("train.jsonl"), 0..322);
    let dev = rows(&folder.join("dev.jsonl"), 1000..1060);
    let hf = folder.join("hf");
    let convert = |name: &str| {
        let _ = std::fs::remove_dir_all(&hf);
        let from = folder.join(name).join("checkpoints");
        let (from, to) = (from.display().to_string(), hf.display().to_string());
        succeed(&["convert", "--checkpoint", &from, &to]);
        let config = std::fs::read(hf.join("config.json")).unwrap();
        serde_json::from_slice::<Value>(&config).unwrap()
    };

    let classes = job(
        folder,
        "classes",
        "label_key = 'meta.quality'\nclasses = ['bad', 'good']\nepochs = 4",
    );
    let log = String::from_utf8(succeed(&["train", &classes]).stderr).unwrap();
    assert!(log.contains(" bad, ") && log.contains(" good"), "{log}");
    let last = metrics(&folder.join("classes")).pop().unwrap();
    let (result, records) = evaluated(folder, &classes);
    assert_eq!(result["acc,none"], last["valid_accuracy"]);
    assert!(result["acc,none"].as_f64().unwrap() > 0.9, "{result}");
    assert!(result["f1_macro,none"].as_f64().unwrap() > 0.9, "{result}");
    assert_eq!(records.len(), dev.len());
    for (record, row) in records.iter().zip(&dev) {
        assert_eq!(record["target"], row["meta"]["quality"]);
    }
    let config = convert("classes");
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"], json!({"0": "bad", "1": "good"}));
    assert_eq!(config["problem_type"], "single_label_classification");
    let scores = curated(folder, &hf, ", label = 'good'");
    assert_eq!(scores.len(), dev.len());
    for (score, record) in scores.iter().zip(&records) {
        let of = |class: usize| record["scores"][class].as_f64().unwrap().exp();
        let wanted = of(1) / (of(0) + of(1));
        assert!((score - wanted).abs() < 1e-5, "{score} {wanted}");
    }

    let numbers = job(folder, "numbers", "label_key = 'meta.score'\nepochs = 2");
    succeed(&["train", &numbers]);
    let last = metrics(&folder.join("numbers")).pop().unwrap();
    let (result, records) = evaluated(folder, &numbers);
    let error = result["mse,none"].as_f64().unwrap();
    let wanted = last["valid_loss"].as_f64().unwrap();
    assert!(
        (error - wanted).abs() < 1e-6 && last.get("valid_accuracy").is_none(),
        "{result} {last}"
    );
    assert_eq!(convert("numbers")["problem_type"], "regression");
    for (score, record) in curated(folder, &hf, "").iter().zip(&records) {
        let wanted = record["scores"][0].as_f64().unwrap();
        assert!((score - wanted).abs() < 1e-5, "{score} {wanted}");
    }
}

#[test]
fn labels_that_do_not_fit_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    rows(&folder.join("train.jsonl"), 0..32);
    rows(&folder.join("dev.jsonl"), 40..48);
    let refused = |labels: &str, code: i32, parts: &[&str]| {
        let path = job(folder, "bad", labels);
        let found = output(&["train", &path]);
        let text = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(code), "{text}");
        for part in parts {
            assert!(text.contains(part), "{text} wants {part}");
        }
    };
    refused(
        "label_key = 'meta.quality'\nclasses = ['bad', 'fine']",
        1,
        &[
            "train.jsonl: row",
            "`meta.quality`",
            "found \"good\"",
            "one of bad, fine",
        ],
    );
    refused(
        "label_key = 'quality'",
        1,
        &["row 1", "`quality`", "columns id, body, meta"],
    );
    refused(
        "label_key = 'meta.quality'",
        1,
        &["want a number", "classify.classes"],
    );
    refused(
        "classes = ['bad']",
        2,
        &["classify.classes", "at least two classes"],
    );
    refused("classes = ['a', 'a']", 2, &["\"a\" twice"]);
    let path = job(folder, "other", "");
    let found = output(&["train", &path, "--set", "classify.task='mnli'"]);
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(
        text.contains("classify.text_key") && text.contains("task = \"labels\""),
        "{text}"
    );
}
