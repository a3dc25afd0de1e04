//! Muon and running averages: the same bits on every layout and after every resume, memory as the formulas predict,
//! and state stored under the right names.

use std::path::Path;

use crate::Error;
use crate::checkpoint::safetensors::Reader;
use crate::config::OptimizerKind;
use crate::config::Plan;
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama, tiny_moe};
use crate::model::param;
use crate::tests::layouts::{LAYOUTS, assert_same, ends_within, reproducible, with};
use crate::trainer::{memory, run};

fn with_both(mut plan: Plan) -> Plan {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    plan.train.optimizer = OptimizerKind::Muon;
    plan.train.ema_decay = 0.9;
    plan
}

/// Metrics, weights, and the optimizer's state followed by the averages.
fn trained_in(plan: &Plan, out: &Path) -> crate::tests::layouts::Result {
    let samples = Chain::of(plan);
    let outcome = run(plan, &samples, Some(&samples), out, &Log::default()).unwrap();
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    crate::tests::layouts::Result {
        metrics: reproducible(out),
        model: read("model.safetensors"),
        optimizer: [read("optimizer.safetensors"), read("ema.safetensors")].concat(),
        scales: serde_json::Value::Null,
    }
}

fn trained(plan: &Plan) -> crate::tests::layouts::Result {
    trained_in(plan, tempfile::tempdir().unwrap().path())
}

#[test]
fn muon_and_averages_are_the_same_bits_on_every_layout() {
    for (plan, every) in [(tiny_gpt(), 5), (tiny_llama(), 3)] {
        let plan = with_both(plan);
        let want = trained(&with(plan.clone(), "mb=12"));
        for layout in LAYOUTS.iter().step_by(every) {
            assert_same(&trained(&with(plan.clone(), layout)), &want, layout);
        }
    }
    let plan = with_both(tiny_moe());
    let want = trained(&with(plan.clone(), "mb=12"));
    for layout in ["mb=2", "dp=2 zero=1 mb=3", "tp=2 dp=2 zero=3 mb=2"] {
        assert_same(&trained(&with(plan.clone(), layout)), &want, layout);
    }
}

#[test]
fn muon_and_averages_go_on_in_another_layout() {
    let plan = with_both(tiny_llama());
    let want = trained(&with(plan.clone(), "mb=12"));
    let folder = tempfile::tempdir().unwrap();
    for (layout, steps) in [
        ("dp=3 zero=3 tp=2 sp mb=2", 1),
        ("pp=2 vs=2 dp=2 zero=1 mb=3", 2),
    ] {
        let mut plan = with(plan.clone(), layout);
        plan.train.checkpoint.every = 1;
        assert!(!ends_within(steps, &plan, folder.path()), "{layout}");
    }
    let found = trained_in(&with(plan.clone(), "tp=4 mb=2"), folder.path());
    assert_same(&found, &want, "three layouts one after the other");

    let mut other = with(plan, "mb=12");
    other.train.optimizer = OptimizerKind::Adamw;
    let samples = Chain::of(&other);
    let told = run(&other, &samples, None, folder.path(), &Log::default()).unwrap_err();
    assert!(
        matches!(&told, Error::Mismatch { differences, .. } if differences[0].key == "train.optimizer"),
        "{told}"
    );
}

#[test]
fn muon_has_no_second_moments_and_its_memory_is_what_the_formulas_say() {
    for layout in ["mb=3", "dp=3 zero=1 mb=2", "tp=2 pp=2 dp=2 zero=3 mb=2"] {
        let plan = with(with_both(tiny_gpt()), layout);
        let measured = memory::measure(&plan, &Chain::of(&plan)).unwrap();
        assert_eq!(measured, memory::predict(&plan).unwrap(), "{layout}");
    }
    let plan = with(with_both(tiny_gpt()), "mb=3");
    let folder = tempfile::tempdir().unwrap();
    trained_in(&plan, folder.path());
    let path = folder
        .path()
        .join("checkpoints/step-00000004/optimizer.safetensors");
    let reader = Reader::open(&path).unwrap();
    let names: Vec<&str> = reader.entries().map(|entry| entry.name.as_str()).collect();
    assert!(names.contains(&"layers.0.qkv.weight.m"));
    assert!(!names.contains(&"layers.0.qkv.weight.v"));
    assert!(names.contains(&"layers.0.qkv.bias.v") && names.contains(&"embedding.weight.v"));
}

