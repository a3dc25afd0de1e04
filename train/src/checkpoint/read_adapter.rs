//! Reading of a low-rank adapter for a model that is open: from PEFT's form, or from a checkpoint that was trained with one.

use std::collections::BTreeMap;
use std::path::Path;

use crate::checkpoint::MODEL;
use crate::checkpoint::adapters::{self, LayerAdapter, LoraAdapter};
use crate::checkpoint::huggingface::adapter_folder::is_adapter;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::peft::{Adapter, OF_REQUESTS};
use crate::checkpoint::initial_weights::FREE;
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::Opened;
use crate::config::LoraTarget;
use crate::config::adapted_layers::has_inputs_first;
use crate::config::plan::Plan;
use crate::error::{Error, Result};
use crate::model::param;

/// Reads the adapter at `path` for the model of `base`, a plan without adapters: a folder in PEFT's form, a checkpoint with
/// `[model.lora]`, or a folder of checkpoints (the newest that is whole).
///
/// # Errors
/// `Foreign` with everything that does not fit the model; a checkpoint without adapters; a damaged file.
pub(crate) fn read_adapter(path: &Path, base: &Plan) -> Result<LoraAdapter> {
    if is_adapter(path) {
        let pairs = pairs(base);
        return Adapter::open(path, &pairs)?.layers(&pairs, base);
    }
    let opened = Opened::open(&checkpoint_at(path)?.path)?;
    let plan = opened.plan_of_one_rank();
    let Some(lora) = plan.model.lora.clone() else {
        return Err(Error::Request {
            what: "adapter",
            found: format!("{}, a checkpoint without [model.lora]", path.display()),
            wanted: "a folder in PEFT's form, or a checkpoint that was trained with adapters"
                .into(),
        });
    };
    expect_base(&opened, &plan, base)?;
    let mut others = (lora.targets.iter()).filter(|target| !LoraTarget::DENSE.contains(target));
    if let Some(other) = others.next() {
        return Err(Error::Request {
            what: "adapter",
            found: format!("{}, with {other:?} among its targets", path.display()),
            wanted: OF_REQUESTS.into(),
        });
    }
    let mut tensors = opened.tensors(MODEL)?;
    let mut adapter = LoraAdapter {
        scale: lora.scale(),
        layers: BTreeMap::new(),
    };
    for spec in param::specs(&plan) {
        let layer = spec.name.strip_suffix(".lora_a");
        let layer = layer.or(spec.name.strip_suffix(".lora_b"));
        let Some(layer) = layer else { continue };
        let mut values = vec![0.0; spec.dims.iter().product()];
        tensors.read_part(&spec.name, &spec.dims, 0, &mut values)?;
        let of = adapter.layers.entry(layer.to_owned());
        let of = of.or_insert_with(|| LayerAdapter {
            rank: lora.rank,
            a: Vec::new(),
            b: Vec::new(),
        });
        match spec.name.ends_with(".lora_b") {
            true => of.b = values,
            false if has_inputs_first(layer) => {
                of.a = adapters::transposed(&values, lora.rank);
            }
            false => of.a = values,
        }
    }
    Ok(adapter)
}

/// Settings of a mixture that change its answers.
fn mixture(plan: &Plan) -> String {
    let mut moe = serde_json::to_value(&plan.model.moe).unwrap_or_default();
    if let Some(moe) = moe.as_object_mut() {
        moe.retain(|key, _| !FREE.contains(&key.as_str()));
    }
    moe.to_string()
}

/// Settings of a model that change its answers, by name.
fn settings(plan: &Plan) -> [(&'static str, String); 16] {
    let (model, shape) = (&plan.model, plan.shape());
    [
        ("architecture", format!("{:?}", model.architecture())),
        ("heads", shape.heads.to_string()),
        ("kv_heads", shape.kv_heads.to_string()),
        ("head_dim", shape.d_head.to_string()),
        ("norm_eps", model.norm_eps.to_string()),
        ("rotary_percent", model.rotary_percent.to_string()),
        ("rope_theta", model.rope_theta.to_string()),
        ("rope_scaling", format!("{:?}", model.rope_scaling)),
        ("sliding_window", model.sliding_window.to_string()),
        ("global_every", model.global_every.to_string()),
        ("local_rope_theta", model.local_rope_theta.to_string()),
        ("score_divisor", model.score_divisor.to_string()),
        ("attention_cap", model.attention_cap.to_string()),
        ("logit_cap", model.logit_cap.to_string()),
        ("latent_norm_eps", model.latent_norm_eps().to_string()),
        ("moe", mixture(plan)),
    ]
}

/// Refuses the adapters of a model with other tensors or settings.
fn expect_base(opened: &Opened, plan: &Plan, base: &Plan) -> Result<()> {
    let mut bare = plan.clone();
    bare.model.lora = None;
    // of a table of positions the training may have had the first rows
    bare.seq_length = bare.seq_length.max(base.seq_length);
    let dims = |plan: &Plan| -> Vec<(String, Vec<usize>)> {
        let specs = param::specs(plan).into_iter();
        specs.map(|spec| (spec.name, spec.dims)).collect()
    };
    let (found, wanted) = (dims(&bare), dims(base));
    let mut problems = Vec::new();
    for ((name, found), (_, wanted)) in settings(&bare).into_iter().zip(settings(base)) {
        if found != wanted {
            problems.push(format!(
                "{name}: found {found}, want {wanted}, as the model's"
            ));
        }
    }
    let pairs = found.iter().zip(&wanted);
    if let Some(((name, dims), (wanted, other))) = pairs.clone().find(|(a, b)| a != b) {
        problems.push(format!(
            "found {name} {dims:?}, want {wanted} {other:?}, as the model's"
        ));
    } else if found.len() != wanted.len() {
        problems.push(format!(
            "found {} tensors, want {}, as the model's",
            found.len(),
            wanted.len()
        ));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Foreign {
            path: opened.path.clone(),
            problems,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tiny_deepseek;

    #[test]
    fn settings_of_mixtures_and_latents_tell_models_apart_and_those_of_training_do_not() {
        let own = tiny_deepseek();
        let changed = |change: fn(&mut Plan)| {
            let mut plan = own.clone();
            change(&mut plan);
            let pairs = settings(&plan).into_iter().zip(settings(&own));
            let other = pairs.filter(|(a, b)| a != b).map(|((name, _), _)| name);
            other.collect::<Vec<_>>()
        };
        assert_eq!(
            changed(|plan| plan.model.moe.as_mut().unwrap().top_k += 1),
            ["moe"]
        );
        assert_eq!(
            changed(|plan| plan.model.moe.as_mut().unwrap().scale = 3.5),
            ["moe"]
        );
        assert_eq!(
            changed(|plan| plan.model.latent_norm_eps = 0.5),
            ["latent_norm_eps"]
        );
        assert!(changed(|plan| plan.model.moe.as_mut().unwrap().balance_loss = 0.5).is_empty());
    }
}
