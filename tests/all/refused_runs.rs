//! Runs that are refused, or only read, leave a finished job as it was; and a training goes on with other data where it may.

use crate::jobs::{data, killed_at, metrics, millrace, output, succeed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Texts of real documents, each on a line.
pub(crate) fn texts() -> Vec<String> {
    let bytes = fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    let lines = text.lines().filter(|line| !line.contains("Gutenberg"));
    lines.take(60).map(|line| format!("{line}\n")).collect()
}

/// A job that trains six steps on these documents, with a tokenizer from a file.
pub(crate) fn write_job(folder: &Path, texts: &[String]) -> PathBuf {
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

/// Files of a finished job that a refused run must leave: its settings, tokens, notes and checkpoints.
fn kept(out: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let own = ["tokens", "checkpoints", "job.toml", "records/training.json"];
    // parts of new tokens wait there for a run that may have them
    files_in(own.map(|name| out.join(name)).to_vec(), "parts")
}

/// All files of a folder, but for the note of the process that held it last.
pub(crate) fn all_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files_in(vec![folder.to_path_buf()], "records/process.json")
}

/// The bytes of files and of all files in folders, but for paths that end with `but`.
fn files_in(mut left: Vec<PathBuf>, but: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    while let Some(path) = left.pop() {
        if path.ends_with(but) {
            continue;
        }
        match path.is_dir() {
            true => left.extend(fs::read_dir(path).unwrap().flatten().map(|e| e.path())),
            false => {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(path, to).unwrap()),
        }
    }
}

fn seconds_of_training(out: &Path) -> f64 {
    let text = fs::read_to_string(out.join("manifest.json")).unwrap();
    let records: Value = serde_json::from_str(&text).unwrap();
    records["train"]["seconds"].as_f64().unwrap()
}

#[test]
fn tokens_of_checkpoints_are_replaced_on_request_alone_and_the_training_goes_on_with_the_new_ones()
{
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let texts = texts();
    let job = write_job(folder, &texts);
    let job = job.to_str().unwrap();
    let out = folder.join("out");
    succeed(&["run", job]);
    let before = kept(&out);
    // half of the documents are gone
    write_job(folder, &texts[..30]);
    let whole = all_of(&out);
    for _ in 0..2 {
        let found = output(&["run", job]);
        let said = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(2), "{said}");
        for wanted in [
            "another size of input: ",
            "nothing there was replaced",
            "train.resume.allow = [\"data\"]",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        // the curation before the tokens has not begun
        assert!(all_of(&out) == whole);
    }
    // a curation by itself replaces nothing that checkpoints depend on, but then the tokens are refused
    let other = folder.join("curated");
    copy(&out, &other);
    let there = format!("out={:?}", other.display().to_string());
    succeed(&["curate", job, "--set", &there]);
    let found = output(&["tokenize", job, "--set", &there]);
    let said = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(2), "{said}");
    assert!(said.contains("nothing there was replaced"), "{said}");
    assert!(
        fs::read(other.join("tokens/pile.bin")).unwrap() == before[&out.join("tokens/pile.bin")]
    );
    // the same documents in a file of another time: the same tokens
    write_job(folder, &texts);
    succeed(&["run", job]);
    assert!(kept(&out) == before);
    // other data is a change like another, and the same after a kill
    write_job(folder, &texts[..30]);
    let other = folder.join("other");
    copy(&out, &other);
    let allow = "train.resume.allow=[\"data\", \"steps\"]";
    let args = ["run", job, "--set", "train.steps=12", "--set", allow];
    let said = String::from_utf8(succeed(&args).stderr).unwrap();
    assert!(
        said.contains("train: after step 6 data.datasets.pile.data changes from "),
        "{said}"
    );
    let lines = metrics(&out);
    let changed = lines.iter().find_map(|line| line["changed"].as_array());
    let keys: Vec<&str> = changed
        .unwrap()
        .iter()
        .map(|change| change["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["train.steps", "data"]);
    let there = format!("out={:?}", other.display().to_string());
    let again = [&args[..], &["--set", &there]].concat();
    killed_at(&again, &other, 9);
    succeed(&again);
    let of_step = |lines: &[Value]| -> Vec<Value> {
        let steps = lines.iter().filter(|line| line["loss"].is_number());
        steps.cloned().collect()
    };
    assert_eq!(of_step(&metrics(&other)), of_step(&lines));
    let model = "checkpoints/step-00000012/model.safetensors";
    assert!(fs::read(out.join(model)).unwrap() == fs::read(other.join(model)).unwrap());
    // the new data is that of the training from here on
    succeed(&["run", job, "--set", "train.steps=12"]);
}

/// A run is refused, and every file of its folder stays as it was.
fn refused_before_a_change(job: &str, out: &Path) {
    let all = all_of(out);
    let found = output(&["run", job]);
    let said = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(2), "{said}");
    assert!(said.contains("nothing there was replaced"), "{said}");
    assert!(all_of(out) == all);
}

/// Datasets of two sources, of which the training reads one: with a curation, and read as they are.
#[test]
fn inputs_that_the_training_does_not_read_change_without_a_request() {
    for table in ["curate", "tokenize"] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let texts = texts();
        let path = write_job(folder, &texts);
        let more = folder.join("more");
        fs::create_dir(&more).unwrap();
        for name in ["a", "b"] {
            fs::write(more.join(format!("{name}.jsonl")), texts[..9].concat()).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once("[curate]\n").unwrap();
        let (inputs, rest) = rest.split_once("]\n").unwrap();
        let inputs = format!("{inputs}, {{ path = {more:?}, source = \"more\" }}]\n");
        let rest = match table {
            "curate" => format!("[curate]\n{inputs}{rest}"),
            _ => rest.replacen("[tokenize]\n", &format!("[tokenize]\n{inputs}"), 1),
        };
        fs::write(&path, format!("{before}{rest}")).unwrap();
        let job = path.to_str().unwrap();
        let out = folder.join("out");
        succeed(&["run", job]);
        let trained = |name: &Path| {
            !name.starts_with(out.join("tokens"))
                || name
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("pile.")
        };
        let whole = || {
            let mut kept = kept(&out);
            kept.retain(|name, _| trained(name));
            kept
        };
        let before = whole();
        let other = fs::read(out.join("tokens/more.bin")).unwrap();
        // one file has more documents, another is gone
        fs::write(more.join("a.jsonl"), texts[..20].concat()).unwrap();
        fs::remove_file(more.join("b.jsonl")).unwrap();
        let plan = String::from_utf8(succeed(&["run", job, "--plan"]).stdout).unwrap();
        let (_, of_pile) = plan.split_once("\ntokenize/pile: ").unwrap();
        let (of_pile, _) = of_pile.split_once("\n\n").unwrap();
        let why = match table {
            "curate" => "because   curate runs again, for other sources\n",
            _ => "because   inputs of other sources have changed\n",
        };
        assert!(of_pile.contains(why), "{plan}");
        if table == "curate" {
            // as a kill in the middle of the curation leaves it
            let manifest = out.join("manifest.json");
            let mut records: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
            records.as_object_mut().unwrap().remove("curate").unwrap();
            fs::write(&manifest, records.to_string()).unwrap();
            fs::remove_file(out.join("records/curate/00001.json")).unwrap();
        }
        let said = String::from_utf8(succeed(&["run", job]).stderr).unwrap();
        assert!(whole() == before, "{said}");
        assert!(fs::read(out.join("tokens/more.bin")).unwrap() != other);
        // with a change of the source that it reads the run is refused, before it changes a file
        fs::write(more.join("a.jsonl"), texts[..30].concat()).unwrap();
        fs::write(folder.join("texts.jsonl"), texts[..30].concat()).unwrap();
        refused_before_a_change(job, &out);
    }
}

/// Of a deduplication the documents of one source decide on those of another.
#[test]
fn inputs_of_another_source_are_a_change_where_documents_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let texts = texts();
    let path = write_job(folder, &texts[20..]);
    let more = folder.join("more.jsonl");
    fs::write(&more, texts[..9].concat()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let inputs = format!(", {{ path = {more:?}, source = \"more\" }}]\n[tokenize]\n");
    let text = text.replacen("]\n[tokenize]\n", &inputs, 1) + "[dedup]\nexact = {}\n";
    fs::write(&path, text).unwrap();
    let job = path.to_str().unwrap();
    let out = folder.join("out");
    succeed(&["run", job]);
    fs::write(&more, texts[..20].concat()).unwrap();
    refused_before_a_change(job, &out);
}

#[test]
fn a_run_that_is_refused_and_a_report_leave_the_job_of_the_results() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let job = write_job(folder, &texts());
    let job = job.to_str().unwrap();
    let out = folder.join("out");
    succeed(&["run", job]);
    let before = kept(&out);
    succeed(&["report", job, "--set", "train.steps=3"]);
    succeed(&["blend", job, "--set", "train.steps=3"]);
    assert!(kept(&out) == before);
    let whole = all_of(&out);
    for set in ["train.lr=0.5", "train.steps=3", "model.d_model=32"] {
        for verb in ["run", "train"] {
            let found = output(&[verb, job, "--set", set]);
            assert_eq!(found.status.code(), Some(2), "{verb} {set}");
            assert!(all_of(&out) == whole, "{verb} {set}");
        }
    }
    let shown = succeed(&["status", out.to_str().unwrap(), "--json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!((&shown["step"], &shown["steps"]), (&6.into(), &6.into()));
    // a report of nothing makes no folder
    let none = folder.join("none");
    let set = format!("out={:?}", none.display().to_string());
    let found = output(&["report", job, "--set", &set]);
    assert!(!found.status.success() && !none.exists());
    // a settings that holds from here on is written once the run goes on
    let allow = "train.resume.allow=[\"steps\"]";
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let slow: Vec<String> = text
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            line["step_s"] = 1000.0.into();
            format!("{line}\n")
        })
        .collect();
    fs::write(out.join("metrics.jsonl"), slow.concat()).unwrap();
    succeed(&["run", job, "--set", "train.steps=8", "--set", allow]);
    let written = fs::read_to_string(out.join("job.toml")).unwrap();
    assert!(written.contains("steps = 8"), "{written}");
    // the six steps of the first process count
    let seconds = seconds_of_training(&out);
    assert!((6000.0..6900.0).contains(&seconds), "{seconds}");
}

