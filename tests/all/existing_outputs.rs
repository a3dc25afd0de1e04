//! Tests of outputs that exist: verbs that make a model, a dataset or records refuse them before any work, and they stay as they
//! are; what a failed run has begun goes.

use crate::jobs::{millrace, root, succeed};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};

const FILE: &str = "exists; name another file, or remove it first";
const FOLDER: &str = "is not empty; name another folder, or remove it first";

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        // an empty folder counts as well
        found.insert(format!("{}/", next.display()), Vec::new());
        for entry in std::fs::read_dir(&next).unwrap().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let name = entry.path().display().to_string();
                    found.insert(name, std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

fn in_folder(folder: &Path, args: &str) -> Output {
    let args: Vec<&str> = args.split_whitespace().collect();
    let mut command = millrace(&args);
    command.current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

/// A folder with a model in three forms and rows to evaluate.
fn models() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let data = root().join("tests/data/lm_eval");
    std::fs::create_dir(path("hf")).unwrap();
    for entry in std::fs::read_dir(data.join("model")).unwrap().flatten() {
        let to = dir.path().join("hf").join(entry.file_name());
        std::fs::copy(entry.path(), to).unwrap();
    }
    let from = path("hf");
    succeed(&[
        "convert",
        "--checkpoint",
        &from,
        "--to",
        "millrace",
        &path("own"),
    ]);
    succeed(&["quantize", &from, "--type", "q8_0", &path("a.gguf")]);
    let rows = data.join("rows/piqa.validation.jsonl");
    std::fs::copy(rows, path("rows.jsonl")).unwrap();
    dir
}

#[test]
fn models_and_records_that_exist_are_refused_and_stay() {
    let dir = models();
    let folder = dir.path();
    std::fs::create_dir(folder.join("full")).unwrap();
    std::fs::write(folder.join("full/note"), "precious").unwrap();
    let before = files(folder);
    let table = [
        (
            "quantize a.gguf --type q4_0 a.gguf",
            format!("a.gguf {FILE}"),
        ),
        (
            "quantize hf --type q4_0 full/note",
            format!("full/note {FILE}"),
        ),
        (
            "quantize hf --type q4_0 full",
            "full: found a folder, want the name of a file".into(),
        ),
        ("quantize hf --type fp8 --to hf hf", format!("hf {FOLDER}")),
        (
            "quantize hf --type fp8 --to hf full",
            format!("full {FOLDER}"),
        ),
        (
            "quantize hf --type fp8 --to hf a.gguf",
            "a.gguf: found a file, want a folder".into(),
        ),
        (
            "quantize hf --type q4_0 --report full/note new.gguf",
            format!("--report: full/note {FILE}"),
        ),
        (
            "quantize hf --type q4_0 --report new.gguf new.gguf",
            "--report: new.gguf is the model's own name, want another file".into(),
        ),
        ("convert --checkpoint own full", format!("full {FOLDER}")),
        ("convert --checkpoint own hf", format!("hf {FOLDER}")),
        (
            "convert --checkpoint own --to peft full",
            format!("full {FOLDER}"),
        ),
        (
            "convert --checkpoint own --to megatron full",
            format!("full {FOLDER}"),
        ),
        (
            "convert --checkpoint hf --to millrace full",
            format!("full {FOLDER}"),
        ),
        (
            "convert --checkpoint hf --to millrace own",
            format!("own {FOLDER}"),
        ),
        (
            "convert --checkpoint a.gguf --to hf hf",
            format!("hf {FOLDER}"),
        ),
        (
            "eval hf --task piqa --data rows.jsonl --records rows.jsonl",
            format!("--records: rows.jsonl {FILE}"),
        ),
        (
            "eval hf --task piqa --data rows.jsonl --records full",
            "--records: full: found a folder, want the name of a file".into(),
        ),
        (
            "eval hf --task piqa --data rows.jsonl --records none/records.jsonl",
            "--records: cannot write none/records.jsonl: no such file or folder".into(),
        ),
    ];
    for (args, message) in table {
        let done = in_folder(folder, args);
        let said = String::from_utf8_lossy(&done.stderr);
        // the system's own message has the name of a temporary file
        let said = said.split(" at path ").next().unwrap().trim_end();
        assert_eq!(said, format!("error: {message}"), "{args}");
        assert_eq!(done.status.code(), Some(2), "{args}");
        assert!(files(folder) == before, "{args}");
    }
    // an empty folder is as good as a new one
    std::fs::create_dir(folder.join("empty")).unwrap();
    let done = in_folder(folder, "convert --checkpoint own empty");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_model_that_cannot_be_written_leaves_no_folder_and_no_file() {
    let dir = models();
    let folder = dir.path();
    for name in [
        "hf/model.safetensors",
        "own/step-00000000/model.safetensors",
    ] {
        let file = std::fs::File::options()
            .write(true)
            .open(folder.join(name))
            .unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length - 100).unwrap();
    }
    let whole = std::fs::read(folder.join("a.gguf")).unwrap();
    std::fs::write(folder.join("cut.gguf"), &whole[..whole.len() - 100]).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    let before = files(folder);
    for args in [
        "convert --checkpoint own deep/new",
        "convert --checkpoint own empty",
        "convert --checkpoint own --to peft deep/new",
        "convert --checkpoint own --to megatron deep/new",
        "convert --checkpoint own --to millrace --tp 3 deep/new",
        "convert --checkpoint hf --to millrace deep/new",
        "convert --checkpoint cut.gguf --to hf deep/new",
        "quantize hf --type q4_0 deep/new.gguf",
        "quantize hf --type fp8 --to hf deep/new",
        "quantize cut.gguf --type int4 --group-size 8 --to hf empty",
    ] {
        let done = in_folder(folder, args);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{args}: {said}");
        assert!(files(folder) == before, "{args}: {said}");
    }
}

#[test]
fn token_datasets_that_exist_are_refused_and_stay() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let tokenize = "tokenize --input in.jsonl --tokenizer null:256 --output-prefix";
    let numbers = "{\"text\": \"1 2 3\", \"title\": \"4 5\"}\n".repeat(20);
    std::fs::write(folder.join("in.jsonl"), numbers).unwrap();
    let done = in_folder(folder, &format!("{tokenize} a"));
    assert!(done.status.success(), "{done:?}");
    for name in ["b", "c"] {
        let done = in_folder(
            folder,
            &format!("merge {name} a_text_document a_text_document"),
        );
        assert!(done.status.success(), "{done:?}");
    }
    std::fs::remove_file(folder.join("c.idx")).unwrap();
    std::fs::remove_file(folder.join("c.json")).unwrap();
    std::fs::write(folder.join("old.index"), "precious").unwrap();
    let all = |prefix: &str| {
        let files = [".bin", ".idx", ".json"].map(|suffix| format!("{prefix}{suffix}"));
        format!(
            "{} exist; name another prefix, or remove them first",
            files.join(", ")
        )
    };
    let before = files(folder);
    for (args, message) in [
        (
            format!("{tokenize} a --append-eod"),
            format!("--output-prefix: {}", all("a_text_document")),
        ),
        (
            format!("{tokenize} a --json-keys title text"),
            format!("--output-prefix: {}", all("a_text_document")),
        ),
        ("merge b a_text_document".into(), all("b")),
        (
            "merge c a_text_document".into(),
            "c.bin exists; name another prefix, or remove it first".into(),
        ),
        ("merge old.index new.index".into(), format!("old.index {FILE}")),
        (
            format!("{tokenize} d --json-keys text text"),
            "--json-keys: found \"text\", wanted each key once: it names a dataset".into(),
        ),
        (
            format!("{tokenize} d --json-keys a/b"),
            "--json-keys: found \"a/b\", wanted a name without slashes: it is part of a file's name".into(),
        ),
    ] {
        let done = in_folder(folder, &args);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(said, format!("error: {message}\n"), "{args}");
        assert_eq!(done.status.code(), Some(2), "{args}");
        assert!(files(folder) == before, "{args}");
    }
    // a run that was killed while it named its files goes on
    let unfinished = folder.join("a.unfinished");
    let job = in_folder(folder, &format!("{tokenize} a --check")).stdout;
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("job.toml"), job).unwrap();
    let done = in_folder(folder, &format!("{tokenize} a"));
    assert!(done.status.success(), "{done:?}");
    assert!(files(folder) == before);
}

