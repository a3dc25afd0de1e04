//! `determinism = "run"` on a GPU: products of bf16, fp16 and fp8 on tensor cores give the same bits twice, losses near
//! those of f32 and of the CPU in the same precision, and the order of sums is recorded. On the simulated GPU of
//! `kernels/sim`.

use kernels::testing::simulator;
use kernels::{DType, Device, Tensor};

use crate::config::{Bf16Sums, Determinism, Fp8Recipe, Plan, Precision};
use crate::dist::mesh::Groups;
use crate::dist::{Collectives, Devices};
use crate::fixtures::{Log, samples_of, tiny_gpt, tiny_llama, tiny_moe};
use crate::model::context::{Context, Weights};
use crate::tests::devices::{cards, laid_out, simulated, train_on};
use crate::tests::layouts::{Result, assert_same};
use crate::trainer::run;

/// Two steps of four sequences.
fn short(plan: Plan, precision: Precision, layout: &str) -> Plan {
    let mut plan = laid_out(&plan, layout);
    plan.determinism = Determinism::Run;
    (plan.train.precision, plan.train.bf16_sums) = (precision, Bf16Sums::Auto);
    plan.train.loss_scale.initial = 2f64.powi(10);
    plan
}

fn run_on(devices: &Devices, plan: &Plan) -> Result {
    let (folder, samples) = (tempfile::tempdir().unwrap(), samples_of(plan));
    train_on(devices, plan, folder.path(), samples.as_ref()).unwrap()
}

fn losses(of: &Result) -> Vec<f64> {
    let lines = of.metrics.iter();
    let values = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let losses: Vec<f64> = values.filter_map(|v| v["loss"].as_f64()).collect();
    assert!(losses.len() >= 2, "{:?}", of.metrics);
    losses
}

/// The largest difference of losses relative to the second's.
fn distance(found: &Result, want: &Result) -> f64 {
    let (found, want) = (losses(found), losses(want));
    assert_eq!(found.len(), want.len());
    let pairs = found.iter().zip(&want);
    pairs.map(|(f, w)| (f - w).abs() / w).fold(0.0, f64::max)
}

/// Runs twice on the GPU, and on the CPU in the same precision and in f32. Rounded factors have a relative error of at
/// most `step`, which bounds that of a loss, a mean over many products, generously; another order of sums changes few
/// roundings, so the CPU's loss is nearer.
fn check(name: &str, plan: &Plan, step: f64) {
    let Some(gpu) = simulated() else { return };
    let first = run_on(&gpu, plan);
    assert_same(&run_on(&gpu, plan), &first, name);
    let cpu = run_on(&Devices::Cpu, plan);
    let mut exact = plan.clone();
    exact.train.precision = Precision::F32;
    let exact = run_on(&Devices::Cpu, &exact);
    let [from_cpu, from_f32] = [distance(&first, &cpu), distance(&first, &exact)];
    // the simulator adds halves in the CPU's order, bf16 in another
    let is_alike = plan.train.precision == Precision::Fp16;
    assert!(
        from_cpu <= step / 4.0 && from_f32 <= step && (is_alike || first.model != cpu.model),
        "{name}: {from_cpu} from the CPU, {from_f32} from f32"
    );
}

#[test]
fn sixteen_bits_on_tensor_cores_train_near_f32_with_the_same_bits_twice() {
    check(
        "bf16",
        &short(tiny_llama(), Precision::Bf16, "mb=2"),
        2f64.powi(-8),
    );
    check(
        "fp16",
        &short(tiny_gpt(), Precision::Fp16, "tp=2 mb=4"),
        2f64.powi(-11),
    );
    check(
        "experts",
        &short(tiny_moe(), Precision::Bf16, "mb=4"),
        2f64.powi(-8),
    );
}

#[test]
fn eight_bits_on_tensor_cores_train_near_f32_with_the_same_bits_twice() {
    for recipe in [Fp8Recipe::Current, Fp8Recipe::Block, Fp8Recipe::Delayed] {
        let mut plan = short(tiny_llama(), Precision::Fp8, "mb=4");
        plan.train.fp8.recipe = recipe;
        check(&format!("{recipe:?}"), &plan, 2f64.powi(-4));
    }
}

