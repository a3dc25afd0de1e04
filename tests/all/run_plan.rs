//! `run --plan`: the stages that it names are those that `run` then works in, it says why, and it writes nothing.

use crate::jobs::{millrace, output, succeed};
use crate::refused_runs::{all_of, texts, write_job};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

/// The files of a folder with their times of change.
fn state(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let files = all_of(folder).into_iter();
    files
        .map(|(path, bytes)| {
            let time = time(&path);
            (path, (bytes, time))
        })
        .collect()
}

/// The plan of a job, and the exit code; the folder must stay as it is.
fn plan_of(args: &[&str], out: &Path) -> (Value, Option<i32>) {
    let before = out.exists().then(|| state(out));
    let shown = output(&[&["run"], args, &["--plan"]].concat());
    let found = output(&[&["run"], args, &["--plan", "--json"]].concat());
    assert_eq!(shown.status.code(), found.status.code());
    let text = String::from_utf8(shown.stdout).unwrap();
    let plan: Value = serde_json::from_slice(&found.stdout).unwrap();
    for stage in plan["stages"].as_array().unwrap() {
        let line = format!("\n{}: ", stage["stage"].as_str().unwrap());
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert_eq!(before, out.exists().then(|| state(out)));
    (plan, found.status.code())
}

/// Names of the stages with one of these actions.
fn stages(plan: &Value, actions: &[&str]) -> BTreeSet<String> {
    let stages = plan["stages"].as_array().unwrap().iter();
    let own = stages.filter(|stage| actions.contains(&stage["action"].as_str().unwrap()));
    own.map(|stage| stage["stage"].as_str().unwrap().to_owned())
        .collect()
}

/// Names of the stages that a run of a job would work in, of one that it would not refuse.
pub(crate) fn planned(job: &str) -> Vec<String> {
    let plan = succeed(&["run", job, "--plan", "--json"]).stdout;
    let plan: Value = serde_json::from_slice(&plan).unwrap();
    let works = ["run", "go_on", "depends"];
    stages(&plan, &works).into_iter().collect()
}

/// The reasons of a stage, and everything else about it.
fn stage(plan: &Value, name: &str) -> String {
    let stages = plan["stages"].as_array().unwrap();
    let stage = stages.iter().find(|stage| stage["stage"] == name);
    stage.map_or_else(|| panic!("{name}: {plan:#}"), Value::to_string)
}

/// The records of stages, which have the seconds of their last work.
fn records(out: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let text = fs::read_to_string(out.join("manifest.json")).unwrap_or_default();
    let all: Value = serde_json::from_str(&text).unwrap_or_default();
    for (stage, record) in all.as_object().into_iter().flatten() {
        found.insert(stage.clone(), record.to_string());
    }
    for entry in fs::read_dir(out.join("records/curate"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read_to_string(entry.path()).unwrap();
        found.insert(entry.path().display().to_string(), text);
    }
    if let Ok(page) = fs::metadata(out.join("report.html")) {
        found.insert("report".into(), format!("{:?}", page.modified().unwrap()));
    }
    found
}

/// Runs, and returns the stages that have worked.
fn worked(args: &[&str], out: &Path) -> BTreeSet<String> {
    let before = records(out);
    succeed(&[&["run"], args].concat());
    let after = records(out);
    let other = after
        .iter()
        .filter(|(stage, text)| before.get(*stage) != Some(*text));
    let name = |stage: &String| match stage.contains("/records/curate/") {
        true => "curate".to_owned(),
        false => stage.clone(),
    };
    let mut names: BTreeSet<String> = other.map(|(stage, _)| name(stage)).collect();
    // of the tokenizer and the datasets together, and of the order of the data
    names.remove("tokenize");
    names.remove("train/settings");
    names
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Checks that a plan is what a run then does, and that it is this.
fn check(args: &[&str], out: &Path, expected: &[&str]) -> Value {
    let (plan, code) = plan_of(args, out);
    assert_eq!(
        (code, &plan["possible"]),
        (Some(0), &true.into()),
        "{plan:#}"
    );
    let planned = stages(&plan, &["run", "go_on"]);
    assert_eq!(planned, names(expected), "{plan:#}");
    let perhaps = stages(&plan, &["depends"]);
    let worked = worked(args, out);
    assert!(planned.is_subset(&worked), "{worked:?} {plan:#}");
    let more: BTreeSet<String> = worked.difference(&planned).cloned().collect();
    assert!(more.is_subset(&perhaps), "{worked:?} {plan:#}");
    plan
}

#[test]
fn a_run_does_what_its_plan_says_after_every_kind_of_change() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let texts = texts();
    let path = write_job(folder, &texts[..40]);
    // long enough for the filter
    let long: Vec<&str> = (texts[40..].iter().map(String::as_str))
        .filter(|text| text.len() > 3000)
        .collect();
    assert!(long.len() > 2);
    let job = path.to_str().unwrap();
    let out = folder.join("out");
    let change = |from: &str, to: &str| {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
    };
    change(
        "[tokenize]",
        "[[curate.step]]\nlength = { min_chars = 10 }\n[dedup]\nexact = {}\n[tokenize]",
    );
    change(
        "[report]",
        "[generate]\nprompts = [\"The\"]\nmax_tokens = 4\n[report]",
    );
    let data = ["curate", "dedup", "tokenize/tokenizer", "tokenize/pile"];
    let all = ["blend", "train", "eval", "generate", "report"];
    check(&[job], &out, &[&data[..], &all].concat());
    // nothing
    let plan = check(&[job], &out, &["report"]);
    assert_eq!(stages(&plan, &["depends"]), names(&[]));
    // a learning rate: refused by both with the same words, and nothing is written
    change("lr = 1e-2", "lr = 2e-2");
    let (plan, code) = plan_of(&[job], &out);
    assert_eq!((code, &plan["possible"]), (Some(2), &false.into()));
    let before = state(&out);
    let refused = output(&["run", job]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    let wanted = "train.lr: 0.01 there, 0.02 here (train.resume.allow = [\"lr\"] allows it)";
    assert!(said.contains(wanted), "{said}");
    assert!(
        stage(&plan, "train").contains("train.lr: 0.01 there, 0.02 here"),
        "{plan:#}"
    );
    assert_eq!(state(&out), before);
    // allowed, after the last step
    let plan = check(&[job, "--allow", "lr"], &out, &["train", "report"]);
    assert!(stage(&plan, "train").contains("train.lr changes from 0.01 to 0.02 after step 6"));
    // more steps
    change("steps = 6", "steps = 9");
    let allow = ["--allow", "lr,steps"];
    let args = [&[job][..], &allow].concat();
    let plan = check(&args, &out, &all);
    assert!(
        stage(&plan, "train").contains("goes on after step 6 of 9"),
        "{plan:#}"
    );
    // the value of a filter
    change("min_chars = 10", "min_chars = 900");
    let (plan, code) = plan_of(&args, &out);
    assert_eq!(code, Some(2));
    let of_tokens = stage(&plan, "tokenize/pile");
    assert!(
        of_tokens.contains("nothing there was replaced"),
        "{of_tokens}"
    );
    let before = state(&out);
    assert_eq!(
        output(&[&["run"], &args[..]].concat()).status.code(),
        Some(2)
    );
    assert_eq!(state(&out), before);
    let args = [job, "--allow", "lr,steps,data"];
    let without = [
        "curate",
        "dedup",
        "tokenize/pile",
        "blend",
        "train",
        "eval",
        "report",
    ];
    let plan = check(&args, &out, &without);
    let why = "curate.step[0].length.min_chars changed: 10 -> 900";
    assert!(stage(&plan, "curate").contains(why), "{plan:#}");
    assert!(stage(&plan, "curate").contains("clean/00000"), "{plan:#}");
    // one more input, and an input of another size
    let more = folder.join("more.jsonl");
    fs::write(&more, long[..2].concat()).unwrap();
    let input = format!("\"pile\" }}, {{ path = {more:?}, source = \"pile\" }}]");
    change("\"pile\" }]", &input);
    let plan = check(&args, &out, &without);
    let new = format!("new input: {}", more.display());
    assert!(stage(&plan, "curate").contains(&new), "{plan:#}");
    fs::write(&more, long.concat()).unwrap();
    let plan = check(&args, &out, &without);
    let of_curation = stage(&plan, "curate");
    assert!(
        of_curation.contains("another size of input: "),
        "{of_curation}"
    );
    assert!(
        of_curation.contains("1 of 2 shards are done"),
        "{of_curation}"
    );
    // the same bytes at another time: tokens are made again, and nothing follows from the same ones
    let file = fs::File::options().write(true).open(&more).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5))
        .unwrap();
    let again = ["curate", "dedup", "tokenize/pile", "report"];
    let plan = check(&[job], &out, &again);
    assert_eq!(
        stages(&plan, &["depends"]),
        names(&["blend", "train", "eval"])
    );
    check(&[job], &out, &["report"]);
    // a file that is damaged
    fs::write(out.join("eval.json"), "{}").unwrap();
    check(&[job], &out, &["eval", "report"]);
}

#[test]
fn another_size_of_the_tokenizer_is_planned_without_checkpoints_and_refused_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let path = write_job(folder, &texts());
    let text = fs::read_to_string(&path).unwrap();
    let tokenizer = folder.join("tokenizer.json");
    let text = text.replace(
        &format!("tokenizer = {{ file = {tokenizer:?} }}"),
        "tokenizer = { train = { vocab = 300 } }",
    );
    let (data, training) = text.split_once("[blend]").unwrap();
    fs::write(&path, format!("{data}[report]\n")).unwrap();
    let job = path.to_str().unwrap();
    let out = folder.join("out");
    let tokens = ["tokenize/tokenizer", "tokenize/pile"];
    check(&[job], &out, &[&["curate", "report"], &tokens[..]].concat());
    let larger = [job, "--set", "tokenize.tokenizer.train.vocab=320"];
    let plan = check(&larger, &out, &[&["report"], &tokens[..]].concat());
    let why = "tokenize.tokenizer.train.vocab changed: 300 -> 320";
    assert!(stage(&plan, "tokenize/tokenizer").contains(why), "{plan:#}");
    fs::write(&path, format!("{data}[blend]{training}")).unwrap();
    check(&larger, &out, &["blend", "train", "eval", "report"]);
    let before = state(&out);
    let (plan, code) = plan_of(&[job], &out);
    assert_eq!(code, Some(2), "{plan:#}");
    assert!(stage(&plan, "tokenize/tokenizer").contains("found checkpoints of a training"));
    let refused = output(&["run", job, "--allow", "data"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(state(&out), before);
}

#[test]
fn a_plan_beside_a_running_job_says_who_runs_and_takes_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_job(dir.path(), &texts());
    let job = path.to_str().unwrap();
    let out = dir.path().join("out");
    let set = [
        "--set",
        "train.steps=100000",
        "--set",
        "train.checkpoint={every=20, keep=10000}",
    ];
    let args = [&["run", job][..], &set].concat();
    let mut child = millrace(&args).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !out.join("checkpoints/step-00000020").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the training ended");
        assert!(started.elapsed() < Duration::from_secs(300), "no step");
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = succeed(&[&args[..], &["--plan"]].concat()).stdout;
    let shown = String::from_utf8(shown).unwrap();
    // a kernel without /proc/locks knows no holder
    if Path::new("/proc/locks").exists() {
        let wanted = format!("a job is running there now (process {} on ", child.id());
        assert!(shown.contains(&wanted), "{shown}");
    }
    for wanted in [
        "curate: finished, will be skipped",
        "train: will go on; goes on after step ",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    assert!(child.try_wait().unwrap().is_none(), "the training ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_job_that_is_refused_is_not_submitted_and_one_that_fits_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_job(dir.path(), &texts());
    let job = path.to_str().unwrap();
    let out = dir.path().join("out");
    succeed(&["run", job]);
    let before = state(&out);
    let submit = |rate: &str| {
        let set = ["executor=slurm", "nodes={count=1}", rate];
        let set = set.into_iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["run", job].into_iter().chain(set).collect();
        let found = millrace(&args).env("PATH", "").output().unwrap();
        let said = String::from_utf8(found.stderr).unwrap();
        (found.status.code(), said)
    };
    let (code, said) = submit("train.lr=0.5");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("train.lr: 0.01 there, 0.5 here"), "{said}");
    assert_eq!(state(&out), before);
    // there is no Slurm to hand it over to
    let (code, said) = submit("train.lr=0.01");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("sbatch"), "{said}");
}

#[test]
fn what_may_change_is_named_on_the_command_line_as_in_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_job(dir.path(), &texts());
    let job = path.to_str().unwrap();
    let out = dir.path().join("out");
    succeed(&["run", job]);
    let other = dir.path().join("other");
    crate::refused_runs::copy(&out, &other);
    for verb in ["run", "train"] {
        let found = output(&[verb, job, "--allow", "lr,stepz"]);
        assert_eq!(found.status.code(), Some(2));
        let said = String::from_utf8(found.stderr).unwrap();
        assert!(said.contains("\"steps\""), "{said}");
    }
    let set = ["--set", "train.steps=8", "--set", "train.lr=2e-2"];
    let flag = ["--allow", "steps", "--allow", "lr"];
    succeed(&[&["train", job][..], &set, &flag].concat());
    let there = format!("out={:?}", other.display().to_string());
    let key = [
        "--set",
        "train.resume.allow=[\"steps\", \"lr\"]",
        "--set",
        &there,
    ];
    succeed(&[&["train", job][..], &set, &key].concat());
    let metrics = |out: &Path| crate::jobs::metrics(out);
    assert_eq!(metrics(&out), metrics(&other));
    assert!(metrics(&out).iter().any(|line| line["changed"].is_array()));
    let written = fs::read_to_string(out.join("job.toml")).unwrap();
    assert!(written.contains("allow = [\"steps\", \"lr\"]"), "{written}");
    // what was allowed once is no change of a finished training
    let (plan, _) = plan_of(&[&[job][..], &set].concat(), &out);
    assert!(stages(&plan, &["skip"]).contains("train"), "{plan:#}");
    let without = output(&["curate", job, "--allow", "lr"]);
    assert_eq!(without.status.code(), Some(2));
}
