//! Adapters in PEFT's form: a folder with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Names and meaning as PEFT 0.21 (`tuners/lora/config.py`, `utils/save_and_load.py`): tensors
//! `base_model.model.MODULE.lora_A.weight` `[r, in]` and `.lora_B.weight` `[out, r]`; scale `lora_alpha / r`, with `use_rslora`
//! `lora_alpha / sqrt(r)`. Our adapter of a packed layer becomes one for each of its modules, which share A.

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
use crate::checkpoint::huggingface::soft_prompt;
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::Opened;
use crate::checkpoint::safetensors::{Entry, Reader};
use crate::config::adapted_layers::{has_inputs_first, target_of};
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
/// Ways to start an adapter that leave the base's matrices as they are. Others, such as `pissa`, `olora`, `corda`, `loftq` and
/// `lora_ga`, put a remainder in their place, to which the adapter belongs.
const STARTS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];
/// Adapters that requests to an engine can choose.
pub(crate) const OF_REQUESTS: &str = "an adapter of qkv, out, fc1 and fc2 alone: requests choose none of experts, routers, embeddings and heads";

/// An opened adapter.
pub(crate) struct Adapter {
    reader: Reader,
    scale: f64,
    /// A and B of each module.
    modules: BTreeMap<String, [Entry; 2]>,
    /// The matrix beside the adapter of the head, which PEFT saves and loads with it.
    head: Option<Entry>,
}

