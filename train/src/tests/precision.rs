//! Every precision: the same bits for every layout and resume, memory as predicted, losses near f32's,
//! and steps that overflow.

use crate::Error;
use crate::config::Activation;
use crate::config::{AmaxAlgo, BadStepAction, Fp8Recipe, Plan, Precision};
use crate::fixtures::{Log, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::tests::layouts::{Result, assert_same, reproducible, train, train_in, with};
use crate::tests::share::Share;
use crate::trainer::{memory, run};

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
const LOW: [(Precision, Fp8Recipe); 5] = [
    (Precision::Bf16, Fp8Recipe::Current),
    (Precision::Fp16, Fp8Recipe::Current),
    (Precision::Fp8, Fp8Recipe::Current),
    (Precision::Fp8, Fp8Recipe::Block),
    (Precision::Fp8, Fp8Recipe::Delayed),
];

const DELAYED: (Precision, Fp8Recipe) = (Precision::Fp8, Fp8Recipe::Delayed);

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
    let fp8 = &mut plan.train.fp8;
    fp8.num_layers_at_end_in_bf16 = 1;
    (fp8.amax_history_len, fp8.amax_compute_algo) = (3, AmaxAlgo::Max);
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
    let mut share = Share::one_in(5);
    for precision in LOW {
        for plan in [tiny_gpt(), tiny_llama()] {
            let plan = lowered(four_layers(plan), precision);
            let want = train(&with(plan.clone(), "mb=12"));
            for layout in share.of(&LAYOUTS) {
                let what = format!("{precision:?} {layout}");
                assert_same(&train(&with(plan.clone(), layout)), &want, &what);
            }
        }
    }
}

#[test]
fn every_kind_of_model_has_the_same_bits_in_every_precision() {
    let mut gated = tiny_gpt();
    gated.model.activation = Some(Activation::Geglu);
    let mut t5 = tiny_t5();
    (t5.model.activation, t5.model.dropout) = (Some(Activation::GegluTanh), 0.1);
    let mut share = Share::one_in(3);
    for precision in LOW {
        for (plan, layouts) in [
            // with biases, and with features dropped
            (
                gated.clone(),
                ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"],
            ),
            (t5.clone(), ["tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
            (
                tiny_moe(),
                ["dp=2 ep=2 tp=2 mb=2", "ep=2 dp=2 pp=2 zero=2 mb=1"],
            ),
            (tiny_bert(), ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
            (tiny_t5(), ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
        ] {
            let layouts = share.of(&layouts);
            if layouts.is_empty() {
                continue;
            }
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
    let mut mixture = tiny_moe();
    mixture.model.moe.as_mut().unwrap().capacity_factor = 0.0;
    let mut plain = mixture.clone();
    plain.model.activation = Some(Activation::SquaredRelu);
    let mut t5 = tiny_t5();
    t5.model.activation = Some(Activation::GegluTanh);
    let mut dropped = t5.clone();
    (t5.model.dropout, dropped.model.dropout) = (0.0, 0.1);
    let mut share = Share::one_in(2);
    for precision in LOW {
        for plan in [&tiny_llama(), &mixture, &plain, &t5, &dropped] {
            for layout in share.of(&["mb=3", "tp=2 sp pp=2 dp=2 zero=3 selective mb=2"]) {
                let plan = with(lowered(plan.clone(), precision), layout);
                let measured = memory::measure(&plan, samples_of(&plan).as_ref()).unwrap();
                let predicted = memory::predict(&plan).unwrap();
                assert_eq!(
                    measured, predicted,
                    "{precision:?} {layout} {:?}",
                    plan.model
                );
            }
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

    // after any number of overflows, the weights are the initial ones
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

/// Scale and history, the newest first, of a tensor.
fn history(result: &Result, name: &str) -> (f32, Vec<f32>) {
    let singles = |field: &str| -> Vec<f32> {
        let text = result.scales[name][field].as_str().unwrap();
        text.split(' ').map(|x| x.parse().unwrap()).collect()
    };
    (singles("scale")[0], singles("amax"))
}

/// Largest weight after the last step.
fn largest_weight(result: &Result, name: &str) -> f32 {
    let (length, rest) = result.model.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap());
    let (header, data) = rest.split_at(usize::try_from(length).unwrap());
    let header: serde_json::Value = serde_json::from_slice(header).unwrap();
    let [from, to] = [0, 1].map(|end| {
        let offset = header[name]["data_offsets"][end].as_u64().unwrap();
        usize::try_from(offset).unwrap()
    });
    let singles = data[from..to].chunks(4);
    let sizes = singles.map(|x| f32::from_le_bytes(x.try_into().unwrap()).abs());
    sizes.fold(0.0, f32::max)
}

#[test]
fn scales_of_steps_come_from_the_largest_weights_before_them() {
    let mut plan = with(lowered(tiny_gpt(), DELAYED), "mb=4");
    plan.train.warmup_steps = 1;
    let name = "layers.0.fc1.weight";
    let folder = tempfile::tempdir().unwrap();
    let mut largest = Vec::new();
    let samples = samples_of(&plan);
    for steps in 1..=5 {
        let mut plan = plan.clone();
        (plan.train.steps, plan.train.decay_steps) = (steps, 5);
        let found = train_in(&plan, folder.path(), samples.as_ref());
        let (scale, amax) = history(&found, name);
        assert_eq!(
            amax.len(),
            steps.min(3) as usize,
            "one a step, at most three"
        );
        if steps > 1 {
            // the amax that the previous step recorded gives this step's scale
            assert_eq!(amax[0], largest[0]);
        }
        assert_eq!(amax[1..], largest[1.min(largest.len())..][..amax.len() - 1]);
        let most = amax.iter().copied().fold(0.0, f32::max);
        assert_eq!(scale, 448.0 / most);
        let next = largest_weight(&found, name);
        match steps {
            1 => largest = vec![next, amax[0]],
            _ => largest.insert(0, next),
        }
    }
    assert!(largest[0] != largest[1], "the weights move");
}

#[test]
fn histories_know_no_evaluation_recomputation_or_skipped_step() {
    let plan = with(lowered(tiny_gpt(), DELAYED), "mb=4");
    let want = train(&plan);
    let mut never = plan.clone();
    never.train.eval_every = 0;
    let mut again = plan.clone();
    again.train.recompute = crate::config::Recompute::Full;
    for plan in [never, again] {
        let found = train(&plan);
        assert!(found.model == want.model && found.scales == want.scales);
    }
    // about every second step is a bad one
    let mut bad = plan;
    bad.train.steps = 12;
    bad.train.fp8.amax_history_len = 100;
    bad.train.on_bad_step = crate::config::OnBadStep {
        action: BadStepAction::Skip,
        factor: 1.000_001,
        window: 2,
        limit: 100,
    };
    let found = train(&bad);
    let skipped = numbers(&found, "skipped");
    let good = skipped.iter().filter(|skip| skip.is_null()).count();
    assert!((1..12).contains(&good), "{skipped:?}");
    let (_, amax) = history(&found, "layers.0.fc1.weight");
    assert_eq!(amax.len(), good);
}
