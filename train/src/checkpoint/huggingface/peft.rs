//! Adapters in PEFT's form: a folder with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Names and meaning as PEFT 0.21 (`tuners/lora/config.py`, `utils/save_and_load.py`): tensors
//! `base_model.model.MODULE.lora_A.weight` `[r, in]` and `.lora_B.weight` `[out, r]`; scale `lora_alpha / r`, with `use_rslora`
//! `lora_alpha / sqrt(r)`; some modules may have another rank or scale (`peft_sizes`). Modules of `modules_to_save` are saved whole,
//! in place of the base's. Our adapter of a packed layer becomes one for each of its modules, which share A.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::checkpoint::MODEL;
use crate::checkpoint::adapter_base::base_of;
use crate::checkpoint::adapters::{self, Factors, LayerAdapter, LoraAdapter};
use crate::checkpoint::huggingface::adapter_folder::{
    CONFIG, Named, WEIGHTS, config, foreign, set_among, shown, tensors, write,
};
use crate::checkpoint::huggingface::config::expect_class;
use crate::checkpoint::huggingface::deepseek;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::huggingface::peft_sizes::{Size, Sizes};
use crate::checkpoint::huggingface::soft_prompt::{self, is_of_prompt};
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::Opened;
use crate::checkpoint::safetensors::{Entry, Reader};
use crate::config::adapted_layers::{has_inputs_first, target_of};
use crate::config::exact::narrow;
use crate::config::plan::{Plan, Shape};
use crate::config::{Family, LoraTarget};
use crate::error::{Error, Result};
use crate::model::param;

/// In front of a module's name.
const PREFIX: &str = "base_model.model.";
/// Behind the name of a module whose own matrix is saved beside its adapter.
const BESIDE: &str = ".base_layer.weight";
/// Our tensor of the head's own matrix.
const HEAD_WEIGHT: &str = "head.weight";
/// Our tensor of the embedding.
const EMBEDDING: &str = "embedding.weight";
/// Ways to start an adapter that leave the base's matrices as they are. Others, such as `pissa`, `olora`, `corda`, `loftq` and
/// `lora_ga`, put a remainder in their place, to which the adapter belongs.
const STARTS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];
/// Adapters that requests to an engine can choose.
pub(crate) const OF_REQUESTS: &str = "an adapter of qkv, out, fc1 and fc2 alone: requests choose none of experts, routers, embeddings and heads";

/// An opened adapter.
pub(crate) struct Adapter {
    reader: Reader,
    /// The matrices of each module.
    modules: BTreeMap<String, Matrices>,
    /// Tensors in place of the base's, by the base's names: the matrix beside the adapter of the head, which PEFT saves with it, and
    /// those of `modules_to_save`.
    copies: BTreeMap<String, Entry>,
}

/// A `[rank, in]` and B `[out, rank]` of a module.
#[derive(Clone)]
struct Matrices {
    a: Entry,
    b: Entry,
    scale: f64,
}

