//! Runs that are refused before they begin, and what they say.

use crate::jobs::{data, output, succeed};
use std::fs;
use std::path::{Path, PathBuf};

/// Texts of real documents, each on a line.
fn texts() -> Vec<String> {
    let bytes = fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    let lines = text.lines().filter(|line| !line.contains("Gutenberg"));
    lines.take(60).map(|line| format!("{line}\n")).collect()
}

/// A job that trains six steps on these documents, with a tokenizer from a file.
fn write_job(folder: &Path, texts: &[String]) -> PathBuf {
    let input = folder.join("texts.jsonl");
    fs::write(&input, texts.concat()).unwrap();
    let tokenizer = folder.join("tokenizer.json");
    let text = format!(
        r#"
name = "small"
out = {out:?}
[curate]
inputs = [{{ path = {input:?}, source = "pile" }}]
[tokenize]
tokenizer = {{ file = {tokenizer:?} }}
[blend]
seq_length = 32
split = "80,20,0"
dataset = [{{ name = "pile" }}]
[model]
family = "llama"
layers = 1
d_model = 16
heads = 2
[train]
steps = 6
global_batch = 2
micro_batch = 1
lr = 1e-2
min_lr = 1e-3
warmup_steps = 2
eval_every = 0
checkpoint = {{ every = 1, keep = 12 }}
[eval]
samples = 4
[report]
"#,
        out = folder.join("out"),
    );
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    if !tokenizer.exists() {
        let out = folder.join("of-tokenizer");
        let set = [
            format!("out={:?}", out.display().to_string()),
            "tokenize.tokenizer={train={vocab=300}}".to_owned(),
        ];
        let path = path.to_str().unwrap();
        for verb in ["curate", "tokenize"] {
            succeed(&[verb, path, "--set", &set[0], "--set", &set[1]]);
        }
        fs::copy(out.join("tokens/tokenizer.json"), tokenizer).unwrap();
    }
    path
}

#[test]
fn missing_files_are_named_before_anything_runs_by_every_verb_alike() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let path = write_job(folder, &texts());
    let text = fs::read_to_string(&path).unwrap();
    let job = path.to_str().unwrap();
    let out = folder.join("out");
    let tokenizer = folder.join("tokenizer.json").display().to_string();
    let input = folder.join("texts.jsonl").display().to_string();
    let absent = |name: &str| folder.join(name).display().to_string();
    let wrong = text
        .replace(&tokenizer, &absent("absent-tokenizer"))
        .replace(&input, &absent("absent-texts"))
        .replace(
            "[eval]",
            &format!("init_from = {:?}\n[eval]", absent("absent-model")),
        );
    fs::write(&path, wrong).unwrap();
    let all = [
        "curate.inputs[0].path",
        "tokenize.tokenizer.file",
        "train.init_from",
    ];
    let cases: [(&[&str], &[&str]); 6] = [
        (&["run"], &all),
        (&["run", "--check"], &all),
        (&["curate"], &all[..1]),
        (&["curate", "--check"], &all),
        (&["tokenize"], &all[..2]),
        (&["train"], &all[2..]),
    ];
    for (verb, keys) in cases {
        let args = [&verb[..1], &[job], &verb[1..]].concat();
        let found = output(&args);
        let said = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(2), "{args:?}: {said}");
        for key in all {
            let is_told = said.contains(&format!("key    {key}\n"));
            assert_eq!(is_told, keys.contains(&key), "{args:?} {key}: {said}");
        }
        assert_eq!(said.matches("job.toml:").count(), 1 + keys.len(), "{said}");
        assert!(!out.exists(), "{args:?}");
    }
}

#[test]
fn verbs_without_their_data_say_what_to_run_or_why_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let path = write_job(folder, &texts()[..5]);
    let job = path.to_str().unwrap();
    let said = |args: &[&str]| {
        let found = output(args);
        assert!(!found.status.success(), "{args:?}");
        String::from_utf8(found.stderr).unwrap()
    };
    let found = said(&["blend", job]);
    assert!(
        found.contains("has no tokens yet; run `millrace tokenize`"),
        "{found}"
    );
    let found = said(&["blend", job, "--set", "blend.seq_length=0"]);
    assert_eq!(
        found.matches("key    blend.seq_length").count(),
        1,
        "{found}"
    );
    let set = [
        "--set",
        "curate.step=[{length={min_chars=100000000}}]",
        "--set",
        "tokenize.tokenizer={train={vocab=300}}",
    ];
    succeed(&[&["curate", job][..], &set].concat());
    let found = said(&[&["tokenize", job][..], &set].concat());
    for wanted in [
        "no text to train the tokenizer on: the curation kept none of 5 records; it dropped 5 by ",
        ", and 0 are bad; see ",
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
}
