//! Stopping, resuming, damage. A killed process is simulated by a sample that cannot be read: the
//! run ends there with whatever is on the disk; partial folders are put there by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Error;
use crate::checkpoint::{Ended, checkpoint_at, newest_checkpoint};
use crate::config::{CheckpointConfig, ParallelConfig, Plan};
use crate::data::{Sample, Samples};
use crate::dist::World;
use crate::fixtures::{Chain, Log, tiny_gpt};
use crate::metrics::{Events, StepRecord};
use crate::trainer::{run, run_in_world};

pub(super) fn plan() -> Plan {
    let mut plan = tiny_gpt();
    plan.train.steps = 8;
    plan.train.eval_every = 3;
    plan.train.checkpoint.every = 2;
    plan
}

/// Everything that must not depend on where a run was stopped.
pub(super) fn remains(out: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let folder = out.join("checkpoints");
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    for name in names {
        for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
            let path = folder.join(&name).join(file);
            if path.exists() {
                let called = format!("{}/{file}", name.display());
                files.push((called, fs::read(&path).unwrap()));
            }
        }
        let shards = fs::read_dir(folder.join(&name)).unwrap();
        let shards = shards.map(|entry| entry.unwrap().path());
        let mut shards: Vec<_> = shards
            .filter(|path| path.to_string_lossy().contains(".rank-"))
            .collect();
        shards.sort();
        for path in shards {
            let called = path.strip_prefix(&folder).unwrap().display().to_string();
            files.push((called, fs::read(&path).unwrap()));
        }
    }
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let clock = [
        "tokens_per_s",
        "tflops",
        "mfu",
        "step_s",
        "memory_bytes",
        "stall_s",
    ];
    for line in metrics.lines() {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = value.as_object_mut().unwrap();
        clock
            .iter()
            .for_each(|&field| drop(fields.shift_remove(field)));
        files.push(("metrics.jsonl".into(), value.to_string().into_bytes()));
    }
    files
}

pub(super) fn assert_same(found: &Path, wanted: &[(String, Vec<u8>)], what: &str) {
    let found = remains(found);
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&found), names(wanted), "{what}");
    for ((name, found), (_, wanted)) in found.iter().zip(wanted) {
        assert!(found == wanted, "{what}: {name}");
    }
}

pub(super) fn undisturbed(plan: &Plan) -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(plan);
    run(
        plan,
        &samples,
        Some(&samples),
        folder.path(),
        &Log::default(),
    )
    .unwrap();
    remains(folder.path())
}

pub(super) fn stopped_at(plan: &Plan, out: &Path, sample: u64) {
    let samples = Chain {
        fails_at: Some(sample),
        ..Chain::of(plan)
    };
    let valid = Chain::of(plan);
    let error = run(plan, &samples, Some(&valid), out, &Log::default()).unwrap_err();
    assert!(
        matches!(error, Error::Sample { sample: at, .. } if at == sample),
        "{error}"
    );
}

pub(super) fn finished(plan: &Plan, out: &Path) -> Vec<String> {
    let (samples, log) = (Chain::of(plan), Log::default());
    run(plan, &samples, Some(&samples), out, &log).unwrap();
    log.lines()
}

#[test]
fn a_run_stopped_anywhere_ends_with_the_bytes_of_an_undisturbed_one() {
    let plan = plan();
    let want = undisturbed(&plan);
    for step in 0..plan.train.steps {
        let folder = tempfile::tempdir().unwrap();
        stopped_at(&plan, folder.path(), step * 8 + 5);
        let log = finished(&plan, folder.path());
        let resumed = step / 2 * 2;
        assert_eq!(
            log.contains(&format!("resumed {resumed}")),
            resumed > 0,
            "{log:?}"
        );
        assert_same(
            folder.path(),
            &want,
            &format!("stopped in step {}", step + 1),
        );
    }
}

#[test]
fn a_run_may_go_on_with_another_layout() {
    let plan = plan();
    let want = undisturbed(&plan);
    let folder = tempfile::tempdir().unwrap();
    for (stop, tp, pp, dp) in [(20, 2, 1, 1), (36, 1, 2, 2), (52, 2, 2, 2)] {
        let parallel = ParallelConfig {
            tp,
            pp,
            dp,
            ..Default::default()
        };
        stopped_at(
            &Plan {
                parallel,
                ..plan.clone()
            },
            folder.path(),
            stop,
        );
    }
    finished(&plan, folder.path());
    // state.json of the older checkpoint states its own layout
    let weights = |files: &[(String, Vec<u8>)]| -> Vec<(String, Vec<u8>)> {
        files
            .iter()
            .filter(|(name, _)| name.ends_with("safetensors"))
            .cloned()
            .collect()
    };
    assert!(weights(&remains(folder.path())) == weights(&want));
}

