//! A finished job whose inputs change: every verb reads the shards of the job as it is now, and no bad input is passed over in
//! silence.

use crate::jobs::{output, succeed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with files of every shard.
const FOLDERS: [&str; 5] = ["records/curate", "clean", "dropped", "errors", "samples"];

/// Writes `count` records with ids `NAME-0` and on; their texts differ in every word.
fn write_records(folder: &Path, name: &str, key: &str, count: usize) {
    fs::create_dir_all(folder).unwrap();
    let line = |i: usize| {
        let words: Vec<String> = (0..12).map(|word| format!("{name}{i}word{word}")).collect();
        format!(
            "{}\n",
            json!({"id": format!("{name}-{i}"), key: words.join(" ")})
        )
    };
    let lines: String = (0..count).map(line).collect();
    fs::write(folder.join(format!("{name}.jsonl")), lines).unwrap();
}

/// A job over the folders `in0`, `in1` and so on, each an input.
fn write_job(folder: &Path, inputs: usize, more: &str) -> PathBuf {
    let inputs: Vec<String> = (0..inputs)
        .map(|i| {
            format!(
                "{{ path = {:?}, source = \"s{i}\" }}",
                folder.join(format!("in{i}"))
            )
        })
        .collect();
    let out = folder.join("out");
    let inputs = inputs.join(", ");
    let text =
        format!("name = \"changed\"\nout = {out:?}\n[curate]\ninputs = [{inputs}]\n{more}\n");
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Three files of 60, 40 and 40 records in one input.
fn three_files(folder: &Path) {
    for (name, count) in [("a", 60), ("b", 40), ("c", 40)] {
        write_records(&folder.join("in0"), name, "text", count);
    }
}

fn stderr_of(args: &[&str]) -> String {
    let found = output(args);
    assert!(!found.status.success(), "{args:?}");
    String::from_utf8(found.stderr).unwrap()
}

/// Numbers of the shards that have files in a folder.
fn shards_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let stem = |name: String| name.split('.').next().unwrap().to_owned();
    entries.map(|entry| stem(name(entry))).collect()
}

/// Ids of the documents that an export writes to `to`.
fn exported(job: &str, to: &Path) -> Vec<String> {
    succeed(&["export", job, "--to", "jsonl.zst", to.to_str().unwrap()]);
    let mut ids = Vec::new();
    for entry in fs::read_dir(to.join("data")).unwrap().flatten() {
        let text = zstd::decode_all(&*fs::read(entry.path()).unwrap()).unwrap();
        for line in String::from_utf8(text).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            ids.push(row["id"].as_str().unwrap().to_owned());
        }
    }
    ids
}

/// Shards and records as `status` and `watch` say them, and documents as `takedown` does.
fn counts(folder: &Path) -> [u64; 5] {
    let out = folder.join("out");
    let out = out.to_str().unwrap();
    let json_of =
        |args: &[&str]| -> Value { serde_json::from_slice(&succeed(args).stdout).unwrap() };
    let status = json_of(&["status", out, "--json"]);
    let watched = json_of(&["watch", "--once", out]);
    let row = &watched["runs"][0];
    let list = folder.join("list.txt");
    fs::write(&list, "id:a-0\n").unwrap();
    let list = list.to_str().unwrap();
    let shown = succeed(&["takedown", list, "--corpus", out, "--dry-run"]).stderr;
    let shown = String::from_utf8(shown).unwrap();
    let (_, documents) = shown.split_once("1 of ").unwrap();
    let documents = documents.split(' ').next().unwrap().parse().unwrap();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{watched}"));
    [
        number(&status["shards_done"]),
        number(&status["records"]),
        number(&row["curation"]["shards_done"]),
        number(&row["curation"]["records"]),
        documents,
    ]
}

#[test]
fn shards_of_a_file_that_is_gone_leave_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    three_files(folder);
    let job = write_job(folder, 1, "");
    let job = job.to_str().unwrap();
    let out = folder.join("out");
    succeed(&["run", job]);
    assert_eq!(counts(folder), [3, 140, 3, 140, 140]);
    // files that a kill between record and outputs leaves
    let left = fs::read(out.join("clean/00002.sig")).unwrap();
    fs::remove_file(folder.join("in0/b.jsonl")).unwrap();
    let why = "curate ran over 3 shards, and the inputs have 2 now";
    let refused = folder.join("refused");
    let refused = ["export", job, "--to", "parquet", refused.to_str().unwrap()];
    assert!(stderr_of(&refused).contains(why));
    let said = String::from_utf8(succeed(&["run", job]).stderr).unwrap();
    assert!(
        said.contains("a shard that the job no longer has was removed"),
        "{said}"
    );
    let expected = BTreeSet::from(["00000".to_owned(), "00001".to_owned()]);
    for name in FOLDERS {
        assert_eq!(shards_in(&out.join(name)), expected, "{name}");
    }
    assert_eq!(counts(folder), [2, 100, 2, 100, 100]);
    let ids = exported(job, &folder.join("first"));
    let is_of = |name: &str| ids.iter().filter(|id| id.starts_with(name)).count();
    assert_eq!([is_of("a-"), is_of("b-"), is_of("c-")], [60, 0, 40]);
    // the corpus needs no inputs any more
    fs::write(out.join("clean/00002.sig"), left).unwrap();
    fs::rename(folder.join("in0"), folder.join("away")).unwrap();
    assert_eq!(exported(job, &folder.join("second")), ids);
    fs::rename(folder.join("away"), folder.join("in0")).unwrap();
    succeed(&["run", job]);
    assert!(!out.join("clean/00002.sig").exists());
}

