//! Export to the Hugging Face layout: `config.json` and `model.safetensors` that transformers loads
//! as `GPT2LMHeadModel` or `LlamaForCausalLM`.
//!
//! Ours differs from theirs in three places: row-parallel matrices are `[in, out]` (as GPT-2's
//! Conv1D, unlike torch's Linear); queries, keys and values are packed per group of heads; the
//! gated layer is stored in eight chunks of gate rows and up rows. Vocabulary padding is dropped.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use kernels::Tensor;
use serde_json::{Value, json};

use crate::checkpoint::hf_mixture::{self, class_of};
use crate::checkpoint::safetensors::{Entry, Writer};
use crate::checkpoint::write::sync;
use crate::checkpoint::{MODEL, hf_bert};

use crate::config::{Family, ModelConfig};
use crate::error::{At, Error, Result};
use crate::eval::Model;
use crate::model::param::Spec;
use crate::plan::{FEATURE_CHUNKS, Plan, Shape};

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
    match source.plan.model.family {
        Family::Gpt => gpt_tensors(source),
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => llama_tensors(source),
        Family::Bert => hf_bert::tensors(source),
    }
}

/// Writes `config.json` and `model.safetensors` under `out`.
///
/// # Errors
/// A damaged checkpoint; a model that the family's class cannot be told; a folder that cannot be written.
pub fn export_hf(checkpoint: &Path, out: &Path) -> Result<()> {
    let model = Model::load(checkpoint)?;
    expressible(&model.plan)?;
    let config = match model.plan.model.family {
        Family::Gpt => gpt_config(&model.plan),
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            llama_config(&model.plan)
        }
        Family::Bert => hf_bert::config(&model.plan)?,
    };
    let config = match &model.plan.model.moe {
        Some(moe) => {
            let class = class_of(&model.plan.model, moe)?;
            hf_mixture::config(class, &model.plan.model, moe, config)
        }
        None => config,
    };
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

/// Whether the family's class in transformers has all that the model is made of.
fn expressible(plan: &Plan) -> Result<()> {
    let found = plan.model.architecture();
    let family = ModelConfig {
        family: plan.model.family,
        tie_embeddings: plan.model.tie_embeddings,
        post_norm: plan.model.post_norm,
        // BERT's class has a name for every one without a gate
        activation: (plan.model.activation).filter(|_| plan.model.family == Family::Bert),
        ..ModelConfig::default()
    };
    let family = family.architecture();
    let is_grouped = plan.model.kv_heads() != plan.model.heads;
    let has_width = plan.model.head_dim > 0;
    let is_known = match plan.model.family {
        Family::Gpt | Family::Bert => !is_grouped && !has_width && plan.model.moe.is_none(),
        Family::Llama => true,
        Family::Mistral | Family::Qwen2 | Family::Qwen3 => false,
    };
    if found == family && is_known {
        return Ok(());
    }
    Err(Error::Request {
        what: "model to export",
        found: format!("{found:?} with {:?}", plan.model),
        wanted: format!("{family:?} of {:?}", plan.model.family),
    })
}

/// The shortest decimal that is this f32: 1e-5 stays 1e-5 in JSON.
pub(crate) fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

fn gpt_config(plan: &Plan) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": plan.vocab,
        "n_positions": plan.seq_length,
        "n_embd": plan.model.d_model,
        "n_layer": plan.model.layers,
        "n_head": plan.model.heads,
        "n_inner": plan.model.d_ffn(),
        "activation_function": "gelu_new",
        "layer_norm_epsilon": decimal(plan.model.norm_eps),
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "initializer_range": decimal(plan.model.init_std),
        "tie_word_embeddings": plan.model.is_tied(),
        "bos_token_id": null,
        "eos_token_id": null,
        "dtype": "float32",
    })
}

