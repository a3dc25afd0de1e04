//! `--quiet`, `--verbose` and `--log`: how much is printed, and the file that has all of it.

use crate::jobs::{millrace, output, succeed};
use crate::refused_runs::{texts, write_job};
use std::fs;
use std::path::Path;

/// A job that curates and tokenizes, with two bad records.
fn job(folder: &Path) -> String {
    let path = write_job(folder, &texts()[..20]);
    let text = fs::read_to_string(&path).unwrap();
    let (data, _) = text.split_once("[blend]").unwrap();
    fs::write(&path, format!("{data}[report]\n")).unwrap();
    let input = folder.join("texts.jsonl");
    let lines = fs::read_to_string(&input).unwrap();
    fs::write(&input, format!("{{\"x\": 1}}\n{lines}[]\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

fn stderr_of(args: &[&str]) -> String {
    String::from_utf8(succeed(args).stderr).unwrap()
}

#[test]
fn quiet_leaves_results_and_bad_records_and_verbose_adds_why_and_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let bad = ["curate: bad record: ", "curate: note: 2 bad records in "];
    let quiet = stderr_of(&["run", &job, "-q"]);
    for wanted in bad
        .into_iter()
        .chain([" 2 quarantined; ", "done in ", "report: "])
    {
        assert!(quiet.contains(wanted), "{wanted}: {quiet}");
    }
    for left_out in ["millrace 0", "curate: 0", "tokenize/pile\n"] {
        assert!(!quiet.contains(left_out), "{left_out}: {quiet}");
    }
    let usual = stderr_of(&["run", &job]);
    assert!(usual.contains("curate: done before"), "{usual}");
    assert!(!usual.contains("curate: finished"), "{usual}");
    assert!(!stderr_of(&["run", &job, "--quiet"]).contains("done before"));
    let verbose = stderr_of(&[
        "-v",
        "run",
        &job,
        "--set",
        "curate.max_record_bytes=50000000",
    ]);
    for wanted in [
        "curate.max_record_bytes changed: ",
        "curate: shard 0: reads ",
        "texts.jsonl (",
        " kept (",
    ] {
        assert!(verbose.contains(wanted), "{wanted}: {verbose}");
    }
    let verbose = stderr_of(&[
        "run",
        &job,
        "--verbose",
        "--set",
        "curate.max_record_bytes=50000000",
    ]);
    assert!(
        verbose.contains("curate: finished, will be skipped"),
        "{verbose}"
    );
    // a pipe is no terminal
    assert!(!verbose.contains('\u{1b}'));
    let both = output(&["run", &job, "-q", "-v"]);
    assert_eq!(both.status.code(), Some(2));
}

/// The reasons of `run --plan`, in its words and each on a line, before the first shard is read.
#[test]
fn verbose_verbs_say_why_they_work_as_the_plan_does() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let more = dir.path().join("more.jsonl");
    stderr_of(&["run", &job]);
    fs::write(&more, "{\"text\": \"mill\"}\n").unwrap();
    let text = fs::read_to_string(&job).unwrap();
    let two = text.replace(
        "source = \"pile\" }]",
        &format!("source = \"pile\" }}, {more:?}]"),
    );
    assert_ne!(two, text);
    fs::write(&job, two).unwrap();
    let sets = ["--set", "curate.max_record_bytes=50000000"];
    let args = |first: &[&'static str]| [first, &sets].concat();
    let said = |first: &[&'static str], more: &[&str]| {
        let args = [&args(first)[..], &[job.as_str()], more].concat();
        stderr_of(&args)
    };
    let plan = [&args(&["run", "--plan"])[..], &[job.as_str()]].concat();
    let plan = String::from_utf8(succeed(&plan).stdout).unwrap();
    let (_, of_curate) = plan.split_once("\ncurate: ").unwrap();
    let (of_curate, _) = of_curate.split_once("\n\n").unwrap();
    let reasons: Vec<&str> = of_curate
        .lines()
        .filter_map(|line| line.strip_prefix("  because   "))
        .collect();
    for wanted in ["curate.max_record_bytes changed: ", "new input: "] {
        let has = reasons.iter().any(|reason| reason.starts_with(wanted));
        assert!(has, "{wanted}: {plan}");
    }
    // a verb by itself, and a run, which says it once for all stages
    let other = dir.path().join("other");
    crate::refused_runs::copy(&dir.path().join("out"), &other);
    let there = format!("out={:?}", other.display().to_string());
    let of_curate = said(&["curate", "-v"], &["--set", &there]);
    for verbose in [of_curate, said(&["run", "-v"], &[])] {
        let (before, _) = verbose.split_once("curate: shard ").unwrap();
        for reason in &reasons {
            let line = format!("curate: because {reason}\n");
            assert_eq!(before.matches(&line).count(), 1, "{line}: {verbose}");
            assert_eq!(verbose.matches(&line).count(), 1, "{line}: {verbose}");
        }
    }
    let finished = said(&["curate", "-v"], &[]);
    assert!(
        finished.contains("curate: finished, will be skipped; 2 of 2 shards are done\n"),
        "{finished}"
    );
    assert!(!said(&["curate"], &[]).contains("skipped"));
}

/// Devices, collectives, epochs of the data and steps are progress: only the last line of the training and what warns is left.
#[test]
fn quiet_leaves_the_last_line_of_a_training_alone() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["river", "mill", "grain", "wheel", "stone"];
    let text = |n: usize| -> String {
        let words: Vec<&str> = (0..40).map(|at| words[(n + at * at) % 5]).collect();
        format!("{{\"text\": \"{n} {}\"}}\n", words.join(" "))
    };
    let texts: Vec<String> = (0..20).map(text).collect();
    let job = write_job(dir.path(), &texts);
    let job = job.to_str().unwrap();
    let sets = [
        "--set",
        "train.steps=60",
        "--set",
        "train.checkpoint.every=60",
    ];
    let usual = stderr_of(&[&["run", job][..], &sets].concat());
    assert!(
        usual.contains("train: more than one epoch of the data: "),
        "{usual}"
    );
    fs::remove_dir_all(dir.path().join("out/checkpoints")).unwrap();
    let quiet = stderr_of(&[&["train", job, "-q"][..], &sets].concat());
    let lines: Vec<&str> = quiet.lines().collect();
    assert!(
        matches!(lines[..], [last] if last.starts_with("train: 60 steps, loss ")),
        "{quiet}"
    );
}

#[test]
fn the_file_of_the_log_has_every_line_with_its_time_and_never_ends_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let file = dir.path().join("run.log");
    let log = file.to_str().unwrap();
    let said = stderr_of(&["run", &job, "--log", log]);
    let text = fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    for said in said.lines() {
        let line = lines.next().unwrap();
        let (time, rest) = line.split_once(' ').unwrap();
        assert_eq!((time.len(), rest), (20, said), "{line}");
        // days and seconds of the clock that the file system has
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
    assert_eq!(lines.next(), None);
    // what is left out of the terminal is in the file, behind what is there
    stderr_of(&["run", &job, "-q", "--log", log]);
    let more = fs::read_to_string(&file).unwrap();
    assert!(more.starts_with(&text) && more[text.len()..].contains("curate: done before"));
    let refused = output(&["run", &job, "--allow", "lr", "--log", log]);
    assert_eq!(refused.status.code(), Some(2));
    let more = fs::read_to_string(&file).unwrap();
    assert!(
        more.contains("Z error: --allow: the job has no [train] table"),
        "{more}"
    );
    let absent = dir.path().join("absent/run.log");
    let out = format!("out={:?}", dir.path().join("new").display().to_string());
    let found = output(&[
        "run",
        &job,
        "--set",
        &out,
        "--log",
        absent.to_str().unwrap(),
    ]);
    let said = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: --log: cannot open "), "{said}");
    assert!(!dir.path().join("new").exists());
    if Path::new("/dev/full").exists() {
        let done = millrace(&["run", &job, "--set", &out, "--log", "/dev/full"]).output();
        assert!(done.unwrap().status.success());
    }
}
