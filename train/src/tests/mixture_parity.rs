//! Mixtures against transformers (a whole model through ten steps, tests/oracles/mixture_goldens.py),
//! megatron-core's layer (tests/oracles/megatron_mixture.py) and differences of its own outputs.

use kernels::{DType, Device, Tensor, rng};

use crate::checkpoint::safetensors::Reader;
use crate::config::Plan;
use crate::config::moe::{DropPolicy, MoeConfig, RouterScore};
use crate::config::{Determinism, Family};
use crate::data::micro_batches::Block;
use crate::dist::mesh::Groups;
use crate::model::context::{Context, Routing, Weights};
use crate::model::gradients::Gradients;
use crate::model::moe::Moe;
use crate::model::param::{self, Spec};
use crate::model::slots::Slots;
use crate::optim::{adamw::Store, router_bias};
use crate::parallel::routing::{Load, Reports};
use crate::parallel::shards::Shards;
use crate::parallel::zero::LocalShards;
use crate::tests::parity::{follows_torch, oracle, plan};

/// MixtralForCausalLM of the goldens.
fn mixtral(determinism: Determinism) -> Plan {
    let mut plan = plan(Family::Llama, determinism);
    plan.train.steps = 10;
    plan.model.moe = Some(MoeConfig {
        experts: 4,
        balance_loss: 0.05,
        z_loss: 0.002,
        ..MoeConfig::default()
    });
    plan
}

/// Qwen2MoeForCausalLM of the goldens.
fn qwen(determinism: Determinism) -> Plan {
    let mut plan = mixtral(determinism);
    let moe = plan.model.moe.as_mut().unwrap();
    (moe.d_ffn, moe.every, moe.score) = (16, 2, RouterScore::SoftmaxTopK);
    (moe.shared_d_ffn, moe.shared_gate) = (32, true);
    plan
}

#[test]
fn mixtral_follows_transformers_through_ten_steps() {
    follows_torch(&mixtral(Determinism::Layout), "mixtral");
    follows_torch(&mixtral(Determinism::Off), "mixtral");
}

#[test]
fn qwen_moe_follows_transformers_through_ten_steps() {
    follows_torch(&qwen(Determinism::Layout), "qwen2_moe");
    follows_torch(&qwen(Determinism::Off), "qwen2_moe");
}

#[test]
#[should_panic(expected = "tolerances off")]
fn a_missing_load_balance_is_noticed() {
    let mut plan = mixtral(Determinism::Layout);
    plan.model.moe.as_mut().unwrap().balance_loss = 0.0;
    follows_torch(&plan, "mixtral");
}

#[test]
#[should_panic(expected = "tolerances off")]
fn a_missing_gate_of_the_shared_expert_is_noticed() {
    let mut plan = qwen(Determinism::Layout);
    plan.model.moe.as_mut().unwrap().score = RouterScore::TopKSoftmax;
    follows_torch(&plan, "qwen2_moe");
}

/// One mixture on its own.
struct Layer {
    plan: Plan,
    specs: Vec<Spec>,
    groups: Groups,
    weights: Vec<Tensor>,
}

impl Layer {
    fn new(plan: Plan, of: impl FnMut(&Spec) -> Tensor) -> Layer {
        let mut specs = param::specs(&plan);
        specs.retain(is_of_mixture);
        Layer {
            weights: specs.iter().map(of).collect(),
            groups: Groups::single(),
            specs,
            plan,
        }
    }

    /// Moves the selection bias as a step of this batch alone does.
    fn move_bias(&mut self, x: &Tensor) -> Vec<Load> {
        let (moe, config) = (self.moe(), self.plan.model.moe.clone().unwrap());
        let (_, saved) = moe
            .forward(x.try_clone().unwrap(), &self.context())
            .unwrap();
        let mut reports = Reports::default();
        reports.push(&saved.report(), Block { start: 0, size: 1 });
        let place = self.groups.place;
        let words = kernels::download_words(&reports.tensors()).unwrap();
        let world = self.groups.world.as_ref();
        let routing = reports.gather(&words, config.experts, &place, world);
        let loads = routing.unwrap().loads;
        let local_shards =
            LocalShards::of(Shards::of(&self.plan, &self.specs), &self.specs, &place);
        let mut store = Store {
            whole: &mut self.weights,
            shards: &mut [],
        };
        let of = (&local_shards, self.specs.as_slice());
        router_bias::update(&mut store, of, &loads, config.bias_update_rate).unwrap();
        loads
    }

    fn moe(&self) -> Moe {
        let config = self.plan.model.moe.as_ref().unwrap();
        let slots = Slots::on(&self.groups.place, &self.specs);
        Moe::named(0, (&self.plan, config), 1, &slots)
    }