fn llama_config(plan: &Plan) -> Value {
    let shape = plan.shape();
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": plan.vocab,
        "max_position_embeddings": plan.seq_length,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ffn,
        "num_hidden_layers": plan.model.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.d_head,
        "hidden_act": "silu",
        "rms_norm_eps": decimal(plan.model.norm_eps),
        "rope_theta": decimal(plan.model.rope_theta),
        "rope_parameters": {"rope_type": "default", "rope_theta": decimal(plan.model.rope_theta)},
        "attention_bias": false,
        "mlp_bias": false,
        "attention_dropout": 0.0,
        "initializer_range": decimal(plan.model.init_std),
        "tie_word_embeddings": plan.model.is_tied(),
        "bos_token_id": null,
        "eos_token_id": null,
        "dtype": "float32",
    })
}

/// Values and dims of one of our tensors.
pub(crate) fn ours<'a>(model: &Source<'a>, name: &str) -> (&'a [f32], &'a [usize]) {
    let slot = model.specs.iter().position(|spec| spec.name == name);
    let tensor = &model.tensors[slot.expect("names come from the same plan")];
    (tensor.f32(), tensor.dims())
}

pub(crate) fn as_is(model: &Source<'_>, name: String, from: &str) -> Out {
    let (values, dims) = ours(model, from);
    Out {
        name,
        dims: dims.to_vec(),
        values: values.to_vec(),
    }
}

/// Without the padding rows.
pub(crate) fn vocabulary(model: &Source<'_>, name: &str, from: &str) -> Out {
    let (values, dims) = ours(model, from);
    let dims = vec![model.plan.vocab, dims[1]];
    Out {
        name: name.into(),
        values: values[..dims[0] * dims[1]].to_vec(),
        dims,
    }
}

pub(crate) fn transposed(name: String, values: &[f32], rows: usize, cols: usize) -> Out {
    let mut out = vec![0.0; rows * cols];
    for (r, row) in values.chunks(cols).enumerate() {
        for (c, &value) in row.iter().enumerate() {
            out[c * rows + r] = value;
        }
    }
    Out {
        name,
        dims: vec![cols, rows],
        values: out,
    }
}

/// Rows of the packed projection in the order all queries, all keys, all values.
pub(crate) fn unpacked(values: &[f32], shape: &Shape) -> [Vec<f32>; 3] {
    let queries = shape.heads / shape.kv_heads;
    let head = values.len() / shape.packed * shape.d_head;
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for group in values.chunks((queries + 2) * head) {
        parts[0].extend_from_slice(&group[..queries * head]);
        parts[1].extend_from_slice(&group[queries * head..(queries + 1) * head]);
        parts[2].extend_from_slice(&group[(queries + 1) * head..]);
    }
    parts
}

/// Rows of the gated layer as all gates, then all ups.
fn ungated(values: &[f32]) -> [Vec<f32>; 2] {
    let half = values.len() / FEATURE_CHUNKS / 2;
    let mut parts = [Vec::new(), Vec::new()];
    for (i, chunk) in values.chunks(half).enumerate() {
        parts[i % 2].extend_from_slice(chunk);
    }
    parts
}

/// Gate, up and down matrices of a gated feed-forward layer, under these names.
pub(crate) fn gated_mlp(
    model: &Source<'_>,
    (to, from): (&str, &str),
    [gate, up, down]: [&str; 3],
) -> Vec<Out> {
    let (values, dims) = ours(model, &format!("{from}.fc2.weight"));
    let down = transposed(format!("{to}.{down}.weight"), values, dims[0], dims[1]);
    let dims = dims.to_vec();
    let split = ungated(ours(model, &format!("{from}.fc1.weight")).0);
    let mut tensors: Vec<Out> = ([gate, up].into_iter().zip(split))
        .map(|(name, values)| Out {
            name: format!("{to}.{name}.weight"),
            dims: dims.clone(),
            values,
        })
        .collect();
    tensors.push(down);
    tensors
}

