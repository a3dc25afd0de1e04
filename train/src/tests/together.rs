//! Adapters trained together over one base: each has the bits that it has alone, on every layout and after an end in between; the
//! base is in memory once, and its bits stay.

use std::path::Path;

use crate::checkpoint::MODEL;
use crate::checkpoint::safetensors::Reader;
use crate::config::{Bf16Sums, LoraConfig, Plan, Precision};
use crate::data::{Sample, Samples};
use crate::dist::world::World;
use crate::error::{Error, Result};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::model::param;
use crate::tests::layouts::{self, assert_same, reproducible, train_in, with};
use crate::tests::share::Share;
use crate::trainer::{Outcome, Training, ValidationSet, memory, run, run_together};

/// A chain from a sample of its own on.
struct From(Chain, u64);

impl Samples for From {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.read(index + self.1, sample)
    }
}

/// Data of adapter `number`.
fn data(plan: &Plan, number: usize) -> From {
    let chain = Chain {
        count: 2000,
        ..Chain::of(plan)
    };
    From(chain, 300 * number as u64)
}

/// Plans of three adapters: of other ranks, scales, seeds, dropout, schedules and ends.
fn adapters(base: &Plan) -> Vec<Plan> {
    let of = |(number, (rank, steps, dropout)): (usize, (usize, u64, f32))| {
        let mut plan = base.clone();
        plan.model.lora = Some(LoraConfig {
            rank,
            alpha: 6.0,
            rs_lora: number == 1,
            dropout,
            ..LoraConfig::default()
        });
        plan.seed += number as u64;
        (plan.train.steps, plan.train.lr) = (steps, base.train.lr * (1.0 + number as f64));
        plan.train.eval_every = 2;
        plan.train.checkpoint.every = 2;
        plan
    };
    let all = [(4, 6, 0.0), (2, 3, 0.25), (8, 5, 0.0)];
    all.into_iter().enumerate().map(of).collect()
}

/// A model to adapt, in `folder`, and the plan of another training that starts from it.
fn base(mut plan: Plan, folder: &Path) -> Plan {
    plan.model.layers = 4;
    plan.train.steps = 2;
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, folder, &Log::default()).unwrap();
    plan.train.init_from = done.checkpoint.display().to_string();
    plan
}

/// Trains all of them in folders of their number; `fails_at`: the sample of each at which reading fails.
fn together(plans: &[Plan], folder: &Path, fails_at: &[Option<u64>]) -> Result<Vec<Outcome>> {
    let sets = plans.iter().enumerate().map(|(number, plan)| {
        let mut samples = data(plan, number);
        let from = samples.1;
        samples.0.fails_at = fails_at.get(number).copied().flatten().map(|at| at + from);
        (samples, data(plan, number))
    });
    let sets: Vec<(From, From)> = sets.collect();
    let outs: Vec<_> = (0..plans.len())
        .map(|number| folder.join(number.to_string()))
        .collect();
    let valid: Vec<_> = sets
        .iter()
        .map(|(_, samples)| {
            [ValidationSet {
                name: "valid",
                samples,
            }]
        })
        .collect();
    let log = Log::default();
    let trainings: Vec<Training<'_>> = (0..plans.len())
        .map(|number| Training {
            plan: &plans[number],
            train_set: &sets[number].0,
            sets: &valid[number],
            out: &outs[number],
            events: &log,
        })
        .collect();
    run_together(&trainings, &World::alone())
}

fn result(outcome: &Outcome, folder: &Path) -> layouts::Result {
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    layouts::Result {
        metrics: reproducible(folder),
        model: read("model.safetensors"),
        optimizer: read("optimizer.safetensors"),
        scales: serde_json::Value::Null,
    }
}

/// Each adapter alone, on one rank.
fn alone(plans: &[Plan], folder: &Path) -> Vec<layouts::Result> {
    let all = plans.iter().enumerate();
    all.map(|(number, plan)| {
        let plan = with(plan.clone(), "mb=12");
        train_in(
            &plan,
            &folder.join(number.to_string()),
            &data(&plan, number),
        )
    })
    .collect()
}

