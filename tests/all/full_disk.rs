//! Tests of a full disk, emulated by a limit on file size: a clear error, no partial file that is read as complete,
//! and the same bytes once there is room. `tests/disks/full.sh` does the same on a file system that is full.
//!
//! Where SIGXFSZ is ignored, a write fails and the program names the file. Where it is not, the system kills the
//! program in the middle of a write, which is one more kill. The program leaves the signal's disposition as it is:
//! users and batch systems that set such a limit have chosen it.

use crate::cut_jobs::cut_job;
use crate::jobs::{assert_same, metrics, millrace, output, root, write_small_job};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `millrace ARGS...` under a file-size limit of `blocks` blocks.
fn limited(blocks: u32, trap: &str, args: &[&str]) -> Output {
    let program = millrace(&[]).get_program().to_owned();
    let script = format!("ulimit -c 0; ulimit -f {blocks}; {trap} exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(program).args(args);
    command.stdin(Stdio::null()).output().unwrap()
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| {
        let paths = entries.flatten().map(|e| e.path());
        paths.map(|p| if p.is_dir() { files(&p) } else { 1 }).sum()
    })
}

#[test]
fn a_job_without_room_names_the_file_and_goes_on_when_there_is_some() {
    let dir = tempfile::tempdir().unwrap();
    let job = cut_job(dir.path()).display().to_string();
    let outs = ["calm", "signalled", "ended"].map(|name| dir.path().join(name));
    let sets = outs.clone().map(|out| format!("out={out:?}"));
    let args = |i: usize| ["run", job.as_str(), "--set", sets[i].as_str()];
    assert!(output(&args(0)).status.success());

    let (mut failures, mut last) = (0, 0);
    for blocks in [1, 8, 24, 64, 256, 1024, 4096] {
        let printed = limited(blocks, "trap '' XFSZ;", &args(1));
        if printed.status.success() {
            break;
        }
        failures += 1;
        let stderr = String::from_utf8(printed.stderr).unwrap();
        assert_eq!(printed.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("File too large"), "{stderr}");
        assert!(
            stderr.contains(outs[1].to_str().unwrap()),
            "no file in: {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{stderr}");
        // finished work stays
        let now = files(&outs[1].join("clean"));
        assert!(now >= last, "{blocks} blocks");
        last = now;
    }
    assert!(failures >= 4, "{failures}");
    assert!(output(&args(1)).status.success());
    assert_same(
        &outs[0],
        &outs[1],
        36,
        "a calm run and one that ran out of room",
    );

    let mut signals = 0;
    for blocks in [8, 64, 1024] {
        let ended = limited(blocks, "", &args(2));
        signals += usize::from(ended.status.signal().is_some());
    }
    assert!(signals >= 2, "{signals}");
    assert!(output(&args(2)).status.success());
    assert_same(
        &outs[0],
        &outs[2],
        36,
        "a calm run and one ended by the limit",
    );
}

#[test]
fn training_goes_on_without_room_for_checkpoints_and_the_next_run_ends_with_the_same_bytes() {
    without_room("train.checkpoint.sharded=false");
}

#[test]
fn training_goes_on_without_room_for_shards_and_the_next_run_ends_with_the_same_bytes() {
    without_room("train.checkpoint.sharded=true");
}

fn without_room(form: &str) {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    let outs = ["calm", "full"].map(|name| dir.path().join(name));
    let sets = outs.clone().map(|out| format!("out={out:?}"));
    let args = |verb, i: usize| [verb, job.as_str(), "--set", sets[i].as_str(), "--set", form];
    assert!(output(&args("run", 0)).status.success());
    for verb in ["curate", "dedup", "tokenize"] {
        assert!(output(&args(verb, 1)).status.success());
    }
    // space for metrics, not for tensors
    let printed = limited(100, "trap '' XFSZ;", &args("train", 1));
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    for step in [3, 6, 9] {
        let note = format!("the checkpoint of step {step} could not be written: write ");
        assert!(stderr.contains(&note), "{stderr}");
    }
    assert!(stderr.contains("File too large"), "{stderr}");
    let lines = metrics(&outs[1]);
    let failures = lines
        .iter()
        .filter(|line| line.get("checkpoint_failed").is_some());
    assert_eq!(failures.count(), 3, "{lines:?}");
    assert_eq!(
        lines.iter().filter(|line| line.get("lr").is_some()).count(),
        12
    );
    assert_eq!(
        files(&outs[1].join("checkpoints")),
        0,
        "nothing half-written stays"
    );
    assert!(output(&args("run", 1)).status.success());
    assert_same(&outs[0], &outs[1], 16, "a calm run and one without room");
}

#[test]
fn results_are_shown_when_there_is_no_room_for_the_records_of_an_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let records = dir.path().join("records.jsonl").display().to_string();
    let data = root().join("tests/data/lm_eval");
    let [model, rows] = ["model", "rows/piqa.validation.jsonl"].map(|name| data.join(name));
    let [model, rows] = [model, rows].map(|path| path.display().to_string());
    let args = [
        "eval", &model, "--task", "piqa", "--data", &rows, "--limit", "20",
    ];
    let printed = limited(
        1,
        "trap '' XFSZ;",
        &[&args[..], &["--records", &records]].concat(),
    );
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    let reason = format!("error: --records: cannot write {records}: File too large");
    assert!(stderr.contains(&reason), "{stderr}");
    let results = String::from_utf8(printed.stdout).unwrap();
    assert!(
        results.contains("piqa") && results.contains("acc"),
        "{results}"
    );
    assert_eq!(files(dir.path()), 0);
}
