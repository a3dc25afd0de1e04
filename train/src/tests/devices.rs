//! Training on a GPU gives the bits of the CPU: losses, gradient norms, weights and moments of two steps, on one rank
//! and on layouts whose ranks share the simulated GPU of `kernels/sim`.

use std::path::Path;

use kernels::testing::simulator;
use kernels::{Device, Tensor, rng};

use crate::checkpoint::snapshot::{self, Whole};
use crate::config::{Bf16Sums, Fp8Recipe, OptimizerKind, Plan, Precision, TieEmbeddings};
use crate::data::{self, Samples};
use crate::dist::mesh::Groups;
use crate::dist::{Collectives, CudaPaths, Devices, InferenceOptions, World};
use crate::eval::evaluate_on;
use crate::fixtures::{Chain, Log, nth_step, options, samples_of};
use crate::fixtures::{
    tiny_bert, tiny_deepseek, tiny_gpt, tiny_gpt_oss, tiny_llama, tiny_moe, tiny_t5,
};
use crate::infer::engine::{Engine, Limits, Request};
use crate::infer::{GenerateOptions, generate_on};
use crate::model::context::{Context, Weights};
use crate::model::gradients::Gradients;
use crate::model::param::{self, Spec};
use crate::model::slots::Slots;
use crate::model::stage::{Flow, FlowGrad, Pass, Stage};
use crate::tests::layouts::{Result, assert_same, reproducible, train, with};
use crate::tests::lora::adapted_everywhere;
use crate::trainer::step::Trainer;
use crate::trainer::{ValidationSet, run, run_in_world};

/// The simulated GPU, which all ranks share; `None` without a C++ compiler.
pub(super) fn simulated() -> Option<Devices> {
    cards(Some(1), Collectives::Auto)
}

/// The first of the simulated GPUs.
pub(super) fn cards(most: Option<usize>, collectives: Collectives) -> Option<Devices> {
    let folder = simulator::folder()?;
    Some(Devices::Cuda(CudaPaths {
        cache: Some(folder.join("kernels")),
        libraries: vec![folder],
        collectives,
        most,
    }))
}

/// Trains in `folder`, with all ranks on these devices.
pub(super) fn train_on(
    devices: &Devices,
    plan: &Plan,
    folder: &Path,
    samples: &dyn Samples,
) -> crate::Result<Result> {
    let valid = samples_of(plan);
    let sets = [ValidationSet {
        name: "valid",
        samples: valid.as_ref(),
    }];
    let world = World::alone().on(devices.clone());
    let log = Log::default();
    let outcome = run_in_world(plan, samples, &sets, (folder, &world), &log)?;
    let is_named = log.lines().iter().any(|line| line.contains("cuda:0"));
    assert_eq!(is_named, !devices.is_cpu(), "{:?}", log.lines());
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&read("state.json")).unwrap();
    assert_eq!(state["sums"]["backend"], devices.backend());
    let order = plan.sum_order().name();
    assert_eq!(state["sums"]["order"], order);
    // the bits are the same, so a change of devices is none
    assert!(state["changes"].is_null(), "{}", state["changes"]);
    Ok(Result {
        metrics: reproducible(folder),
        model: read("model.safetensors"),
        optimizer: read("optimizer.safetensors"),
        scales: state["fp8"].clone(),
    })
}

/// Few sequences, as the simulator runs kernels thread by thread.
pub(super) fn laid_out(plan: &Plan, layout: &str) -> Plan {
    let mut plan = with(plan.clone(), layout);
    plan.train.global_batch = 4;
    (plan.train.steps, plan.train.eval_samples) = (2, 2);
    if plan.train.precision.has_bf16() {
        plan.train.bf16_sums = Bf16Sums::Pairs;
    }
    plan
}

/// Compares the layouts with one rank on the CPU.
fn has_the_bits_of_the_cpu(plan: &Plan, layouts: &[&str]) {
    if let Some(devices) = simulated() {
        has_the_bits_of_the_cpu_on(&devices, plan, layouts);
    }
}

fn has_the_bits_of_the_cpu_on(devices: &Devices, plan: &Plan, layouts: &[&str]) {
    let want = train(&laid_out(plan, "mb=4"));
    for layout in layouts {
        let (plan, folder) = (laid_out(plan, layout), tempfile::tempdir().unwrap());
        let samples = samples_of(&plan);
        let found = train_on(devices, &plan, folder.path(), samples.as_ref()).unwrap();
        let what = format!("{:?} {layout}", plan.model.family);
        assert_same(&found, &want, &what);
    }
}

