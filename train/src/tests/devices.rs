//! Training on a GPU gives the bits of the CPU: losses, gradient norms, weights and moments of three steps, on one rank
//! and on layouts whose ranks share the simulated GPU of `kernels/sim`.

use kernels::testing::simulator;
use kernels::{Device, Tensor, rng};

use crate::checkpoint::snapshot;
use crate::config::{OptimizerKind, Plan, Recompute};
use crate::data::{self, Samples};
use crate::dist::mesh::Groups;
use crate::dist::{CudaPaths, Devices, World};
use crate::fixtures::{Log, nth_step, samples_of, tiny_bert, tiny_gpt, tiny_llama};
use crate::model::context::{Context, Weights};
use crate::model::gradients::Gradients;
use crate::model::param::{self, Spec};
use crate::model::slots::Slots;
use crate::model::stage::{Flow, FlowGrad, Pass, Stage};
use crate::tests::layouts::{Result, assert_same, reproducible, train, with};
use crate::trainer::step::Trainer;
use crate::trainer::{ValidationSet, run_in_world};

/// The simulated GPU; `None` without a C++ compiler.
fn simulated() -> Option<Devices> {
    let folder = simulator::folder()?;
    Some(Devices::Cuda(CudaPaths {
        cache: Some(folder.join("kernels")),
        libraries: vec![folder],
    }))
}

/// Trains with all ranks on these devices.
fn train_on(devices: &Devices, plan: &Plan) -> Result {
    let (folder, samples) = (tempfile::tempdir().unwrap(), samples_of(plan));
    let samples: &dyn Samples = samples.as_ref();
    let sets = [ValidationSet {
        name: "valid",
        samples,
    }];
    let world = World::alone().on(devices.clone());
    let to = (folder.path(), &world);
    let log = Log::default();
    let outcome = run_in_world(plan, samples, &sets, to, &log).unwrap();
    let is_said = log.lines().iter().any(|line| line.contains("cuda:0"));
    assert!(is_said, "the device is named: {:?}", log.lines());
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&read("state.json")).unwrap();
    Result {
        metrics: reproducible(folder.path()),
        model: read("model.safetensors"),
        optimizer: read("optimizer.safetensors"),
        scales: state["fp8"].clone(),
    }
}

/// As small as eight chunks of tokens and of features allow, as the simulator runs a kernel thread by thread.
fn small(mut plan: Plan) -> Plan {
    (plan.model.layers, plan.train.steps) = (2, 3);
    plan.train.eval_samples = 2;
    plan
}

/// Compares each layout with the same layout on the CPU.
fn gives_the_bits_of_the_cpu(plan: Plan, layouts: &[&str]) {
    let Some(devices) = simulated() else { return };
    for layout in layouts {
        let mut plan = with(small(plan.clone()), layout);
        plan.train.global_batch = 4;
        let want = train(&plan);
        assert_same(&train_on(&devices, &plan), &want, layout);
    }
}

#[test]
fn a_gpt_trains_with_the_bits_of_the_cpu() {
    gives_the_bits_of_the_cpu(tiny_gpt(), &["mb=2"]);
}

#[test]
fn a_llama_trains_with_the_bits_of_the_cpu() {
    gives_the_bits_of_the_cpu(tiny_llama(), &["mb=2"]);
}

#[test]
fn recomputed_layers_have_the_bits_of_the_cpu() {
    let mut plan = tiny_gpt();
    plan.train.recompute = Recompute::Full;
    gives_the_bits_of_the_cpu(plan, &["mb=4 full"]);
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
    let pieces = snapshot::take(&trainer.state).unwrap();
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
    let words = |x: &f64| bytemuck::cast::<f64, [u32; 2]>(*x);
    let losses = losses.predictions.iter().flatten().chain(&losses.orders);
    let mut all = vec![losses.flat_map(words).collect()];
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
