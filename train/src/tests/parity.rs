//! Parity with torch and transformers: exported weights, logits, loss, every gradient, ten steps of clipping and
//! AdamW. The goldens are described in tests/oracles/torch_goldens.py.
//!
//! Recorded values are torch's float64. The tolerance of a quantity is 4 times the error that float32
//! programs must have in it (tests/oracles/conditioning.py; losses and norms: the largest up to the
//! step), but at least 4 units in the last place of its largest value.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use kernels::{Device, Tensor};
use serde_json::Value;

use crate::checkpoint::huggingface::outs::{Out, Source, tensors};
use crate::checkpoint::safetensors::Reader;
use crate::config::Plan;
use crate::config::{Determinism, Family, ModelConfig, ParallelConfig, Schedule, TrainConfig};
use crate::data::{Sample, Samples};
use crate::dist::mesh::Groups;
use crate::fixtures::nth_step;
use crate::model::context::{Context, Weights};
use crate::model::param;
use crate::trainer::step::Trainer;

pub(super) fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracles")
        .join(name)
}

pub(super) fn plan(family: Family, determinism: Determinism) -> Plan {
    let is_gpt = family == Family::Gpt;
    Plan {
        model: ModelConfig {
            family,
            layers: 2,
            d_model: 16,
            heads: 4,
            kv_heads: if is_gpt { 0 } else { 2 },
            d_ffn: 24,
            ..ModelConfig::default()
        },
        parallel: ParallelConfig::default(),
        train: TrainConfig {
            steps: 10,
            global_batch: 4,
            micro_batch: 2,
            lr: 1e-2,
            warmup_steps: 0,
            schedule: Schedule::Constant,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-6,
            clip_norm: 0.5,
            ..TrainConfig::default()
        },
        vocab: 61,
        seq_length: 16,
        decoder_length: 0,
        start: None,
        predictions: 0,
        eod: None,
        seed: 0,
        determinism,
        fingerprint: String::new(),
    }
}

pub(super) struct Formula;

impl Samples for Formula {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        for (at, token) in (0u64..).zip(&mut sample.text()?.tokens) {
            *token = Formula::token(index, at);
        }
        Ok(())
    }
}

impl Formula {
    pub(super) fn token(sample: u64, at: u64) -> u32 {
        u32::try_from((sample * 7919 + at * at * 31 + at * 17) % 61).unwrap()
    }
}

pub(super) fn set_weights(trainer: &mut Trainer<'_>) {
    for (salt, spec) in trainer.state.specs.iter().enumerate() {
        let is_norm = spec.name.contains("norm") && spec.name.ends_with("weight");
        let scale = if spec.dims.len() == 2 { 0.5 } else { 0.25 };
        let live = spec.live_elements();
        let values = trainer.state.weights[salt].host_mut::<f32>().unwrap();
        for (i, value) in values[..live].iter_mut().enumerate() {
            let hash = ((i as u64 + 977 * salt as u64) * 2_654_435_761 % (1 << 32)) >> 16;
            let x = u16::try_from(hash).unwrap();
            *value = (f32::from(x) / 65536.0 - 0.5) * scale + if is_norm { 1.0 } else { 0.0 };
        }
        values[live..].fill(0.0);
    }
}

pub(super) struct Golden {
    pub(super) tensors: Reader,
    pub(super) record: Value,
}

impl Golden {
    pub(super) fn open(name: &str) -> Golden {
        let record = std::fs::read(oracle(&format!("{name}.json"))).unwrap();
        Golden {
            tensors: Reader::open(&oracle(&format!("{name}.safetensors"))).unwrap(),
            record: serde_json::from_slice(&record).unwrap(),
        }
    }

    pub(super) fn tensor(&mut self, name: &str, dims: &[usize]) -> Vec<f32> {
        let mut values = vec![0.0; dims.iter().product()];
        self.tensors.read_part(name, dims, 0, &mut values).unwrap();
        values
    }

    /// Largest difference in units of the tolerance.
    pub(super) fn difference(&mut self, name: &str, dims: &[usize], found: &[f32]) -> f64 {
        let wanted = self.tensor(name, dims);
        let largest = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let torch = self.record["torch_f32"]["max_abs_error"][name]
            .as_f64()
            .unwrap();
        let tolerance = 4.0 * torch.max(f64::from(largest * f32::EPSILON));
        let off = found
            .iter()
            .zip(&wanted)
            .map(|(a, b)| f64::from((a - b).abs()));
        let off = off.fold(
            0.0,
            |most: f64, x| if x.is_nan() { f64::MAX } else { most.max(x) },
        );
        if off == 0.0 { 0.0 } else { off / tolerance }
    }

    pub(super) fn scalar(&self, name: &str, step: usize, found: f64) {
        let wanted = self.record[name][step].as_f64().unwrap();
        let errors = &self.record["torch_f32"]["errors"];
        let torch = errors[name][step].as_f64().unwrap();
        let tolerance = 4.0 * torch.max(wanted.abs() * f64::from(f32::EPSILON));
        assert!(
            (found - wanted).abs() < tolerance,
            "{name} of step {step}: {found} {wanted}"
        );
    }

    pub(super) fn assert_close(&mut self, prefix: &str, found: &[Out]) -> f64 {
        let mut worst = 0.0f64;
        for out in found {
            let name = format!("{prefix}.{}", out.name);
            let off = self.difference(&name, &out.dims, &out.values);
            assert!(off <= 1.0, "{name} is {off} tolerances off");
            worst = worst.max(off);
        }
        worst
    }
}