#[test]
fn report_and_eval_read_beside_a_training_and_a_second_run_learns_who_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let job = write_job(folder, &texts());
    let job = job.to_str().unwrap();
    let out = folder.join("out");
    let set = [
        "--set",
        "train.steps=100000",
        "--set",
        "train.checkpoint={every=20, keep=10000}",
    ];
    let mut child = millrace(&[&["run", job][..], &set].concat())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !out.join("checkpoints/step-00000020").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the training ended");
        assert!(started.elapsed() < Duration::from_secs(300), "no step");
        std::thread::sleep(Duration::from_millis(20));
    }
    let manifest = fs::read(out.join("manifest.json")).unwrap();
    succeed(&[&["report", job][..], &set].concat());
    let said = succeed(&[&["eval", job][..], &set].concat()).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.contains("eval.json is written, and not recorded"),
        "{said}"
    );
    assert!(out.join("report.html").exists() && out.join("eval.json").exists());
    assert!(fs::read(out.join("manifest.json")).unwrap() == manifest);
    let found = output(&["run", job]);
    let said = String::from_utf8(found.stderr).unwrap();
    let process = format!(": process {} on ", child.id());
    for wanted in [
        "another process is running a job in ",
        &process,
        "`millrace status ",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(child.try_wait().unwrap().is_none(), "the training ended");
    child.kill().unwrap();
    child.wait().unwrap();
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