#[test]
fn decoders_train_with_the_bits_of_the_cpu() {
    for plan in [tiny_gpt(), tiny_llama()].into_iter().chain(options()) {
        has_the_bits_of_the_cpu(&plan, &["mb=2"]);
    }
}

#[test]
fn masked_models_and_encoder_decoders_train_with_the_bits_of_the_cpu() {
    let mut order = tiny_bert();
    order.model.next_sentence = true;
    has_the_bits_of_the_cpu(&order, &["tp=2 sp cp=2 mb=2"]);
    has_the_bits_of_the_cpu(&tiny_t5(), &["pp=2 dp=2 zero=3 mb=1"]);
}

#[test]
fn mixtures_train_with_the_bits_of_the_cpu() {
    let layouts = [
        "dp=4 ep=2 zero=3 tp=2 sp mb=1",
        "cp=2 dp=2 ep=2 zero=2 mb=1",
    ];
    has_the_bits_of_the_cpu(&tiny_moe(), &layouts);
}

#[test]
fn gpt_oss_trains_with_the_bits_of_the_cpu() {
    has_the_bits_of_the_cpu(&tiny_gpt_oss(), &["mb=2", "cp=2 tp=2 sp mb=2"]);
}

#[test]
fn adapters_of_experts_router_and_head_train_with_the_bits_of_the_cpu() {
    let mut plan = adapted_everywhere(tiny_moe());
    (plan.model.layers, plan.seq_length) = (1, 8);
    let moe = plan.model.moe.as_mut().unwrap();
    (moe.every, moe.capacity_factor) = (1, 0.0);
    has_the_bits_of_the_cpu(&plan, &["chunked mb=4"]);
}

#[test]
fn deepseek_trains_with_the_bits_of_the_cpu() {
    has_the_bits_of_the_cpu(&tiny_deepseek(), &["tp=2 sp mb=2"]);
}

#[test]
fn every_axis_has_the_bits_of_the_cpu() {
    let mut plan = tiny_gpt();
    plan.model.layers = 4;
    let layouts = [
        "dp=2 zero=3 tp=2 sp pp=2 mb=1",
        "cp=2 dp=2 zero=2 mb=1 here",
        "full=1 chunked mb=2",
    ];
    has_the_bits_of_the_cpu(&plan, &layouts);
}

#[test]
#[ignore = "slow: minutes of the simulator for layouts whose parts are in the tests beside it"]
fn further_layouts_have_the_bits_of_the_cpu() {
    let mut plan = tiny_gpt();
    plan.model.layers = 4;
    let layouts = [
        "tp=2 mb=2",
        "pp=2 vs=2 mb=1",
        "dp=4 zero=2 mb=1",
        "selective mb=2",
    ];
    has_the_bits_of_the_cpu(&plan, &layouts);
    let mut order = tiny_bert();
    order.model.next_sentence = true;
    has_the_bits_of_the_cpu(&order, &["mb=2"]);
    has_the_bits_of_the_cpu(&tiny_t5(), &["mb=2", "cp=2 tp=2 sp mb=2"]);
    has_the_bits_of_the_cpu(&tiny_moe(), &["mb=2", "dp=2 ep=2 mb=1"]);
    for (precision, recipe) in [
        (Precision::Fp16, Fp8Recipe::Current),
        (Precision::Fp8, Fp8Recipe::Current),
    ] {
        has_the_bits_in(precision, recipe);
    }
    let Some(by_nccl) = cards(None, Collectives::Nccl) else {
        return;
    };
    let layouts = ["tp=2 sp dp=2 zero=1 mb=1", "cp=2 dp=4 zero=2 mb=1"];
    has_the_bits_of_the_cpu_on(&by_nccl, &plan, &layouts);
    plan.model.layers = 8;
    for (tied, layouts) in [
        (TieEmbeddings::Tied, ["pp=4 mb=1", "pp=2 dp=2 mb=1 gpipe"]),
        (TieEmbeddings::Untied, ["pp=2 vs=4 mb=1", "pp=2 tp=2 mb=2"]),
    ] {
        plan.model.tie_embeddings = tied;
        has_the_bits_of_the_cpu_on(&by_nccl, &plan, &layouts);
    }
}

