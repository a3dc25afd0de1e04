//! Tests of trainings on several nodes: nodes that fail, before and in the middle, leave the bits of an undisturbed run in one
//! process; a job whose time is over is queued again and goes on.
//!
//! Slurm and Ray's Python are emulated by scripts that start the processes here; tests/clusters/ runs the real ones.

use crate::jobs::{free_port, metrics, millrace, output, root, succeed, write_program};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs a script beside the test, and again when it was queued again.
const SBATCH: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
echo "$@" >> asked
for arg in "$@"; do script=$arg; done
(
  export SLURM_JOB_ID=4711 SLURM_JOB_NODELIST='n[1-3]' SLURM_RESTART_COUNT=0
  while :; do
    rm -f queued
    bash "$script" >> log 2>&1 &
    echo $! > batch
    wait $!
    echo $? >> ends
    [ -e queued ] || break
    SLURM_RESTART_COUNT=$((SLURM_RESTART_COUNT + 1))
  done
  touch finished
) > /dev/null 2>&1 &
echo "4711;cluster"
"#;

/// Starts the processes of a step; a node of the list `dead` starts none.
const SRUN: &str = r#"#!/bin/bash
here=$(dirname "$0")
while :; do case $1 in
  --nodelist=*) nodes=${1#*=};;
  --ntasks-per-node=*) each=${1#*=};;
  --ntasks=*) all=${1#*=};;
  -*) ;;
  *) break;;
esac; shift; done
[ "$2" = train ] && echo "$all $*" >> "$here/steps"
[ "$2" = train ] && [ -e "$here/refuses" ] && exit 2
code=0 rank=0 pids=
for node in ${nodes//,/ }; do for _ in $(seq "$each"); do
  if grep -qx "$node" "$here/dead"; then
    echo "srun: error: Task launch failed on node $node: Node not responding" >&2
    code=1
  else
    SLURMD_NODENAME=$node SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=$all \
      MASTER_ADDR=127.0.0.1 MASTER_PORT=$(cat "$here/port") "$@" &
    pids="$pids $!"
    [ "$2" = train ] && echo $! >> "$here/on-$node"
  fi
  rank=$((rank + 1))
done; done
for pid in $pids; do wait "$pid"; end=$?; [ $end -gt $code ] && code=$end; done
exit $code
"#;

const SCONTROL: &str = r#"#!/bin/bash
case "$1 $2" in
  "show hostnames") echo "n1 n2 n3" | tr ' ' '\n';;
  "show config") echo 'MaxArraySize = 1001';;
  "requeue 4711") touch "$(dirname "$0")/queued";;
  *) exit 1;;
esac
"#;

/// A signal to the steps of a job, as they are without --batch or --full.
const SCANCEL: &str = r#"#!/bin/bash
[ "$1" = --signal=TERM ] && [ "$2" = 4711 ] || exit 1
cat "$(dirname "$0")"/on-* | xargs kill -TERM 2>/dev/null
exit 0
"#;