/// Flat gradients of a world of one as tensors.
pub(super) fn by_tensor(trainer: &Trainer<'_>, flat: &[Tensor]) -> Vec<Tensor> {
    let mut found = Vec::new();
    for (index, local) in trainer.state.local_shards.local.iter().enumerate() {
        let unit = &trainer.state.local_shards.shards.units[local.unit];
        for piece in unit.pieces(0..unit.len()) {
            let values =
                &flat[index].host::<f32>().unwrap()[piece.at..piece.at + piece.local.len()];
            let dims = &trainer.state.specs[piece.spec].dims;
            found.push(Tensor::from_f32(dims, values, &trainer.state.device).unwrap());
        }
    }
    found
}

pub(super) fn with_padding_cut(logits: &Tensor, plan: &Plan) -> Vec<f32> {
    let rows = logits.host::<f32>().unwrap().chunks(plan.padded_vocab());
    rows.flat_map(|row| row[..plan.vocab].to_vec()).collect()
}

fn matches_torch(family: Family, name: &str, determinism: Determinism) {
    follows_torch(&plan(family, determinism), name);
}

/// Through all steps of the plan.
pub(super) fn follows_torch(plan: &Plan, name: &str) {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let mut golden = Golden::open(name);
    let exported = tensors(&Source {
        plan,
        specs: &specs,
        tensors: &trainer.state.weights,
    });
    for out in &exported {
        let wanted = golden.tensor(&format!("weight.{}", out.name), &out.dims);
        assert!(out.values == wanted, "export of {}", out.name);
    }

    let range = 0..plan.train.global_batch;
    let batch = crate::data::read(
        &Formula,
        0,
        range,
        plan,
        (&trainer.state.device, &trainer.state.groups.place),
    )
    .unwrap();
    let cx = Context::of(
        plan,
        Weights::All(&trainer.state.weights, None),
        &trainer.state.groups,
    );
    let (mut x, _) = trainer.stages[0]
        .embedding()
        .unwrap()
        .forward((&batch.inputs.unwrap(), None), &cx)
        .unwrap();
    for block in trainer.stages[0].blocks() {
        (x, _) = block.forward(x, &cx).unwrap();
    }
    let logits = trainer.stages[0].head().unwrap().logits(&x, &cx).unwrap();
    let off = golden.difference("logits", &[4, 16, 61], &with_padding_cut(&logits, plan));
    assert!(off <= 1.0, "logits are {off} tolerances off");

    let mut worst = [off, 0.0, 0.0];
    for step in 0..usize::try_from(plan.train.steps).unwrap() {
        let next = nth_step(plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&Formula, &next).unwrap();
        golden.scalar("losses", step, loss);
        if let Some(routing) = &trainer.routing {
            golden.scalar("balance", step, routing.record.balance_loss);
            golden.scalar("z", step, routing.record.z_loss);
        }
        for (number, loss) in (1..).zip(&trainer.further) {
            golden.scalar(&format!("mtp_{number}"), step, *loss);
        }
        if step == 0 {
            let gradients = by_tensor(&trainer, &gradients);
            let found = tensors(&Source {
                plan,
                specs: &specs,
                tensors: &gradients,
            });
            worst[1] = golden.assert_close("grad", &found);
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    let found = tensors(&Source {
        plan,
        specs: &specs,
        tensors: &trainer.state.weights,
    });
    worst[2] = golden.assert_close("final", &found);
    let mode = plan.determinism;
    println!("{name} {mode:?}: logits, gradients, weights in tolerances: {worst:.3?}");
}

#[test]
fn gpt_follows_torch_through_ten_steps() {
    matches_torch(Family::Gpt, "gpt", Determinism::Layout);
    matches_torch(Family::Gpt, "gpt", Determinism::Off);
}

#[test]
fn llama_follows_torch_through_ten_steps() {
    matches_torch(Family::Llama, "llama", Determinism::Layout);
    matches_torch(Family::Llama, "llama", Determinism::Off);
}

#[test]
#[should_panic(expected = "tolerances off")]
fn a_wrong_norm_eps_is_noticed() {
    let mut plan = plan(Family::Llama, Determinism::Layout);
    plan.model.norm_eps = 1e-4;
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let (_, gradients) = trainer.gradients(&Formula, &nth_step(&plan, 1)).unwrap();
    let gradients = by_tensor(&trainer, &gradients);
    let found = tensors(&Source {
        plan: &plan,
        specs: &specs,
        tensors: &gradients,
    });
    Golden::open("llama").assert_close("grad", &found);
}

#[test]
#[should_panic(expected = "export of ")]
fn a_swapped_query_and_key_is_noticed() {
    let plan = plan(Family::Gpt, Determinism::Layout);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let slot = specs
        .iter()
        .position(|spec| spec.name == "layers.0.qkv.weight")
        .unwrap();
    let head = 4 * 16;
    let (query, rest) = trainer.state.weights[slot]
        .host_mut::<f32>()
        .unwrap()
        .split_at_mut(head);
    query.swap_with_slice(&mut rest[..head]);
    let mut golden = Golden::open("gpt");
    for out in tensors(&Source {
        plan: &plan,
        specs: &specs,
        tensors: &trainer.state.weights,
    }) {
        let wanted = golden.tensor(&format!("weight.{}", out.name), &out.dims);
        assert!(out.values == wanted, "export of {}", out.name);
    }
}