#[test]
fn layouts_over_several_gpus_have_the_bits_of_the_cpu() {
    let ways = [Collectives::Nccl, Collectives::Host];
    let devices: Vec<Devices> = (ways.into_iter())
        .filter_map(|way| cards(None, way))
        .collect();
    let [by_nccl, by_host] = &devices[..] else {
        return;
    };
    let mut plan = tiny_gpt();
    plan.model.layers = 4;
    has_the_bits_of_the_cpu_on(by_nccl, &plan, &["dp=2 zero=3 tp=2 sp pp=2 mb=1"]);
    has_the_bits_of_the_cpu_on(by_nccl, &tiny_moe(), &["dp=2 ep=2 zero=3 mb=1"]);
    has_the_bits_of_the_cpu_on(by_host, &plan, &["dp=2 zero=3 mb=1"]);
}

#[test]
fn pipelines_over_links_of_nccl_have_the_bits_of_the_cpu() {
    let Some(devices) = cards(None, Collectives::Nccl) else {
        return;
    };
    // with an embedding that the head shares, on other stages, and without
    for (tied, layers, layout) in [
        (TieEmbeddings::Tied, 4, "pp=2 vs=2 mb=1"),
        (TieEmbeddings::Untied, 8, "pp=4 vs=2 mb=1"),
    ] {
        let mut plan = tiny_gpt();
        (plan.model.layers, plan.model.tie_embeddings) = (layers, tied);
        has_the_bits_of_the_cpu_on(&devices, &plan, &[layout]);
    }
    // stages share position biases and embeddings
    has_the_bits_of_the_cpu_on(&devices, &tiny_t5(), &["pp=4 mb=1"]);
}