#[test]
fn another_file_in_the_place_of_one_is_exported_only_after_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    three_files(folder);
    let job = write_job(folder, 1, "[dedup]\nexact = {}");
    let job = job.to_str().unwrap();
    succeed(&["run", job]);
    fs::remove_file(folder.join("in0/b.jsonl")).unwrap();
    write_records(&folder.join("in0"), "d", "text", 10);
    let to = folder.join("refused");
    let said = stderr_of(&["export", job, "--to", "parquet", to.to_str().unwrap()]);
    assert!(said.contains("curate/00001 was made of"), "{said}");
    succeed(&["run", job]);
    assert_eq!(exported(job, &folder.join("to")).len(), 110);
    // with fewer shards the keep lists of the third go too
    fs::remove_file(folder.join("in0/a.jsonl")).unwrap();
    succeed(&["run", job]);
    assert!(!folder.join("out/keep/00002.keep").exists());
    assert_eq!(exported(job, &folder.join("less")).len(), 50);
}

#[test]
fn a_finished_job_with_one_more_input_is_exported_after_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_records(&folder.join("in0"), "a", "text", 20);
    write_records(&folder.join("in1"), "b", "text", 5);
    let path = write_job(folder, 1, "");
    let job = path.to_str().unwrap();
    succeed(&["run", job]);
    write_job(folder, 2, "");
    let to = folder.join("to");
    let said = stderr_of(&["export", job, "--to", "parquet", to.to_str().unwrap()]);
    assert!(
        said.contains("curate ran over 1 shards, and the inputs have 2 now"),
        "{said}"
    );
    let said = String::from_utf8(succeed(&["run", job]).stderr).unwrap();
    assert!(!said.contains("removed"), "{said}");
    assert_eq!(exported(job, &to).len(), 25);
    // other settings of an input are noticed
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("source = \"s0\"", "source = \"s0\", id_key = \"name\"");
    fs::write(&path, text).unwrap();
    let to = folder.join("refused");
    let said = stderr_of(&["export", job, "--to", "parquet", to.to_str().unwrap()]);
    assert!(
        said.contains("curate/00000 ran with other settings"),
        "{said}"
    );
}

#[test]
fn a_job_that_leaves_formats_open_is_exported_after_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_records(&folder.join("in0"), "a", "text", 20);
    let (out, input) = (folder.join("out"), folder.join("in0"));
    let text = format!("name = \"open\"\nout = {out:?}\n[curate]\ninputs = [{input:?}]\n");
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    let job = path.to_str().unwrap();
    succeed(&["run", job]);
    assert_eq!(exported(job, &folder.join("to")).len(), 20);
    // a file that was touched is one, and not another setting
    let file = fs::File::options()
        .write(true)
        .open(input.join("a.jsonl"))
        .unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    file.set_modified(later).unwrap();
    let shown = succeed(&["run", job, "--plan"]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(
        shown.contains("another time of change, and the same size, of input: "),
        "{shown}"
    );
}

#[test]
fn an_input_whose_records_are_all_bad_ends_the_stage_with_their_reason() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_records(&folder.join("in0"), "a", "body", 60);
    write_records(&folder.join("in1"), "b", "text", 60);
    let job = write_job(folder, 2, "");
    let job = job.to_str().unwrap();
    for _ in 0..2 {
        let said = stderr_of(&["run", job]);
        for wanted in [
            "all 60 records of curate.inputs[0] (",
            "a.jsonl, record 1 (byte 0): no text field",
            "the fields are body, id; curate.inputs[0].text_key names that of the text",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
    let quoted = stderr_of(&[
        "run",
        job,
        "--set",
        "name=again",
        "--set",
        "curate.sample=0.999",
    ]);
    let bad = quoted
        .lines()
        .filter(|line| line.contains("curate: bad record: "));
    assert_eq!(bad.count(), 3, "{quoted}");
    succeed(&["run", job, "--set", "curate.inputs.0.text_key=body"]);
}

#[test]
fn a_few_bad_records_are_quoted_and_counted_by_reason() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_records(&folder.join("in0"), "a", "text", 20);
    let path = folder.join("in0/a.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    let bad = "{\"title\": \"x\"}\n".repeat(4);
    fs::write(&path, format!("{bad}{good}[]\n")).unwrap();
    let job = write_job(folder, 1, "");
    let said = String::from_utf8(succeed(&["run", job.to_str().unwrap()]).stderr).unwrap();
    let quoted = said
        .lines()
        .filter(|line| line.contains("curate: bad record: "));
    assert_eq!(quoted.count(), 3, "{said}");
    assert!(
        said.contains("the fields are id, text, title; curate.inputs[0].text_key"),
        "{said}"
    );
    assert!(said.contains("curate: note: 5 bad records in "), "{said}");
    assert!(
        said.contains("errors.jsonl: 4 no text field; 1 broken JSON: "),
        "{said}"
    );
}
