//! Tests that filters and MinHash decide as datatrove does on the committed Pile-style texts, document by document
//! (`data/datatrove_pile.json`). No difference is known; it would be named here.

use crate::jobs::{data, succeed};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const GOLDEN: &str = include_str!("../data/datatrove_pile.json");

fn inputs() -> String {
    let files = ["pile-00000.jsonl.zst", "pile-00001.jsonl.zst"];
    let list = files.map(|f| {
        format!(
            "{{ path = {:?}, format = \"jsonl\", source = \"pile\" }}",
            data(f)
        )
    });
    list.join(", ")
}

/// Objects of a zstd JSONL file.
fn lines(path: &Path) -> Vec<Value> {
    let bytes = std::fs::read(path).unwrap();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

fn id(v: &Value) -> String {
    v["id"].as_str().unwrap().to_string()
}

#[test]
fn every_document_is_kept_or_dropped_for_datatroves_reason() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job.toml");
    let text = format!(
        "name = \"filters\"\nout = {:?}\n[curate]\ninputs = [{}]\n[[curate.step]]\ngopher_repetition = {{}}\n\
         [[curate.step]]\ngopher_quality = {{}}\n[[curate.step]]\nc4 = {{ filter_no_terminal_punct = false }}\n\
         [[curate.step]]\nfineweb = {{}}\n",
        dir.path().join("out"),
        inputs()
    );
    std::fs::write(&job, text).unwrap();
    succeed(&["curate", &job.display().to_string()]);
    let mut ours = BTreeMap::new();
    for shard in 0..2 {
        for d in lines(&dir.path().join(format!("out/clean/{shard:05}.jsonl.zst"))) {
            ours.insert(id(&d), "kept".to_string());
        }
        for d in lines(&dir.path().join(format!("out/dropped/{shard:05}.jsonl.zst"))) {
            let rule = d["rule"].as_str().unwrap();
            if rule != "read.empty" {
                assert!(
                    !d["value"].is_null() && !d["limit"].is_null(),
                    "no figures: {d}"
                );
                ours.insert(id(&d), rule.to_string());
            }
        }
    }
    let theirs: BTreeMap<String, String> = golden["filters"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, v)| {
            (
                id.clone(),
                v.as_str()
                    .map_or("kept".into(), |r| r.replace(".gopher_", ".")),
            )
        })
        .collect();
    let differ: Vec<_> = theirs
        .iter()
        .filter(|(id, v)| ours.get(*id) != Some(v))
        .take(5)
        .collect();
    assert!(differ.is_empty(), "datatrove says {differ:?}");
    assert_eq!(ours.len(), theirs.len());
    assert!(
        theirs.values().filter(|v| *v == "kept").count() > 500,
        "the golden file keeps almost nothing"
    );
}

/// Documents that `keep = "datatrove"` removes from `files` files.
fn removed(files: usize, all: &[String]) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    std::fs::create_dir_all(&input).unwrap();
    for file in 0..files {
        let range = all.len() * file / files..all.len() * (file + 1) / files;
        let path = input.join(format!("{file}.jsonl"));
        std::fs::write(path, all[range].join("\n")).unwrap();
    }
    let text = format!(
        "name = \"minhash\"\nout = {:?}\n[curate]\ninputs = [{{ path = {input:?}, format = \"jsonl\", source = \"pile\" }}]\n\
         [dedup]\nkeep = \"datatrove\"\nminhash = {{ preset = \"fineweb\" }}\n",
        dir.path().join("out")
    );
    let job = dir.path().join("job.toml");
    std::fs::write(&job, text).unwrap();
    let job = job.display().to_string();
    succeed(&["curate", &job]);
    succeed(&["dedup", &job]);
    let mut removed = BTreeSet::new();
    for shard in 0..files {
        let keep = dir.path().join(format!("out/keep/{shard:05}.keep"));
        let keep = curate::corpus::KeepList::read(&keep).unwrap();
        let documents = lines(&dir.path().join(format!("out/clean/{shard:05}.jsonl.zst")));
        assert_eq!(keep.len(), documents.len());
        let gone = (0..keep.len()).filter(|i| keep.status(*i) != curate::corpus::KeepStatus::Kept);
        removed.extend(gone.map(|i| id(&documents[i])));
    }
    removed
}

#[test]
fn minhash_removes_exactly_what_datatrove_removes_from_1_3_and_7_files() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    // datatrove numbers the documents of a task consecutively; one input file was one task there
    let mut all = Vec::new();
    for shard in ["pile-00000", "pile-00001"] {
        for (i, mut d) in (0..).zip(lines(&data(&format!("{shard}.jsonl.zst")))) {
            let i: usize = i;
            d["id"] = format!("pile/{shard}/{i}").into();
            all.push(d.to_string());
        }
    }
    let theirs: BTreeSet<String> = (golden["minhash"]["removed"].as_array().unwrap().iter())
        .map(|v| v.as_str().unwrap().to_string())
        .collect();
    for files in [1, 3, 7] {
        assert_eq!(removed(files, &all), theirs, "{files} files");
    }
    assert!(theirs.len() > 50, "{} removed", theirs.len());
}