#[test]
fn two_ranks_on_one_gpu_are_refused_if_nccl_is_asked_for() {
    let Some(devices) = cards(Some(1), Collectives::Nccl) else {
        return;
    };
    let plan = laid_out(&tiny_gpt(), "dp=2 mb=1");
    let (folder, samples) = (tempfile::tempdir().unwrap(), samples_of(&plan));
    let found = train_on(&devices, &plan, folder.path(), samples.as_ref());
    let Err(error) = found else {
        panic!("two ranks cannot share a GPU with NCCL");
    };
    assert!(error.is_unavailable());
    let said = error.with_causes();
    for part in ["launch.collectives", "ranks 0 and 1", "\"host\""] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn lower_precisions_have_the_bits_of_the_cpu() {
    for (precision, recipe) in [
        (Precision::Bf16, Fp8Recipe::Current),
        (Precision::Fp8, Fp8Recipe::Block),
        (Precision::Fp8, Fp8Recipe::Delayed),
    ] {
        has_the_bits_in(precision, recipe);
    }
}

fn has_the_bits_in(precision: Precision, recipe: Fp8Recipe) {
    let mut plan = tiny_llama();
    (plan.train.precision, plan.train.fp8.recipe) = (precision, recipe);
    plan.train.loss_scale.initial = 2f64.powi(10);
    has_the_bits_of_the_cpu(&plan, &["tp=2 dp=2 mb=1"]);
}

#[test]
fn offloaded_activations_and_muon_have_the_bits_of_the_cpu() {
    let mut plan = tiny_llama();
    plan.train.optimizer = OptimizerKind::Muon;
    plan.train.ema_decay = 0.9;
    plan.train.offload.layers = 1;
    has_the_bits_of_the_cpu(&plan, &["mb=2", "dp=2 tp=2 zero=1 mb=1"]);
}

#[test]
fn sums_in_tiles_are_refused_before_the_first_step() {
    let Some(devices) = simulated() else { return };
    let mut plan = laid_out(&tiny_gpt(), "mb=2");
    plan.train.precision = Precision::Bf16;
    plan.train.bf16_sums = Bf16Sums::Tiles;
    let (folder, samples) = (tempfile::tempdir().unwrap(), samples_of(&plan));
    let found = train_on(&devices, &plan, folder.path(), samples.as_ref());
    let Err(crate::Error::Plan(problems)) = found else {
        panic!("a plan with tiles is refused");
    };
    assert!(problems[0].contains("train.bf16_sums"), "{problems:?}");
}

#[test]
fn a_run_goes_on_between_the_cpu_and_a_gpu_with_the_same_bits() {
    let Some(devices) = simulated() else { return };
    let mut plan = laid_out(&tiny_gpt(), "mb=2");
    plan.train.steps = 3;
    let want = train(&plan);
    let folder = tempfile::tempdir().unwrap();
    let path = [(Devices::Cpu, 1), (devices.clone(), 2), (Devices::Cpu, 3)];
    for (devices, steps) in path {
        let mut plan = plan.clone();
        plan.train.checkpoint.every = 1;
        let samples = Chain {
            fails_at: (steps < plan.train.steps).then_some(steps * 4),
            ..Chain::of(&plan)
        };
        let done = train_on(&devices, &plan, folder.path(), &samples);
        assert_eq!(done.is_ok(), steps == plan.train.steps);
        if let Ok(found) = done {
            assert_same(&found, &want, "from device to device");
        }
    }
    let newest = crate::checkpoint::newest_checkpoint(&folder.path().join("checkpoints"));
    let checkpoint = newest.unwrap().expect("the run has checkpoints").path;
    let samples = Chain::of(&plan);
    let of = |devices: &Devices| evaluate_on(devices, &checkpoint, &samples, 3).unwrap();
    assert_eq!(of(&devices).to_bits(), of(&Devices::Cpu).to_bits());
    let options = GenerateOptions {
        max_tokens: 24,
        ..GenerateOptions::default()
    };
    let of = |devices: &Devices| {
        generate_on(devices, &checkpoint, &[5, 6, 7], &options, &mut |_| {}).unwrap()
    };
    assert_eq!(of(&devices), of(&Devices::Cpu));
}

#[test]
fn tensor_parallel_ranks_on_cards_answer_with_the_bits_of_the_cpu() {
    for mut plan in [tiny_llama(), tiny_moe()] {
        plan.train.steps = 2;
        let folder = tempfile::tempdir().unwrap();
        let samples = samples_of(&plan);
        let done = run(
            &plan,
            samples.as_ref(),
            None,
            folder.path(),
            &Log::default(),
        );
        let checkpoint = done.unwrap().checkpoint;
        let answers = |on: InferenceOptions| {
            let limits = Limits {
                draft_tokens: 2,
                ..Limits::default()
            };
            let mut engine = Engine::open(&checkpoint, on, limits).unwrap();
            for (number, prompt) in [&[5, 6, 7][..], &[9; 12], &[5, 6, 7, 8]].iter().enumerate() {
                let options = GenerateOptions {
                    logprobs: Some(2),
                    prompt_logprobs: Some(1),
                    temperature: if number == 1 { 0.9 } else { 0.0 },
                    ..GenerateOptions::greedy(3)
                };
                let request = Request {
                    prompt: prompt.to_vec(),
                    options,
                    beginning: Vec::new(),
                    slides: false,
                    adapter: None,
                };
                engine.submit(request).unwrap();
            }
            let mut events = vec![];
            while !engine.is_idle() {
                events.extend(engine.step().unwrap());
            }
            events
        };
        let want = answers(Devices::Cpu.whole());
        assert!(want.len() > 6, "{want:?}");
        // one card for all ranks, whose sums go by the host, and one for each, whose sums go by NCCL
        for (most, collectives) in [(1, Collectives::Auto), (2, Collectives::Nccl)] {
            let Some(devices) = cards(Some(most), collectives) else {
                return;
            };
            assert_eq!(answers(devices.split(2)), want, "{most} {collectives:?}");
        }
    }
}

/// Bits of the numbers of a tensor on any device.
fn bits(x: &Tensor) -> Vec<u32> {
    kernels::testing::bits(&kernels::testing::values(x))
}

/// Everything that a rank's checkpoint has after two updates with drawn gradients.
fn updated(plan: &Plan, groups: Groups, device: &Device) -> Vec<u32> {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, groups, device.clone()).unwrap();
    for step in 1..=2 {
        let local_shards = &trainer.state.local_shards;
        let units = local_shards.local.iter().enumerate();
        let gradients = units.map(|(index, local)| {
            let held = local_shards.moments(index);
            // the same on ranks that have the same elements
            let mut whole = vec![0.0; local_shards.shards.units[local.unit].len()];
            rng::fill_normal(&mut whole, 9, local.unit as u64, step, 1.0);
            let some = match held.is_empty() {
                true => vec![0.0],
                false => whole[held].to_vec(),
            };
            Tensor::from_f32(&[some.len()], &some, device).unwrap()
        });
        let gradients: Vec<Tensor> = gradients.collect();
        let norm = trainer.norm(&gradients).unwrap();
        let next = nth_step(plan, step);
        trainer.update(&gradients, norm, &next).unwrap();
    }
    let pieces = snapshot::take(Whole::own(&trainer.state)).unwrap();
    pieces
        .flat_map(|piece| kernels::testing::bits(&piece))
        .collect()
}