impl Adapter {
    /// Opens the adapter in `folder` for a model with these tensors.
    ///
    /// # Errors
    /// `Foreign` with every setting and tensor that does not fit.
    pub(crate) fn open(folder: &Path, pairs: &[Pair]) -> Result<Adapter> {
        let config = config(folder)?;
        // another kind has other settings altogether
        if let Some(problem) = kind_problem(&config) {
            return Err(foreign(&folder.join(CONFIG), vec![problem]));
        }
        let mut problems = unsupported(&config);
        let sizes = Sizes::read(&config, &mut problems);
        let saved = saved_modules(&config, &mut problems);
        if !problems.is_empty() {
            return Err(foreign(&folder.join(CONFIG), problems));
        }
        let path = folder.join(WEIGHTS);
        let reader = tensors(folder)?;
        let by_name = by_name(pairs);
        let mut found: BTreeMap<String, [Option<Entry>; 2]> = BTreeMap::new();
        let mut copies = BTreeMap::new();
        let mut unseen: BTreeSet<&str> = saved.iter().map(String::as_str).collect();
        for entry in reader.entries() {
            let name = entry.name.strip_prefix(PREFIX);
            let beside = name.and_then(|name| name.strip_suffix(BESIDE));
            if let Some(pair) = beside.and_then(|module| head_of(module, &by_name)) {
                copies.insert(pair.theirs.clone(), entry.clone());
                continue;
            }
            let parts = [".lora_A.weight", ".lora_B.weight"].into_iter().enumerate();
            let part = name.and_then(|name| {
                let mut parts = parts.filter_map(|(at, end)| Some((at, name.strip_suffix(end)?)));
                parts.next()
            });
            match (part, name.and_then(|name| saved_as(name, &saved))) {
                (Some((at, module)), _) => {
                    found.entry(module.to_owned()).or_default()[at] = Some(entry.clone());
                }
                (None, Some(module)) => {
                    unseen.remove(module);
                    copies.insert(name.unwrap_or_default().to_owned(), entry.clone());
                }
                (None, None) => {
                    problems.push(format!("{}: found, want tensors of LoRA alone", entry.name));
                }
            }
        }
        let unseen = unseen.into_iter();
        problems.extend(
            unseen.map(|module| {
                format!("found no tensors of {module}, want those of modules_to_save")
            }),
        );
        for (name, entry) in &copies {
            let problem = copy_problem(name, entry, &by_name);
            problems.extend(problem.map(|problem| format!("{}: {problem}", entry.name)));
            let beside = entry.name.strip_suffix(BESIDE);
            let beside = beside.and_then(|name| name.strip_prefix(PREFIX));
            if beside.is_some_and(|module| !found.contains_key(module)) {
                let line = "found alone, want lora_A and lora_B of this layer beside it";
                problems.push(format!("{}: {line}", entry.name));
            }
        }
        let mut modules = BTreeMap::new();
        for (module, both) in found {
            match whole(&module, both, sizes.of(&module), &by_name) {
                Ok(both) => {
                    modules.insert(module, both);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if modules.is_empty() && problems.is_empty() {
            problems.push("found no adapter".into());
        }
        match problems.is_empty() {
            true => Ok(Adapter {
                reader,
                modules,
                copies,
            }),
            false => Err(foreign(&path, problems)),
        }
    }

    /// The adapter by our layers.
    ///
    /// # Errors
    /// `Foreign` with modules that requests choose no adapters of; a damaged file.
    pub(crate) fn layers(mut self, pairs: &[Pair], plan: &Plan) -> Result<LoraAdapter> {
        let (shape, specs) = (plan.shape(), param::specs(plan));
        let by_name = by_name(pairs);
        let mut parts: BTreeMap<&str, Vec<Module<'_>>> = BTreeMap::new();
        let mut problems = Vec::new();
        // one scale for all of them, or 1 with their own in B
        let mut scales = self.modules.values().map(|both| both.scale);
        let first = scales.next().unwrap_or(1.0);
        let scale = if scales.all(|scale| scale == first) {
            first
        } else {
            1.0
        };
        for (name, Matrices { a, b, scale: own }) in &self.modules {
            let pair = by_name.get(format!("{name}.weight").as_str()).copied();
            let layer = pair.and_then(|pair| Some((pair, pair.ours.strip_suffix(".weight")?)));
            let is_served = |layer: &str| {
                let target = target_of(layer);
                target.is_some_and(|target| LoraTarget::DENSE.contains(&target))
            };
            match layer.filter(|(_, layer)| is_served(layer)) {
                Some((pair, layer)) => {
                    let rank = a.dims[0];
                    let a = values_of(&mut self.reader, a)?;
                    let mut b = values_of(&mut self.reader, b)?;
                    if *own != scale {
                        let factor = own / scale;
                        b.iter_mut()
                            .for_each(|b| *b = narrow(f64::from(*b) * factor));
                    }
                    parts
                        .entry(layer)
                        .or_default()
                        .push(Module { pair, rank, a, b });
                }
                None => problems.push(format!("{name}: found, want {OF_REQUESTS}")),
            }
        }
        let copies = self.copies.values();
        problems.extend(copies.map(|copy| format!("{}: found, want {OF_REQUESTS}", copy.name)));
        if !problems.is_empty() {
            return Err(foreign(self.reader.path(), problems));
        }
        let layers = parts.into_iter().map(|(layer, modules)| {
            let weight = format!("{layer}.weight");
            let spec = specs.iter().find(|spec| spec.name == weight);
            let dims = spec.map_or(&[][..], |spec| &spec.dims);
            (layer.to_owned(), joined(&modules, dims, &shape))
        });
        Ok(LoraAdapter {
            scale,
            layers: layers.collect(),
        })
    }

    /// Adds the adapter to the values of a tensor of the base model, in the order of that tensor.
    pub(crate) fn add(&mut self, pair: &Pair, values: &mut [f32]) -> Result<()> {
        if let Some(copy) = self.copies.get(&pair.theirs) {
            values.copy_from_slice(&values_of(&mut self.reader, copy)?);
        }
        self.add_product(pair, values, 1.0)
    }

    /// Takes the adapter out of the values of a tensor that it was added to. Copies stay: the base's own are lost.
    pub(crate) fn subtract(&mut self, pair: &Pair, values: &mut [f32]) -> Result<()> {
        self.add_product(pair, values, -1.0)
    }

    /// Number of layers that it adapts.
    pub(crate) fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Names of the tensors that it has in place of the base's.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &str> {
        self.copies.keys().map(String::as_str)
    }

    fn add_product(&mut self, pair: &Pair, values: &mut [f32], sign: f64) -> Result<()> {
        let module = pair.theirs.strip_suffix(".weight").unwrap_or_default();
        let Some(Matrices { a, b, scale }) = self.modules.get(module).cloned() else {
            return Ok(());
        };
        let of = Factors {
            a: &values_of(&mut self.reader, &a)?,
            b: &values_of(&mut self.reader, &b)?,
            rank: a.dims[0],
            scale: sign * scale,
        };
        // Conv1D of GPT-2 has its inputs first
        let by_inputs = pair.dims != [b.dims[0], a.dims[1]] || is_conv1d(pair);
        adapters::merge(values, of, a.dims[1], by_inputs);
        Ok(())
    }
}

/// The head's matrix, if this module is the head.
fn head_of<'p>(module: &str, pairs: &BTreeMap<&str, &'p Pair>) -> Option<&'p Pair> {
    let pair = pairs.get(format!("{module}.weight").as_str()).copied();
    pair.filter(|pair| pair.ours == HEAD_WEIGHT)
}

