//! Tests of executors: a curation by tasks, in any order, with failures and kills, gives the same bytes as one
//! process.
//!
//! Slurm is emulated by a script that implements the options used of `sbatch`; tests/slurm/ runs the real one.

use crate::curation::{job, run};
use crate::jobs::{assert_same, millrace, output, succeed, write_program};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs arrays from their last index to the first; the rest only if all of its dependencies succeeded.
const SBATCH: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
echo "$@" >> asked
for arg in "$@"; do case $arg in
  --dependency=afterok:*) for id in $(echo "${arg#*:}" | tr ':' ' '); do [ -e "ok-$id" ] || { echo 999; exit 0; }; done;;
esac; script=$arg; done
id=$(( $(cat counter 2>/dev/null || echo 100) + 1 )); echo $id > counter
array=$(sed -n 's/^#SBATCH --array=\([0-9,-]*\).*/\1/p' "$script")
ok=yes
if [ -n "$array" ]; then
  for range in $(echo "$array" | tr ',' ' '); do seq "${range%-*}" "${range#*-}"; done | sort -rn > indices-$id
  for i in $(cat indices-$id); do
    if [ "$i" = "$(cat fails 2>/dev/null)" ]; then rm fails; ok=no; continue; fi
    SLURM_ARRAY_TASK_ID=$i bash "$script" >> log-$id 2>&1 || ok=no
  done
else bash "$script" >> log-$id 2>&1 || ok=no; fi
[ $ok = yes ] && touch ok-$id
echo "$id;cluster"
"#;

/// A folder with emulations of Slurm's programs.
fn slurm(folder: &Path) -> PathBuf {
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for (name, text) in [
        ("sbatch", SBATCH),
        (
            "squeue",
            "#!/bin/bash\ncat \"$(dirname \"$0\")/alive\" 2>/dev/null\n",
        ),
        (
            "scontrol",
            "#!/bin/bash\necho 'MaxArraySize            = 4'\n",
        ),
    ] {
        write_program(&bin.join(name), text);
    }
    bin
}

