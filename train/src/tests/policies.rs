//! Policies of the training loop: growing batches, skipped steps, several validation sets, early stop, time budget.
//! Their decisions are the same on every layout and after every resume.

use std::path::Path;

use kernels::rng;

use crate::Error;
use crate::checkpoint::Ended;
use crate::config::Plan;
use crate::config::{BadStepAction, BatchRampup, OnBadStep, TrainConfig};
use crate::data::{Sample, Samples};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::tests::layouts::{Result, assert_same, reproducible, with};
use crate::trainer::{Outcome, ValidationSet, run, run_with_sets};

/// A chain with noise in place of some samples.
struct Noisy {
    chain: Chain,
    noise: std::ops::Range<u64>,
    vocab: u32,
}

impl Noisy {
    fn of(plan: &Plan, noise: std::ops::Range<u64>) -> Noisy {
        Noisy {
            chain: Chain::of(plan),
            noise,
            vocab: u32::try_from(plan.vocab).unwrap(),
        }
    }
}

impl Samples for Noisy {
    fn len(&self) -> u64 {
        self.chain.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.chain.read(index, sample)?;
        if self.noise.contains(&index) {
            for (at, token) in (0u64..).zip(&mut sample.text()?.tokens) {
                let u = rng::uniform(6, index, at) * f64::from(self.vocab);
                *token = (0..self.vocab).rfind(|&id| f64::from(id) <= u).unwrap_or(0);
            }
        }
        Ok(())
    }
}

/// The batch grows 4, 4, 4, 8, 8 to 12; samples 36 to 59 are noise, which three batches meet.
fn busy(mut plan: Plan) -> Plan {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    plan.train = TrainConfig {
        steps: 9,
        global_batch: 12,
        batch_rampup: Some(BatchRampup {
            start: 4,
            increment: 4,
            samples: 24,
        }),
        on_bad_step: OnBadStep {
            action: BadStepAction::Skip,
            factor: 1.05,
            window: 3,
            limit: 4,
        },
        ..plan.train
    };
    plan
}

const NOISE: std::ops::Range<u64> = 36..60;

fn train_in(plan: &Plan, out: &Path, stop: Option<u64>) -> std::result::Result<Outcome, Error> {
    let mut samples = Noisy::of(plan, NOISE);
    samples.chain.fails_at = stop;
    let (first, second) = (Chain::of(plan), Noisy::of(plan, 0..1000));
    let sets = [("valid", &first as &dyn Samples), ("noise", &second)]
        .map(|(name, samples)| ValidationSet { name, samples });
    run_with_sets(plan, &samples, &sets, out, &Log::default())
}