/// Starts processes as nodes.py does on a Ray cluster, whose node b dies in the middle of the training.
const PYTHON: &str = r#"#!/bin/bash
here=$(dirname "$0")
[ -e "$1" ] || exit 9
shift
case $1 in
  list) echo a; [ -e "$here/ranks" ] || echo b; exit 0;;
  on) shift 3; exec "$@";;
  ranks) nodes=${2//,/ } each=$3; shift 7;;
esac
rank=0 code=0 pids=
all=$(($(echo $nodes | wc -w) * each))
while [ $rank -lt $all ]; do
  RANK=$rank WORLD_SIZE=$all MASTER_ADDR=127.0.0.1 MASTER_PORT=$(cat "$here/port") "$@" & pids="$pids $!"
  rank=$((rank + 1))
done
if [ ! -e "$here/ranks" ]; then
  until [ "$(wc -l < "$here/../out/metrics.jsonl")" -ge 40 ]; do sleep 0.01; done 2>/dev/null
  kill -KILL $!
fi
echo "$all" >> "$here/ranks"
for pid in $pids; do wait "$pid"; end=$?; [ $end -gt $code ] && code=$end; done
exit $code
"#;

/// Steps of the training: enough to end it in the middle.
const STEPS: usize = 480;
/// Lines of `metrics.jsonl` after which it is disturbed.
const MIDDLE: usize = 40;

/// A job on two nodes, with one process each, of three.
pub(crate) fn job(folder: &Path) -> PathBuf {
    let texts: String = (0..60)
        .map(|n| {
            let words = ["river", "mill", "grain", "wheel", "stone", "flour"];
            let words: Vec<&str> = (0..40).map(|at| words[(n * at + at) % 6]).collect();
            format!("{{\"text\": \"{n} {}\"}}\n", words.join(" "))
        })
        .collect();
    std::fs::write(folder.join("texts.jsonl"), texts).unwrap();
    let text = format!(
        r#"
name = "elastic"
out = {out:?}
threads = 1
executor = "slurm"
parallel = {{ dp = 2 }}
nodes = {{ count = 2, spare = 1, fewest = 1, retries = 1, environment = ["MILLRACE_NOTHING=it's here"] }}
launch = {{ timeout = "20s", patience = "20s" }}
[slurm]
partition = "tasks"
train = {{ partition = "gpu nodes", time = "1:00:00", srun = ["--mpi=none"] }}
[tokenize]
tokenizer = {{ train = {{ kind = "bpe", vocab = 280 }} }}
inputs = [{{ path = {texts:?}, source = "mill" }}]
[blend]
seq_length = 16
split = "90,10,0"
dataset = [{{ name = "mill" }}]
[model]
family = "llama"
layers = 1
d_model = 16
heads = 2
[train]
steps = {STEPS}
global_batch = 2
micro_batch = 1
warmup_steps = 1
eval_every = 0
checkpoint = {{ every = 20, keep = 2 }}
[eval]
samples = 2
"#,
        out = folder.join("out"),
        texts = folder.join("texts.jsonl"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// A folder with programs.
fn programs(folder: &Path, programs: &[(&str, &str)]) -> PathBuf {
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for (name, text) in programs {
        write_program(&bin.join(name), text);
    }
    std::fs::write(bin.join("port"), free_port().to_string()).unwrap();
    std::fs::write(bin.join("dead"), "").unwrap();
    bin
}

fn slurm(folder: &Path) -> PathBuf {
    let all = [
        ("sbatch", SBATCH),
        ("srun", SRUN),
        ("scontrol", SCONTROL),
        ("scancel", SCANCEL),
        ("squeue", "#!/bin/bash\n"),
    ];
    programs(folder, &all)
}

/// The programs again and no results, for another try.
fn again(job: &Path, out: &Path) -> PathBuf {
    let bin = job.with_file_name("bin");
    for folder in [&bin, out] {
        match std::fs::remove_dir_all(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.unwrap(),
        }
    }
    slurm(job.parent().unwrap())
}

fn path_with(bin: &Path) -> String {
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

fn with_programs(bin: &Path, args: &[&str]) -> Output {
    let mut command = millrace(args);
    command.env("PATH", path_with(bin)).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until `is_there`, and fails with the log of the job's script otherwise.
fn until(bin: &Path, is_there: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_there() {
        assert!(Instant::now() < end, "{}", read(&bin.join("log")));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The undisturbed run in this process's place, in `out` of the job's folder.
fn alone(job: &Path) -> PathBuf {
    let out = job.with_file_name("alone");
    let set = format!("out={out:?}");
    let args = ["run", job.to_str().unwrap(), "--set", "executor=local"];
    succeed(&[&args[..], &["--set", &set]].concat());
    out
}

/// Files of the last checkpoint; its state without the layout, which it records, and the checksum of that.
fn checkpoint(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = out.join(format!("checkpoints/step-{STEPS:08}"));
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let files = files.map(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        let mut bytes = std::fs::read(file.path()).unwrap();
        if name == "state.json" {
            let mut state: Value = serde_json::from_slice(&bytes).unwrap();
            let plan = state["plan"].as_object_mut().unwrap();
            assert!(plan.remove("parallel").is_some());
            assert!(state.as_object_mut().unwrap().remove("xxh3").is_some());
            bytes = state.to_string().into_bytes();
        }
        (name, bytes)
    });
    files.collect()
}

/// The same checkpoint, metrics and evaluation.
fn assert_same_training(a: &Path, b: &Path) {
    let (of_a, of_b) = (checkpoint(a), checkpoint(b));
    let differ: Vec<&String> = of_a
        .keys()
        .filter(|name| of_a[*name] != of_b[*name])
        .collect();
    assert!(differ.is_empty(), "{differ:?}");
    assert_eq!(of_a.len(), of_b.len());
    assert_eq!(metrics(a), metrics(b));
    assert_eq!(read(&a.join("eval.json")), read(&b.join("eval.json")));
}

fn status(job: &Path) -> Value {
    let answer = succeed(&["status", job.to_str().unwrap(), "--json"]);
    serde_json::from_slice(&answer.stdout).unwrap()
}

#[test]
fn nodes_that_are_dead_or_die_are_left_out_and_a_smaller_layout_ends_with_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let here = alone(&job);
    let bin = slurm(dir.path());
    let out = dir.path().join("out");
    let run = ["run", job.to_str().unwrap()];

    let shown = text(&with_programs(&bin, &[&run[..], &["--dry-run"]].concat()).stdout);
    for line in [
        "#SBATCH '--partition=gpu nodes'",
        "#SBATCH --time=1:00:00",
        "#SBATCH --nodes=1-3",
        "#SBATCH --signal=B:USR1@300",
        "#SBATCH --requeue",
        "#SBATCH --no-kill",
        "export MILLRACE_NOTHING='it'\\''s here'",
    ] {
        assert!(shown.lines().any(|found| found == line), "{line}\n{shown}");
    }
    assert!(!out.exists());

    // n1 is dead from the start, so the spare node takes part. The training may end before n3 dies as well.
    let lost_in_the_middle = || {
        let bin = again(&job, &out);
        std::fs::write(bin.join("dead"), "n1\n").unwrap();
        let submitted = with_programs(&bin, &run);
        assert!(submitted.status.success(), "{}", text(&submitted.stderr));
        let lines = || read(&out.join("metrics.jsonl")).lines().count();
        until(&bin, || lines() >= MIDDLE || bin.join("finished").exists());
        std::fs::write(bin.join("dead"), "n1\nn3\n").unwrap();
        let victims = read(&bin.join("on-n3"));
        let killed = Command::new("kill")
            .arg("-KILL")
            .args(victims.split_whitespace())
            .status();
        until(&bin, || bin.join("finished").exists());
        killed.unwrap().success() && read(&bin.join("steps")).lines().count() > 1
    };
    let is_lost = (0..10).any(|_| lost_in_the_middle());
    assert!(is_lost, "{}", read(&bin.join("log")));

    let log = read(&bin.join("log"));
    assert_eq!(read(&bin.join("ends")), "0\n", "{log}");
    let steps = read(&bin.join("steps"));
    let ranks: Vec<&str> = steps.lines().map(|line| &line[..1]).collect();
    assert_eq!(ranks, ["2", "1"], "{log}");
    assert_same_training(&here, &out);

    let found = status(&job);
    assert_eq!(found["submitted"]["jobs"][0]["id"], "4711");
    let attempts = found["launch"]["attempts"].as_array().unwrap();
    let nodes: Vec<&Value> = attempts.iter().map(|attempt| &attempt["nodes"]).collect();
    assert_eq!(
        nodes,
        [&serde_json::json!(["n2", "n3"]), &serde_json::json!(["n2"])]
    );
    let why = "Task launch failed on node n3: Node not responding";
    let last = &attempts[1];
    assert_eq!(last["excluded"][0]["node"], "n1");
    assert_eq!(last["excluded"][1]["node"], "n3");
    assert!(
        last["excluded"][1]["reason"]
            .as_str()
            .unwrap()
            .contains(why),
        "{last}"
    );
    assert_eq!(
        (&last["is_smaller"], &last["layout"]["dp"]),
        (&true.into(), &1.into())
    );
    assert_eq!(last["end"], "done");
    let shown = text(&succeed(&["status", job.to_str().unwrap()]).stdout);
    assert!(shown.contains("launch    attempt 2 in job 4711"), "{shown}");
    assert!(shown.contains("n3 is excluded: "), "{shown}");
}

#[test]
fn a_training_whose_time_is_over_stops_with_a_checkpoint_is_queued_again_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let here = alone(&job);
    let out = dir.path().join("out");
    // the training may end before its time is over
    let bin = (0..10).find_map(|_| {
        let bin = again(&job, &out);
        let submitted = with_programs(&bin, &["run", job.to_str().unwrap()]);
        assert!(submitted.status.success(), "{}", text(&submitted.stderr));
        let lines = || read(&out.join("metrics.jsonl")).lines().count();
        until(&bin, || lines() >= MIDDLE || bin.join("finished").exists());
        let batch = read(&bin.join("batch"));
        let sent = Command::new("kill").args(["-USR1", batch.trim()]).status();
        // one that has ended gets no signal
        let _ = sent.unwrap();
        until(&bin, || bin.join("finished").exists());
        (read(&bin.join("ends")) != "0\n").then_some(bin)
    });
    let bin = bin.expect("a training that is stopped");
    let log = read(&bin.join("log"));
    assert_eq!(read(&bin.join("ends")), "0\n0\n", "{log}");
    assert_same_training(&here, &out);
    let attempts = status(&job)["launch"]["attempts"].clone();
    let end = "stopped before the allocation ends; the job is queued again";
    assert_eq!(
        (&attempts[0]["end"], &attempts[1]["end"]),
        (&end.into(), &"done".into())
    );
    assert_eq!(attempts[1]["spare"], serde_json::json!(["n3"]));
}

#[test]
fn attempts_that_fail_without_a_new_checkpoint_and_too_few_nodes_end_a_launch() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let bin = slurm(dir.path());
    let launch = |sets: &[&str]| {
        let mut args = vec!["launch", job.to_str().unwrap()];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let mut command = millrace(&args);
        command
            .env("PATH", path_with(&bin))
            .env("SLURM_JOB_ID", "4711");
        command.env("SLURM_JOB_NODELIST", "n[1-3]");
        let answer = command.output().unwrap();
        (answer.status.code(), text(&answer.stderr))
    };
    // no node answers: the job is queued again, `retries` times
    std::fs::write(bin.join("dead"), "n1\nn2\nn3\n").unwrap();
    let end = "0 of 3 nodes are healthy, at least 1 are needed (nodes.fewest)";
    let (code, why) = launch(&[]);
    assert_eq!(code, Some(0), "{why}");
    assert!(
        why.contains(&format!("{end}; the job is queued again")),
        "{why}"
    );
    let (code, why) = launch(&[]);
    assert_eq!(code, Some(1));
    assert!(
        why.contains(end) && why.contains("queued again 1 times"),
        "{why}"
    );
    std::fs::write(bin.join("dead"), "").unwrap();
    // the ranks cannot meet: nothing listens at that port of process 0
    let (code, why) = launch(&["launch.patience=0.2s", "launch.bind=\"192.0.2.1\""]);
    assert_eq!(code, Some(1));
    let end = "2 attempts failed without a new checkpoint; the last one: the ranks ended with";
    assert!(why.contains(end), "{why}");
}

/// A launch in an allocation of three nodes: its exit code and messages.
fn launched(bin: &Path, job: &Path, sets: &[&str]) -> (Option<i32>, String) {
    let mut args = vec!["launch", job.to_str().unwrap()];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let mut command = millrace(&args);
    command
        .env("PATH", path_with(bin))
        .env("SLURM_JOB_ID", "4711")
        .env("SLURM_JOB_NODELIST", "n[1-3]");
    let answer = command.output().unwrap();
    (answer.status.code(), text(&answer.stderr))
}

#[test]
fn ranks_that_refuse_a_job_are_started_once_and_the_launch_ends_with_their_code() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let bin = slurm(dir.path());
    std::fs::write(bin.join("refuses"), "").unwrap();
    let (code, why) = launched(&bin, &job, &[]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("no other start mends it"), "{why}");
    assert_eq!(read(&bin.join("steps")).lines().count(), 1);
    assert!(!bin.join("queued").exists());
}

/// Three ranks divide neither four sequences, two heads, one layer nor halves of 16 tokens.
#[test]
fn healthy_nodes_that_no_layout_fits_are_not_queued_again() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let bin = slurm(dir.path());
    let sets = [
        "nodes={ count = 4, fewest = 3, retries = 1 }",
        "parallel={ dp = 4 }",
        "train.global_batch=4",
    ];
    let (code, why) = launched(&bin, &job, &sets);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("3 nodes are healthy, but no layout"), "{why}");
    assert!(!why.contains("at least 3 are needed") && !bin.join("queued").exists());
}

#[test]
fn a_node_of_ray_that_dies_is_left_out_and_the_bits_stay() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let here = alone(&job);
    let bin = programs(dir.path(), &[("python3", PYTHON)]);
    let args = ["launch", job.to_str().unwrap(), "--set", "executor=\"ray\""];
    let answer = with_programs(&bin, &args);
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    assert_eq!(read(&bin.join("ranks")), "2\n1\n");
    assert_same_training(&here, &dir.path().join("out"));
}