#[test]
fn a_finished_run_is_left_alone() {
    let plan = plan();
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    let go = || {
        run(
            &plan,
            &samples,
            Some(&samples),
            folder.path(),
            &Log::default(),
        )
        .unwrap()
    };
    let (first, second) = (go(), go());
    assert_eq!(
        first,
        crate::trainer::Outcome {
            seconds: first.seconds,
            ..second
        }
    );
    assert_eq!(finished(&plan, folder.path()), ["resumed 8"]);
}

#[test]
fn leftovers_of_a_kill_while_writing_are_removed() {
    let plan = plan();
    let want = undisturbed(&plan);
    let folder = tempfile::tempdir().unwrap();
    stopped_at(&plan, folder.path(), 5 * 8);
    let checkpoints = folder.path().join("checkpoints");
    for name in [".step-00000006.partial", ".step-00000002.dropped"] {
        fs::create_dir(checkpoints.join(name)).unwrap();
        fs::write(checkpoints.join(name).join("model.safetensors"), b"half").unwrap();
    }
    let metrics = folder.path().join("metrics.jsonl");
    let mut text = fs::read_to_string(&metrics).unwrap();
    text.push_str("{\"step\":6,\"lo");
    fs::write(&metrics, text).unwrap();
    finished(&plan, folder.path());
    assert_same(folder.path(), &want, "leftovers");
}

#[test]
fn a_damaged_checkpoint_is_named_and_its_predecessor_is_used() {
    let plan = plan();
    let want = undisturbed(&plan);
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let folder = tempfile::tempdir().unwrap();
        stopped_at(&plan, folder.path(), 5 * 8);
        let path = folder.path().join("checkpoints/step-00000004").join(file);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&path, bytes).unwrap();
        let log = finished(&plan, folder.path());
        assert!(
            log[0].starts_with("note checkpoint of step 4 is not used: "),
            "{log:?}"
        );
        assert!(
            log[0].contains(file) && log[0].contains(" at byte "),
            "{log:?}"
        );
        assert_eq!(log[1], "resumed 2");
        assert_same(folder.path(), &want, file);
    }
}

#[test]
fn the_newest_checkpoint_is_the_one_that_training_goes_on_from() {
    let plan = plan();
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join("checkpoints");
    assert_eq!(newest_checkpoint(&checkpoints).unwrap(), None);
    stopped_at(&plan, folder.path(), 5 * 8);
    let newest = newest_checkpoint(&checkpoints).unwrap().unwrap();
    assert_eq!((newest.step, newest.skipped.len()), (4, 0));
    // a folder of that name that holds nothing, and a flipped bit of a moment
    fs::create_dir(checkpoints.join("step-00000006")).unwrap();
    let path = checkpoints.join("step-00000004/optimizer.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    for named in [&checkpoints, &checkpoints.join("step-00000002")] {
        let newest = checkpoint_at(named).unwrap();
        assert_eq!(newest.step, 2);
        assert_eq!(newest.path, checkpoints.join("step-00000002"));
    }
    let newest = newest_checkpoint(&checkpoints).unwrap().unwrap();
    let told: [String; 2] = [0, 1].map(|at| newest.skipped[at].to_string());
    assert!(
        told[0].starts_with("checkpoint of step 6 is not used: read "),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("checkpoint of step 4 is not used: ")
            && told[1].contains("optimizer.safetensors at byte "),
        "{told:?}"
    );
    let log = finished(&plan, folder.path());
    assert_eq!(log[..2], told.map(|line| format!("note {line}")));
    assert_eq!(log[2], "resumed 2");
}

#[test]
fn a_damaged_checkpoint_never_pushes_out_a_whole_one() {
    let mut plan = plan();
    plan.train.checkpoint.keep = 1;
    let folder = tempfile::tempdir().unwrap();
    stopped_at(&plan, folder.path(), 3 * 8);
    let checkpoints = folder.path().join("checkpoints");
    fs::create_dir(checkpoints.join("step-00000006")).unwrap();
    stopped_at(&plan, folder.path(), 5 * 8);
    assert!(checkpoints.join("step-00000004/state.json").exists());
    assert!(!checkpoints.join("step-00000006").exists());
}

