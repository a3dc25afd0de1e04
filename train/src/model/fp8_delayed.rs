//! fp8's `delayed` recipe: a tensor's scale follows from its amax (largest absolute value) in earlier steps, so
//! that none has to be known before the numbers are rounded.
//!
//! scale = (largest number of the format / amax) / 2^margin in f32, where amax is the largest, or the newest, of
//! the history. An amax that is 0 or not finite leaves the scale unchanged, and a scale that overflows f32 becomes
//! f32's largest number. Before the first step scales are 1 and histories empty. Formula and names: Transformer
//! Engine's `DelayedScaling`; Micikevicius et al. 2022, arXiv:2209.05433, sec. 3.
//!
//! We differ: a step adds one number, the largest over all its micro-batches and ranks (there each
//! micro-batch's forward pass adds one), so that no layout changes it; a step that changes no weights adds
//! none; the inputs of all experts of a layer are one tensor, and so are their gradients.
//!
//! The amax of a step stays on the device until the step's one download. Every rank holds the histories of the whole model, in the order of its tensors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use kernels::cast::{self, Format};
use kernels::{Collective, DType, Device, Tensor, Use, rows};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::numbers::fp8_blocks;
use crate::config::plan::Plan;
use crate::config::precision::AmaxAlgo;
use crate::config::precision::Fp8Config;
use crate::config::precision::Fp8Recipe;
use crate::config::precision::Precision;
use crate::config::precision::Role;
use crate::dist::mesh::RankCoord;
use crate::model::param::Spec;
use crate::model::slots::Slot;

/// Linear layers of blocks by the ends of their names.
const LAYERS: [&str; 12] = [
    "qkv",
    "out",
    "fc1",
    "fc2",
    "cross_q",
    "cross_kv",
    "cross_out",
    "q_proj",
    "q_down",
    "q_up",
    "kv_down",
    "kv_up",
];

/// Scales and histories of a model's tensors.
pub(crate) struct Delayed {
    config: Fp8Config,
    tensors: Vec<Tracked>,
    /// Tensors of a layer whose weight has the slot: input, weight, gradient of the output.
    by_slot: Vec<Option<[usize; 3]>>,
    /// Bits of this step's amax of each tensor so far, on the device; none before a step and after its end.
    amax: Mutex<Option<Tensor>>,
}

struct Tracked {
    name: String,
    /// Largest number of the tensor's format.
    largest: f32,
    scale: f32,
    /// The newest first.
    history: VecDeque<f32>,
    /// This step's amax on this rank, once it is read.
    amax: f32,
}

impl Delayed {
    /// Before the first step; None if the plan has another recipe.
    pub(crate) fn of(plan: &Plan, specs: &[Spec], place: &RankCoord) -> Option<Delayed> {
        let config = plan.train.fp8;
        if plan.train.precision != Precision::Fp8 || config.recipe != Fp8Recipe::Delayed {
            return None;
        }
        let mut delayed = Delayed {
            config,
            tensors: Vec::new(),
            by_slot: Vec::new(),
            amax: Mutex::default(),
        };
        let blocks: Vec<String> = fp8_blocks(plan)
            .map(|block| format!("{}.", plan.model.block_name(block)))
            .collect();
        for spec in specs {
            let is_inside = blocks.iter().any(|block| spec.name.starts_with(block));
            let layer = spec.name.strip_suffix(".weight");
            let layer = layer.filter(|layer| LAYERS.iter().any(|end| ends_with(layer, end)));
            let three = layer.filter(|_| is_inside).map(|layer| {
                let rows = match spec.expert {
                    Some(expert) => layer.replace(&format!(".experts.{expert}."), ".experts."),
                    None => layer.to_owned(),
                };
                let [input, gradient] = [Role::INPUT, Role::GRADIENT];
                [
                    delayed.number(&format!("{rows}.input"), config.format_of(input)),
                    delayed.number(&spec.name, config.format_of(Role::Weight)),
                    delayed.number(&format!("{rows}.gradient"), config.format_of(gradient)),
                ]
            });
            if spec.is_on(place) {
                delayed.by_slot.push(three);
            }
        }
        Some(delayed)
    }

    /// Index of the tensor with this name, which is added if it is missing.
    fn number(&mut self, name: &str, format: Format) -> usize {
        let found = self.tensors.iter().position(|one| one.name == name);
        found.unwrap_or_else(|| {
            self.tensors.push(Tracked::start(name, format.largest()));
            self.tensors.len() - 1
        })
    }

    fn index(&self, weight: Slot, role: Role) -> usize {
        let three = self.by_slot[weight].expect("only linear layers of blocks are in eight bits");
        three[match role {
            Role::Input(_) => 0,
            Role::Weight => 1,
            Role::Gradient(_) => 2,
        }]
    }