/// A part whose sidecar differs from the others' in one field.
#[test]
fn merged_parts_that_differ_are_told_by_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let row = "{\"text\": \"1 2 3\"}\n";
    std::fs::write(folder.join("in.jsonl"), row).unwrap();
    for name in ["a", "b"] {
        let args = format!("tokenize --input in.jsonl --tokenizer null:256 --output-prefix {name}");
        assert!(in_folder(folder, &args).status.success());
    }
    let sidecar = folder.join("b_text_document.json");
    let text = std::fs::read_to_string(&sidecar).unwrap();
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, value) in [
        ("end_of_document", serde_json::json!(7)),
        (
            "special_tokens",
            serde_json::json!({"add": true, "parse": false}),
        ),
        ("encoder", serde_json::json!("another")),
        ("vocab", serde_json::json!(300)),
    ] {
        let mut other = whole.clone();
        let found = std::mem::replace(&mut other["tokenizer"][key], value.clone());
        std::fs::write(&sidecar, other.to_string()).unwrap();
        let done = in_folder(folder, "merge all a_text_document b_text_document");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let start = format!("error: b_text_document.json: tokenizer.{key}: found {value}, wanted ");
        assert!(said.starts_with(&start), "{said}");
        assert!(said.ends_with(", as the parts before\n"), "{said}");
        assert!(
            found.is_null() || said.contains(&found.to_string()),
            "{said}"
        );
        assert_eq!(done.status.code(), Some(1));
    }
}
