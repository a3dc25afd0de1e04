//! Tests of determinism: the same job gives the same bytes for any threads, tasks, layout and kills.

use crate::jobs::{assert_same, killed_at, metrics, millrace, output, succeed, write_small_job};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn run(folder: &Path, name: &str, sets: &[&str]) -> PathBuf {
    let job = folder.join("job.toml");
    let out = folder.join(name);
    let mut args = vec!["run".to_string(), job.display().to_string()];
    for set in sets
        .iter()
        .map(ToString::to_string)
        .chain([format!("out={:?}", out)])
    {
        args.extend(["--set".to_string(), set]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    succeed(&args);
    out
}

#[test]
fn threads_and_tasks_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    write_small_job(dir.path());
    let one = run(dir.path(), "one", &["threads=1", "curate.tasks=1"]);
    let two = run(dir.path(), "two", &["threads=2", "curate.tasks=7"]);
    assert_same(&one, &two, 16, "1 thread and task, 2 threads and 7 tasks");
    let page = || std::fs::read_to_string(one.join("report.html")).unwrap();
    assert!(!page().contains("Comparison"));
    let job = dir.path().join("job.toml");
    let (job, set) = (job.to_str().unwrap(), format!("out={one:?}"));
    let compare = |other: &Path| {
        let sets = [
            "--set",
            &set,
            "--set",
            "threads=1",
            "--set",
            "curate.tasks=1",
        ];
        let args = [
            &["report", job],
            &sets[..],
            &["--compare", other.to_str().unwrap()],
        ];
        output(&args.concat())
    };
    assert!(compare(&two).status.success());
    let page = page();
    for row in [
        "<td>threads</td><td class=number>1</td><td class=number>2</td>",
        "<td>curate.tasks</td><td class=number>1</td><td class=number>7</td>",
        "<h3>Outcomes of records that differ</h3><p class=quiet>None.</p>",
        "<td>steps</td><td class=number>12</td><td class=number>12</td><td class=number>0</td>",
        "training loss of the other run",
    ] {
        assert!(page.contains(row), "{row}");
    }
    let nothing = compare(dir.path());
    assert!(!nothing.status.success());
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("nothing has run in"));
}

#[test]
fn every_layout_gives_the_same_loss_lines_and_weights() {
    let dir = tempfile::tempdir().unwrap();
    write_small_job(dir.path());
    let whole = run(dir.path(), "l111", &[]);
    let losses = metrics(&whole);
    assert!(losses.len() >= 12, "{} lines", losses.len());
    for (dp, tp, pp) in [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2)] {
        let name = format!("l{dp}{tp}{pp}");
        let sets = [("dp", dp), ("tp", tp), ("pp", pp)].map(|(k, v)| format!("parallel.{k}={v}"));
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let out = run(dir.path(), &name, &sets);
        assert_eq!(
            metrics(&out),
            losses,
            "loss lines of (dp, tp, pp) = ({dp}, {tp}, {pp})"
        );
        let weights = |out: &Path| {
            std::fs::read(out.join("checkpoints/step-00000012/model.safetensors")).unwrap()
        };
        assert!(
            weights(&out) == weights(&whole),
            "weights of ({dp}, {tp}, {pp})"
        );
    }
}

#[test]
fn ten_kills_change_nothing_and_a_finished_job_is_not_redone() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    let started = Instant::now();
    let calm = run(dir.path(), "calm", &[]);
    let whole = started.elapsed();
    let killed = dir.path().join("killed");
    let set = format!("out={killed:?}");
    let args = ["run", job.as_str(), "--set", set.as_str()];
    // Moments from a fixed sequence, spread over a run's length; each restart continues from the last.
    let mut state = 0x2545_f491u32;
    // the first in its training, the others anywhere; a run may end before its kill
    killed_at(&args, &killed, 3);
    for _ in 0..9 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let share = f64::from(state >> 8) / f64::from(1u32 << 24);
        let mut child = millrace(&args)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(share * 0.5).max(Duration::from_millis(5)));
        let _ = child.kill();
        child.wait().unwrap();
    }
    succeed(&args);
    assert_same(&calm, &killed, 16, "a calm run and one killed ten times");
    let again = succeed(&args);
    let stderr = String::from_utf8_lossy(&again.stderr).to_string();
    for stage in ["curate", "dedup", "tokenize", "train", "eval", "generate"] {
        assert!(
            stderr.contains(&format!("{stage}: done before")),
            "{stage} ran again:\n{stderr}"
        );
    }
}

#[test]
fn a_signal_ends_training_with_a_checkpoint_and_its_exit_code_and_the_next_run_goes_on_bit_for_bit()
{
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    // many steps, so that one is running, and no checkpoint but the signal's
    let sets = ["train.steps=400", "train.checkpoint.every=0"];
    let calm = run(dir.path(), "calm", &sets);
    let asked = dir.path().join("asked");
    let out = format!("out={asked:?}");
    let args = [
        "run", &job, "--set", sets[0], "--set", sets[1], "--set", &out,
    ];
    // whether it was training when the signal came
    let is_stopped_by = |signal: &str, code: i32| {
        let mut child = millrace(&args)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lines = || {
            let text = std::fs::read_to_string(asked.join("metrics.jsonl")).unwrap_or_default();
            text.lines().count()
        };
        let (began, started) = (lines(), Instant::now());
        while lines() < began + 5 && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let printed = Instant::now();
        let status = child.wait().unwrap();
        assert!(printed.elapsed() < Duration::from_secs(30), "{signal}");
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
        let is_stopped = stderr.contains("stopped by a signal after step ");
        if is_stopped {
            assert_eq!(status.code(), Some(code), "{signal}: {stderr}");
            assert!(!asked.join("eval.json").exists(), "later stages wait");
            let checkpoints = std::fs::read_dir(asked.join("checkpoints")).unwrap();
            assert!(checkpoints.count() >= 1);
        }
        is_stopped
    };
    let is_stopped_twice = (0..10).any(|_| {
        let _ = std::fs::remove_dir_all(&asked);
        is_stopped_by("-TERM", 143) && is_stopped_by("-INT", 130)
    });
    assert!(is_stopped_twice, "training ended before the signals");
    succeed(&args);
    let last = "checkpoints/step-00000400/model.safetensors";
    let read = |out: &Path| std::fs::read(out.join(last)).unwrap();
    assert_eq!(metrics(&calm), metrics(&asked));
    assert!(read(&calm) == read(&asked), "weights after two signals");
}

#[test]
fn checkpoints_of_other_settings_are_refused_with_the_key_and_damaged_tokens_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    succeed(&["run", &job]);
    let printed = crate::jobs::output(&["run", &job, "--set", "train.lr=0.02"]);
    let stderr = String::from_utf8_lossy(&printed.stderr).to_string();
    assert_eq!(printed.status.code(), Some(2), "{stderr}");
    assert!(
        stderr
            .contains("train.lr: 0.01 there, 0.02 here (train.resume.allow = [\"lr\"] allows it)"),
        "{stderr}"
    );
    succeed(&[
        "run",
        &job,
        "--set",
        "train.micro_batch=2",
        "--set",
        "train.chunked_cross_entropy=true",
        "--set",
        "parallel.tp=2",
    ]);
    let bin = dir.path().join("out/tokens/pile.bin");
    let mut bytes = std::fs::read(&bin).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&bin, bytes).unwrap();
    let printed = crate::jobs::output(&["eval", &job]);
    let stderr = String::from_utf8_lossy(&printed.stderr).to_string();
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("is not what tokenize wrote"), "{stderr}");
    succeed(&["run", &job]);
}