#[test]
fn sums_of_nccl_train_near_the_trees_with_the_same_bits_twice() {
    let Some(gpus) = cards(None, Collectives::Nccl) else {
        return;
    };
    // shards of unequal lengths are added by our kernel, whole gradients by NCCL
    for (layout, is_by_nccl) in [("dp=4 mb=1", true), ("tp=2 dp=2 zero=3 mb=1", false)] {
        // one precision on all: differences are those of the order of sums
        let plan = short(tiny_llama(), Precision::F32, layout);
        let first = run_on(&gpus, &plan);
        assert_same(&run_on(&gpus, &plan), &first, layout);
        let trees = run_on(&Devices::Cpu, &plan);
        let distance = distance(&first, &trees);
        assert!(distance <= 2f64.powi(-18), "{layout}: {distance}");
        assert_eq!(first.model != trees.model, is_by_nccl, "{layout}");
    }
}

#[test]
fn layers_store_factors_in_eight_bits_where_scales_can_leave_the_sum() {
    let Some(gpu) = simulator::device() else {
        return;
    };
    let rows = |device: &Device| Tensor::zeros(&[2, 32], DType::F32, device).unwrap();
    let (here, on_host) = (rows(&gpu), rows(&Device::cpu()));
    for (recipe, wanted) in [
        (Fp8Recipe::Current, true),
        (Fp8Recipe::Delayed, true),
        (Fp8Recipe::Block, false),
    ] {
        let mut plan = short(tiny_llama(), Precision::Fp8, "mb=4");
        plan.train.fp8.recipe = recipe;
        plan.train.fp8.num_layers_at_end_in_bf16 = 1;
        plan.train.bf16_sums = Bf16Sums::Mma;
        let groups = Groups::single();
        let cx = Context::of(&plan, Weights::All(&[], None), &groups);
        let inside = cx.in_block(0);
        assert_eq!(inside.has_eight_bits(&here, 32), wanted, "{recipe:?}");
        assert_eq!(inside.has_one_scale(), recipe == Fp8Recipe::Delayed);
        assert!(!inside.has_eight_bits(&here, 40));
        assert!(!inside.has_eight_bits(&on_host, 32));
        assert!(!cx.in_block(plan.model.layers - 1).has_eight_bits(&here, 32));
        plan.train.bf16_sums = Bf16Sums::Pairs;
        let pairs = Context::of(&plan, Weights::All(&[], None), &groups);
        assert!(!pairs.in_block(0).has_eight_bits(&here, 32));
    }
}

#[test]
fn the_order_of_sums_is_logged_recorded_and_refused_on_a_cpu() {
    let Some(gpu) = simulated() else { return };
    let plan = short(tiny_gpt(), Precision::Bf16, "mb=4");
    let (folder, samples) = (tempfile::tempdir().unwrap(), samples_of(&plan));
    let auto = train_on(&gpu, &plan, folder.path(), samples.as_ref()).unwrap();
    let newest = crate::checkpoint::newest_checkpoint(&folder.path().join("checkpoints"));
    let state = newest.unwrap().expect("the run has checkpoints").path;
    let state = std::fs::read(state.join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["plan"]["train"]["bf16_sums"], "mma");
    let chosen = |sums| {
        let mut plan = plan.clone();
        plan.train.bf16_sums = sums;
        plan
    };
    assert_same(&run_on(&gpu, &chosen(Bf16Sums::Mma)), &auto, "chosen");
    let pairs = run_on(&gpu, &chosen(Bf16Sums::Pairs));
    assert!(pairs.model != auto.model, "sums are made otherwise");
    let folder = tempfile::tempdir().unwrap();
    let mma = chosen(Bf16Sums::Mma);
    let refused = run(&mma, samples.as_ref(), None, folder.path(), &Log::default());
    let Err(crate::Error::Plan(problems)) = refused else {
        panic!("a CPU has no tensor cores");
    };
    assert!(
        problems[0].contains("train.bf16_sums: found \"mma\""),
        "{problems:?}"
    );
}