fn assert_as_alone(outcomes: &[Outcome], folder: &Path, want: &[layouts::Result], what: &str) {
    assert_eq!(outcomes.len(), want.len());
    for (number, (outcome, want)) in outcomes.iter().zip(want).enumerate() {
        let found = result(outcome, &folder.join(number.to_string()));
        assert_same(&found, want, &format!("adapter {number} of {what}"));
    }
}

#[test]
fn each_adapter_has_the_bits_that_it_has_alone_in_every_layout_and_the_base_keeps_its() {
    let mut share = Share::one_in(2);
    for plan in [tiny_gpt(), tiny_llama()] {
        let dir = tempfile::tempdir().unwrap();
        let plan = base(plan, &dir.path().join("base"));
        let plans = adapters(&plan);
        let want = alone(&plans, &dir.path().join("alone"));
        assert!(want[0].model != want[1].model);
        let layouts = [
            "mb=12",
            "mb=3",
            "dp=2 mb=3",
            "dp=3 zero=1 mb=2",
            "dp=2 zero=2 mb=3",
            "dp=2 zero=3 tp=2 sp pp=2 mb=3",
            "tp=2 sp mb=3",
            "pp=2 mb=3",
            "pp=2 vs=2 tp=2 dp=2 mb=2",
            "cp=2 dp=2 mb=2",
            "full chunked mb=4",
        ];
        let mut layouts = share.of(&layouts);
        for wanted in ["pp=2 vs=2 tp=2 dp=2 mb=2", "dp=3 zero=3 mb=2"] {
            if !layouts.contains(&wanted) {
                layouts.push(wanted);
            }
        }
        for layout in layouts {
            let own: Vec<Plan> = plans.iter().map(|of| with(of.clone(), layout)).collect();
            let folder = dir.path().join(layout);
            let outcomes = together(&own, &folder, &[]).unwrap();
            let steps: Vec<u64> = outcomes.iter().map(|outcome| outcome.steps).collect();
            assert_eq!(steps, [6, 3, 5]);
            assert_as_alone(&outcomes, &folder, &want, layout);
            for outcome in &outcomes {
                assert_holds_base(&plans[0], &outcome.checkpoint);
            }
        }
    }
}

/// The frozen tensors of a checkpoint are those of the weights that it started from.
fn assert_holds_base(plan: &Plan, checkpoint: &Path) {
    let mut theirs = Reader::open(&Path::new(&plan.train.init_from).join(MODEL)).unwrap();
    let mut ours = Reader::open(&checkpoint.join(MODEL)).unwrap();
    for spec in param::specs(plan).iter().filter(|spec| spec.is_frozen) {
        let mut both = [(); 2].map(|()| vec![0.0f32; spec.dims.iter().product()]);
        theirs
            .read_part(&spec.name, &spec.dims, 0, &mut both[0])
            .unwrap();
        ours.read_part(&spec.name, &spec.dims, 0, &mut both[1])
            .unwrap();
        assert!(both[0] == both[1], "{}", spec.name);
    }
}

#[test]
fn adapters_resume_from_different_steps_with_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let plan = base(tiny_llama(), &dir.path().join("base"));
    let plans = adapters(&plan);
    let want = alone(&plans, &dir.path().join("alone"));
    let own: Vec<Plan> = (plans.iter())
        .map(|of| with(of.clone(), "dp=2 mb=3"))
        .collect();
    let folder = dir.path().join("ended");
    // the second adapter is done with its steps when the third one fails
    together(&own, &folder, &[None, None, Some(4 * 12)]).unwrap_err();
    let steps = |number: usize| {
        let folder = folder.join(number.to_string()).join("checkpoints");
        crate::checkpoint::steps_in(&folder).unwrap().pop()
    };
    assert_eq!([0, 1, 2].map(steps), [Some(4), Some(3), Some(4)]);
    // one goes on by itself, and then all
    let first = own.first().unwrap();
    let one = data(first, 0);
    run(
        first,
        &one,
        Some(&data(first, 0)),
        &folder.join("0"),
        &Log::default(),
    )
    .unwrap();
    let outcomes = together(&own, &folder, &[]).unwrap();
    assert_as_alone(&outcomes, &folder, &want, "an ended run");
    // nothing is left to do
    let again = together(&own, &folder, &[]).unwrap();
    let steps: Vec<u64> = again.iter().map(|outcome| outcome.steps).collect();
    assert_eq!(steps, [6, 3, 5]);
}

