//! A decoder in the layout of transformers' `FalconForCausalLM`.
//!
//! `query_key_value` has the queries of a group, then its key and its value, group by group, which is our order: one group of
//! all heads with `multi_query`, one of each head without, `num_kv_heads` groups with `new_decoder_architecture`. Attention
//! and feed-forward layer are parallel with one norm (7B, 11B) or two (40B, 180B), or in turn without `parallel_attn`.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::{decimal, function, plain};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{Linear, Pair};
use crate::checkpoint::huggingface::rope;
use crate::config::plan::Plan;
use crate::config::{Activation, Biases, ModelConfig};

/// Length if a file states none.
const LENGTH: usize = 2048;

/// Whether only the class's new architecture has these heads and norms.
fn needs_new_architecture(model: &ModelConfig) -> bool {
    let architecture = model.architecture();
    let has_two_norms = architecture.is_parallel && !architecture.has_shared_norm;
    has_two_norms || ![1, model.heads].contains(&model.kv_heads())
}

/// Whether the class cannot have the model's groups of heads.
pub(crate) fn lacks_groups(model: &ModelConfig) -> bool {
    needs_new_architecture(model) && !model.architecture().is_parallel
}

/// Fields of `config.json` that the class has and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let (model, architecture) = (&plan.model, plan.model.architecture());
    let mut config = json!({
        "max_position_embeddings": plan.seq_length,
        "hidden_size": model.d_model,
        "ffn_hidden_size": model.d_ffn(),
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_kv_heads": model.kv_heads(),
        "activation": function(architecture.activation),
        "layer_norm_epsilon": decimal(model.norm_eps),
        "rope_theta": decimal(model.rope_theta),
        "rope_parameters": rope::to_json(model),
        "alibi": false,
        "bias": architecture.biases == Biases::All,
        "new_decoder_architecture": needs_new_architecture(model),
        "multi_query": model.kv_heads() == 1,
        "parallel_attn": architecture.is_parallel,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
    });
    if needs_new_architecture(model) {
        let norms = if architecture.has_shared_norm { 1 } else { 2 };
        config["num_ln_in_parallel_attn"] = json!(norms);
    }
    config
}

/// Model and length.
pub(crate) fn read(fields: &Fields<'_>) -> (ModelConfig, usize) {
    let activation = plain(fields, "activation", "gelu");
    let length = fields.count_or("max_position_embeddings", LENGTH);
    let rope = rope::read(fields, length);
    if let Some(scaling) = rope.scaling {
        let wanted = "null: positions of this family are not scaled";
        fields.wrong("rope_scaling", &format!("{scaling:?}"), wanted);
    }
    if let Some(share) = rope.share.filter(|share| *share != 1.0) {
        let name = "rope_parameters.partial_rotary_factor";
        fields.wrong(name, &share.to_string(), "1");
    }
    fields.only("alibi", false);
    for name in ["attention_dropout", "hidden_dropout"] {
        let found = fields.number(name, Some(0.0));
        if found != 0.0 {
            let wanted = "0: no dropout of this family";
            fields.wrong(name, &found.to_string(), wanted);
        }
    }
    let d_model = fields.count("hidden_size");
    let heads = fields.count("num_attention_heads");
    let is_new = fields.flag("new_decoder_architecture", false);
    let is_parallel = fields.flag("parallel_attn", true);
    let is_single = fields.flag("multi_query", true);
    let groups = fields.count_or("num_kv_heads", heads);
    let norms = fields.count_or("num_ln_in_parallel_attn", if is_new { 2 } else { 1 });
    if is_new && !is_parallel {
        let wanted = "true with new_decoder_architecture";
        fields.wrong("parallel_attn", "false", wanted);
    }
    if !(1..=2).contains(&norms) || norms == 2 && !is_new {
        let wanted = if is_new {
            "1 or 2"
        } else {
            "1 without new_decoder_architecture"
        };
        fields.wrong("num_ln_in_parallel_attn", &norms.to_string(), wanted);
    }
    let kv_heads = match (is_new, is_single) {
        (true, _) => groups,
        (false, true) => 1,
        (false, false) => heads,
    };
    let model = ModelConfig {
        layers: fields.count("num_hidden_layers"),
        d_model,
        heads,
        kv_heads,
        d_ffn: fields.count_or("ffn_hidden_size", d_model.saturating_mul(4)),
        activation: (activation != Activation::Gelu).then_some(activation),
        bias: fields.flag("bias", false).then_some(Biases::All),
        norm_eps: fields.number("layer_norm_epsilon", Some(1e-5)),
        rope_theta: rope.theta.unwrap_or(rope::THETA),
        parallel_residual: (!is_parallel).then_some(false),
        shared_norm: (!is_parallel || norms == 2).then_some(false),
        ..ModelConfig::default()
    };
    (model, length)
}

/// All tensors but the head's.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (s, d, architecture) = (plan.shape(), plan.model.d_model, plan.model.architecture());
    let same = |theirs: &str, ours: &str, dims: &[usize]| {
        Pair::of(format!("transformer.{theirs}"), ours.into(), dims)
    };
    let mut pairs = vec![same(
        "word_embeddings.weight",
        "embedding.weight",
        &[plan.vocab, d],
    )];
    let norms: &[(&str, &str)] = match (architecture.is_parallel, architecture.has_shared_norm) {
        (true, true) => &[("input_layernorm", "norm1")],
        (true, false) => &[("ln_attn", "norm1"), ("ln_mlp", "norm2")],
        (false, _) => &[
            ("input_layernorm", "norm1"),
            ("post_attention_layernorm", "norm2"),
        ],
    };
    let width = s.heads * s.d_head;
    for layer in 0..plan.model.layers {
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            let theirs = format!("h.{layer}.{theirs}");
            same(&theirs, &format!("layers.{layer}.{ours}"), dims)
        };
        for (theirs, ours) in norms {
            for kind in ["weight", "bias"] {
                pairs.push(own(
                    &format!("{theirs}.{kind}"),
                    &format!("{ours}.{kind}"),
                    &[d],
                ));
            }
        }
        for linear in [
            Linear::by_column("self_attention.query_key_value", "qkv", [s.packed, d]),
            Linear::by_row("self_attention.dense", "out", [width, d]),
            Linear::by_column("mlp.dense_h_to_4h", "fc1", [s.d_ffn, d]),
            Linear::by_row("mlp.dense_4h_to_h", "fc2", [s.d_ffn, d]),
        ] {
            linear.add(&mut pairs, &own, architecture.biases == Biases::All);
        }
    }
    for kind in ["weight", "bias"] {
        pairs.push(same(&format!("ln_f.{kind}"), &format!("norm.{kind}"), &[d]));
    }
    pairs
}