#[test]
fn a_checkpoint_without_one_of_its_files_is_named_and_its_predecessor_is_used() {
    let plan = plan();
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let folder = tempfile::tempdir().unwrap();
        stopped_at(&plan, folder.path(), 5 * 8);
        let path = folder.path().join("checkpoints/step-00000004").join(file);
        fs::remove_file(&path).unwrap();
        let log = finished(&plan, folder.path());
        assert!(
            log[0].starts_with("note checkpoint of step 4 is not used: ")
                && log[0].contains(file)
                && log[0].contains("No such file"),
            "{log:?}"
        );
        assert_eq!(log[1], "resumed 2");
    }
}

#[test]
fn checkpoints_of_chosen_steps_are_never_dropped() {
    let mut plan = plan();
    plan.train.checkpoint = CheckpointConfig {
        every: 1,
        keep: 2,
        keep_every: 3,
        ..CheckpointConfig::default()
    };
    let folder = tempfile::tempdir().unwrap();
    finished(&plan, folder.path());
    let steps = crate::checkpoint::steps_in(&folder.path().join("checkpoints")).unwrap();
    assert_eq!(steps, [3, 6, 7, 8]);
}

/// Stops the run at a step, as a signal would.
pub(super) struct Stopping(pub Log, pub u64, pub AtomicU64);

impl Events for Stopping {
    fn step(&self, record: &StepRecord) {
        self.2.store(record.step, Ordering::SeqCst);
        self.0.step(record);
    }

    fn validation(&self, set: &str, step: u64, loss: f64) {
        self.0.validation(set, step, loss);
    }

    fn checkpoint(&self, step: u64, path: &Path) {
        self.0.checkpoint(step, path);
    }

    fn resumed(&self, step: u64) {
        self.0.resumed(step);
    }

    fn note(&self, note: &str) {
        self.0.note(note);
    }

    fn is_stop_asked(&self) -> bool {
        self.2.load(Ordering::SeqCst) >= self.1
    }
}

#[test]
fn a_run_asked_to_stop_leaves_a_checkpoint_of_that_step_and_goes_on_bit_for_bit() {
    stopped_thrice(false);
}

#[test]
fn a_run_asked_to_stop_leaves_shards_of_that_step_and_goes_on_bit_for_bit() {
    stopped_thrice(true);
}

fn stopped_thrice(sharded: bool) {
    let mut plan = plan();
    // older ones state their own layout
    plan.train.checkpoint.keep = 1;
    let want = undisturbed(&plan);
    plan.parallel = ParallelConfig {
        tp: 2,
        dp: 2,
        ..Default::default()
    };
    plan.train.checkpoint.sharded = sharded;
    let folder = tempfile::tempdir().unwrap();
    for step in [3, 5, 6] {
        let (samples, events) = (Chain::of(&plan), Stopping(Log::default(), step, 0.into()));
        let stopped = run(&plan, &samples, Some(&samples), folder.path(), &events).unwrap();
        assert_eq!((stopped.steps, stopped.ended), (step, Ended::Asked));
        assert!(stopped.checkpoint.ends_with(format!("step-0000000{step}")));
        let lines = events.0.lines();
        assert_eq!(
            lines.last(),
            Some(&format!("checkpoint {step}")),
            "{lines:?}"
        );
    }
    plan.parallel = ParallelConfig::default();
    plan.train.checkpoint.sharded = false;
    finished(&plan, folder.path());
    assert_same(folder.path(), &want, "three stops");
}

fn steps_left(out: &Path) -> Vec<u64> {
    crate::checkpoint::steps_in(&out.join("checkpoints")).unwrap()
}

#[test]
fn a_run_that_was_stopped_keeps_the_checkpoints_of_an_undisturbed_one() {
    for (every, keep, keep_every) in [(2, 2, 0), (3, 1, 0), (2, 1, 3), (5, 2, 0), (0, 2, 0)] {
        let mut plan = plan();
        plan.train.checkpoint = CheckpointConfig {
            every,
            keep,
            keep_every,
            ..CheckpointConfig::default()
        };
        let calm = tempfile::tempdir().unwrap();
        finished(&plan, calm.path());
        for stop in 1..plan.train.steps {
            let folder = tempfile::tempdir().unwrap();
            for at in [stop, stop + 1] {
                let (samples, events) = (Chain::of(&plan), Stopping(Log::default(), at, 0.into()));
                run(&plan, &samples, Some(&samples), folder.path(), &events).unwrap();
                // beside the stop's checkpoint those that were due until then, no fewer than `keep`
                let due = (1..=at).filter(|step| every > 0 && step.is_multiple_of(every));
                let mut wanted: Vec<u64> = due.collect();
                let surplus = wanted.len().saturating_sub(keep);
                let is_for_good = |step: &u64| keep_every > 0 && step.is_multiple_of(keep_every);
                let dropped: Vec<u64> = wanted.drain(..surplus).collect();
                wanted.splice(0..0, dropped.into_iter().filter(is_for_good));
                if !wanted.contains(&at) && at < plan.train.steps {
                    wanted.push(at);
                }
                if at < plan.train.steps {
                    assert_eq!(steps_left(folder.path()), wanted, "{every} {keep}: {at}");
                }
            }
            finished(&plan, folder.path());
            assert_eq!(
                steps_left(folder.path()),
                steps_left(calm.path()),
                "every {every}, keep {keep}, stopped at {stop}"
            );
        }
    }
}

