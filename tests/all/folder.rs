//! Tests of a job's folder and log: other programs' files stay, failures are recorded, and a log that cannot be
//! written does not end the work.

use crate::curation::job;
use crate::jobs::{assert_same, millrace, output, succeed};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// `[out=FOLDER]` as arguments.
fn run_in<'a>(job: &'a Path, set: &'a str) -> Vec<&'a str> {
    vec!["curate", job.to_str().unwrap(), "--set", set]
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let [calm, full, gone] = ["calm", "full", "gone"].map(|n| dir.path().join(n));
    let set = |out: &Path| format!("out={out:?}");
    succeed(&run_in(&job, &set(&calm)));
    // every write fails as on a full disk
    let log = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = millrace(&run_in(&job, &set(&full)));
    assert!(command.stderr(log).status().unwrap().success());
    assert_same(&calm, &full, 14, "a log on a full disk");
    // a reader that closes the pipe after one line, as `2>&1 | head -1`
    let set = set(&gone);
    let mut command = millrace(&run_in(&job, &set));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
    assert_same(&calm, &gone, 14, "a log whose reader left");
}

#[test]
fn temporary_files_of_others_stay_and_those_of_a_killed_run_go() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let out = dir.path().join("out");
    let set = format!("out={out:?}");
    succeed(&run_in(&job, &set));
    let theirs = [
        ".tmpA1B2C3",
        ".vim.tmp",
        "clean/.tmpOther",
        "inner/clean/.millrace-x.tmp",
        "notes/.millrace-x.tmp",
    ];
    let ours = [
        ".millrace-x.tmp",
        "clean/.millrace-00000.jsonl.zst.1.tmp",
        "records/curate/.millrace-y.tmp",
    ];
    for name in theirs.iter().chain(&ours) {
        let path = out.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    succeed(&run_in(&job, &set));
    for name in theirs {
        assert!(out.join(name).exists(), "{name}");
    }
    for name in ours {
        assert!(!out.join(name).exists(), "{name}");
    }
}

#[test]
fn a_lock_that_is_a_symbolic_link_is_refused_and_what_it_names_stays() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let (out, other) = (dir.path().join("out"), dir.path().join("other"));
    fs::create_dir(&out).unwrap();
    fs::write(&other, "precious").unwrap();
    symlink(&other, out.join(".lock")).unwrap();
    let printed = output(&run_in(&job, &format!("out={out:?}")));
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(".lock"), "{stderr}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
}

#[test]
fn files_have_the_mode_that_the_umask_gives() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let program = millrace(&[]).get_program().to_owned();
    for (umask, mode) in [("027", 0o640), ("002", 0o664)] {
        let out = dir.path().join(umask);
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("umask {umask}; exec \"$0\" \"$@\""))
            .arg(&program)
            .args(run_in(&job, &format!("out={out:?}")))
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        for name in [
            "job.toml",
            "manifest.json",
            "clean/00000.parquet",
            "errors.jsonl",
        ] {
            let found = fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{name} under {umask}");
        }
    }
}

#[test]
fn a_stage_that_failed_is_so_called_until_it_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let out = dir.path().join("out");
    let set = format!("out={out:?}");
    // a folder where a file has to be
    fs::create_dir_all(out.join("errors.jsonl/x")).unwrap();
    let printed = output(&run_in(&job, &set));
    assert_eq!(printed.status.code(), Some(1));
    let status = || {
        let printed = succeed(&["status", job.to_str().unwrap(), "--set", &set, "--json"]);
        serde_json::from_slice::<Value>(&printed.stdout).unwrap()
    };
    let failed = status()["stages_failed"]["curate"].clone();
    assert!(
        failed.as_str().unwrap().contains("errors.jsonl"),
        "{failed}"
    );
    assert_eq!(status()["stages_done"], serde_json::json!([]));
    let plain = succeed(&["status", job.to_str().unwrap(), "--set", &set]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("curate    failed: "), "{plain}");
    fs::remove_dir_all(out.join("errors.jsonl")).unwrap();
    succeed(&run_in(&job, &set));
    assert_eq!(status()["stages_failed"], serde_json::json!({}));
    assert_eq!(status()["stages_done"][0], "curate");
}

#[test]
fn what_inspect_shows_of_a_file_cannot_steer_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.jsonl");
    fs::write(
        &path,
        "{\"text\": \"a\\u001b[2Jb\", \"id\": \"\\u001b]0;title\\u0007\"}\n",
    )
    .unwrap();
    for args in [vec!["inspect"], vec!["inspect", "--json"]] {
        let printed = output(&[&args[..], &[path.to_str().unwrap()]].concat());
        let bytes = [printed.stdout, printed.stderr].concat();
        assert!(
            !bytes.contains(&0x1b),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
    let name = dir.path().join("evil\u{1b}[31m.jsonl");
    let printed = output(&["inspect", name.to_str().unwrap()]);
    assert!(!printed.stderr.contains(&0x1b) && !printed.status.success());
}

#[test]
fn more_threads_than_a_machine_can_have_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let printed = output(&["curate", job.to_str().unwrap(), "--set", "threads=1000000"]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("key    threads") && stderr.contains("1000000"),
        "{stderr}"
    );
}
