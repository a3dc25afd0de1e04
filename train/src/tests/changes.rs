//! Settings that change on resume: the next steps are those that the new settings make from the old weights and
//! moments, on the next samples; the changes are recorded.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use kernels::{Device, Tensor};

use crate::Result;
use crate::checkpoint::list_checkpoints;
use crate::checkpoint::train_state::TrainState;
use crate::config::{Plan, Schedule, SettingChange};
use crate::data::{Sample, Samples};
use crate::dist::mesh::Groups;
use crate::fixtures::{Chain, Log, tiny_gpt};
use crate::model::param;
use crate::optim::next_step::GoodStep;
use crate::tests::resume::{Stopping, remains};
use crate::trainer::step::Trainer;
use crate::trainer::{Outcome, Resumption, Training, resumption, resumption_by_settings, run};

/// Stop after this step, of 8.
const STOP: u64 = 4;

fn plan() -> Plan {
    let mut plan = tiny_gpt();
    plan.train.steps = 8;
    plan.train.eval_every = 0;
    plan
}

/// A `Chain` that records the samples read.
struct Read(Chain, Mutex<Vec<u64>>);

impl Read {
    fn of(plan: &Plan) -> Read {
        Read(Chain::of(plan), Mutex::default())
    }

    /// The samples in order, each once.
    fn read(self) -> Vec<u64> {
        let mut read = self.1.into_inner().unwrap();
        read.sort_unstable();
        read.dedup();
        read
    }
}

impl Samples for Read {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.1.lock().unwrap().push(index);
        self.0.read(index, sample)
    }
}

/// Runs until a stop is requested after this step.
fn stopped(plan: &Plan, out: &Path, step: u64) {
    let events = Stopping(Log::default(), step, 0.into());
    run(plan, &Chain::of(plan), None, out, &events).unwrap();
}

fn go(plan: &Plan, out: &Path) -> (Result<Outcome>, Vec<String>, Vec<u64>) {
    let (samples, log) = (Read::of(plan), Log::default());
    let done = run(plan, &samples, None, out, &log);
    (done, log.lines(), samples.read())
}

/// Reference: weights and moments after the steps of `before` until the stop and those of `after` until its end,
/// without checkpoints, one step after the other on one rank.
fn by_hand(before: &Plan, after: &Plan) -> Vec<Vec<u32>> {
    let specs = param::specs(before);
    let mut trainer = Trainer::new(before, &specs, Groups::single(), Device::cpu()).unwrap();
    let (mut train_state, samples) = (TrainState::start(), Chain::of(before));
    while train_state.step < after.train.steps {
        let plan = if train_state.step < STOP {
            before
        } else {
            after
        };
        trainer.state.plan = Cow::Owned(plan.clone());
        let next = train_state.next(plan);
        assert_eq!(next.first, train_state.step * 8, "the position in the data");
        let done = trainer.step(&samples, &next, &train_state.recent).unwrap();
        let step = GoodStep::new(done.loss, done.grad_norm);
        train_state.stepped(plan, next.batch, step, done.status());
    }
    bits_of(&trainer)
}

fn bits_of(trainer: &Trainer<'_>) -> Vec<Vec<u32>> {
    let moments = trainer
        .state
        .moments
        .m
        .iter()
        .chain(&trainer.state.moments.v);
    let all = trainer.state.weights.iter().chain(moments);
    let bits = |tensor: &Tensor| {
        tensor
            .host::<f32>()
            .unwrap()
            .iter()
            .map(|x| x.to_bits())
            .collect()
    };
    all.map(bits).collect()
}

/// Weights and moments of a checkpoint.
fn of_checkpoint(plan: &Plan, path: &Path) -> Vec<Vec<u32>> {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let opened = crate::checkpoint::read::Opened::open(path).unwrap();
    opened.load(&mut trainer.state).unwrap();
    bits_of(&trainer)
}

fn allow(plan: &mut Plan, keys: &[&str]) {
    plan.train.resume.allow = keys.iter().map(|key| (*key).to_owned()).collect();
}

type Change = fn(&mut Plan);

