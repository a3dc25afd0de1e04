//! Tests of training in several processes, started with the variables of launchers, here on one host: the bytes of
//! one process, and the messages of each when they do not fit together or one of them ends.

use crate::jobs::{free_port, metrics, millrace, output, succeed, write_small_job};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Environment variables of a process.
type Variables<'a> = &'a [(&'a str, String)];

/// A command with torchrun's environment for process `rank` of `size`.
fn launched(args: &[&str], (rank, size, port): (usize, usize, u16)) -> Command {
    let mut command = millrace(args);
    for (key, value) in [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", port.to_string()),
    ] {
        command.env(key, value);
    }
    command
}

fn start(mut command: Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn end(child: Child) -> (bool, String) {
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (
        status.success(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// Runs `size` processes to their ends.
fn in_processes(args: &[&str], size: usize) -> Vec<(bool, String)> {
    let port = free_port();
    let children: Vec<Child> = (0..size)
        .map(|rank| start(launched(args, (rank, size, port))))
        .collect();
    children.into_iter().map(end).collect()
}

/// Bytes of every checkpoint, and the lines of steps.
fn trained(out: &Path) -> (Vec<(String, Vec<u8>)>, Vec<serde_json::Value>) {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .flatten()
    {
        for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let name = format!(
                "{}/{}",
                folder.file_name().display(),
                file.file_name().display()
            );
            files.push((name, std::fs::read(file.path()).unwrap()));
        }
    }
    files.sort();
    (files, metrics(out))
}

/// A folder with a job, and its `out`.
fn job() -> (tempfile::TempDir, String, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let job = write_small_job(folder.path());
    let out = folder.path().join("out");
    (folder, job.display().to_string(), out)
}

#[test]
fn processes_train_to_the_bytes_of_threads() {
    let (folder, job, out) = job();
    for (size, layout) in [
        (2, ["parallel.tp=2", "parallel.pp=2"]),
        (4, ["parallel.dp=4", "parallel.zero=2"]),
    ] {
        let args = ["run", &job, "--set", layout[0], "--set", layout[1]];
        let (one, many) = (folder.path().join("one"), folder.path().join("many"));
        let to = |to: &Path| format!("out={:?}", to.display().to_string());
        succeed(&[&args[..], &["--set", &to(&one)]].concat());
        let ends = in_processes(&[&args[..], &["--set", &to(&many)]].concat(), size);
        for (rank, (is_good, stderr)) in ends.iter().enumerate() {
            assert!(is_good, "process {rank} of {size}:\n{stderr}");
            // process 0 alone curates, evaluates and reports
            assert_eq!(stderr.contains("curate"), rank == 0, "{stderr}");
        }
        assert!(trained(&one) == trained(&many), "{size} processes");
        assert!(many.join("report.html").exists());
        // finished work counts for all of them
        for (is_good, stderr) in in_processes(&[&args[..], &["--set", &to(&many)]].concat(), size) {
            assert!(is_good, "{stderr}");
        }
        for folder in [one, many] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
    drop(out);
}

#[test]
fn processes_that_do_not_fit_together_all_say_why_before_the_first_step() {
    let (_folder, job, out) = job();
    let sets = ["--set", "parallel.dp=2", "--set", "launch.patience=20s"];
    let args = [&["run", job.as_str()], &sets[..]].concat();
    // another job file
    let port = free_port();
    let other = [&args[..], &["--set", "train.lr=0.5"]].concat();
    let children = [
        start(launched(&args, (0, 2, port))),
        start(launched(&other, (1, 2, port))),
    ];
    for (is_good, stderr) in children.map(end) {
        assert!(!is_good);
        let is_named = stderr.contains("the processes do not have the same job: rank 1 on ")
            && stderr.contains(" has train.lr 0.5, rank 0 on ");
        assert!(is_named, "{stderr}");
    }
    // a number of processes that does not divide the ranks; a variable that is no number
    for (size, want) in [
        ("3", "WORLD_SIZE of torchrun: found 3 for 2 ranks"),
        ("two", "WORLD_SIZE: found \"two\""),
    ] {
        let lone = launched(&args, (0, 2, port))
            .env("WORLD_SIZE", size)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&lone.stderr).into_owned();
        assert_eq!(lone.status.code(), Some(1));
        assert!(stderr.contains(want), "{stderr}");
    }
    assert!(!out.join("checkpoints").exists());
    let wrong = output(
        &[
            &args[..],
            &[
                "--check",
                "--set",
                "launch.timeout=soon",
                "--set",
                "launch.patience=0s",
            ],
        ]
        .concat(),
    );
    let stderr = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        stderr.contains("launch.timeout") && stderr.contains("launch.patience"),
        "{stderr}"
    );
}

/// Starts a long training in two processes and returns them once steps are taken.
fn long_run(job: &str, out: &Path) -> [Child; 2] {
    let port = free_port();
    let args = [
        "run",
        job,
        "--set",
        "parallel.dp=2",
        "--set",
        "train.steps=100000",
        "--set",
        "launch.timeout=20s",
    ];
    let lines = || {
        let text = std::fs::read_to_string(out.join("metrics.jsonl"));
        text.unwrap_or_default().lines().count()
    };
    let before = lines();
    let children = [0, 1].map(|rank| start(launched(&args, (rank, 2, port))));
    let until = Instant::now() + Duration::from_secs(300);
    while lines() < before + 8 {
        assert!(Instant::now() < until, "no steps");
        std::thread::sleep(Duration::from_millis(20));
    }
    children
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_killed_process_ends_the_others_by_name_and_sigterm_to_one_ends_all_with_a_checkpoint() {
    let (_folder, job, out) = job();
    for victim in [1, 0] {
        let mut children = Vec::from(long_run(&job, &out));
        signal(&children[victim], "-KILL");
        let started = Instant::now();
        let (killed, other) = (children.remove(victim), children.remove(0));
        let (is_good, stderr) = end(other);
        assert!(started.elapsed() < Duration::from_secs(15) && !is_good);
        let is_named = stderr.contains(&format!("error: rank {victim} on "))
            && stderr.contains(" ended (connection closed)");
        assert!(is_named, "{stderr}");
        end(killed);
    }
    let children = long_run(&job, &out);
    signal(&children[1], "-TERM");
    for child in children {
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(143), "{stderr}");
    }
    let steps = metrics(&out)
        .iter()
        .filter_map(|line| line["step"].as_u64())
        .max()
        .unwrap();
    assert!(
        out.join(format!("checkpoints/step-{steps:08}/state.json"))
            .exists()
    );
}

/// Environment variables of other launchers.
#[test]
fn the_variables_of_mpirun_and_srun_start_the_same_job() {
    let (_folder, job, _) = job();
    let args = [
        "run",
        &job,
        "--set",
        "parallel.dp=2",
        "--set",
        "train.steps=2",
        "--set",
        "launch.transport=sockets",
    ];
    let port = free_port().to_string();
    let mpirun: Variables<'_> = &[
        ("OMPI_COMM_WORLD_SIZE", "2".into()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2".into()),
    ];
    let srun: Variables<'_> = &[
        ("SLURM_STEP_NUM_TASKS", "2".into()),
        ("SLURM_STEP_NUM_NODES", "1".into()),
    ];
    for (rank_key, more) in [("OMPI_COMM_WORLD_RANK", mpirun), ("SLURM_PROCID", srun)] {
        let children = [0, 1].map(|rank| {
            let mut command = millrace(&args);
            command
                .env(rank_key, rank.to_string())
                .env("MASTER_PORT", &port);
            for (key, value) in more {
                command.env(key, value);
            }
            start(command)
        });
        for (is_good, stderr) in children.map(end) {
            assert!(is_good && stderr.contains(" of 2"), "{stderr}");
        }
    }
}

#[test]
fn strangers_take_no_seat_and_processes_know_each_other_by_a_secret_of_the_run() {
    let (_folder, job, out) = job();
    let args = [
        "run",
        job.as_str(),
        "--set",
        "parallel.dp=2",
        "--set",
        "train.steps=2",
    ];
    let args = [&args[..], &["--set", "launch.patience=30s"]].concat();
    let port = free_port();
    let first = start(launched(&args, (0, 2, port)));
    let until = Instant::now() + Duration::from_secs(30);
    let call = || loop {
        match std::net::TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut open: Vec<std::net::TcpStream> = (0..8).map(|_| call()).collect();
    for line in ["millrace-1 1 2 1 9 evil\n", "a b 1 2 1 9 evil\n"] {
        let mut stream = call();
        std::io::Write::write_all(&mut stream, line.as_bytes()).unwrap();
        open.push(stream);
    }
    let second = start(launched(&args, (1, 2, port)));
    let (is_good, stderr) = end(first);
    assert!(is_good, "{stderr}");
    assert!(
        stderr.contains("callers that did not know the run's secret"),
        "{stderr}"
    );
    let (is_good, stderr) = end(second);
    assert!(is_good, "{stderr}");
    drop(open);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(out.join(".secret"))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }
    // different secrets: both report it, and neither waits for ever
    let port = free_port();
    let args = [
        "run",
        job.as_str(),
        "--set",
        "parallel.dp=2",
        "--set",
        "launch.patience=15s",
    ];
    let with = |rank, secret: &str| {
        let mut command = launched(&args, (rank, 2, port));
        command.env("MILLRACE_SECRET", secret);
        start(command)
    };
    let children = [with(0, "0123456789abcdef"), with(1, "fedcba9876543210")];
    let [first, second] = children.map(end);
    assert!(
        !first.0
            && first
                .1
                .contains("callers that did not know the run's secret"),
        "{}",
        first.1
    );
    assert!(
        !second.0 && second.1.contains("a secret that process 0 at "),
        "{}",
        second.1
    );
}

#[test]
fn process_0_takes_the_others_shares_of_a_checkpoint_part_by_part() {
    let (folder, job, _) = job();
    let peak = |name: &str, sharded: &str| {
        let out = folder.path().join(name);
        let set = format!("out={:?}", out.display().to_string());
        let mut args = vec!["run", job.as_str(), "--set", &set, "--set", sharded];
        for more in [
            "parallel.dp=4",
            "parallel.zero=1",
            "model.d_model=512",
            "model.layers=6",
            "model.heads=8",
            "model.kv_heads=8",
            "train.steps=2",
            "train.checkpoint.every=1",
            "train.eval_every=0",
        ] {
            args.extend(["--set", more]);
        }
        for (is_good, stderr) in in_processes(&args, 4) {
            assert!(is_good, "{stderr}");
        }
        let text = std::fs::read_to_string(out.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        let bytes = manifest["train"]["peak_rss_bytes"].as_f64();
        bytes.unwrap_or_else(|| panic!("{manifest}"))
    };
    let own = peak("shards", "train.checkpoint.sharded=true");
    let all = peak("whole", "train.checkpoint.sharded=false");
    // three quarters of the moments of 20 million weights, 120 MB, are in the other processes; the parts of them in
    // transfer are 16 MB at most, and pages of the allocator come and go
    assert!(
        all < own + 48e6,
        "{all} bytes with shares of others, {own} without"
    );
}