/// Keeps what it is asked for; a Job is complete at the second look, or has failed at the first one if a file says so.
const KUBECTL: &str = r#"#!/bin/bash
here=$(dirname "$0")
[ "$1 $2" = "-n space" ] || exit 9
shift 2
case $1 in
  apply) basename "$3" >> "$here/asked";;
  get)
    [[ $2 = job/millrace-elastic-????????-train ]] && [ -e "$here/fails" ] && { echo Suspended FailureTarget Failed; exit; }
    looks=$here/looks-${2#job/}
    [ -e "$looks" ] && { echo SuccessCriteriaMet Complete; exit; }
    touch "$looks"; exit 1;;
  *) exit 9;;
esac
"#;

#[test]
fn jobs_of_kubernetes_follow_each_other_and_end_at_the_first_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let sets = [
        "executor=\"kubernetes\"",
        "nodes={ count = 2, cpus = 1 }",
        "kubernetes={ image = \"i\", claim = \"c\", mount = \"/data\", namespace = \"space\" }",
    ];
    let mut args = vec!["run", job.to_str().unwrap()];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    succeed(&args);
    let bin = programs(dir.path(), &[("kubectl", KUBECTL)]);
    let run = || {
        let mut command = Command::new("sh");
        command.arg(dir.path().join("out/kubernetes/run.sh"));
        command
            .env("PATH", path_with(&bin))
            .env("MILLRACE_POLL_S", "0");
        command.output().unwrap()
    };
    let asked = ["prepare.json\n", "train.json\n", "finish.json\n"];
    let done = run();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(read(&bin.join("asked")), asked.concat());
    std::fs::write(bin.join("fails"), "").unwrap();
    std::fs::remove_file(bin.join("asked")).unwrap();
    let failed = run();
    assert_eq!(failed.status.code(), Some(1));
    let why = text(&failed.stderr);
    assert!(why.contains("-train has failed: kubectl -n space describe job/millrace-elastic-"));
    assert_eq!(read(&bin.join("asked")), asked[..2].concat());
    // kubectl that never answers ends the script
    std::fs::write(bin.join("kubectl"), "#!/bin/sh\n[ \"$3\" = apply ]\n").unwrap();
    let silent = run();
    assert_eq!(silent.status.code(), Some(1));
    assert!(text(&silent.stderr).contains("kubectl got no answer 30 times"));
    // another job is another Job
    let name = || {
        let text = read(&dir.path().join("out/kubernetes/train.json"));
        let list: Value = serde_json::from_str(&text).unwrap();
        list["items"][1]["metadata"]["name"].clone()
    };
    let before = name();
    succeed(&[&args[..], &["--set", "train.lr=0.5"]].concat());
    assert_ne!(name(), before);
    // the last Job, started by hand: it does not train
    let early = output(&[
        "launch",
        job.to_str().unwrap(),
        "--stages",
        "after",
        "--set",
        "executor=\"kubernetes\"",
        "--set",
        sets[1],
        "--set",
        sets[2],
    ]);
    let why = text(&early.stderr);
    assert!(
        why.contains("the training is not done (its newest checkpoint is of step 0)"),
        "{why}"
    );
    assert!(!dir.path().join("out/checkpoints").exists());
}

