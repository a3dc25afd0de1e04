//! gpt-oss in the layout of transformers' `GptOssForCausalLM`.
//!
//! Attention is named as LLaMA's, with sinks. A layer's experts are stacked: one tensor for the first matrices of all of them,
//! `[experts, d, 2f]`, whose even columns are gates and odd ones ups, one for the second, `[experts, f, d]`, and two for the
//! biases. Published files have both matrices in four bits (`mxfp4.rs`).

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::{decimal, stated_width};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::layer_types;
use crate::checkpoint::huggingface::pair::{Own, Pair, Rows};
use crate::checkpoint::huggingface::rope::{self, Rope};
use crate::config::moe::MoeConfig;
use crate::config::plan::Plan;
use crate::config::{Activation, ModelConfig, RopeScaling};

/// Values of the class where a file has none.
const HEAD_DIM: usize = 64;
const WINDOW: usize = 128;
const GLOBAL_EVERY: usize = 2;
const THETA: f32 = 150_000.0;
const EXPERTS: usize = 128;
const TOP_K: usize = 4;
/// Bound of gates and ups. Versions of the class before transformers 5.24 have it and `ALPHA` as constants.
const LIMIT: f64 = 7.0;
/// Factor of a gate in its logistic function.
const ALPHA: f64 = 1.702;

/// Rotary positions of a file that says nothing of them.
fn absent_scaling() -> RopeScaling {
    RopeScaling::Yarn {
        factor: 32.0,
        original_length: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: None,
        mscale: None,
        mscale_all_dim: None,
        truncate: false,
    }
}

/// Settings that this class alone has no fields for, one line each.
pub(crate) fn inexpressible(model: &ModelConfig) -> Vec<String> {
    let activation = model.architecture().activation;
    [
        (
            activation != Activation::SwigluClamped,
            format!("activation = {activation:?} in gpt_oss"),
        ),
        (model.moe.is_none(), "no moe in gpt_oss".to_owned()),
    ]
    .into_iter()
    .filter_map(|(is_wrong, line)| is_wrong.then_some(line))
    .collect()
}

/// Fields of `config.json` that the class has and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let (shape, model) = (plan.shape(), &plan.model);
    let mut config = json!({
        "max_position_embeddings": rope::positions(plan),
        "hidden_size": shape.d_model,
        "num_hidden_layers": model.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.d_head,
        "hidden_act": "silu",
        "swiglu_limit": LIMIT,
        "swiglu_alpha": ALPHA,
        "rms_norm_eps": decimal(model.norm_eps),
        "rope_theta": decimal(model.rope_theta),
        "rope_parameters": rope::to_json(model),
        "rope_scaling": null,
        "attention_bias": true,
        "attention_dropout": decimal(model.attention_dropout),
        "sliding_window": layer_types::window(model, plan.seq_length),
        "layer_types": layer_types::kinds(model),
        // with an id, a row of the embedding gets no gradient
        "pad_token_id": null,
    });
    rope::add_scaling(&mut config, model);
    rope::add_length(&mut config, plan);
    config
}