#[test]
fn a_changed_run_makes_the_steps_of_the_new_settings_from_the_old_state() {
    let cases: [(&[&str], Change); 5] = [
        (&["lr"], |plan| plan.train.lr = 3e-3),
        // the cosine of the longer run from here on
        (&["steps"], |plan| plan.train.steps = 11),
        (&["schedule", "min_lr"], |plan| {
            (plan.train.schedule, plan.train.min_lr) = (Schedule::Linear, 2e-3);
        }),
        (&["weight_decay", "clip_norm", "beta2"], |plan| {
            (plan.train.weight_decay, plan.train.clip_norm) = (0.3, 0.25);
            plan.train.beta2 = 0.9;
        }),
        // a new warm-up, as after a restart with another rate
        (&["lr", "warmup_steps"], |plan| {
            (plan.train.lr, plan.train.warmup_steps) = (2e-2, 7);
        }),
    ];
    for (keys, change) in cases {
        let before = plan();
        let mut after = before.clone();
        change(&mut after);
        let folder = tempfile::tempdir().unwrap();
        stopped(&before, folder.path(), STOP);
        // without the key: refused with both values, and nothing is touched
        let kept = remains(folder.path());
        let refused = go(&after, folder.path()).0.unwrap_err().to_string();
        for key in keys {
            let allows = format!("(train.resume.allow = [\"{key}\"] allows it)");
            assert!(
                refused.contains(&format!("train.{key}: ")) && refused.contains(&allows),
                "{refused}"
            );
        }
        assert!(remains(folder.path()) == kept, "{keys:?}");
        allow(&mut after, keys);
        let (done, log, read) = go(&after, folder.path());
        let done = done.unwrap();
        assert_eq!(log[0], format!("resumed {STOP}"));
        assert_eq!(read, (STOP * 8..after.train.steps * 8).collect::<Vec<_>>());
        let found = of_checkpoint(&after, &done.checkpoint);
        assert!(found == by_hand(&before, &after), "{keys:?}");
        assert!(
            found != by_hand(&before, &before),
            "{keys:?} changes nothing"
        );
        assert_eq!(done.changes.len(), keys.len());
        for key in keys {
            let told = format!("note train.{key} was ");
            assert!(log.iter().any(|line| line.starts_with(&told)), "{log:?}");
        }
    }
}

#[test]
fn other_data_is_refused_unless_it_is_named_and_goes_on_with_the_next_sample() {
    let before = plan();
    let mut after = before.clone();
    after.fingerprint = "other".into();
    let folder = tempfile::tempdir().unwrap();
    stopped(&before, folder.path(), STOP);
    let kept = remains(folder.path());
    let refused = go(&after, folder.path()).0.unwrap_err().to_string();
    let wanted =
        "fingerprint: fixture there, other here (train.resume.allow = [\"data\"] allows it)";
    assert!(refused.contains(wanted), "{refused}");
    assert!(remains(folder.path()) == kept);
    let listed = || list_checkpoints(&folder.path().join("checkpoints")).unwrap();
    assert!(listed().iter().all(|one| !one.had_other_data));
    allow(&mut after, &["data"]);
    let (done, _, read) = go(&after, folder.path());
    let done = done.unwrap();
    assert_eq!(read, (STOP * 8..64).collect::<Vec<_>>());
    // the samples themselves are those of the fixture
    assert!(of_checkpoint(&after, &done.checkpoint) == by_hand(&before, &after));
    let wanted = SettingChange {
        after_step: STOP,
        key: "data".into(),
        before: "fixture".into(),
        after: "other".into(),
    };
    assert_eq!(done.changes, [wanted]);
    let last = listed().pop().unwrap();
    assert!(last.had_other_data && last.data == "other");
}

#[test]
fn a_decay_branches_off_a_stable_run_with_the_bytes_of_a_run_that_was_planned_so() {
    let mut stable = plan();
    stable.train.schedule = Schedule::Wsd;
    (stable.train.steps, stable.train.wsd_decay_steps) = (100, 3);
    let mut short = stable.clone();
    short.train.steps = 8;
    let planned = tempfile::tempdir().unwrap();
    go(&short, planned.path()).0.unwrap();
    let (trunk, branch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    stopped(&stable, trunk.path(), 5);
    // in another folder, from the trunk's folder of checkpoints; the trunk stays unchanged
    let kept = remains(trunk.path());
    short.train.resume.from = trunk.path().join("checkpoints").display().to_string();
    let refused = go(&short, branch.path()).0.unwrap_err().to_string();
    assert!(
        refused.contains("train.steps: 100 there, 8 here"),
        "{refused}"
    );
    allow(&mut short, &["steps"]);
    let (done, log, read) = go(&short, branch.path());
    let done = done.unwrap();
    assert_eq!(read, (40..64).collect::<Vec<_>>());
    assert!(
        log[0].starts_with("note branches off the checkpoint of step 5 in "),
        "{log:?}"
    );
    let wanted = planned.path().join("checkpoints/step-00000008");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let read = |folder: &Path| fs::read(folder.join(file)).unwrap();
        assert!(read(&done.checkpoint) == read(&wanted), "{file}");
    }
    assert!(remains(trunk.path()) == kept);
    // the branch now has its own checkpoints, and resumes from those
    let (again, log, _) = go(&short, branch.path());
    assert_eq!(
        (log, again.unwrap().steps),
        (vec!["resumed 8".to_owned()], 8)
    );
}

