//! Tests of `device = "cuda"` with the program itself: without a card, and on simulated ones (`kernels/sim`), on which
//! the real kernels and host code run.

use crate::jobs::{free_port, metrics, millrace, succeed, write_small_job};
use kernels::testing::simulator;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A job up to its blend, with a training that is short enough for simulated cards.
struct Prepared {
    folder: tempfile::TempDir,
    job: PathBuf,
}

const SMALL: [&str; 5] = [
    "train.steps=3",
    "train.eval_every=3",
    "train.eval_samples=2",
    "train.checkpoint.every=1",
    "train.checkpoint.keep=9",
];

impl Prepared {
    fn new() -> Prepared {
        let folder = tempfile::tempdir().unwrap();
        let job = write_small_job(folder.path());
        let prepared = Prepared { folder, job };
        for verb in ["curate", "dedup", "tokenize"] {
            succeed(&prepared.args(verb, "first", &[]));
        }
        prepared
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts with the tokens of the first folder.
    fn start(&self, name: &str) -> PathBuf {
        let out = self.out(name);
        copy_all(&self.out("first"), &out);
        out
    }

    fn args(&self, verb: &str, name: &str, sets: &[&str]) -> Vec<&'static str> {
        let mut args = vec![verb.to_owned(), self.job.display().to_string()];
        let out = format!("out={:?}", self.out(name));
        for set in SMALL.iter().chain(sets).copied().chain([out.as_str()]) {
            args.extend(["--set".to_owned(), set.to_owned()]);
        }
        // a test's few arguments live as long as the test
        args.into_iter()
            .map(|arg| &*Box::leak(arg.into_boxed_str()))
            .collect()
    }