#[test]
fn ranks_hold_one_base_and_the_bytes_that_the_formulas_say() {
    let mut plan = tiny_llama();
    plan.model.layers = 4;
    for is_packed in [false, true] {
        if is_packed {
            (plan.train.precision, plan.train.bf16_sums) = (Precision::Bf16, Bf16Sums::Tiles);
            plan.train.keep_packed = true;
        }
        for layout in [
            "mb=1",
            "mb=12",
            "dp=2 zero=1 mb=1",
            "dp=2 zero=2 mb=3",
            "dp=3 zero=3 mb=2",
            "dp=2 zero=3 pp=2 mb=1",
            "tp=2 sp pp=2 mb=1",
            "pp=2 vs=2 mb=3",
            "cp=2 mb=2",
        ] {
            let mut plans = adapters(&with(plan.clone(), layout));
            plans.iter_mut().for_each(|of| of.seed = plan.seed);
            let all: Vec<&Plan> = plans.iter().collect();
            let predicted = memory::predict_together(&all).unwrap();
            let sets = plans.iter().enumerate();
            let sets: Vec<From> = sets.map(|(number, plan)| data(plan, number)).collect();
            let trainings: Vec<(&Plan, &dyn Samples)> = (plans.iter().zip(&sets))
                .map(|(plan, set)| (plan, set as &dyn Samples))
                .collect();
            let measured = memory::measure_together(&trainings).unwrap();
            assert_eq!(measured, predicted, "{layout}, packed: {is_packed}");
            // the same as one of them but for its own tensors
            let (one, rank) = (&memory::predict(&plans[2]).unwrap()[0], &predicted[0]);
            assert!(rank.weights < one.weights * 3 / 2, "{layout}");
            // shards are gathered anew for each use and have no packed copies
            let has_packs = is_packed && plans[0].parallel.zero < 3;
            assert_eq!(rank.packs > 0, has_packs, "{layout}");
        }
    }
}

#[test]
fn packed_copies_of_the_base_change_no_bits() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = base(tiny_llama(), &dir.path().join("base"));
    (plan.train.precision, plan.train.bf16_sums) = (Precision::Bf16, Bf16Sums::Tiles);
    plan.train.keep_packed = true;
    let plans = adapters(&plan);
    let want = alone(&plans, &dir.path().join("alone"));
    for layout in ["mb=12", "tp=2 sp mb=3"] {
        let own: Vec<Plan> = plans.iter().map(|of| with(of.clone(), layout)).collect();
        let folder = dir.path().join(layout);
        let outcomes = together(&own, &folder, &[]).unwrap();
        assert_as_alone(&outcomes, &folder, &want, layout);
    }
}

#[test]
fn trainings_without_one_base_are_refused_with_every_difference() {
    let dir = tempfile::tempdir().unwrap();
    let mut plans = adapters(&with(tiny_llama(), "dp=2 mb=2"));
    plans[1].train.micro_batch = 3;
    plans[2].model.lora.as_mut().unwrap().targets.pop();
    let problems = match together(&plans, dir.path(), &[]) {
        Err(Error::Plan(problems)) => problems.join("\n"),
        other => panic!("{other:?}"),
    };
    for wanted in [
        "train.micro_batch: found 3 for adapter 2, want 2, as for the first",
        "model.lora.targets: found [\"qkv\",\"out\",\"fc1\"] for adapter 3",
        // the base is drawn from the seed
        "seed: found ",
    ] {
        assert!(problems.contains(wanted), "{wanted} in {problems}");
    }
    for plan in &mut plans {
        plan.model.lora = None;
    }
    let error = together(&plans, dir.path(), &[]).unwrap_err();
    assert!(
        error.to_string().contains("model.lora: found none"),
        "{error}"
    );
}