/// With the batches of bad steps among the metrics.
fn result(outcome: &Outcome, out: &Path) -> Result {
    let mut metrics = reproducible(out);
    let mut names: Vec<_> = std::fs::read_dir(out.join("bad_steps"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    metrics.extend(names.iter().map(|name| {
        let text = std::fs::read_to_string(name).unwrap();
        format!("{} {text}", name.file_name().unwrap().display())
    }));
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    Result {
        metrics,
        model: read("model.safetensors"),
        optimizer: read("optimizer.safetensors"),
        scales: serde_json::Value::Null,
    }
}

fn trained(plan: &Plan) -> Result {
    let folder = tempfile::tempdir().unwrap();
    let outcome = train_in(plan, folder.path(), None).unwrap();
    result(&outcome, folder.path())
}

#[test]
fn growing_batches_and_skipped_steps_are_the_same_bits_on_every_layout() {
    for plan in [busy(tiny_gpt()), busy(tiny_llama())] {
        let want = trained(&with(plan.clone(), "mb=4"));
        let count = |what: &str| {
            let lines = want.metrics.iter();
            lines.filter(|line| line.contains(what)).count()
        };
        let skipped = count("\"skipped\":");
        assert!((1..=3).contains(&skipped), "{:#?}", want.metrics);
        assert_eq!(count("\"reason\":"), skipped, "each leaves its batch");
        assert_eq!(count("\"set\":\"noise\""), 5, "after steps 2, 4, 6, 8, 9");
        assert_eq!(
            count("\"consumed_samples\":76"),
            1,
            "4 4 4 8 8 then 12 each"
        );
        for layout in [
            "mb=1",
            "mb=2 dp=2",
            "dp=4 mb=1 zero=1",
            "dp=2 mb=2 zero=2",
            "dp=2 tp=2 sp mb=1 zero=3",
            "pp=2 vs=2 mb=2 full",
            "pp=4 dp=2 mb=1",
            "cp=2 mb=2 dp=2 zero=2",
            "cp=2 tp=2 mb=4",
        ] {
            assert_same(&trained(&with(plan.clone(), layout)), &want, layout);
        }
    }
}

#[test]
fn growing_batches_and_skips_go_on_where_they_were() {
    let mut plan = with(busy(tiny_gpt()), "mb=4");
    plan.train.checkpoint.every = 1;
    let want = trained(&plan);
    let folder = tempfile::tempdir().unwrap();
    for (at, layout) in [
        (9, "mb=1"),
        (20, "dp=2 mb=2"),
        (45, "tp=2 mb=4"),
        (60, "mb=2"),
    ] {
        let mut plan = with(plan.clone(), layout);
        plan.train.checkpoint.every = 1;
        let stopped = train_in(&plan, folder.path(), Some(at)).unwrap_err();
        assert!(matches!(stopped, Error::Sample { sample, .. } if sample == at));
    }
    let outcome = train_in(&plan, folder.path(), None).unwrap();
    assert_same(&result(&outcome, folder.path()), &want, "four stops");
}

#[test]
fn a_loss_that_is_not_finite_is_never_trained_through() {
    let mut plan = tiny_gpt();
    // weights overflow in the first update
    (plan.train.lr, plan.train.warmup_steps) = (1e38, 0);
    plan.train.checkpoint.every = 1;
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    let go = |plan: &Plan, out: &Path| {
        let error = run(plan, &samples, None, out, &Log::default()).unwrap_err();
        error.to_string()
    };
    let told = go(&plan, folder.path());
    assert!(
        told.starts_with("step 2: the loss is NaN; its batch is in ")
            && told.ends_with("bad_steps/step-00000002.json"),
        "{told}"
    );
    let dump = std::fs::read_to_string(folder.path().join("bad_steps/step-00000002.json"));
    let dump: serde_json::Value = serde_json::from_str(&dump.unwrap()).unwrap();
    assert_eq!(dump["loss"], "NaN");
    assert_eq!(dump["samples"].as_array().unwrap().len(), 8);
    assert_eq!(dump["samples"][0]["index"], 8);
    assert_eq!(
        dump["samples"][7]["text"]["tokens"]
            .as_array()
            .unwrap()
            .len(),
        17
    );

    plan.train.steps = 9;
    plan.train.on_bad_step.action = BadStepAction::Skip;
    plan.train.on_bad_step.limit = 3;
    let folder = tempfile::tempdir().unwrap();
    let told = go(&plan, folder.path());
    let limit = "step 5: the loss is NaN, after 3 skipped steps in a row; its batch is in ";
    assert!(told.starts_with(limit), "{told}");
    // the skipped steps left the weights as they were
    let read = |step: u64| {
        let checkpoints = folder.path().join("checkpoints");
        std::fs::read(crate::checkpoint::path_of(&checkpoints, step).join("model.safetensors"))
    };
    assert_eq!(read(3).unwrap(), read(4).unwrap());
    let lines = reproducible(folder.path());
    assert!(
        lines[3].contains("\"loss\":null") && lines[3].contains("\"skipped\":\"the loss is NaN\"")
    );
}

#[test]
fn a_run_whose_loss_no_longer_falls_ends_early_and_stays_ended() {
    let mut plan = tiny_gpt();
    plan.train.steps = 60;
    plan.train.eval_every = 1;
    plan.train.early_stop.set = "noise".into();
    plan.train.early_stop.patience = 3;
    let folder = tempfile::tempdir().unwrap();
    let outcome = train_in(&plan, folder.path(), None).unwrap();
    assert_eq!(outcome.ended, Ended::EarlyStop);
    assert!(outcome.steps < 60, "noise cannot be learnt");
    assert!(outcome.checkpoint.join("state.json").exists());
    let again = train_in(&plan, folder.path(), None).unwrap();
    assert_eq!(
        (again.steps, again.ended),
        (outcome.steps, Ended::EarlyStop)
    );

    plan.train.early_stop.set = "other".into();
    let told = train_in(&plan, folder.path(), None)
        .unwrap_err()
        .to_string();
    let want = "found \"other\", want one of the validation sets: valid, noise";
    assert!(told.contains(want), "{told}");
}

#[test]
fn a_time_budget_ends_the_run_with_a_checkpoint_and_counts_all_runs_of_the_job() {
    let mut plan = tiny_gpt();
    plan.train.steps = 100;
    plan.train.checkpoint.every = 0;
    let samples = Paced(Chain::of(&plan));
    // A busy machine may leave time for too few steps to tell the two schedules apart. Of 100 steps, two threads that
    // read take 0.8 s.
    let (first, folder) = ["0.3s", "0.3s", "0.6s", "0.6s", "0.6s"]
        .into_iter()
        .map(|budget| {
            plan.train.time_budget = budget.into();
            let folder = tempfile::tempdir().unwrap();
            let log = Log::default();
            let go = || run(&plan, &samples, None, folder.path(), &log).unwrap();
            let (first, again) = (go(), go());
            assert_eq!(first.ended, Ended::TimeBudget);
            assert!((1..100).contains(&first.steps), "{}", first.steps);
            assert!(first.checkpoint.join("state.json").exists());
            assert_eq!((again.steps, again.ended), (first.steps, Ended::TimeBudget));
            assert!(log.lines()[0].contains("bits depend on the machine"));
            (first, folder)
        })
        .find(|(first, _)| first.steps >= 8)
        .expect("eight steps within a budget");
    // the rate falls with time, not with steps
    let lines = reproducible(folder.path());
    let last: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let by_steps = crate::optim::schedule::rate(&plan.train, first.steps as f64);
    assert!(last["lr"].as_f64().unwrap() < 0.9 * by_steps);
}

/// Eight samples per step, so that a step takes at least 16 ms.
struct Paced(Chain);

impl Samples for Paced {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.0.read(index, sample)
    }
}
