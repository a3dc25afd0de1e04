//! Export to the Hugging Face layout: `config.json` and `model.safetensors` that transformers loads
//! as the family's class. What they are made of: `hf_config.rs`, `hf_names.rs`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use kernels::Tensor;
use serde_json::json;

use crate::checkpoint::MODEL;
use crate::checkpoint::hf_config;
use crate::checkpoint::hf_names::pairs;
use crate::checkpoint::safetensors::{Entry, Writer};
use crate::checkpoint::write::sync;
use crate::error::{At, Error, Result};
use crate::eval::Model;
use crate::model::param::Spec;
use crate::plan::Plan;

/// A matrix or vector under its new name.
pub(crate) struct Out {
    pub name: String,
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

/// All tensors of a model, weights or anything that goes with them.
pub(crate) struct Source<'a> {
    pub plan: &'a Plan,
    pub specs: &'a [Spec],
    pub tensors: &'a [Tensor],
}

/// The tensors of the family's class in transformers.
pub(crate) fn tensors(source: &Source<'_>) -> Vec<Out> {
    let shape = source.plan.shape();
    let pairs = pairs(source.plan).into_iter().map(|pair| {
        let slot = source.specs.iter().position(|spec| spec.name == pair.ours);
        let ours = source.tensors[slot.expect("names come from the same plan")].f32();
        Out {
            values: pair.elements_of_ours(&shape).map(|at| ours[at]).collect(),
            name: pair.theirs,
            dims: pair.dims,
        }
    });
    pairs.collect()
}

/// Writes `config.json` and `model.safetensors` under `out`.
///
/// # Errors
/// A damaged checkpoint; a model that the family's class cannot be told; a folder that cannot be written.
pub fn export_hf(checkpoint: &Path, out: &Path) -> Result<()> {
    let model = Model::load(checkpoint)?;
    let lacking = hf_config::inexpressible(&model.plan);
    if !lacking.is_empty() {
        return Err(Error::Request {
            what: "model to export",
            found: lacking.join("; "),
            wanted: "what its class in transformers can be told".into(),
        });
    }
    let config = hf_config::to_json(&model.plan)?;
    fs::create_dir_all(out).at("create", out)?;
    let tensors = tensors(&Source {
        plan: &model.plan,
        specs: &model.specs,
        tensors: &model.weights,
    });
    let entries = tensors
        .iter()
        .map(|tensor| Entry {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
        })
        .collect();
    let partial = out.join(".model.safetensors.partial");
    let mut writer = Writer::create(&partial, entries, Some(json!({"format": "pt"})))?;
    for tensor in &tensors {
        writer.write(&tensor.values)?;
    }
    writer.finish()?;
    fs::rename(&partial, out.join(MODEL)).at("rename", &partial)?;
    let partial = out.join(".config.json.partial");
    let text = format!("{config:#}\n");
    let mut file = File::create(&partial).at("create", &partial)?;
    file.write_all(text.as_bytes()).at("write", &partial)?;
    file.sync_all().at("sync", &partial)?;
    fs::rename(&partial, out.join("config.json")).at("rename", &partial)?;
    sync(out)
}