/// The pairs by the names of their tensors of transformers.
fn by_name(pairs: &[Pair]) -> BTreeMap<&str, &Pair> {
    pairs
        .iter()
        .map(|pair| (pair.theirs.as_str(), pair))
        .collect()
}

fn values_of(reader: &mut Reader, entry: &Entry) -> Result<Vec<f32>> {
    let mut values = vec![0.0; entry.elements()];
    reader.read_part(&entry.name, &entry.dims, 0, &mut values)?;
    Ok(values)
}

/// The matrices of one of PEFT's modules: A `[rank, in]`, B `[out, rank]`.
struct Module<'a> {
    pair: &'a Pair,
    rank: usize,
    a: Vec<f32>,
    b: Vec<f32>,
}

/// The adapter of a layer of ours with a weight of these dims. Modules that share A share it here too; others have rows of A
/// each, and B has zeros where a module's rows meet another's.
fn joined(modules: &[Module<'_>], dims: &[usize], shape: &Shape) -> LayerAdapter {
    let shares = modules.iter().all(|module| module.a == modules[0].a);
    let all = match shares {
        true => modules[0].rank,
        false => modules.iter().map(|module| module.rank).sum(),
    };
    let is_column = !has_inputs_first(modules[0].pair.ours.trim_end_matches(".weight"));
    let out = if is_column { dims[0] } else { dims[1] };
    let mut joined = LayerAdapter {
        rank: all,
        a: Vec::new(),
        b: vec![0.0; out * all],
    };
    let mut first = 0;
    for (number, module) in modules.iter().enumerate() {
        if number == 0 || !shares {
            joined.a.extend(&module.a);
        }
        let rank = module.rank;
        let rows: Vec<usize> = match is_column {
            true => module.pair.rows_of_ours(shape).collect(),
            false => (0..out).collect(),
        };
        for (row, b) in rows.into_iter().zip(module.b.chunks_exact(rank)) {
            joined.b[row * all + first..][..rank].copy_from_slice(b);
        }
        if !shares {
            first += rank;
        }
    }
    joined
}

/// Whether a tensor is of transformers' Conv1D, `[in, out]`.
fn is_conv1d(pair: &Pair) -> bool {
    // other layers of this prefix are Falcon's and BLOOM's
    pair.theirs.starts_with("transformer.h.") && pair.theirs.contains(".c_")
}

/// A and B of a module that the model has.
fn whole(
    module: &str,
    both: [Option<Entry>; 2],
    size: Size,
    pairs: &BTreeMap<&str, &Pair>,
) -> std::result::Result<Matrices, String> {
    let Size { rank, scale } = size;
    let [Some(a), Some(b)] = both else {
        return Err(format!(
            "{module}: found one of lora_A and lora_B, want both"
        ));
    };
    let name = format!("{module}.weight");
    let Some(pair) = pairs.get(name.as_str()) else {
        return Err(format!(
            "{module}: found, but the base model has no such layer"
        ));
    };
    let [out, input] = match (pair.dims.as_slice(), is_conv1d(pair)) {
        (&[input, out], true) | (&[out, input], false) => [out, input],
        _ => return Err(format!("{module}: found an adapter of no linear layer")),
    };
    if a.dims != [rank, input] || b.dims != [out, rank] {
        return Err(format!(
            "{module}: found lora_A {:?} and lora_B {:?}, want [{rank}, {input}] and [{out}, {rank}]",
            a.dims, b.dims
        ));
    }
    Ok(Matrices { a, b, scale })
}

/// `modules_to_save`: ends of names of modules.
fn saved_modules(config: &Map<String, Value>, problems: &mut Vec<String>) -> Vec<String> {
    let found = config.get("modules_to_save");
    let list = match found {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(list)) => {
            let names = list.iter().map(|name| name.as_str().map(str::to_owned));
            names.collect::<Option<Vec<String>>>()
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => None,
    };
    let list = list.filter(|list| list.iter().all(|name| !name.is_empty()));
    list.unwrap_or_else(|| {
        let found = shown(found);
        problems.push(format!(
            "modules_to_save: found {found}, want a list of names"
        ));
        Vec::new()
    })
}

/// The entry of `modules_to_save` whose module the tensor belongs to (PEFT: `key.endswith(target_key)`).
fn saved_as<'s>(name: &str, saved: &'s [String]) -> Option<&'s str> {
    let mut modules = name.match_indices('.').map(|(at, _)| &name[..at]);
    let entry = modules.find_map(|module| saved.iter().find(|end| module.ends_with(&**end)));
    entry.map(String::as_str)
}