    /// Scale for one of the tensors (by `role`) of the layer whose weight is in this slot.
    pub(crate) fn scale(&self, weight: Slot, role: Role) -> f32 {
        self.tensors[self.index(weight, role)].scale
    }

    /// Records the amax of some of a tensor's numbers, if a step has begun; the same ones may come again.
    pub(crate) fn observe(&self, weight: Slot, role: Role, x: &Tensor) -> kernels::Result<()> {
        self.observe_amax(weight, role, &cast::row_amax(x)?)
    }

    /// Like `observe`, of sizes of numbers among which the largest is.
    pub(crate) fn observe_amax(
        &self,
        weight: Slot,
        role: Role,
        sizes: &Tensor,
    ) -> kernels::Result<()> {
        let index = self.index(weight, role);
        let mut amax = self.amax.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *amax {
            Some(all) => rows::raise(all.flat_mut(index..index + 1)?, sizes.view()),
            None => Ok(()),
        }
    }

    fn held(&mut self) -> &mut Option<Tensor> {
        self.amax.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was observed, at the start of a step.
    pub(crate) fn begin(&mut self, device: &Device) -> kernels::Result<()> {
        // no activation, of which the trainer counts the bytes
        let device = &device.for_use(Use::Optimizer);
        let none = Tensor::zeros(&[self.tensors.len()], DType::U32, device)?;
        *self.held() = Some(none);
        Ok(())
    }

    /// Ends the observations of a step: the words of the tensor are for `observed`.
    pub(crate) fn end(&mut self) -> Option<Tensor> {
        self.held().take()
    }

    /// Takes this rank's amax of a step, as bits.
    pub(crate) fn observed(&mut self, words: &[u32]) {
        for (tensor, bits) in self.tensors.iter_mut().zip(words) {
            tensor.amax = f32::from_bits(*bits);
        }
    }

    /// Appends the amax over all ranks of `world` to the histories, at the end of a step.
    pub(crate) fn follow(&mut self, world: &dyn Collective) -> kernels::Result<()> {
        let mut amax: Vec<f32> = self.tensors.iter().map(|one| one.amax).collect();
        if world.size() > 1 {
            world.all_reduce_max(&mut amax)?;
        }
        for (tensor, amax) in self.tensors.iter_mut().zip(amax) {
            tensor.follow(&self.config, amax);
        }
        Ok(())
    }

    /// The state that a checkpoint stores.
    pub(crate) fn records(&self) -> Records {
        let all = self.tensors.iter().map(|one| {
            let scale = Singles(vec![one.scale]);
            let amax = Singles(one.history.iter().copied().collect());
            (one.name.clone(), Record { scale, amax })
        });
        Records(all.collect())
    }

    /// Restores a checkpoint's state. Tensors that it does not have, such as those of blocks that were in bf16,
    /// start anew.
    pub(crate) fn restore(&mut self, records: &Records) {
        for tensor in &mut self.tensors {
            if let Some(Record { scale, amax }) = records.0.get(&tensor.name) {
                tensor.scale = scale.0.first().copied().unwrap_or(1.0);
                tensor.history = amax.0.iter().copied().collect();
                tensor.history.truncate(self.config.amax_history_len);
            }
        }
    }
}

/// Whether `end` is the last component of a name.
fn ends_with(name: &str, end: &str) -> bool {
    name.strip_suffix(end)
        .is_some_and(|rest| rest.ends_with('.'))
}

impl Tracked {
    fn start(name: &str, largest: f32) -> Tracked {
        Tracked {
            name: name.into(),
            largest,
            scale: 1.0,
            history: VecDeque::new(),
            amax: 0.0,
        }
    }

    fn follow(&mut self, config: &Fp8Config, amax: f32) {
        self.history.push_front(amax);
        self.history.truncate(config.amax_history_len);
        let amax = match config.amax_compute_algo {
            AmaxAlgo::MostRecent => amax,
            AmaxAlgo::Max => self.history.iter().copied().fold(0.0, f32::max),
        };
        if amax > 0.0 && amax.is_finite() {
            let scale = (self.largest / amax) / 2f32.powi(config.margin);
            self.scale = scale.min(f32::MAX);
        }
    }
}

/// Scales and histories by the names of tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Records(BTreeMap<String, Record>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    scale: Singles,
    /// The newest first.
    amax: Singles,
}

/// Numbers as one text, each with enough digits to be read back exactly.
#[derive(Clone, Debug, PartialEq)]
struct Singles(Vec<f32>);

impl Serialize for Singles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: Vec<String> = self.0.iter().map(|x| format!("{x:e}")).collect();
        serializer.serialize_str(&all.join(" "))
    }
}

