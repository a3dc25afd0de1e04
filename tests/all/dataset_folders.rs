//! Folders of datasets as inputs of jobs: splits that are read together are reported, and a card that changes makes documents anew.

use crate::jobs::succeed;
use curate::corpus::documents;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A card whose splits have these files.
fn write_card(folder: &Path, splits: &[(&str, &str)]) {
    let split = |(name, path): &(&str, &str)| format!("  - split: {name}\n    path: {path}\n");
    let splits: String = splits.iter().map(split).collect();
    let card =
        format!("---\nconfigs:\n- config_name: default\n  data_files:\n{splits}---\nA card.\n");
    fs::write(folder.join("README.md"), card).unwrap();
}

/// Splits of a job's documents, in order.
fn splits(out: &Path, shards: usize) -> Vec<Value> {
    let of = |shard: usize| documents(out, shard).unwrap().map(Result::unwrap);
    let documents = (0..shards).flat_map(of);
    let metas = documents.map(|document| document.meta.unwrap_or_default());
    metas.map(|meta| meta["dataset_split"].clone()).collect()
}

#[test]
fn splits_that_are_read_together_are_told_and_one_may_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let (set, out) = (dir.path().join("set"), dir.path().join("out"));
    fs::create_dir_all(&set).unwrap();
    for (name, text) in [("a", "one text"), ("b", "another text")] {
        let line = json!({ "text": text }).to_string() + "\n";
        fs::write(set.join(format!("{name}.jsonl")), line).unwrap();
    }
    write_card(&set, &[("train", "a.jsonl"), ("test", "b.jsonl")]);
    let job = dir.path().join("job.toml");
    let text = format!("name = \"splits\"\nout = {out:?}\n[curate]\ninputs = {set:?}\n");
    fs::write(&job, text).unwrap();
    let curate = |more: &[&str]| {
        let args = [&["curate", job.to_str().unwrap()], more].concat();
        String::from_utf8(succeed(&args).stderr).unwrap()
    };
    let log = curate(&[]);
    let note =
        "curate.inputs[0]: the splits test, train are read together; `dataset_split` chooses one";
    assert_eq!(log.matches(note).count(), 1, "{log}");
    assert_eq!(splits(&out, 2), [json!("train"), json!("test")]);
    // a file of another split has documents that say so
    write_card(&set, &[("test", "a.jsonl"), ("train", "b.jsonl")]);
    curate(&[]);
    assert_eq!(splits(&out, 2), [json!("test"), json!("train")]);
    let alone = dir.path().join("alone");
    let set_out = format!("out={alone:?}");
    let inputs =
        format!("curate.inputs=[{{path={set:?},format=\"auto\",dataset_split=\"train\"}}]");
    let log = curate(&["--set", &set_out, "--set", &inputs]);
    assert!(
        log.contains("left out 1 file of other splits: a.jsonl"),
        "{log}"
    );
    assert!(!log.contains("read together"), "{log}");
    assert_eq!(splits(&alone, 1), [json!("train")]);
}