/// Why a tensor cannot stand in place of the base's of this name.
fn copy_problem(name: &str, copy: &Entry, pairs: &BTreeMap<&str, &Pair>) -> Option<String> {
    let Some(pair) = pairs.get(name) else {
        return Some("found, but the base model has no such tensor".into());
    };
    let has_own_head = || (pairs.values()).any(|pair| pair.ours == HEAD_WEIGHT && !pair.is_copy());
    if pair.is_copy() || pair.ours == EMBEDDING && !has_own_head() {
        let line = "found, want none: the base's embedding is its head, and PEFT changes one of them alone";
        return Some(line.into());
    }
    if copy.dims != pair.dims {
        let (found, wanted) = (&copy.dims, &pair.dims);
        return Some(format!("found {found:?}, want {wanted:?}"));
    }
    None
}

/// Why the configuration is not that of a low-rank adapter.
fn kind_problem(config: &Map<String, Value>) -> Option<String> {
    let kind = config.get("peft_type");
    if kind == Some(&json!("LORA")) {
        return None;
    }
    let is_prompt = kind.and_then(Value::as_str).is_some_and(is_of_prompt);
    let others = match is_prompt {
        true => ": virtual tokens are no low-rank adapter",
        false => ", \"PROMPT_TUNING\" or \"P_TUNING\"",
    };
    let found = shown(kind);
    Some(format!("peft_type: found {found}, want \"LORA\"{others}"))
}

