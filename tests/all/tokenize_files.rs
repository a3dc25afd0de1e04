//! Tests of `tokenize --input`, token datasets without a job file: Megatron's bytes, the same after kills and for any number of
//! workers, bad records in a list, and messages for wrong options.

use crate::jobs::{millrace, output, root, succeed};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

fn data(name: &str) -> PathBuf {
    root().join("tests/data/preprocess").join(name)
}

fn sha(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).unwrap());
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// `tokenize` of `input` with the committed tokenizer to `out`, before further options.
fn args(input: &Path, out: &Path, more: &[&str]) -> Vec<String> {
    let [input, out, file] = [input, out, &data("tokenizer.json")].map(|p| p.display().to_string());
    let mut args: Vec<String> = ["tokenize", "--tokenizer", &file, "--output-prefix", &out]
        .map(String::from)
        .to_vec();
    args.extend(more.iter().map(|m| (*m).to_string()));
    args.extend(["--input".to_string(), input]);
    args
}

fn succeed_with(args: &[String]) {
    succeed(&args.iter().map(String::as_str).collect::<Vec<_>>());
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn files_without_a_job_have_the_bytes_and_names_of_megatrons_preprocess_data() {
    let text = std::fs::read_to_string(data("golden.json")).unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for (n, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let partitions = case["partitions"].as_u64().unwrap_or(1).to_string();
        let workers = (n % 3).to_string();
        let mut more = vec!["--partitions", &*partitions, "--workers", &*workers];
        more.push("--json-keys");
        more.extend(
            case["keys"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(Value::as_str),
        );
        if case["append_eod"] == true {
            more.push("--append-eod");
        }
        succeed_with(&args(
            &data("documents.jsonl"),
            &dir.path().join("out"),
            &more,
        ));
        let files = case["files"].as_object().unwrap();
        for (name, want) in files {
            assert_eq!(sha(&dir.path().join(name)), *want, "{name} with {more:?}");
            compared += 1;
        }
        // beside each pair a sidecar, and nothing else
        assert_eq!(names(dir.path()).len(), files.len() / 2 * 3);
    }
    assert_eq!(compared, 14, "files compared");
}

#[test]
fn kills_leave_whole_files_and_change_no_byte_and_bad_records_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    let lines = std::fs::read_to_string(data("documents.jsonl")).unwrap();
    std::fs::write(
        &input,
        format!("{lines}{{\"text\": 5}}\nnot json\n").repeat(60),
    )
    .unwrap();
    for name in ["calm", "killed"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let calm = dir.path().join("calm/out");
    succeed_with(&args(&input, &calm, &["--workers", "1"]));
    let errors = std::fs::read_to_string(dir.path().join("calm/out.errors.jsonl")).unwrap();
    assert_eq!(errors.lines().count(), 120);
    let killed = args(
        &input,
        &dir.path().join("killed/out"),
        &["--partitions", "3"],
    );
    let killed: Vec<&str> = killed.iter().map(String::as_str).collect();
    let mut is_done = false;
    for kill in 0..8u64 {
        // a finished dataset is not made again
        if is_done {
            break;
        }
        let mut child = millrace(&killed)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + 25 * kill));
        // the run may have ended before
        let _ = child.kill();
        let has_succeeded = child.wait().unwrap().success();
        let prefix = dir.path().join("killed/out_text_document");
        // the kill may have met a run that had given all files their names
        let is_unfinished = dir.path().join("killed/out.unfinished/job.toml").exists();
        let is_whole = prefix.with_extension("idx").exists() && !is_unfinished;
        is_done = has_succeeded || is_whole;
        if prefix.with_extension("idx").exists() {
            index::dataset::Dataset::open(&prefix).expect("an index belongs to its tokens");
        }
    }
    if !is_done {
        succeed(&killed);
    }
    let same = [
        "out.errors.jsonl",
        "out_text_document.bin",
        "out_text_document.idx",
        "out_text_document.json",
    ];
    for name in ["calm", "killed"] {
        assert_eq!(names(&dir.path().join(name)), same);
    }
    for name in same {
        let of = |folder: &str| sha(&dir.path().join(folder).join(name));
        assert_eq!(of("calm"), of("killed"), "{name}");
    }
}