#[test]
fn the_manifests_of_a_training_have_only_fields_that_kubernetes_has() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let sets = [
        "executor=\"kubernetes\"",
        "nodes={ count = 2, processes = 2, gpus = 4, cpus = 9, mem_mb = 1001, grace_s = 77, environment = [\"A=$(b)\"] }",
        "parallel.dp=4",
        "train.global_batch=4",
        "kubernetes={ image = \"i\", claim = \"c\", mount = \"/data\", program = \"/bin/millrace\", namespace = \"space\" }",
    ];
    let mut args = vec!["run", job.to_str().unwrap()];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let command = text(&succeed(&args).stdout);
    let script = dir.path().join("out/kubernetes/run.sh");
    assert_eq!(command, format!("sh {}\n", script.display()));
    let types = std::fs::read(root().join("tests/data/kubernetes_types.json"));
    let types: Value = serde_json::from_slice(&types.unwrap()).unwrap();
    let folder = dir.path().join("out/kubernetes");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let mut wrong = Vec::new();
    let list = read("train.json");
    let [service, ranks] = &list["items"].as_array().unwrap()[..] else {
        panic!("{list}");
    };
    for (name, object) in [
        ("V1Service", service),
        ("V1Job", ranks),
        ("V1Job", &read("prepare.json")),
        ("V1Job", &read("finish.json")),
    ] {
        check(&types["types"], name, object, name, &mut wrong);
    }
    assert_eq!(wrong, [""; 0]);
    let spec = &ranks["spec"];
    assert_eq!(
        (&spec["completions"], &spec["parallelism"]),
        (&4.into(), &4.into())
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["terminationGracePeriodSeconds"], 77);
    assert_eq!(pod["subdomain"], service["metadata"]["name"]);
    let container = &pod["containers"][0];
    let amount = serde_json::json!({"cpu": "4", "memory": "500Mi", "nvidia.com/gpu": "2"});
    assert_eq!(container["resources"]["limits"], amount);
    let variables = container["env"].as_array().unwrap();
    let value = |name: &str| {
        let found = variables.iter().find(|variable| variable["name"] == name);
        found.unwrap()["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(value("WORLD_SIZE"), "4");
    let name = ranks["metadata"]["name"].as_str().unwrap();
    assert_eq!(value("MASTER_ADDR"), format!("{name}-0.{name}"));
    assert_eq!(value("A"), "$$(b)");
    // the labels by which the Service finds the pods are those of the pods
    assert_eq!(
        service["spec"]["selector"],
        spec["template"]["metadata"]["labels"]
    );
    let line = pod["initContainers"][0]["command"][2].as_str().unwrap();
    assert!(
        line.starts_with("exec /bin/millrace doctor --node ") && line.ends_with("--gpus 2"),
        "{line}"
    );

    // of four processes on two nodes each pod is checked for its own part of the memory that two ranks of a node need
    let memory = |line: &str| -> u64 {
        let (_, after) = line.split_once("--memory ").unwrap();
        after.split(' ').next().unwrap().parse().unwrap()
    };
    let of_node = {
        let mut args = args.clone();
        args.extend(["--set", "nodes={ count = 2, gpus = 4 }"]);
        succeed(&args);
        let list = read("train.json");
        let pod = &list["items"][1]["spec"]["template"]["spec"];
        memory(pod["initContainers"][0]["command"][2].as_str().unwrap())
    };
    assert!(memory(line) < of_node, "{line}, {of_node}");
    // a job that is refused is not started again by any of them
    for job in [ranks, &read("prepare.json"), &read("finish.json")] {
        let rule = &job["spec"]["podFailurePolicy"]["rules"][0];
        assert_eq!(rule["action"], "FailJob", "{job}");
        let codes = &rule["onExitCodes"];
        assert_eq!(codes["values"], serde_json::json!([2]));
        assert_eq!(codes["containerName"], "millrace");
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
    }

    let mut broken = ranks.clone();
    broken["spec"]["completions"] = "4".into();
    broken["spec"]["template"]["spec"]["containerz"] = Value::Null;
    check(&types["types"], "V1Job", &broken, "V1Job", &mut wrong);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

/// Adds the places where an object is not of a type of Kubernetes' client.
fn check(types: &Value, kind: &str, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let fits = match kind {
        "str" => value.is_string(),
        "int" => value.is_i64() || value.is_u64(),
        "bool" => value.is_boolean(),
        "dict(str, str)" => value
            .as_object()
            .is_some_and(|map| map.values().all(Value::is_string)),
        _ => match (kind.strip_prefix("list["), &types[kind]) {
            (Some(of), _) => {
                let of = of.strip_suffix(']').unwrap();
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(types, of, item, &format!("{at}[{number}]"), wrong);
                }
                value.is_array()
            }
            (None, Value::Object(model)) => {
                let fields = value.as_object();
                for (name, field) in fields.into_iter().flatten() {
                    let at = format!("{at}.{name}");
                    match model["fields"][name].as_str() {
                        Some(kind) => check(types, kind, field, &at, wrong),
                        None => wrong.push(at),
                    }
                }
                let required = model["required"].as_array().unwrap();
                fields.is_some_and(|fields| {
                    required
                        .iter()
                        .all(|name| fields.contains_key(name.as_str().unwrap()))
                })
            }
            (None, _) => panic!("{at}: unknown type {kind}"),
        },
    };
    if !fits {
        wrong.push(at.to_owned());
    }
}

#[test]
fn wrong_nodes_are_all_reported_and_an_absent_scheduler_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let run = |sets: &[&str]| {
        let mut args = vec!["run", job.to_str().unwrap()];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let answer = millrace(&args).env("PATH", dir.path()).output().unwrap();
        (answer.status.code(), text(&answer.stderr))
    };
    let (code, why) = run(&[
        "nodes={ count = 3, fewest = 4, processes = 2, grace_s = 0, environment = [\"1x\"] }",
        "slurm.train={ srun = [\"mpi\"], options = [\"exclusive\"] }",
    ]);
    assert_eq!(code, Some(2));
    for line in [
        "nodes.count\n  found  2 ranks of [parallel] on 6 processes",
        "nodes.cpus\n  found  0 for 2 processes of a node",
        "nodes.fewest\n  found  4",
        "nodes.grace_s\n  found  0",
        "nodes.environment[0]\n  found  \"1x\"",
        "slurm.train.srun[0]\n  found  \"mpi\"",
        "slurm.train.options[0]\n  found  \"exclusive\"",
    ] {
        assert!(why.contains(&format!("key    {line}")), "{line}\n{why}");
    }
    let (code, why) = run(&["device=\"cuda\""]);
    assert_eq!(code, Some(2));
    let line = "nodes.gpus\n  found  0 with device = \"cuda\"";
    assert!(why.contains(&format!("key    {line}")), "{why}");
    let (code, why) = run(&["executor=\"kubernetes\""]);
    assert_eq!(code, Some(2));
    for key in ["nodes.fewest", "nodes.spare", "kubernetes.image"] {
        assert!(why.contains(&format!("key    {key}\n")), "{why}");
    }
    let (code, why) = run(&["determinism=\"run\"", "store={ url = \"s3://b/x\" }"]);
    assert_eq!(code, Some(2));
    assert!(
        why.contains("key    nodes.fewest") && why.contains("key    store\n"),
        "{why}"
    );
    let (code, why) = run(&[
        "nodes.environment=[\"MILLRACE_NOT_SET\"]",
        "nodes.cluster=\"none\"",
    ]);
    assert_eq!(code, Some(2));
    assert!(why.contains("key    nodes.cluster\n"), "{why}");
    let (code, why) = run(&["nodes.environment=[\"MILLRACE_NOT_SET\"]"]);
    assert_eq!(code, Some(2));
    assert!(
        why.contains("MILLRACE_NOT_SET, which is not set here"),
        "{why}"
    );
    let (code, why) = run(&[]);
    assert_eq!(code, Some(1));
    assert!(
        why.contains("cannot run sbatch; run this on a machine that submits to Slurm"),
        "{why}"
    );
    let launched = output(&["launch", job.to_str().unwrap()]);
    let why = text(&launched.stderr);
    assert!(
        why.contains("SLURM_JOB_ID or SLURM_JOB_NODELIST is not set"),
        "{why}"
    );
}