fn with_slurm(bin: &Path, args: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap();
    let mut command = millrace(args);
    command.env("PATH", format!("{}:{path}", bin.display()));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn slurms_arrays_make_the_bytes_of_one_process_and_a_failure_is_made_good() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let here = run(&job, "here", &[]);
    let bin = slurm(dir.path());
    let out = job.with_file_name("there");
    let set = format!("out={out:?}");
    let args = [
        "run",
        job.to_str().unwrap(),
        "--set",
        &set,
        "--set",
        "executor=slurm",
        "--set",
        "slurm.at_once=3",
        "--set",
        "slurm.partition=a b",
    ];
    let shown = with_slurm(&bin, &[&args[..], &["--dry-run"]].concat());
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("--array=0-3%3") && shown.contains("'--partition=a b'"),
        "{shown}"
    );
    assert!(!bin.join("asked").exists());

    // one task of the first array fails: the jobs that depend on it do not start
    std::fs::write(bin.join("fails"), "2").unwrap();
    let first = with_slurm(&bin, &args);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(!out.join("manifest.json").exists());
    let status = output(&["status", job.to_str().unwrap(), "--set", &set, "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let shards = status["shards"].as_u64().unwrap();
    assert!(shards > 4, "more than one array of four");
    assert_eq!(status["shards_done"], shards - 1);
    assert_eq!(status["tasks_running"], 0);

    // while jobs are running nothing is submitted twice
    std::fs::write(bin.join("alive"), "101_2\n").unwrap();
    let refused = with_slurm(&bin, &args);
    assert!(!refused.status.success() && text(&refused.stderr).contains("101_2"));
    std::fs::remove_file(bin.join("alive")).unwrap();

    let again = with_slurm(&bin, &args);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let asked = std::fs::read_to_string(bin.join("asked")).unwrap();
    let last: Vec<&str> = asked.lines().rev().take(2).collect();
    assert!(
        last[1].ends_with("curate-0.sh") && last[0].contains("--dependency=afterok:"),
        "{asked}"
    );
    let script = std::fs::read_to_string(out.join("slurm/curate-0.sh")).unwrap();
    assert!(script.contains("--array=2%3"), "{script}");
    assert_same(&here, &out, 22, "one process and Slurm's tasks");
    let status = output(&["status", job.to_str().unwrap(), "--set", &set, "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["stages_done"][0], "curate");
    assert_eq!(status["shards_done"], shards);
}

#[test]
fn tasks_killed_and_started_twice_in_any_number_leave_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let here = run(&job, "here", &[]);
    for of in [2usize, 64] {
        let out = job.with_file_name(format!("of{of}"));
        let set = format!("out={out:?}");
        let file = out.join("job.toml");
        let task = |index: usize| -> Command {
            let (index, of) = (index.to_string(), of.to_string());
            let args = [
                "task",
                file.to_str().unwrap(),
                "--stage",
                "curate",
                "--index",
            ];
            let mut command = millrace(&[&args[..], &[&index, "--of", &of]].concat());
            command.stderr(Stdio::piped()).stdout(Stdio::null());
            command
        };
        let early = task(0).output().unwrap();
        assert!(!early.status.success() && text(&early.stderr).contains("job.toml"));
        // the kubernetes executor only renders, so it submits without starting anything
        let kubernetes = "executor=kubernetes";
        let sets = [
            "kubernetes.image=i",
            "kubernetes.claim=c",
            "kubernetes.mount=/data",
        ];
        let mut args = vec![
            "run",
            job.to_str().unwrap(),
            "--set",
            &set,
            "--set",
            kubernetes,
        ];
        sets.iter().for_each(|s| args.extend(["--set", s]));
        let printed = text(&succeed(&args).stdout);
        let script = out.join("kubernetes/run.sh");
        assert_eq!(printed, format!("sh {}\n", script.display()));
        let script = std::fs::read_to_string(script).unwrap();
        assert_eq!(script.matches("\nstage ").count(), 2, "{script}");
        let manifest = std::fs::read(out.join("kubernetes/curate.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["spec"]["completionMode"], "Indexed");
        assert!(manifest["spec"]["completions"].as_u64() > Some(4));

        let mut first = task(1).spawn().unwrap();
        let lock = out.join(format!("records/tasks/curate-{:05}-of-{of:05}.json", 1));
        while !lock.exists() && first.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let second = task(1).output().unwrap();
        if first.try_wait().unwrap().is_none() {
            assert!(
                text(&second.stderr).contains("another process"),
                "{}",
                text(&second.stderr)
            );
        }
        first.kill().unwrap();
        first.wait().unwrap();
        // all of them at once, in pairs from the last to the first
        let numbers: Vec<usize> = (0..of).rev().collect();
        for pair in numbers.chunks(2) {
            let running: Vec<_> = pair.iter().map(|i| task(*i).spawn().unwrap()).collect();
            for child in running {
                let done = child.wait_with_output().unwrap();
                assert!(done.status.success(), "{}", text(&done.stderr));
            }
        }
        let set = [file.to_str().unwrap(), "--set", "executor=local"];
        succeed(&[&["curate"], &set[..]].concat());
        succeed(&[&["dedup"], &set[..]].concat());
        assert_same(&here, &out, 22, &format!("{of} tasks"));
    }
}

/// A request to an emulated dashboard: its head, and its body.
struct Asked {
    stream: TcpStream,
    head: String,
    body: String,
}

impl Asked {
    /// The next whole one.
    fn next(listener: &TcpListener) -> Asked {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let n = stream.read(&mut buffer).unwrap();
                bytes.extend_from_slice(&buffer[..n]);
                let so_far = text(&bytes);
                let Some((head, body)) = so_far.split_once("\r\n\r\n") else {
                    if n == 0 {
                        break;
                    }
                    continue;
                };
                let length = head.lines().find_map(|l| {
                    let (name, value) = l.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse::<usize>())
                });
                if body.len() >= length.map_or(0, |l| l.unwrap()) || n == 0 {
                    let (head, body) = (head.to_string(), body.to_string());
                    return Asked { stream, head, body };
                }
            }
        }
    }

    fn answer(mut self, code: &str, answer: &str) {
        write!(
            self.stream,
            "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
            answer.len()
        )
        .unwrap();
    }
}

/// An emulated Ray dashboard that runs submitted jobs at once, fails the first one, and answers 500 now and then.
fn ray(listener: TcpListener) {
    let mut statuses: Vec<String> = Vec::new();
    let mut answered = 0;
    loop {
        let asked_of = Asked::next(&listener);
        let (head, body) = (&asked_of.head, &asked_of.body);
        let (code, answer) = if statuses.len() == 3 && answered == 2 {
            answered += 1;
            ("500 Internal Server Error", "{}".to_string())
        } else if head.starts_with("POST /api/jobs/ ") {
            let asked: Value = serde_json::from_str(body).unwrap();
            let line = asked["entrypoint"].as_str().unwrap();
            let well = !statuses.is_empty()
                && Command::new("sh")
                    .args(["-c", line])
                    .output()
                    .unwrap()
                    .status
                    .success();
            statuses.push(if well { "SUCCEEDED" } else { "FAILED" }.to_string());
            (
                "200 OK",
                format!("{{\"submission_id\": \"job_{}\"}}", statuses.len() - 1),
            )
        } else {
            let id = head
                .split_whitespace()
                .nth(1)
                .unwrap()
                .rsplit('_')
                .next()
                .unwrap()
                .to_string();
            let status = &statuses[id.parse::<usize>().unwrap()];
            if status == "SUCCEEDED" {
                answered += 1;
            }
            (
                "200 OK",
                format!("{{\"status\": \"{status}\", \"message\": \"\"}}"),
            )
        };
        asked_of.answer(code, &answer);
    }
}

/// A dashboard on which every job ends with exit code 2, which it tells in Ray's words; `submitted` counts them.
fn refusing(listener: TcpListener, submitted: &AtomicUsize) {
    loop {
        let asked = Asked::next(&listener);
        let answer = match asked.head.starts_with("POST /api/jobs/ ") {
            true => {
                submitted.fetch_add(1, Ordering::SeqCst);
                "{\"submission_id\": \"job_0\"}"
            }
            false => {
                "{\"status\": \"FAILED\", \"message\": \"Job entrypoint command failed with exit code 2, last available logs\"}"
            }
        };
        asked.answer("200 OK", answer);
    }
}

#[test]
fn a_job_that_ray_tells_to_be_refused_is_submitted_once() {
    static SUBMITTED: AtomicUsize = AtomicUsize::new(0);
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ray.address=\"http://{}\"", listener.local_addr().unwrap());
    std::thread::spawn(move || refusing(listener, &SUBMITTED));
    let out = format!("out={:?}", job.with_file_name("there"));
    let mut args = vec!["run", job.to_str().unwrap()];
    for set in [
        &out,
        &address,
        "executor=ray",
        "ray.tasks=1",
        "ray.retries=3",
    ] {
        args.extend(["--set", set]);
    }
    let printed = output(&args);
    let why = text(&printed.stderr);
    assert_eq!(printed.status.code(), Some(2), "{why}");
    assert!(
        why.contains("exit code 2, which no other start mends"),
        "{why}"
    );
    assert_eq!(SUBMITTED.load(Ordering::SeqCst), 1);
}