/// Settings that are not read, a line each.
fn unsupported(config: &Map<String, Value>) -> Vec<String> {
    let mut problems = Vec::new();
    let start = config.get("init_lora_weights");
    let keeps_base = match start {
        None | Some(Value::Null | Value::Bool(_)) => true,
        Some(Value::String(name)) => STARTS.contains(&name.to_lowercase().as_str()),
        Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => false,
    };
    if !keeps_base {
        let (found, others) = (shown(start), STARTS.join(", "));
        problems.push(format!(
            "init_lora_weights: found {found}, want a way that keeps the base's weights: true, false, {others}"
        ));
    }
    problems.extend(set_among(
        config,
        &[
            "use_dora",
            "use_qalora",
            "use_bdlora",
            "alora_invocation_tokens",
            "arrow_config",
            "kasa_config",
            "monteclora_config",
            "lora_bias",
            "bias",
            "layer_replication",
            "trainable_token_indices",
        ],
    ));
    // a weight of a linear layer has the tensors that the layer as a module has; those of stacked experts are others
    let parameters = config.get("target_parameters").and_then(Value::as_array);
    let mut parameters = parameters.into_iter().flatten();
    if parameters.any(|name| !name.as_str().is_some_and(|name| name.ends_with(".weight"))) {
        let found = shown(config.get("target_parameters"));
        problems.push(format!(
            "target_parameters: found {found}, want weights of linear layers alone, such as \"shared_experts.up_proj.weight\""
        ));
    }
    problems
}

/// Refuses a layer that is no linear layer in the model's class of transformers, where PEFT has no module for it.
fn expect_module(pair: &Pair, layer: &str, family: Family) -> Result<()> {
    let is_stacked = pair.dims.len() > 2;
    let has_own_router = family == Family::GptOss || deepseek::is_deepseek(family);
    let is_router = target_of(layer) == Some(LoraTarget::Router);
    let is_parameter = is_stacked || is_router && has_own_router;
    if !is_parameter {
        return Ok(());
    }
    Err(Error::Request {
        what: "adapter to write in PEFT's form",
        found: format!("one of {layer}"),
        wanted: format!(
            "adapters of linear layers alone: {} of {family:?} is a parameter of another layer in transformers",
            pair.theirs
        ),
    })
}