#[test]
fn several_files_and_patterns_are_one_dataset_and_sentences_have_their_name() {
    let dir = tempfile::tempdir().unwrap();
    let lines = std::fs::read_to_string(data("documents.jsonl")).unwrap();
    let (head, tail) = lines.split_at(lines.match_indices('\n').nth(50).unwrap().0 + 1);
    for (name, text) in [("a.jsonl", head), ("b.jsonl", tail), ("all.json", &*lines)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let at = |name: &str| dir.path().join(name);
    succeed_with(&args(&at("all.json"), &at("one"), &[]));
    succeed_with(&args(&at("*.jsonl"), &at("parts"), &[]));
    for suffix in ["bin", "idx"] {
        let of = |name: &str| sha(&at(&format!("{name}_text_document.{suffix}")));
        assert_eq!(of("one"), of("parts"), "{suffix}");
    }
    succeed_with(&args(&at("all.json"), &at("s"), &["--split-sentences"]));
    let data = index::dataset::Dataset::open(&at("s_text_sentence")).unwrap();
    assert_eq!(data.documents(), 120);
    assert!(data.sequences() > 200, "{}", data.sequences());
}

#[test]
fn merges_of_any_name_are_read_with_their_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = std::fs::read_to_string(data("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_str(&text).unwrap();
    let pair = |merge: &Value| match merge {
        Value::Array(two) => format!(
            "{} {}\n",
            two[0].as_str().unwrap(),
            two[1].as_str().unwrap()
        ),
        one => format!("{}\n", one.as_str().unwrap()),
    };
    let merges: String = tokenizer["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(pair)
        .collect();
    std::fs::create_dir(at("beside")).unwrap();
    for (vocab, list) in [("beside/vocab.json", "beside/merges.txt"), ("v", "m")] {
        std::fs::write(at(vocab), tokenizer["model"]["vocab"].to_string()).unwrap();
        std::fs::write(at(list), &merges).unwrap();
    }
    let name = |path: &str| at(path).display().to_string();
    let input = data("documents.jsonl").display().to_string();
    let run = |out: &str, more: &[&str]| {
        let out = name(out);
        let fixed = [
            "--tokenizer-type",
            "GPT2BPETokenizer",
            "--output-prefix",
            &out,
            "--input",
            &input,
        ];
        succeed(&[&["tokenize"], more, &fixed[..]].concat());
    };
    run("one", &["--vocab-file", &name("beside/vocab.json")]);
    run(
        "two",
        &["--vocab-file", &name("v"), "--merge-file", &name("m")],
    );
    for suffix in ["bin", "idx"] {
        let of = |name: &str| sha(&at(&format!("{name}_text_document.{suffix}")));
        assert_eq!(of("one"), of("two"), "{suffix}");
    }
}

#[test]
fn wrong_options_are_refused_with_what_was_found_and_wanted_and_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let input = data("documents.jsonl").display().to_string();
    let file = data("tokenizer.json").display().to_string();
    let warc = root().join("pipelines/jobs/tiny/data/crawl-00000.warc.gz");
    let warc = warc.display().to_string();
    let out = dir.path().join("out").display().to_string();
    let rows = tempfile::tempdir().unwrap();
    let rows = |name: &str, head: &str| {
        let path = rows.path().join(name);
        std::fs::write(&path, format!("{head}\n1,words\n")).unwrap();
        path.display().to_string()
    };
    let csv = rows("x.csv", "ID,Text");
    let tsv = rows("x.tsv.gz", "ID;text");
    let table: [(&[&str], &str); 11] = [
        (
            &["--input", &csv, "--tokenizer", &file],
            "x.csv: found csv, wanted jsonl",
        ),
        (
            &["--input", &tsv, "--tokenizer", &file],
            "x.tsv.gz: found tsv, wanted jsonl",
        ),
        (
            &["--input", &input],
            "--tokenizer PATH, or --tokenizer-type TYPE",
        ),
        (
            &["--input", &input, "--tokenizer-type", "GPT2BPE"],
            "wanted one of BertWordPieceLowerCase",
        ),
        (
            &["--input", &input, "--tokenizer-type", "GPT2BPETokenizer"],
            "needs --vocab-file FILE",
        ),
        (
            &["--input", &input, "--tokenizer-type", "NullTokenizer"],
            "needs --vocab-size N",
        ),
        (
            &["--input", &input, "--tokenizer", "nowhere.json"],
            "nowhere.json",
        ),
        (
            &["--input", "nowhere.jsonl", "--tokenizer", &file],
            "nowhere.jsonl: no such file or folder",
        ),
        (
            &["--input", &warc, "--tokenizer", &file],
            "millrace new tokenize DIR --from",
        ),
        (
            &["--input", &input, "--tokenizer", &file, "--partitions", "0"],
            "wanted 1 to 100000",
        ),
        (
            &[
                "--input",
                &input,
                "--tokenizer",
                &file,
                "--split-sentences",
                "--lang",
                "german",
            ],
            "tokenizers/punkt_tab/german",
        ),
    ];
    for (more, want) in table {
        let printed = output(&[&["tokenize", "--output-prefix", &out], more].concat());
        let stderr = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.status.code(), Some(2), "{more:?}: {stderr}");
        assert!(stderr.contains(want), "{more:?}: {stderr}");
        assert_eq!(names(dir.path()), [""; 0], "{more:?}");
    }
    let both = output(&[
        "tokenize",
        "job.toml",
        "--input",
        &input,
        "--output-prefix",
        &out,
    ]);
    let stderr = String::from_utf8_lossy(&both.stderr);
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}