/// Model and length; the mixture is for `moe.rs`.
pub(crate) fn read(fields: &Fields<'_>) -> (ModelConfig, usize) {
    let heads = fields.count("num_attention_heads");
    let d_model = fields.count("hidden_size");
    let layers = fields.count("num_hidden_layers");
    let head_dim = fields.count_or("head_dim", HEAD_DIM);
    let length = fields.count("max_position_embeddings");
    fields.only("attention_bias", true);
    let activation = fields.text_or("hidden_act", "silu");
    if activation != "silu" {
        fields.wrong("hidden_act", &activation, "silu");
    }
    for (name, wanted) in [("swiglu_limit", LIMIT), ("swiglu_alpha", ALPHA)] {
        let found = fields.wide(name, Some(wanted));
        if found != wanted {
            fields.wrong(name, &found.to_string(), &wanted.to_string());
        }
    }
    let has_rope = ["rope_scaling", "rope_parameters"]
        .iter()
        .any(|name| fields.has(name) || fields.is_null(name));
    let Rope {
        theta,
        scaling,
        share,
    } = rope::read(fields, length);
    if let Some(share) = share.filter(|share| *share != 1.0) {
        let name = "rope_parameters.partial_rotary_factor";
        fields.wrong(name, &share.to_string(), "1");
    }
    let rope_scaling = if has_rope {
        scaling
    } else {
        Some(absent_scaling())
    };
    read_published(fields, rope_scaling.as_ref());
    let global_every = layer_types::read(fields, layers, GLOBAL_EVERY);
    let sliding_window = layer_types::read_window(fields, WINDOW, global_every);
    let has_window = sliding_window > 0 && global_every != 1;
    let model = ModelConfig {
        layers,
        d_model,
        heads,
        head_dim: stated_width(head_dim, heads, d_model),
        kv_heads: fields.count("num_key_value_heads"),
        d_ffn: fields.count("intermediate_size"),
        norm_eps: fields.number("rms_norm_eps", Some(1e-5)),
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        sliding_window: if has_window { sliding_window } else { 0 },
        global_every: if has_window { global_every } else { 0 },
        rope_theta: theta.unwrap_or(THETA),
        rope_scaling,
        ..ModelConfig::default()
    };
    // our own field
    (model, fields.count_or("seq_length", length))
}

/// Second names of fields in published files, which the class does not read.
fn read_published(fields: &Fields<'_>, scaling: Option<&RopeScaling>) {
    if fields.has("experts_per_token") {
        let own = fields.count_or("num_experts_per_tok", TOP_K);
        let other = fields.count("experts_per_token");
        if own != other {
            let wanted = format!("{own}, as num_experts_per_tok");
            fields.wrong("experts_per_token", &other.to_string(), &wanted);
        }
    }
    if !fields.has("initial_context_length") {
        return;
    }
    let initial = fields.count("initial_context_length");
    if let Some(RopeScaling::Yarn {
        original_length, ..
    }) = scaling
        && *original_length != initial
    {
        let wanted = format!("{original_length}, as the original length of rope_scaling");
        fields.wrong("initial_context_length", &initial.to_string(), &wanted);
    }
}

/// Experts of a layer and those of a token.
pub(crate) fn read_mixture(fields: &Fields<'_>, moe: &mut MoeConfig) {
    moe.experts = fields.count_or("num_local_experts", EXPERTS);
    moe.top_k = fields.count_or("num_experts_per_tok", TOP_K);
    moe.biases = true;
}

/// Router and experts of a layer.
pub(crate) fn add_mixture(pairs: &mut Vec<Pair>, plan: &Plan, moe: &MoeConfig, own: Own<'_>) {
    let (d, f, experts) = (plan.model.d_model, plan.model.d_expert(), moe.experts);
    pairs.extend([
        own("mlp.router.weight", "router.weight", &[experts, d]),
        own("mlp.router.bias", "router.logit_bias", &[experts]),
    ]);
    let mut stack = |theirs: &str, of: &dyn Fn(&str, &str) -> Pair| {
        for expert in 0..experts {
            let theirs = format!("mlp.experts.{theirs}");
            let pair = of(&theirs, &format!("experts.{expert}"));
            pairs.push(pair.part_of(expert, experts));
        }
    };
    stack("gate_up_proj", &|theirs, ours| {
        let pair = own(theirs, &format!("{ours}.fc1.weight"), &[2 * f, d]);
        pair.rows(Rows::Alternating(f), 0).transposed()
    });
    stack("gate_up_proj_bias", &|theirs, ours| {
        let pair = own(theirs, &format!("{ours}.fc1.bias"), &[2 * f]);
        pair.rows(Rows::Alternating(f), 0)
    });
    stack("down_proj", &|theirs, ours| {
        own(theirs, &format!("{ours}.fc2.weight"), &[f, d])
    });
    stack("down_proj_bias", &|theirs, ours| {
        own(theirs, &format!("{ours}.fc2.bias"), &[d])
    });
}