    fn context(&self) -> Context<'_> {
        Context {
            routing: Routing {
                drops: true,
                sequence_weight: 1.0,
            },
            ..Context::of(&self.plan, Weights::All(&self.weights, None), &self.groups)
        }
    }

    /// Output, and gradients of the input and of every weight.
    fn run(&self, x: &Tensor, dy: &Tensor) -> (Tensor, Tensor, Vec<Tensor>) {
        let (moe, cx) = (self.moe(), self.context());
        let slots: Vec<usize> = (0..self.specs.len()).collect();
        let dims: Vec<Vec<usize>> = self.specs.iter().map(|spec| spec.dims.clone()).collect();
        let mut gradients =
            Gradients::of(std::slice::from_ref(&(0..slots.len())), &dims, x.device()).unwrap();
        let (y, saved) = moe.forward(x.try_clone().unwrap(), &cx).unwrap();
        let dx = moe.backward(dy, saved, &mut gradients, &cx).unwrap();
        let each = slots
            .iter()
            .map(|&slot| gradients.tensor(slot).try_clone().unwrap());
        (y, dx, each.collect())
    }
}

fn is_of_mixture(spec: &Spec) -> bool {
    spec.name.contains("router") || spec.name.contains("shared") || spec.expert.is_some()
}

fn one_layer(determinism: Determinism, capacity_factor: f64, drop: DropPolicy) -> Plan {
    let mut plan = mixtral(determinism);
    plan.model.layers = 1;
    let moe = plan.model.moe.as_mut().unwrap();
    (moe.capacity_factor, moe.drop) = (capacity_factor, drop);
    plan
}

fn assert_close(found: &Tensor, want: &[f32], what: &str) {
    let largest = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    // sums of at most 2 * 24 + 16 products, in two programs
    let bound = 64.0 * f32::EPSILON * largest.max(1e-3);
    for (at, (found, want)) in found.host::<f32>().unwrap().iter().zip(want).enumerate() {
        assert!(
            (found - want).abs() <= bound,
            "{what} at {at}: {found} {want}"
        );
    }
}

#[test]
fn a_layer_gives_megatrons_output_and_gradients_dropless_and_over_capacity() {
    let device = Device::cpu();
    let mut golden = Reader::open(&oracle("megatron_mixture.safetensors")).unwrap();
    let mut read = |name: &str, dims: &[usize]| {
        let mut tensor = Tensor::empty(dims, DType::F32, &device).unwrap();
        golden
            .read_part(name, dims, 0, tensor.host_mut::<f32>().unwrap())
            .unwrap();
        tensor
    };
    for (name, factor, drop) in [
        ("dropless", 0.0, DropPolicy::Position),
        ("probability", 1.0, DropPolicy::Probability),
        ("position", 1.0, DropPolicy::Position),
    ] {
        for determinism in [Determinism::Layout, Determinism::Off] {
            let plan = one_layer(determinism, factor, drop);
            let specs = param::specs(&plan);
            let all: Vec<Tensor> = specs
                .iter()
                .filter(|spec| is_of_mixture(spec))
                .map(|spec| read(&spec.name, &spec.dims))
                .collect();
            let mut layer = Layer::new(plan, |spec| {
                Tensor::zeros(&spec.dims, DType::F32, &device).unwrap()
            });
            layer.weights = all;
            let (x, dy) = (read("x", &[16, 16]), read("dy", &[16, 16]));
            let (y, dx, dweights) = layer.run(&x, &dy);
            assert_close(
                &y,
                read(&format!("{name}.y"), &[16, 16]).host::<f32>().unwrap(),
                name,
            );
            assert_close(
                &dx,
                read(&format!("{name}.dx"), &[16, 16])
                    .host::<f32>()
                    .unwrap(),
                name,
            );
            for (spec, dweight) in layer.specs.iter().zip(&dweights) {
                let name = format!("{name}.{}", spec.name);
                assert_close(
                    dweight,
                    read(&name, &spec.dims).host::<f32>().unwrap(),
                    &name,
                );
            }
        }
    }
}

#[test]
fn a_selection_bias_gives_megatrons_choices_gradients_and_updates() {
    let device = Device::cpu();
    let mut golden = Reader::open(&oracle("megatron_mixture.safetensors")).unwrap();
    let mut read = |name: &str, dims: &[usize]| {
        let mut tensor = Tensor::empty(dims, DType::F32, &device).unwrap();
        golden
            .read_part(name, dims, 0, tensor.host_mut::<f32>().unwrap())
            .unwrap();
        tensor
    };
    for (name, factor) in [("bias", 0.0), ("bias_over_capacity", 1.0)] {
        let mut plan = one_layer(Determinism::Layout, factor, DropPolicy::Probability);
        let moe = plan.model.moe.as_mut().unwrap();
        (moe.score, moe.scale) = (RouterScore::Sigmoid, 1.5);
        (moe.expert_bias, moe.bias_update_rate) = (true, 0.1);
        let mut layer = Layer::new(plan, |spec| match spec.router_bias {
            Some(0) => Tensor::zeros(&spec.dims, DType::F32, &device).unwrap(),
            _ => read(&spec.name, &spec.dims),
        });
        let slot = |part: &str| {
            let wanted = format!("layers.0.router.{part}");
            layer.specs.iter().position(|s| s.name == wanted).unwrap()
        };
        let (weight, bias) = (slot("weight"), slot("bias"));
        let dy = read("dy", &[16, 16]);
        for step in 0..3 {
            let at = format!("{name}.{step}");
            let x = read(&format!("x.{step}"), &[16, 16]);
            let (y, dx, dweights) = layer.run(&x, &dy);
            assert_close(
                &y,
                read(&format!("{at}.y"), &[16, 16]).host::<f32>().unwrap(),
                &at,
            );
            assert_close(
                &dx,
                read(&format!("{at}.dx"), &[16, 16]).host::<f32>().unwrap(),
                &at,
            );
            let router = read(&format!("{at}.layers.0.router.weight"), &[4, 16]);
            assert_close(&dweights[weight], router.host::<f32>().unwrap(), &at);
            assert_eq!(dweights[bias].host::<f32>().unwrap(), [0.0; 4], "{at}");
            let loads = layer.move_bias(&x);
            let want = read(&format!("{at}.layers.0.router.bias"), &[4]);
            let found = layer.weights[bias].host::<f32>().unwrap();
            assert_eq!(found, want.host::<f32>().unwrap(), "{at}: {loads:?}");
        }
    }
}