/// Writes the adapters or the virtual tokens of a checkpoint, or of the newest of a folder of checkpoints, as PEFT loads them.
///
/// # Errors
/// A damaged checkpoint; one without either; a model that no class of transformers expresses; adapters of layers that PEFT has no
/// module for; a folder that cannot be written.
pub fn export_peft(checkpoint: &Path, out: &Path) -> Result<()> {
    let opened = Opened::open(&checkpoint_at(checkpoint)?.path)?;
    let plan = opened.plan_of_one_rank();
    if plan.model.prompt.is_some() {
        return soft_prompt::export(&opened, &plan, out);
    }
    let Some(lora) = plan.model.lora.clone() else {
        return Err(Error::Request {
            what: "model to write adapters of",
            found: "one without [model.lora] and [model.prompt]".into(),
            wanted: "one that was trained with adapters or virtual tokens".into(),
        });
    };
    expect_class(&plan)?;
    let (specs, shape, rank) = (param::specs(&plan), plan.shape(), lora.rank);
    let mut tensors = opened.tensors(MODEL)?;
    let dims: BTreeMap<&str, &[usize]> = specs
        .iter()
        .map(|spec| (spec.name.as_str(), spec.dims.as_slice()))
        .collect();
    let mut read = |name: &str| -> Result<Vec<f32>> {
        let dims = dims.get(name).copied().unwrap_or_default();
        let mut values = vec![0.0; dims.iter().product()];
        tensors.read_part(name, dims, 0, &mut values)?;
        Ok(values)
    };
    let (mut all, mut targets) = (Vec::new(), Targets::default());
    let layers = specs.iter();
    let layers = layers.filter_map(|spec| spec.name.strip_suffix(".lora_a"));
    let mut left: BTreeSet<&str> = layers.collect();
    for pair in pairs(&plan) {
        let Some(layer) = pair.ours.strip_suffix(".weight") else {
            continue;
        };
        if !dims.contains_key(format!("{layer}.lora_a").as_str()) {
            continue;
        }
        left.remove(layer);
        expect_module(&pair, layer, plan.model.family)?;
        let (a, b) = (
            read(&format!("{layer}.lora_a"))?,
            read(&format!("{layer}.lora_b"))?,
        );
        let (a, b) = match has_inputs_first(layer) {
            true => (adapters::transposed(&a, rank), b),
            false => {
                let rows = pair.rows_of_ours(&shape);
                let b = rows.flat_map(|row| b[row * rank..(row + 1) * rank].to_vec());
                (a, b.collect())
            }
        };
        let module = pair.theirs.strip_suffix(".weight").unwrap_or_default();
        for (end, values, dims) in [
            ("lora_A", &a, vec![rank, a.len() / rank]),
            ("lora_B", &b, vec![b.len() / rank, rank]),
        ] {
            let name = format!("{PREFIX}{module}.{end}.weight");
            let entry = Entry { name, dims };
            all.push(Named {
                entry,
                values: values.clone(),
            });
        }
        targets.add(module, plan.model.family);
    }
    if !left.is_empty() {
        let left: Vec<&str> = left.into_iter().collect();
        return Err(Error::Request {
            what: "adapter to write in PEFT's form",
            found: format!("one of {}", left.join(", ")),
            wanted: format!(
                "adapters of layers that {:?} has in transformers",
                plan.model.family
            ),
        });
    }
    // PEFT has no dropout beside parameters
    let dropout = if targets.parameters.is_empty() {
        lora.dropout
    } else {
        0.0
    };
    let mut config = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base_of(&plan),
        "r": rank, "lora_alpha": lora.alpha, "use_rslora": lora.rs_lora, "lora_dropout": dropout, "bias": "none",
        "target_modules": targets.modules, "fan_in_fan_out": plan.model.family == Family::Gpt, "inference_mode": true,
        "init_lora_weights": true, "modules_to_save": null,
    });
    if !targets.parameters.is_empty() {
        config["target_parameters"] = json!(targets.parameters);
    }
    write(out, &config, &all)
}

/// Names of the adapted layers in PEFT's configuration.
#[derive(Default)]
struct Targets {
    modules: BTreeSet<String>,
    parameters: BTreeSet<String>,
}

impl Targets {
    /// Adds a module by the last two parts of its name: GPT-2 has a `c_proj` in both halves of a block, and experts have numbers.
    ///
    /// PEFT 0.21 with transformers 5 takes every target of DeepSeek that ends with `gate_proj`, `up_proj` or `down_proj` for the
    /// experts, which are stacked there (`utils/transformers_weight_conversion.py`), and would pass over the adapters of shared
    /// experts and of the first layers. It leaves targets that are parameters as they are, and their tensors have the same names.
    fn add(&mut self, module: &str, family: Family) {
        let mut dots = module.rmatch_indices('.').map(|(at, _)| at + 1);
        let suffix = dots.nth(1).map_or(module, |at| &module[at..]);
        let is_expert = module.contains(".experts.");
        let is_renamed = STACKED.iter().any(|end| module.ends_with(end));
        match deepseek::is_deepseek(family) && is_renamed && !is_expert {
            true => self.parameters.insert(format!("{suffix}.weight")),
            false => self.modules.insert(suffix.to_owned()),
        };
    }
}

/// Ends of the modules that PEFT takes for experts.
const STACKED: [&str; 3] = [".gate_proj", ".up_proj", ".down_proj"];