#[test]
fn a_z_loss_is_told_apart_lowers_the_logits_sums_and_is_the_same_bits_on_every_layout() {
    let with_z = |z_loss: f64| {
        let mut plan = with(tiny_llama(), "mb=12");
        plan.train.z_loss = z_loss;
        plan.train.steps = 6;
        plan
    };
    let go = |plan: &Plan| {
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
        reproducible(folder.path())
    };
    let number = |line: &str, key: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line[key].as_f64()
    };
    let (plain, weak, strong) = (go(&with_z(0.0)), go(&with_z(1e-9)), go(&with_z(1e-2)));
    // the loss of the first step does not hold it
    assert_eq!(number(&plain[0], "loss"), number(&strong[0], "loss"));
    assert_eq!(number(&plain[0], "z_loss"), None);
    let z = |lines: &[String], at: usize| number(&lines[at], "z_loss").unwrap();
    // the mean square of ln sum exp of 200 about equal logits
    assert!((z(&strong, 0) / 1e-2 / 200f64.ln().powi(2) - 1.0).abs() < 0.01);
    let last = |lines: &[String], scale: f64| z(lines, lines.len() - 2) / scale;
    assert!(last(&strong, 1e-2) < last(&weak, 1e-9));
    for layout in ["mb=1", "tp=2 sp mb=2", "cp=2 pp=2 dp=2 zero=2 mb=3"] {
        let mut plan = with(with_z(1e-2), layout);
        plan.train.steps = 6;
        assert_eq!(go(&plan), strong, "{layout}");
    }
}

#[test]
fn averages_are_measured_exported_and_set_apart() {
    let mut plan = tiny_gpt();
    plan.train.ema_decay = 0.5;
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap();
    let averages = done.checkpoint.join("ema.safetensors");
    let loss = |of: &Path| crate::eval::evaluate(of, &samples, 5).unwrap();
    assert_ne!(loss(&averages), loss(&done.checkpoint));
    let apart = folder.path().join("averages");
    let weights_alone = crate::checkpoint::Reshard::default();
    crate::checkpoint::reshard(&averages, &apart, &weights_alone).unwrap();
    assert_eq!(
        loss(&apart),
        loss(&averages),
        "the averages are its weights"
    );
    let weights = folder.path().join("weights");
    crate::checkpoint::reshard(&done.checkpoint, &weights, &weights_alone).unwrap();
    assert_eq!(loss(&weights), loss(&done.checkpoint));
    let (one, other) = (folder.path().join("hf1"), folder.path().join("hf2"));
    crate::checkpoint::export_hf(&averages, &one).unwrap();
    crate::checkpoint::export_hf(&apart, &other).unwrap();
    let read = |out: &Path| std::fs::read(out.join("model.safetensors")).unwrap();
    assert!(read(&one) == read(&other));

    let told = crate::checkpoint::reshard(&done.checkpoint, &apart, &weights_alone)
        .unwrap_err()
        .to_string();
    assert!(told.contains("which is there"), "{told}");
    let lacking = apart.join("ema.safetensors");
    let told = crate::eval::evaluate(&lacking, &samples, 5)
        .unwrap_err()
        .to_string();
    assert!(told.contains("no checksums of ema.safetensors"), "{told}");
    let out = tempfile::tempdir().unwrap();
    let checkpoints = out.path().join("checkpoints");
    std::fs::create_dir(&checkpoints).unwrap();
    std::fs::rename(&apart, checkpoints.join("step-00000004")).unwrap();
    let told = run(&plan, &samples, None, out.path(), &Log::default()).unwrap_err();
    let told = told.to_string();
    assert!(
        told.contains("no checksums of optimizer.safetensors"),
        "{told}"
    );
}

#[test]
fn averages_are_those_of_the_weights_after_every_step() {
    let mut plan = tiny_llama();
    plan.train.ema_decay = 0.75;
    (plan.train.checkpoint.every, plan.train.checkpoint.keep) = (1, 9);
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    run(&plan, &samples, None, folder.path(), &Log::default()).unwrap();
    let checkpoints = folder.path().join("checkpoints");
    for spec in param::specs(&plan) {
        let read = |step: u64, file: &str| {
            let path = crate::checkpoint::path_of(&checkpoints, step).join(file);
            let mut values = vec![0.0; spec.dims.iter().product()];
            let mut reader = Reader::open(&path).unwrap();
            reader
                .read_part(&spec.name, &spec.dims, 0, &mut values)
                .unwrap();
            values
        };
        for step in 2..=plan.train.steps {
            let (before, after) = (
                read(step - 1, "ema.safetensors"),
                read(step, "ema.safetensors"),
            );
            let weights = read(step, "model.safetensors");
            for ((before, after), weight) in before.iter().zip(after).zip(weights) {
                assert_eq!(after, before + (weight - before) * 0.25, "{}", spec.name);
            }
        }
    }
}