    fn train(&self, name: &str, sets: &[&str], cards: &Cards) -> Output {
        let args = self.args("train", name, sets);
        cards.on(&mut millrace(&args)).output().unwrap()
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_all(&path, &to);
        } else if entry.file_name() != ".lock" {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// Simulated cards, or none.
#[derive(Default)]
struct Cards {
    libraries: Option<PathBuf>,
    cache: Option<PathBuf>,
    variables: Vec<(&'static str, String)>,
}

impl Cards {
    fn simulated(count: usize) -> Option<Cards> {
        let folder = simulator::folder()?;
        Some(Cards {
            cache: Some(folder.join("cache")),
            libraries: Some(folder),
            variables: vec![("MILLRACE_SIM_DEVICES", count.to_string())],
        })
    }

    fn with(mut self, name: &'static str, value: &str) -> Cards {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env_remove("CUDA_HOME").env_remove("VIRTUAL_ENV");
        if let Some(folder) = &self.libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
        if let Some(folder) = &self.cache {
            command.env("XDG_CACHE_HOME", folder);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)))
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
}

fn checkpoint(out: &Path, step: usize) -> [Vec<u8>; 2] {
    ["model.safetensors", "optimizer.safetensors"].map(|name| {
        std::fs::read(out.join(format!("checkpoints/step-{step:08}")).join(name)).unwrap()
    })
}

const CUDA: &str = "device=\"cuda\"";

#[test]
fn without_a_card_training_on_one_is_a_bad_job_that_says_what_is_missing() {
    let has_driver = kernels::cuda::libraries(&[])
        .iter()
        .any(|one| one.library == "libcuda" && one.opened.is_some());
    if has_driver {
        return;
    }
    let prepared = Prepared::new();
    let output = prepared.train("first", &[CUDA], &Cards::default());
    let text = text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in ["libcuda", "libcuda.so.1", "device = \"cpu\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!prepared.out("first").join("metrics.jsonl").exists());
}

#[test]
fn cards_and_the_cpu_train_to_the_same_bytes_and_go_on_from_each_others_checkpoints() {
    let Some(cards) = Cards::simulated(2) else {
        return;
    };
    let prepared = Prepared::new();
    let cpu = prepared.start("cpu");
    assert_done(&prepared.train("cpu", &[], &Cards::default()));
    let cuda = prepared.start("cuda");
    let output = prepared.train("cuda", &[CUDA, "parallel.dp=2"], &cards);
    assert_done(&output);
    assert!(text(&output).contains("cuda:0"), "{}", text(&output));
    assert_eq!(metrics(&cuda), metrics(&cpu));
    assert!(checkpoint(&cuda, 3) == checkpoint(&cpu, 3));
    // two steps on one kind of device, the third on the other
    for (name, first, then) in [
        ("to_card", "device=\"cpu\"", CUDA),
        ("to_cpu", CUDA, "device=\"cpu\""),
    ] {
        let out = prepared.start(name);
        assert_done(&prepared.train(name, &[first], &cards));
        std::fs::remove_dir_all(out.join("checkpoints/step-00000003")).unwrap();
        let output = prepared.train(name, &[then], &cards);
        assert_done(&output);
        assert!(text(&output).contains("step 2"), "{}", text(&output));
        assert_eq!(metrics(&out), metrics(&cpu), "{name}");
        assert!(checkpoint(&out, 3) == checkpoint(&cpu, 3), "{name}");
    }
}

#[test]
fn a_card_that_is_lost_ends_the_run_by_its_rank_and_the_next_run_goes_on() {
    let Some(cards) = Cards::simulated(2) else {
        return;
    };
    let prepared = Prepared::new();
    let (calm, lost) = (prepared.start("calm"), prepared.start("lost"));
    assert_done(&prepared.train("calm", &[], &Cards::default()));
    let losing = Cards::simulated(2)
        .map(|cards| cards.with("MILLRACE_SIM_LOSE", "1:400"))
        .unwrap_or_default();
    let started = std::time::Instant::now();
    let sets = [CUDA, "parallel.dp=2", "launch.timeout=\"20s\""];
    let output = prepared.train("lost", &sets, &losing);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("rank 1") && said.contains("CUDA_ERROR"),
        "{said}"
    );
    assert!(started.elapsed().as_secs() < 900, "{said}");
    assert_done(&prepared.train("lost", &sets[..2], &cards));
    assert_eq!(metrics(&lost), metrics(&calm));
    assert!(checkpoint(&lost, 3) == checkpoint(&calm, 3));
}

#[test]
fn small_cards_and_old_drivers_are_refused_and_a_damaged_cache_is_made_again() {
    let Some(cards) = Cards::simulated(1) else {
        return;
    };
    let prepared = Prepared::new();
    let small = Cards::simulated(1)
        .map(|cards| cards.with("MILLRACE_SIM_MEMORY_MB", "1"))
        .unwrap_or_default();
    let output = prepared.train("first", &[CUDA], &small);
    let said = text(&output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
    for part in [
        "cuda:0",
        "bytes",
        "the plan takes",
        "weights",
        "optimizer",
        "of 1.0 MB are free",
        "train.recompute",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let lines = std::fs::read_to_string(prepared.out("first").join("metrics.jsonl"));
    assert!(
        !lines.unwrap_or_default().contains("loss"),
        "no step was taken"
    );
    let old = Cards::simulated(1)
        .map(|cards| cards.with("MILLRACE_SIM_DRIVER_VERSION", "11000"))
        .unwrap_or_default();
    let output = prepared.train("first", &[CUDA], &old);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("driver") && said.contains("11.0"), "{said}");
    // a cache of its own, damaged after the first run
    let own = prepared.out("cache");
    let cards = Cards {
        cache: Some(own.clone()),
        ..cards
    };
    let first = prepared.start("one");
    assert_done(&prepared.train("one", &[CUDA], &cards));
    let kernels: Vec<_> = std::fs::read_dir(own.join("millrace/kernels"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(kernels.len() > 5, "{kernels:?}");
    for (at, path) in kernels.iter().enumerate() {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        match at % 3 {
            0 => bytes.truncate(middle),
            1 => bytes[middle] ^= 0x40,
            _ => bytes.clear(),
        }
        std::fs::write(path, bytes).unwrap();
    }
    let second = prepared.start("two");
    assert_done(&prepared.train("two", &[CUDA], &cards));
    assert_eq!(metrics(&first), metrics(&second));
}

const BY_NCCL: &str = "launch.collectives=\"nccl\"";

#[test]
fn nccl_that_is_missing_or_old_and_two_ranks_on_a_card_are_refused_before_the_first_step() {
    let Some(cards) = Cards::simulated(2) else {
        return;
    };
    let prepared = Prepared::new();
    let bare = prepared.out("bare");
    let whole = cards.libraries.clone().unwrap_or_default();
    copy_all(&whole, &bare);
    std::fs::remove_file(bare.join("libnccl.so.2")).unwrap();
    let missing = Cards {
        libraries: Some(bare),
        ..Cards::simulated(2).unwrap_or_default()
    };
    let old = cards.with("MILLRACE_SIM_NCCL_VERSION", "21703");
    let shared = Cards::simulated(1).unwrap_or_default();
    for (cards, parts) in [
        (&missing, ["libnccl.so.2", "launch.collectives"]),
        (&old, ["NCCL 2.17.3", "launch.collectives"]),
        (&shared, ["ranks 0 and 1", "launch.collectives"]),
    ] {
        let output = prepared.train("first", &[CUDA, "parallel.dp=2", BY_NCCL], cards);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let out = prepared.out("first");
    assert!(!out.join("checkpoints/step-00000001").exists());
}

/// Trains in two processes with a simulated card each; `failure` is that of the stand-in NCCL.
fn in_two_processes(
    prepared: &Prepared,
    cards: &Cards,
    name: &str,
    layout: &'static str,
    failure: Option<&str>,
) -> [Output; 2] {
    let port = free_port().to_string();
    // a stage waits for a whole step of the other, which simulated cards take seconds for
    let timeout = match failure {
        Some(failure) if failure.ends_with("hang") => "launch.timeout=\"8s\"",
        _ => "launch.timeout=\"120s\"",
    };
    let sets = [CUDA, BY_NCCL, layout, timeout];
    let start = |rank: &str| {
        let mut command = millrace(&prepared.args("train", name, &sets));
        cards.on(&mut command);
        let here = [("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_PORT", &port)];
        command.envs(here).env("MASTER_ADDR", "127.0.0.1");
        command.envs(failure.map(|failure| ("MILLRACE_SIM_NCCL_FAIL", failure)));
        let piped = std::process::Stdio::piped;
        command.stdout(piped()).stderr(piped()).spawn().unwrap()
    };
    let children = ["0", "1"].map(start);
    children.map(|child| child.wait_with_output().unwrap())
}

/// Compares a run over NCCL with one on the CPU, then lets the second process die or hang in operation 6 of its card.
fn trains_by_nccl_or_names_the_rank_that_failed(layout: &'static str, axis: &str) {
    let Some(cards) = Cards::simulated(2) else {
        return;
    };
    let prepared = Prepared::new();
    let calm = prepared.start("calm");
    assert_done(&prepared.train("calm", &[], &Cards::default()));
    let both = |name: &str, failure| in_two_processes(&prepared, &cards, name, layout, failure);
    let done = prepared.start("done");
    let outputs = both("done", None);
    outputs.iter().for_each(assert_done);
    assert!(text(&outputs[0]).contains(axis), "{}", text(&outputs[0]));
    assert_eq!(metrics(&done), metrics(&calm));
    assert!(checkpoint(&done, 3) == checkpoint(&calm, 3));
    for (how, parts) in [
        ("1:6:kill", ["rank 1 on ", "ended"]),
        ("1:6:hang", ["waited 8 s", "rank 1"]),
    ] {
        prepared.start("failed");
        let started = std::time::Instant::now();
        let outputs = both("failed", Some(how));
        let said = text(&outputs[0]);
        assert_eq!(outputs[0].status.code(), Some(1), "{how}: {said}");
        assert!(
            parts.iter().all(|part| said.contains(part)),
            "{how}: {said}"
        );
        assert!(started.elapsed().as_secs() < 600, "{how}: {said}");
    }
}

#[test]
fn two_processes_train_by_nccl_and_a_rank_that_hangs_or_dies_is_named() {
    trains_by_nccl_or_names_the_rank_that_failed("parallel.dp=2", "data by NCCL");
}

#[test]
#[ignore = "two simulated stages take a minute; run by name. `comm::gpu::link_tests` and train's devices tests are quick"]
fn two_stages_send_by_nccl_and_one_that_hangs_or_dies_in_a_send_is_named() {
    trains_by_nccl_or_names_the_rank_that_failed("parallel.pp=2", "pipeline by NCCL");
}
