//! Every precision: the same bits for every layout and resume, memory as predicted, losses near f32's,
//! and steps that overflow.

use crate::claims::layouts::{Result, assert_same, reproducible, train, train_in, with};
use crate::fixtures::{Log, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::{BadStepAction, Error, Fp8Recipe, Plan, Precision, memory, run};

/// One of each axis, and several at once.
const LAYOUTS: [&str; 12] = [
    "mb=1",
    "dp=3 mb=2",
    "dp=12 mb=1",
    "tp=2 mb=3",
    "tp=4 sp mb=4",
    "pp=2 mb=1",
    "pp=2 vs=2 tp=2 sp dp=2 mb=2",
    "dp=2 zero=2 mb=3",
    "dp=2 zero=3 tp=2 sp pp=2 mb=3",
    "cp=2 mb=2",
    "cp=2 dp=2 zero=3 pp=2 tp=2 sp mb=3",
    "full=1 cp=4 tp=2 mb=1",
];

/// With the recipe, where it has one.
const LOW: [(Precision, Fp8Recipe); 4] = [
    (Precision::Bf16, Fp8Recipe::Current),
    (Precision::Fp16, Fp8Recipe::Current),
    (Precision::Fp8, Fp8Recipe::Current),
    (Precision::Fp8, Fp8Recipe::Block),
];

fn four_layers(mut plan: Plan) -> Plan {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    plan
}

/// In `precision`, with a scale that overflows at first and then grows.
fn lowered(mut plan: Plan, (precision, recipe): (Precision, Fp8Recipe)) -> Plan {
    (plan.train.precision, plan.train.fp8.recipe) = (precision, recipe);
    plan.train.fp8.num_layers_at_end_in_bf16 = 1;
    let scale = &mut plan.train.loss_scale;
    (scale.initial, scale.window, scale.hysteresis) = (2f64.powi(22), 2, 1);
    plan
}

fn numbers(result: &Result, field: &str) -> Vec<serde_json::Value> {
    let lines = result.metrics.iter();
    let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let found = lines.filter(|line| line.get("lr").is_some());
    found.map(|mut line| line[field].take()).collect()
}

#[test]
fn every_layout_gives_the_same_bits_in_every_precision() {
    for precision in LOW {
        for plan in [tiny_gpt(), tiny_llama()] {
            let plan = lowered(four_layers(plan), precision);
            let want = train(&with(plan.clone(), "mb=12"));
            for layout in LAYOUTS {
                let what = format!("{precision:?} {layout}");
                assert_same(&train(&with(plan.clone(), layout)), &want, &what);
            }
        }
    }
}

#[test]
fn every_kind_of_model_has_the_same_bits_in_every_precision() {
    for precision in LOW {
        for (plan, layouts) in [
            (
                tiny_moe(),
                ["dp=2 ep=2 tp=2 mb=2", "ep=2 dp=2 pp=2 zero=2 mb=1"],
            ),
            (tiny_bert(), ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
            (tiny_t5(), ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
        ] {
            let plan = lowered(plan, precision);
            let want = train(&with(plan.clone(), "mb=12"));
            for layout in layouts {
                let plan = with(plan.clone(), layout);
                let what = format!("{precision:?} {layout} {:?}", plan.model.family);
                assert_same(&train(&plan), &want, &what);
            }
        }
    }
}

#[test]
fn memory_is_as_predicted_in_every_precision() {
    for precision in LOW {
        for layout in ["mb=3", "tp=2 sp pp=2 dp=2 zero=3 selective mb=2"] {
            let plan = with(lowered(tiny_llama(), precision), layout);
            let measured = memory::measure(&plan, samples_of(&plan).as_ref()).unwrap();
            assert_eq!(measured, memory::predict(&plan).unwrap(), "{precision:?}");
        }
    }
}

#[test]
fn losses_are_near_those_of_f32_but_not_the_same() {
    let mut plan = with(tiny_gpt(), "mb=4");
    plan.train.steps = 12;
    let last = |(precision, recipe)| {
        let mut plan = plan.clone();
        (plan.train.precision, plan.train.fp8.recipe) = (precision, recipe);
        plan.train.loss_scale.initial = 1024.0;
        let loss = numbers(&train(&plan), "loss").pop().unwrap();
        loss.as_f64().unwrap()
    };
    let want = last((Precision::F32, Fp8Recipe::Current));
    for low in LOW {
        let found = last(low);
        assert!(found != want, "{low:?} does something");
        let most = if low.0 == Precision::Fp8 { 0.05 } else { 0.02 };
        assert!((found - want).abs() < most, "{low:?}: {found}, f32 {want}");
    }
}

#[test]
fn steps_that_overflow_change_nothing_are_told_and_halve_the_scale() {
    let mut plan = lowered(
        with(tiny_gpt(), "mb=4"),
        (Precision::Fp16, Fp8Recipe::Current),
    );
    (plan.train.loss_scale.initial, plan.train.loss_scale.window) = (2f64.powi(60), 100);
    plan.train.steps = 60;
    let trained = train(&plan);
    let scales = numbers(&trained, "loss_scale");
    let skipped = numbers(&trained, "skipped");
    let bad = skipped.iter().take_while(|skip| !skip.is_null()).count();
    assert!((20..45).contains(&bad), "{bad} steps overflow");
    for (at, pair) in scales.windows(2).enumerate().take(bad) {
        let [before, after] = [&pair[0], &pair[1]].map(|scale| scale.as_f64().unwrap());
        assert_eq!(after, before / 2.0, "step {at}");
    }
    assert_eq!(skipped[0], "the gradient overflows with this loss_scale");
    let losses = numbers(&trained, "loss");
    let first = plan.train.global_batch as u64;
    assert_eq!(numbers(&trained, "consumed_samples")[0], first);
    assert!(losses[59].as_f64() < losses[0].as_f64(), "{losses:?}");

    // however many steps overflow, the weights are the first ones
    let (mut still, mut fewer) = (plan.clone(), plan.clone());
    (still.train.steps, fewer.train.steps) = (bad as u64, bad as u64 / 2);
    let [still, fewer] = [still, fewer].map(|plan| train(&plan));
    assert!(still.model == fewer.model && still.optimizer == fewer.optimizer);
}

#[test]
fn a_gradient_that_overflows_with_the_least_scale_is_a_bad_step() {
    let mut plan = lowered(
        with(tiny_gpt(), "mb=4"),
        (Precision::Fp16, Fp8Recipe::Current),
    );
    let scale = &mut plan.train.loss_scale;
    (scale.initial, scale.min) = (2f64.powi(61), 2f64.powi(60));
    let samples = samples_of(&plan);
    let folder = tempfile::tempdir().unwrap();
    let run_in = |plan: &Plan, out| run(plan, samples.as_ref(), None, out, &Log::default());
    let mut alone = plan.clone();
    alone.train.eval_every = 0;
    let error = run_in(&alone, folder.path()).unwrap_err();
    assert!(
        matches!(&error, Error::BadStep { step: 2, reason, .. } if reason.starts_with("the gradient norm is")),
        "{error}"
    );
    alone.train.on_bad_step.action = BadStepAction::Skip;
    let folder = tempfile::tempdir().unwrap();
    run_in(&alone, folder.path()).unwrap();
    let lines = reproducible(folder.path());
    assert!(
        lines.iter().all(|line| line.contains("skipped")),
        "{lines:?}"
    );
}

#[test]
fn a_run_goes_on_with_its_scale_in_another_layout() {
    for precision in LOW {
        let mut plan = lowered(tiny_gpt(), precision);
        plan.train.steps = 8;
        let want = train(&with(plan.clone(), "mb=12"));
        let folder = tempfile::tempdir().unwrap();
        for (layout, steps) in [
            ("dp=2 zero=2 mb=3", 2),
            ("tp=2 pp=2 mb=2", 4),
            ("cp=2 mb=1", 8),
        ] {
            let mut plan = with(plan.clone(), layout);
            // the decay runs to the same step
            plan.train.decay_steps = 8;
            plan.train.steps = steps;
            let samples = samples_of(&plan);
            let found = train_in(&plan, folder.path(), samples.as_ref());
            if steps == 8 {
                assert_same(&found, &want, &format!("{precision:?}"));
            }
        }
    }
}