/// Remembers after how many steps a checkpoint was reported.
#[derive(Default)]
struct Late(AtomicU64, std::sync::Mutex<Vec<(u64, u64)>>);

impl Events for Late {
    fn step(&self, record: &StepRecord) {
        self.0.store(record.step, Ordering::SeqCst);
    }
    fn validation(&self, _: &str, _: u64, _: f64) {}
    fn checkpoint(&self, step: u64, _: &Path) {
        let at = self.0.load(Ordering::SeqCst);
        self.1.lock().unwrap().push((step, at));
    }
    fn resumed(&self, _: u64) {}
    fn note(&self, _: &str) {}
}

/// Waits before the batch of step 5 until this folder of a checkpoint is there, so that it is finished within that step.
struct Slow(Chain, PathBuf);

impl Samples for Slow {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if index == 32 {
            let until = Instant::now() + Duration::from_secs(60);
            while !self.1.exists() {
                assert!(Instant::now() < until, "no {}", self.1.display());
                std::thread::sleep(Duration::from_millis(20));
            }
            // its writer has still to say that it is done
            std::thread::sleep(Duration::from_secs(1));
        }
        self.0.read(index, sample)
    }
}

#[test]
fn a_checkpoint_is_reported_when_it_is_written_and_not_with_the_next() {
    let mut plan = plan();
    (plan.train.steps, plan.train.checkpoint.every) = (6, 4);
    plan.train.eval_every = 0;
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("checkpoints/step-00000004");
    let (samples, events) = (Slow(Chain::of(&plan), written), Late::default());
    run(&plan, &samples, None, folder.path(), &events).unwrap();
    // the copy of step 4 is written while step 5 waits for its samples
    assert_eq!(*events.1.lock().unwrap(), [(4, 5), (6, 6)]);
}