/// `updated` of every rank, each a thread.
fn updated_on_all(plan: &Plan, device: &Device) -> Vec<Vec<u32>> {
    std::thread::scope(|scope| {
        let ranks = Groups::all(&plan.parallel).into_iter();
        let threads: Vec<_> = ranks
            .map(|groups| scope.spawn(move || updated(plan, groups, device)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn optimizers_and_sharded_states_have_the_bits_of_the_cpu() {
    let Some(gpu) = simulator::device() else {
        return;
    };
    for optimizer in [OptimizerKind::Adamw, OptimizerKind::Muon] {
        for layout in [
            "mb=1",
            "dp=2 zero=1 mb=1",
            "dp=3 tp=2 zero=3 mb=1",
            "pp=2 dp=2 zero=2 mb=1",
        ] {
            let mut plan = with(tiny_llama(), layout);
            (plan.train.optimizer, plan.train.ema_decay) = (optimizer, 0.5);
            let want = updated_on_all(&plan, &Device::cpu());
            let found = updated_on_all(&plan, &gpu);
            assert!(found == want, "{optimizer:?} {layout}");
        }
    }
}

/// Losses, and gradients of the first and the last layer, as if there were no block between them.
fn ends(plan: &Plan, device: &Device) -> Vec<Vec<u32>> {
    let (specs, groups) = (param::specs(plan), Groups::single());
    let initial = |spec: &Spec| spec.initial(plan.seed, &groups.place, device).unwrap();
    let weights: Vec<Tensor> = specs.iter().map(initial).collect();
    let stage = Stage::of(plan, &groups.place, 0, &specs);
    let slots = Slots::on(&groups.place, &specs);
    let mut dims: Vec<Vec<usize>> = specs.iter().map(|spec| spec.dims.clone()).collect();
    let further: Vec<usize> = slots.further_uses().iter().map(|(slot, _)| *slot).collect();
    dims.extend(further.iter().map(|&slot| specs[slot].dims.clone()));
    let units: Vec<std::ops::Range<usize>> = (0..dims.len()).map(|slot| slot..slot + 1).collect();
    let mut gradients = Gradients::of(&units, &dims, device).unwrap();
    let samples = samples_of(plan);
    let batch = data::read(samples.as_ref(), 0, 0..2, plan, (device, &groups.place)).unwrap();
    let pass = Pass {
        further_weight: None,
        batch: &batch,
        weight: 0.25,
        noise: None,
    };
    let cx = Context::of(plan, Weights::All(&weights, None), &groups);
    let (Some(first), Some(last)) = (stage.layers.first(), stage.layers.last()) else {
        panic!("a model has an embedding and a head");
    };
    let (x, below) = first.forward(Flow::Start, pass, &cx).unwrap();
    let (out, above) = last.forward(x, pass, &cx).unwrap();
    let Flow::Losses(losses) = out else {
        panic!("the head puts out losses");
    };
    let grad = last.backward(FlowGrad::None, pass, above, &mut gradients, &cx);
    let grad = grad.unwrap();
    first
        .backward(grad, pass, below, &mut gradients, &cx)
        .unwrap();
    let sums = losses.predictions.iter().chain(&losses.orders);
    let mut all: Vec<Vec<u32>> = sums.map(|x| x.download().unwrap()).collect();
    let slots = first.gradients.iter().chain(&last.gradients);
    all.extend(slots.map(|&slot| bits(gradients.tensor(slot))));
    all
}

#[test]
fn embeddings_and_heads_have_the_losses_and_gradients_of_the_cpu() {
    let Some(gpu) = simulator::device() else {
        return;
    };
    let mut chunked = tiny_llama();
    (chunked.train.chunked_cross_entropy, chunked.train.z_loss) = (true, 1e-3);
    for plan in [tiny_gpt(), tiny_llama(), chunked, tiny_bert()] {
        let want = ends(&plan, &Device::cpu());
        assert!(ends(&plan, &gpu) == want, "{:?}", plan.model.family);
    }
}
