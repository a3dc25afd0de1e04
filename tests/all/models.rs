//! Tests of quality models from the command line: trained from texts, evaluated on them, used by a job's steps.

use crate::jobs::{millrace, output, succeed};
use serde_json::Value;
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Texts of two kinds.
fn texts(folder: &Path) -> [PathBuf; 2] {
    let good = "the river runs past old towns and people walk along its banks in the evening light";
    let bad = "buy cheap pills now click here free casino bonus win money best price offer today";
    ["good", "bad"].map(|name| {
        let words: Vec<&str> = if name == "good" { good } else { bad }.split(' ').collect();
        let line = |i: usize| {
            let some = (0..40).map(|j| words[(i * 7 + j * j + j * i) % words.len()]);
            let text = some.collect::<Vec<_>>().join(" ");
            format!("{{\"id\":\"{name}/{i}\",\"text\":\"{text} {name}{i}.\"}}\n")
        };
        let path = folder.join(format!("{name}.jsonl"));
        std::fs::write(&path, (0..200).map(line).collect::<String>()).unwrap();
        path
    })
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&succeed(args).stdout).unwrap()
}

fn kept(out: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    for shard in 0..2 {
        let path = out.join(format!("clean/{shard:05}.jsonl.zst"));
        let bytes = zstd::decode_all(&std::fs::read(path).unwrap()[..]).unwrap();
        all.extend(
            bytes
                .lines()
                .map(|l| serde_json::from_str::<Value>(&l.unwrap()).unwrap()),
        );
    }
    all
}

#[test]
fn models_are_trained_measured_and_used_by_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let [good, bad] = texts(dir.path());
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (model, arpa, dsir) = (at("m.bin"), at("m.arpa"), at("dsir.json"));
    let trained = json(&[
        "classifier",
        "train",
        "--positive",
        good,
        "--negative",
        bad,
        "--out",
        &model,
        "--dim",
        "8",
        "--rate",
        "0.5",
        "--buckets",
        "5000",
    ]);
    assert_eq!(trained["examples"], 360);
    assert_eq!(trained["held_out"]["accuracy"], 1.0);
    let scores = json(&[
        "classifier",
        "score",
        "--model",
        &model,
        "--buckets",
        "4",
        good,
        bad,
    ]);
    let thresholds = scores["buckets"].to_string();
    assert_eq!(scores["buckets"].as_array().unwrap().len(), 3);
    let ngram = json(&[
        "ngram",
        "train",
        "--out",
        &arpa,
        "--order",
        "3",
        "--discount-fallback",
        good,
    ]);
    assert_eq!(ngram["documents"], 200);
    let cuts = json(&["ngram", "buckets", "--model", &arpa, good, bad])["buckets"].to_string();
    json(&[
        "dsir", "fit", "--target", good, "--raw", good, "--raw", bad, "--out", &dsir,
    ]);
    let job = |name: &str, min_key: &str| {
        let out = dir.path().join(name);
        let text = format!(
            r#"
name = "models"
out = {out:?}
[curate]
figures = true
inputs = [{{ path = {good:?} }}, {{ path = {bad:?} }}]
[[curate.step]]
quality = {{ model = {model:?}, label = "lq" }}
[[curate.step]]
quality = {{ model = {model:?}, buckets = {thresholds} }}
[[curate.step]]
perplexity = {{ model = {arpa:?}, buckets = {cuts} }}
[[curate.step]]
dsir = {{ model = {dsir:?}, min_words = 10 {min_key} }}
[report]
"#
        );
        let path = dir.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        succeed(&["run", path.to_str().unwrap()]);
        out
    };
    let all = job("all", "");
    let documents = kept(&all);
    assert_eq!(documents.len(), 400);
    for bucket in 0..4 {
        let inside = documents
            .iter()
            .filter(|d| d["meta"]["quality_bucket"] == bucket);
        // equal scores are in one bucket
        assert!((90..=110).contains(&inside.count()), "bucket {bucket}");
    }
    let head = documents
        .iter()
        .filter(|d| d["meta"]["perplexity_bucket"] == "head");
    assert!(
        head.clone().count() > 100
            && head
                .clone()
                .all(|d| d["id"].as_str().unwrap().contains("good"))
    );
    let cut = json(&["dsir", "cut", "--count", "60", all.to_str().unwrap()]);
    assert_eq!((&cut["documents"], &cut["kept"]), (&400.into(), &60.into()));
    let some = job("some", &format!(", min_key = {}", cut["min_key"]));
    let chosen = kept(&some);
    assert_eq!(chosen.len(), 60);
    let of_target = chosen
        .iter()
        .filter(|d| d["id"].as_str().unwrap().contains("good"));
    assert!(of_target.count() > 55);
    assert!(some.join("report.html").exists());
}

#[test]
fn models_that_cannot_be_made_or_read_are_told_before_a_text_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let [good, bad] = texts(dir.path());
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let model = dir.path().join("m.bin").to_str().unwrap().to_string();
    for (args, wanted) in [
        (
            vec!["classifier", "train", "--positive", good, "--out", &model],
            "labels: found examples of [\"hq\"] alone",
        ),
        (
            vec![
                "classifier",
                "train",
                "--positive",
                good,
                "--negative",
                "none.jsonl",
                "--out",
                &model,
            ],
            "none.jsonl",
        ),
        (
            vec!["classifier", "train", "--texts", good, "--out", &model],
            "wanted LABEL=PATH",
        ),
        (
            vec![
                "classifier",
                "train",
                "--positive",
                good,
                "--negative",
                bad,
                "--field",
                "body",
                "--out",
                &model,
            ],
            "records without a usable text",
        ),
        (
            vec!["classifier", "score", "--model", good, bad],
            "at byte 0: found",
        ),
        (
            vec!["ngram", "train", "--order", "9", "--out", &model, good],
            "order: found 9, wanted 2 to 5",
        ),
        (
            vec!["ngram", "buckets", "--model", good, bad],
            "wanted an ARPA file",
        ),
        (
            vec!["dsir", "cut", "--count", "3", dir.path().to_str().unwrap()],
            "wanted the folder of a job",
        ),
    ] {
        let out = output(&args);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
        assert!(!Path::new(&model).exists());
    }
    assert_eq!(
        millrace(&["dsir", "fit"]).output().unwrap().status.code(),
        Some(2)
    );
}