impl<'de> Deserialize<'de> for Singles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let all = text.split_whitespace().map(str::parse);
        let all = all.collect::<Result<Vec<f32>, _>>();
        all.map(Singles).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Fp8Format, Precision};
    use crate::fixtures::{tiny_gpt, tiny_moe};
    use crate::model::param;
    use serde_json::Value;

    fn delayed(mut plan: Plan) -> Delayed {
        plan.train.precision = Precision::Fp8;
        plan.train.fp8.recipe = Fp8Recipe::Delayed;
        let place = RankCoord::single();
        Delayed::of(&plan, &param::specs(&plan), &place).unwrap()
    }

    #[test]
    fn scales_and_rounded_numbers_are_transformer_engines() {
        let text = include_str!("../../tests/oracles/fp8_delayed.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        assert!(cases.len() >= 6);
        // numbers in JSON are exact f32 as bits
        let bits = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
        let singles =
            |value: &Value| -> Vec<f32> { bits(value).into_iter().map(f32::from_bits).collect() };
        for case in &cases {
            let config: Fp8Config = serde_json::from_value(case["config"].clone()).unwrap();
            let role = match case["role"].as_str().unwrap() {
                "forward" => Role::INPUT,
                _ => Role::GRADIENT,
            };
            let format = config.format_of(role);
            let mut tensor = Tracked::start("x", format.largest());
            let scales = bits(&case["scales"]);
            let xs = singles(&case["x"]);
            let x = Tensor::from_f32(&[xs.len()], &xs, &Device::cpu()).unwrap();
            for (step, amax) in singles(&case["amax"]).into_iter().enumerate() {
                let rounded = cast::scaled(&x, format, tensor.scale).unwrap();
                let found: Vec<u32> = rounded
                    .host::<f32>()
                    .unwrap()
                    .iter()
                    .map(|x| x.to_bits())
                    .collect();
                assert!(
                    found == bits(&case["rounded"][step]),
                    "step {step}: {config:?}"
                );
                tensor.follow(&config, amax);
                assert_eq!(
                    tensor.scale.to_bits(),
                    scales[step],
                    "step {step}: {config:?}"
                );
            }
        }
    }

    #[test]
    fn tensors_are_those_of_linear_layers_in_eight_bits() {
        let names = |delayed: &Delayed| -> Vec<String> {
            delayed.tensors.iter().map(|one| one.name.clone()).collect()
        };
        let mut plan = tiny_gpt();
        plan.train.fp8.num_layers_at_end_in_bf16 = 1;
        let gpt = delayed(plan);
        assert_eq!(gpt.tensors.len(), 3 * 4, "{:?}", names(&gpt));
        let found = names(&gpt);
        assert!(found.iter().all(|name| name.starts_with("layers.0.")));
        for name in ["qkv.input", "out.weight", "fc1.gradient", "fc2.weight"] {
            assert!(found.contains(&format!("layers.0.{name}")), "{found:?}");
        }
        let moe = names(&delayed(tiny_moe()));
        for (name, times) in [
            ("experts.fc1.input", 1),
            ("experts.fc2.gradient", 1),
            ("experts.3.fc1.weight", 1),
            ("experts.3.fc1.input", 0),
            ("shared.fc1.weight", 1),
            ("router.weight", 0),
            ("shared_gate.weight", 0),
        ] {
            let found = moe.iter().filter(|one| one.ends_with(name));
            assert_eq!(found.count(), times, "{name} in {moe:?}");
        }
        let e5m2 = |name: &str| {
            gpt.tensors
                .iter()
                .any(|one| one.name == name && one.largest > 1e4)
        };
        assert!(e5m2("layers.0.fc1.gradient") && !e5m2("layers.0.fc1.input"));
        let mut plan = tiny_gpt();
        plan.train.fp8.format = Fp8Format::E4m3;
        assert!(delayed(plan).tensors.iter().all(|one| one.largest == 448.0));
    }

    #[test]
    fn records_come_back_to_the_last_bit() {
        let mut from = delayed(tiny_gpt());
        from.config.amax_history_len = 3;
        for step in 0..5 {
            for (at, tensor) in from.tensors.iter_mut().enumerate() {
                let amax = 1e-30f32 * 7.3f32.powi(step * 20) / (at as f32 + 3.0);
                tensor.amax = amax;
            }
            from.follow(crate::dist::mesh::Groups::single().world.as_ref())
                .unwrap();
        }
        let text = serde_json::to_string(&from.records()).unwrap();
        let mut to = delayed(tiny_gpt());
        to.config.amax_history_len = 3;
        to.restore(&serde_json::from_str(&text).unwrap());
        for (from, to) in from.tensors.iter().zip(&to.tensors) {
            assert_eq!(from.scale.to_bits(), to.scale.to_bits());
            assert!(from.history.len() == 3 && from.history == to.history);
        }
        assert_eq!(to.records(), from.records());
    }
}