#[test]
fn utilisation_is_the_share_of_the_peak_that_the_job_names_or_the_machine_has() {
    let read = |out: &Path| -> Vec<StepRecord> {
        let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let lines = text.lines().filter(|line| line.contains("tflops"));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let mut plan = plan();
    plan.train.peak_tflops = 0.25;
    let folder = tempfile::tempdir().unwrap();
    finished(&plan, folder.path());
    for record in read(folder.path()) {
        let far = record.mfu.unwrap() * 0.25 - record.tflops;
        assert!(far.abs() <= 1e-12 * record.tflops, "{far}");
    }
    plan.train.peak_tflops = 0.0;
    let (folder, world) = (tempfile::tempdir().unwrap(), World::alone());
    let peak = world.measure_peak(&plan).unwrap();
    let samples = Chain::of(&plan);
    let log = Log::default();
    run_in_world(&plan, &samples, &[], (folder.path(), &world), &log).unwrap();
    for record in read(folder.path()) {
        let share = peak.map(|peak| record.tflops * 1e12 / peak);
        assert!(share.is_none_or(|share| share > 0.0), "{share:?}");
        assert_eq!(record.mfu.is_some(), peak.is_some());
        let far = record.mfu.unwrap_or(0.0) - share.unwrap_or(0.0);
        assert!(far.abs() < 1e-12, "{far}");
    }
}

/// In place of a full disk: the folder's name is taken by a link to nothing.
#[test]
fn a_checkpoint_that_cannot_be_written_is_told_and_the_next_is_tried() {
    let mut plan = plan();
    plan.train.checkpoint.keep = 4;
    let want = undisturbed(&plan);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join("checkpoints");
    fs::create_dir(&checkpoints).unwrap();
    let in_the_way = checkpoints.join(".step-00000004.partial");
    std::os::unix::fs::symlink("nowhere", &in_the_way).unwrap();
    let samples = Chain::of(&plan);
    let log = Log::default();
    run(&plan, &samples, Some(&samples), folder.path(), &log).unwrap();
    let lines = log.lines();
    let told = "note the checkpoint of step 4 could not be written: create ";
    assert!(lines.iter().any(|line| line.starts_with(told)), "{lines:?}");
    let steps = crate::checkpoint::steps_in(&checkpoints).unwrap();
    assert_eq!(steps, [2, 6, 8]);
    fs::remove_file(in_the_way).unwrap();
    let found = remains(folder.path());
    let is_failure = |text: &[u8]| String::from_utf8_lossy(text).contains("checkpoint_failed");
    assert_eq!(found.iter().filter(|(_, text)| is_failure(text)).count(), 1);
    let rest = |files: &[(String, Vec<u8>)]| -> Vec<(String, Vec<u8>)> {
        let whole = files
            .iter()
            .filter(|(name, text)| !name.starts_with("step-00000004") && !is_failure(text));
        whole.cloned().collect()
    };
    assert!(rest(&found) == rest(&want), "what was written is the same");
}

#[test]
fn only_damaged_checkpoints_are_an_error() {
    let plan = plan();
    let folder = tempfile::tempdir().unwrap();
    stopped_at(&plan, folder.path(), 3 * 8);
    let path = folder
        .path()
        .join("checkpoints/step-00000002/model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let samples = Chain::of(&plan);
    let error = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap_err();
    let text = error.to_string();
    let offset = format!("at byte {}", bytes.len() - 3);
    assert!(
        matches!(error, Error::NoWholeCheckpoint { .. }) && text.contains(&offset),
        "{text}"
    );
}

#[test]
fn another_job_cannot_take_over_a_checkpoint() {
    let plan = plan();
    let folder = tempfile::tempdir().unwrap();
    stopped_at(&plan, folder.path(), 3 * 8);
    let refused = |plan: &Plan| {
        let samples = Chain::of(plan);
        run(plan, &samples, None, folder.path(), &Log::default())
            .unwrap_err()
            .to_string()
    };
    let text = refused(&Plan {
        fingerprint: "other".into(),
        ..plan.clone()
    });
    assert!(
        text.contains("fingerprint: fixture there, other here"),
        "{text}"
    );
    assert!(
        refused(&Plan {
            seed: 1,
            ..plan.clone()
        })
        .contains("seed: 1234 there, 1 here")
    );
    assert!(
        refused(&Plan {
            vocab: 201,
            ..plan.clone()
        })
        .contains("vocab: 200 there, 201 here")
    );
    let mut wider = plan.clone();
    wider.model.d_model = 64;
    assert!(refused(&wider).contains("model.d_model: 32 there, 64 here"));
    let mut shorter = plan.clone();
    shorter.train.steps = 1;
    shorter.train.warmup_steps = 1;
    assert!(refused(&shorter).contains("train.steps: 2 done there, 1 here"));
}

#[test]
fn a_plan_with_many_problems_names_them_all() {
    let mut plan = plan();
    plan.train.lr = -1.0;
    plan.parallel.tp = 3;
    plan.seq_length = 15;
    plan.model.heads = 5;
    let samples = Chain::of(&plan);
    let error = run(
        &plan,
        &samples,
        None,
        Path::new("/nowhere"),
        &Log::default(),
    )
    .unwrap_err();
    let text = error.to_string();
    for key in [
        "train.lr: ",
        "parallel.tp: ",
        "seq_length: ",
        "model.heads: ",
    ] {
        assert!(text.contains(key), "{key} in {text}");
    }
}

#[test]
fn too_few_samples_and_foreign_tokens_are_errors() {
    let plan = plan();
    let folder = tempfile::tempdir().unwrap();
    let go = |samples: &dyn Samples| {
        run(&plan, samples, None, folder.path(), &Log::default())
            .unwrap_err()
            .to_string()
    };
    let text = go(&Chain {
        count: 63,
        ..Chain::of(&plan)
    });
    assert!(
        text.contains("63 samples, 64 are needed for 8 steps"),
        "{text}"
    );
    let text = go(&Chain {
        vocab: 220,
        ..Chain::of(&plan)
    });
    assert!(
        text.starts_with("sample ") && text.contains("vocabulary is 200"),
        "{text}"
    );
}

struct Panicking(Chain);

impl Samples for Panicking {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        assert!(index != 21, "sample 21 is broken");
        self.0.read(index, sample)
    }
}

#[test]
fn a_panic_in_one_rank_ends_the_run_with_its_message() {
    let mut plan = plan();
    plan.parallel = ParallelConfig {
        tp: 2,
        pp: 2,
        dp: 2,
        ..Default::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let samples = Panicking(Chain::of(&plan));
    let error = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Panicked { .. }), "{text}");
    assert!(text.ends_with("panicked: sample 21 is broken"), "{text}");
}