impl Adapter {
    /// Opens the adapter in `folder` for a model with these tensors.
    ///
    /// # Errors
    /// `Foreign` with every setting and tensor that does not fit.
    pub(crate) fn open(folder: &Path, pairs: &[Pair]) -> Result<Adapter> {
        let config = config(folder)?;
        let mut problems = unsupported(&config);
        let number = |key: &str| config.get(key).and_then(Value::as_f64);
        let rank = number("r").filter(|r| *r >= 1.0 && r.fract() == 0.0);
        if rank.is_none() {
            problems.push(format!(
                "r: found {}, want a whole number",
                shown(config.get("r"))
            ));
        }
        let alpha = number("lora_alpha").filter(|alpha| alpha.is_finite());
        if alpha.is_none() {
            let found = shown(config.get("lora_alpha"));
            problems.push(format!("lora_alpha: found {found}, want a number"));
        }
        if !problems.is_empty() {
            return Err(foreign(&folder.join(CONFIG), problems));
        }
        let (rank, alpha) = (rank.unwrap_or(1.0), alpha.unwrap_or(0.0));
        let scale = match config.get("use_rslora") == Some(&Value::Bool(true)) {
            true => alpha / rank.sqrt(),
            false => alpha / rank,
        };
        let path = folder.join(WEIGHTS);
        let reader = tensors(folder)?;
        let by_name = by_name(pairs);
        let mut found: BTreeMap<String, [Option<Entry>; 2]> = BTreeMap::new();
        let mut head = None;
        for entry in reader.entries() {
            let name = entry.name.strip_prefix(PREFIX);
            let beside = name.and_then(|name| name.strip_suffix(BESIDE));
            if let Some(pair) = beside.and_then(|module| head_of(module, &by_name)) {
                if entry.dims != pair.dims {
                    let (name, found, wanted) = (&entry.name, &entry.dims, &pair.dims);
                    problems.push(format!("{name}: found {found:?}, want {wanted:?}"));
                }
                head = Some(entry.clone());
                continue;
            }
            let parts = [".lora_A.weight", ".lora_B.weight"].into_iter().enumerate();
            let part = name.and_then(|name| {
                let mut parts = parts.filter_map(|(at, end)| Some((at, name.strip_suffix(end)?)));
                parts.next()
            });
            match part {
                Some((at, module)) => {
                    found.entry(module.to_owned()).or_default()[at] = Some(entry.clone());
                }
                None => problems.push(format!("{}: found, want tensors of LoRA alone", entry.name)),
            }
        }
        if let Some(entry) = &head {
            let module = entry.name.strip_prefix(PREFIX);
            let module = module.and_then(|name| name.strip_suffix(BESIDE));
            if !module.is_some_and(|module| found.contains_key(module)) {
                let line = "found alone, want lora_A and lora_B of this layer beside it";
                problems.push(format!("{}: {line}", entry.name));
            }
        }
        let mut modules = BTreeMap::new();
        for (module, both) in found {
            match whole(&module, both, rank, &by_name) {
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
                scale,
                modules,
                head,
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
        for (name, [a, b]) in &self.modules {
            let pair = by_name.get(format!("{name}.weight").as_str()).copied();
            let layer = pair.and_then(|pair| Some((pair, pair.ours.strip_suffix(".weight")?)));
            let is_served = |layer: &str| {
                let target = target_of(layer);
                target.is_some_and(|target| LoraTarget::DENSE.contains(&target))
            };
            match layer.filter(|(_, layer)| is_served(layer)) {
                Some((pair, layer)) => {
                    let a = values_of(&mut self.reader, a)?;
                    let b = values_of(&mut self.reader, b)?;
                    parts.entry(layer).or_default().push(Module { pair, a, b });
                }
                None => problems.push(format!("{name}: found, want {OF_REQUESTS}")),
            }
        }
        if let Some(head) = &self.head {
            problems.push(format!("{}: found, want {OF_REQUESTS}", head.name));
        }
        if !problems.is_empty() {
            return Err(foreign(self.reader.path(), problems));
        }
        let rank = self.modules.values().next().map_or(0, |[a, _]| a.dims[0]);
        let layers = parts.into_iter().map(|(layer, modules)| {
            let weight = format!("{layer}.weight");
            let spec = specs.iter().find(|spec| spec.name == weight);
            let dims = spec.map_or(&[][..], |spec| &spec.dims);
            (layer.to_owned(), joined(&modules, rank, dims, &shape))
        });
        Ok(LoraAdapter {
            scale: self.scale,
            layers: layers.collect(),
        })
    }

    /// Adds the adapter to the values of a tensor of the base model, in the order of that tensor.
    pub(crate) fn add(&mut self, pair: &Pair, values: &mut [f32]) -> Result<()> {
        let module = pair.theirs.strip_suffix(".weight").unwrap_or_default();
        if let Some(head) = self.head.as_ref().filter(|_| pair.ours == HEAD_WEIGHT) {
            values.copy_from_slice(&values_of(&mut self.reader, head)?);
        }
        let Some([a, b]) = self.modules.get(module).cloned() else {
            return Ok(());
        };
        let of = Factors {
            a: &values_of(&mut self.reader, &a)?,
            b: &values_of(&mut self.reader, &b)?,
            rank: a.dims[0],
            scale: self.scale,
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
    a: Vec<f32>,
    b: Vec<f32>,
}

/// The adapter of a layer of ours with a weight of these dims. Modules that share A share it here too; others have rows of A
/// each, and B has zeros where a module's rows meet another's.
fn joined(modules: &[Module<'_>], rank: usize, dims: &[usize], shape: &Shape) -> LayerAdapter {
    let shares = modules.iter().all(|module| module.a == modules[0].a);
    let all = if shares { rank } else { rank * modules.len() };
    let is_column = !has_inputs_first(modules[0].pair.ours.trim_end_matches(".weight"));
    let out = if is_column { dims[0] } else { dims[1] };
    let mut joined = LayerAdapter {
        rank: all,
        a: Vec::new(),
        b: vec![0.0; out * all],
    };
    for (number, module) in modules.iter().enumerate() {
        if number == 0 || !shares {
            joined.a.extend(&module.a);
        }
        let first = if shares { 0 } else { number * rank };
        let rows: Vec<usize> = match is_column {
            true => module.pair.rows_of_ours(shape).collect(),
            false => (0..out).collect(),
        };
        for (row, b) in rows.into_iter().zip(module.b.chunks_exact(rank)) {
            joined.b[row * all + first..][..rank].copy_from_slice(b);
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
    rank: f64,
    pairs: &BTreeMap<&str, &Pair>,
) -> std::result::Result<[Entry; 2], String> {
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
    let fits = a.dims.len() == 2 && a.dims[0] as f64 == rank && a.dims[1] == input;
    if !fits || b.dims != [out, a.dims[0]] {
        return Err(format!(
            "{module}: found lora_A {:?} and lora_B {:?}, want [{rank}, {input}] and [{out}, {rank}]",
            a.dims, b.dims
        ));
    }
    Ok([a, b])
}

/// Settings that are not read, a line each.
fn unsupported(config: &Map<String, Value>) -> Vec<String> {
    let mut problems = Vec::new();
    let kind = config.get("peft_type");
    if kind != Some(&json!("LORA")) {
        problems.push(format!("peft_type: found {}, want \"LORA\"", shown(kind)));
    }
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
            "modules_to_save",
            "rank_pattern",
            "alpha_pattern",
            "layer_replication",
            "trainable_token_indices",
            "target_parameters",
        ],
    ));
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
    let (mut all, mut modules) = (Vec::new(), BTreeSet::new());
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
        // the last two parts: GPT-2 has a c_proj in both halves of a block, and experts have numbers
        let mut dots = module.rmatch_indices('.').map(|(at, _)| at + 1);
        let suffix = dots.nth(1).map_or(module, |at| &module[at..]);
        modules.insert(suffix.to_owned());
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
    let config = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base_of(&plan),
        "r": rank, "lora_alpha": lora.alpha, "use_rslora": lora.rs_lora, "lora_dropout": lora.dropout, "bias": "none",
        "target_modules": modules, "fan_in_fan_out": plan.model.family == Family::Gpt, "inference_mode": true,
        "init_lora_weights": true, "modules_to_save": null,
    });
    write(out, &config, &all)
}