fn gpt_tensors(model: &Source<'_>) -> Vec<Out> {
    let (plan, shape) = (model.plan, model.plan.shape());
    let mut tensors = vec![
        vocabulary(model, "transformer.wte.weight", "embedding.weight"),
        as_is(model, "transformer.wpe.weight".into(), "position.weight"),
    ];
    for layer in 0..plan.model.layers {
        let (at, from) = (format!("transformer.h.{layer}"), format!("layers.{layer}"));
        for kind in ["weight", "bias"] {
            tensors.push(as_is(
                model,
                format!("{at}.ln_1.{kind}"),
                &format!("{from}.norm1.{kind}"),
            ));
            tensors.push(as_is(
                model,
                format!("{at}.ln_2.{kind}"),
                &format!("{from}.norm2.{kind}"),
            ));
        }
        let packed = unpacked(ours(model, &format!("{from}.qkv.weight")).0, &shape).concat();
        let name = format!("{at}.attn.c_attn.weight");
        tensors.push(transposed(name, &packed, shape.packed, shape.d_model));
        let values = unpacked(ours(model, &format!("{from}.qkv.bias")).0, &shape).concat();
        let name = format!("{at}.attn.c_attn.bias");
        tensors.push(Out {
            name,
            dims: vec![values.len()],
            values,
        });
        let fc1 = ours(model, &format!("{from}.fc1.weight")).0;
        let name = format!("{at}.mlp.c_fc.weight");
        tensors.push(transposed(name, fc1, shape.d_ffn, shape.d_model));
        for (name, source) in [
            ("attn.c_proj.weight", "out.weight"),
            ("attn.c_proj.bias", "out.bias"),
            ("mlp.c_fc.bias", "fc1.bias"),
            ("mlp.c_proj.weight", "fc2.weight"),
            ("mlp.c_proj.bias", "fc2.bias"),
        ] {
            tensors.push(as_is(
                model,
                format!("{at}.{name}"),
                &format!("{from}.{source}"),
            ));
        }
    }
    tensors.push(as_is(
        model,
        "transformer.ln_f.weight".into(),
        "norm.weight",
    ));
    tensors.push(as_is(model, "transformer.ln_f.bias".into(), "norm.bias"));
    if !plan.model.is_tied() {
        tensors.push(vocabulary(model, "lm_head.weight", "head.weight"));
    }
    tensors
}

fn llama_tensors(model: &Source<'_>) -> Vec<Out> {
    let (plan, shape) = (model.plan, model.plan.shape());
    let d = shape.d_model;
    let mut tensors = vec![vocabulary(
        model,
        "model.embed_tokens.weight",
        "embedding.weight",
    )];
    for layer in 0..plan.model.layers {
        let (at, from) = (format!("model.layers.{layer}"), format!("layers.{layer}"));
        let norm = |name: &str, source: &str| {
            as_is(
                model,
                format!("{at}.{name}.weight"),
                &format!("{from}.{source}.weight"),
            )
        };
        tensors.push(norm("input_layernorm", "norm1"));
        tensors.push(norm("post_attention_layernorm", "norm2"));
        let split = unpacked(ours(model, &format!("{from}.qkv.weight")).0, &shape);
        for (name, values) in ["q_proj", "k_proj", "v_proj"].into_iter().zip(split) {
            let name = format!("{at}.self_attn.{name}.weight");
            tensors.push(Out {
                name,
                dims: vec![values.len() / d, d],
                values,
            });
        }
        let width = shape.heads * shape.d_head;
        let out = ours(model, &format!("{from}.out.weight")).0;
        tensors.push(transposed(
            format!("{at}.self_attn.o_proj.weight"),
            out,
            width,
            d,
        ));
        let class = plan
            .model
            .moe
            .as_ref()
            .map(|moe| class_of(&plan.model, moe));
        match (plan.model.moe_at(layer), class) {
            (Some(moe), Some(Ok(class))) => {
                tensors.extend(hf_mixture::tensors(class, model, moe, (&at, &from)));
            }
            _ => {
                let (to, names) = (format!("{at}.mlp"), ["gate_proj", "up_proj", "down_proj"]);
                tensors.extend(gated_mlp(model, (&to, &from), names));
            }
        }
    }
    tensors.push(as_is(model, "model.norm.weight".into(), "norm.weight"));
    if !plan.model.is_tied() {
        tensors.push(vocabulary(model, "lm_head.weight", "head.weight"));
    }
    tensors
}