#[test]
fn rays_jobs_make_the_bytes_of_one_process_and_failed_ones_are_submitted_again() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let here = run(&job, "here", &[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ray.address=\"http://{}\"", listener.local_addr().unwrap());
    std::thread::spawn(move || ray(listener));
    let out = job.with_file_name("there");
    let set = format!("out={out:?}");
    let args = [
        "run",
        job.to_str().unwrap(),
        "--set",
        &set,
        "--set",
        &address,
    ];
    let printed = output(
        &[
            &args[..],
            &["--set", "executor=ray", "--set", "ray.tasks=2"],
        ]
        .concat(),
    );
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    assert_same(&here, &out, 22, "one process and Ray's jobs");
}

#[test]
fn an_executor_without_what_it_needs_is_refused_with_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let run = |sets: &[&str]| {
        let mut args = vec!["run", job.to_str().unwrap()];
        sets.iter().for_each(|s| args.extend(["--set", s]));
        output(&args)
    };
    let printed = run(&[
        "executor=kubernetes",
        "slurm.options=[\"x\"]",
        "ray.address=\"ftp\"",
    ]);
    assert_eq!(printed.status.code(), Some(2));
    let why = text(&printed.stderr);
    for key in [
        "kubernetes.image",
        "kubernetes.claim",
        "slurm.options[0]",
        "ray.address",
    ] {
        assert!(why.contains(key), "{key}: {why}");
    }
    assert_eq!(run(&["executor=mesos"]).status.code(), Some(2));
}