fn noise(dims: &[usize], seed: u64) -> Tensor {
    let mut tensor = Tensor::empty(dims, DType::F32, &Device::cpu()).unwrap();
    rng::fill_normal(tensor.host_mut::<f32>().unwrap(), seed, 0, 0, 0.5);
    tensor
}

/// The function that `run` differentiates: the sum of y dy, and the router's losses. Also the counts, which are
/// constants of the load balance.
fn objective(layer: &Layer, x: &Tensor, dy: &Tensor) -> (f64, Vec<u64>) {
    let (y, saved) = layer
        .moe()
        .forward(x.try_clone().unwrap(), &layer.context())
        .unwrap();
    let products = y
        .host::<f32>()
        .unwrap()
        .iter()
        .zip(dy.host::<f32>().unwrap());
    let sum: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    let moe = layer.plan.model.moe.as_ref().unwrap();
    let report = saved.report().known().unwrap();
    let losses = report
        .groups
        .iter()
        .map(|group| moe.balance_loss * group.balance_loss() + moe.z_loss * group.z_loss());
    let counts = report.groups.iter().flat_map(|group| group.counts.clone());
    (sum + losses.sum::<f64>(), counts.collect())
}

#[test]
fn gradients_of_a_layer_are_the_differences_of_its_outputs() {
    for (score, factor) in [
        (RouterScore::TopKSoftmax, 0.0),
        (RouterScore::SoftmaxTopK, 1.0),
        (RouterScore::Sigmoid, 1.0),
    ] {
        let mut plan = one_layer(Determinism::Layout, factor, DropPolicy::Position);
        let moe = plan.model.moe.as_mut().unwrap();
        (moe.score, moe.scale, moe.shared_d_ffn, moe.shared_gate) = (score, 1.5, 8, true);
        // large enough to show beside the sum
        (moe.balance_loss, moe.z_loss) = (20.0, 0.5);
        let mut layer = Layer::new(plan, |spec| noise(&spec.dims, xxhash(&spec.name)));
        let mut x = noise(&[32, 16], 1);
        let dy = noise(&[32, 16], 2);
        let (_, dx, dweights) = layer.run(&x, &dy);
        let (_, counts) = objective(&layer, &x, &dy);
        let kinds = [
            "router",
            "shared.fc1",
            "shared.fc2",
            "shared_gate",
            "fc1",
            "fc2",
            "x",
        ];
        for (seed, kind) in (1..).zip(kinds) {
            let is_kind = |spec: &Spec| match kind {
                "fc1" | "fc2" => spec.expert.is_some() && spec.name.contains(kind),
                _ => spec.name.contains(&format!("{kind}.")),
            };
            let mut slope = 0.0;
            let mut ends = [0.0; 2];
            for (end, step) in ends.iter_mut().zip([1e-3f32, -2e-3]) {
                slope = 0.0;
                let mut walk = |to: &mut Tensor, gradient: &Tensor, salt: u64| {
                    let way = noise(to.dims(), 1000 * seed + salt);
                    for ((to, way), d) in to
                        .host_mut::<f32>()
                        .unwrap()
                        .iter_mut()
                        .zip(way.host::<f32>().unwrap())
                        .zip(gradient.host::<f32>().unwrap())
                    {
                        *to += step * way;
                        slope += f64::from(*way) * f64::from(*d);
                    }
                };
                if kind == "x" {
                    walk(&mut x, &dx, 0);
                }
                let slots = layer.specs.iter().zip(&mut layer.weights).zip(&dweights);
                for (salt, ((_, weight), d)) in (1..).zip(slots.filter(|((s, _), _)| is_kind(s))) {
                    walk(weight, d, salt);
                }
                let (value, now) = objective(&layer, &x, &dy);
                assert_eq!(now, counts, "no token changes its experts on the way");
                *end = value;
            }
            let found = (ends[0] - ends[1]) / 2e-3;
            let off = (found - slope).abs() / slope.abs().max(1.0);
            assert!(off < 5e-3, "{score:?} {kind}: {found} {slope}");
        }
    }
}

fn xxhash(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}
