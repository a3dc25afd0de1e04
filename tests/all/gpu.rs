//! Tests of `device = "cuda"` with the program itself: without a card, and on simulated ones (`kernels/sim`), on which
//! the real kernels and host code run.

use crate::jobs::{metrics, millrace, succeed, write_small_job};
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
    for (name, first, then) in [("to_card", "device=\"cpu\"", CUDA), ("to_cpu", CUDA, "device=\"cpu\"")] {
        let out = prepared.start(name);
        let sets = [first, "train.stop_at=2"];
        let started = prepared.train(name, &sets, &cards);
        if !started.status.success() {
            // without such a key the run is cut after its end: the newest checkpoint goes
            assert_done(&prepared.train(name, &[first], &cards));
            std::fs::remove_dir_all(out.join("checkpoints/step-00000003")).unwrap();
            std::fs::remove_file(out.join("records/train.json")).ok();
        }
        assert_done(&prepared.train(name, &[then], &cards));
        assert_eq!(metrics(&out), metrics(&cpu), "{name}");
        assert!(checkpoint(&out, 3) == checkpoint(&cpu, 3), "{name}");
    }
}