#[test]
fn changes_stay_on_record_once_however_often_the_run_is_stopped() {
    let first = plan();
    let folder = tempfile::tempdir().unwrap();
    stopped(&first, folder.path(), STOP);
    let mut second = first.clone();
    second.train.lr = 3e-3;
    allow(&mut second, &["lr", "min_lr"]);
    // killed before its first checkpoint: the change is made again, and there once
    let fails = Chain {
        fails_at: Some(STOP * 8 + 9),
        ..Chain::of(&second)
    };
    run(&second, &fails, None, folder.path(), &Log::default()).unwrap_err();
    stopped(&second, folder.path(), STOP + 2);
    let mut third = second.clone();
    third.train.min_lr = 5e-4;
    let done = go(&third, folder.path()).0.unwrap();
    let change = |after_step, key: &str, before: f64, after: f64| SettingChange {
        after_step,
        key: key.into(),
        before: before.into(),
        after: after.into(),
    };
    let wanted = [
        change(STOP, "train.lr", 0.01, 0.003),
        change(STOP + 2, "train.min_lr", 0.001, 0.0005),
    ];
    assert_eq!(done.changes, wanted);
    let text = fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let changed: Vec<_> = lines
        .iter()
        .filter(|line| line.get("changed").is_some())
        .collect();
    assert_eq!(changed.len(), 2, "{text}");
    for (line, wanted) in changed.iter().zip(&wanted) {
        assert_eq!(line["step"], wanted.after_step + 1);
        assert_eq!(line["changed"][0], serde_json::to_value(wanted).unwrap());
    }
    // a run that is not changed again keeps them
    assert_eq!(go(&third, folder.path()).0.unwrap().changes, wanted);
}

#[test]
fn keys_that_nothing_allows_are_refused_with_those_that_may_be_named() {
    let mut plan = plan();
    allow(&mut plan, &["lr", "model", "precision"]);
    let problems = plan.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let start = "train.resume.allow: found \"model\", want keys of [train] among steps, ";
    assert!(problems[0].starts_with(start), "{problems:?}");
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut left) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(path) = left.pop() {
        match path.is_dir() {
            true => left.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            ),
            false => found.push((path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn the_checkpoint_of_a_resume_is_known_before_it_with_the_same_refusal_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let old = plan();
    let found = |plan: &Plan, out: &Path| -> Result<Option<Resumption>> {
        let (samples, events) = (Chain::of(plan), Log::default());
        resumption(&Training {
            plan,
            train_set: &samples,
            sets: &[],
            out,
            events: &events,
        })
    };
    assert_eq!(found(&old, &dir.path().join("none")).unwrap(), None);
    stopped(&old, dir.path(), STOP);
    let before = files(dir.path());
    let same = found(&old, dir.path()).unwrap().unwrap();
    assert_eq!(
        (same.step, same.is_over, same.changes.len()),
        (STOP, false, 0)
    );
    assert!(same.checkpoint.ends_with("checkpoints/step-00000004"));
    let mut other = old.clone();
    (other.train.lr, other.fingerprint) = (0.5, "other".into());
    let told = found(&other, dir.path()).unwrap_err().to_string();
    // without the data, the settings alone are compared
    let by_settings = resumption_by_settings(&other, dir.path(), &Log::default());
    let by_settings = by_settings.unwrap_err().to_string();
    assert!(told.contains("fingerprint: ") && !by_settings.contains("fingerprint: "));
    for text in [&told, &by_settings] {
        assert!(text.contains("train.lr: 0.01 there, 0.5 here"), "{text}");
    }
    other.train.resume.allow = vec!["lr".into(), "data".into()];
    let allowed = found(&other, dir.path()).unwrap().unwrap();
    let keys: Vec<&str> = allowed.changes.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["train.lr", "data"]);
    assert!(files(dir.path()) == before);
    // the refusal of the run itself
    other.train.resume.allow.clear();
    assert_eq!(go(&other, dir.path()).0.unwrap_err().to_string(), told);
    go(&old, dir.path()).0.unwrap();
    let over = found(&old, dir.path()).unwrap().unwrap();
    assert_eq!((over.step, over.is_over), (8, true));
}
