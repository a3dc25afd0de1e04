//! A decoder in the layout of transformers' `BloomForCausalLM`.
//!
//! `query_key_value` has the query, the key and the value of one head after those of another, which is our order for as many
//! heads of keys as of queries. Positions are linear biases of scores, so a file need not state a length: ours is in
//! `seq_length`, as in the published files. Those also have fields of the program that the model was trained with, which change
//! no result.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::decimal;
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{Linear, Pair};
use crate::config::plan::Plan;
use crate::config::{Activation, ModelConfig};

/// Length if a file states none: BLOOM's.
const LENGTH: usize = 2048;

/// Fields of the program that trained the published models: fused kernels, their number formats, and the start of its biases.
const OF_TRAINING: [&str; 6] = [
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "offset_alibi",
    "skip_bias_add",
    "skip_bias_add_qkv",
];

/// Settings that this class alone has no fields for, one line each.
pub(crate) fn inexpressible(model: &ModelConfig) -> Vec<String> {
    let activation = model.architecture().activation;
    let d_ffn = model.d_ffn();
    [
        (
            d_ffn != 4 * model.d_model,
            format!("d_ffn = {d_ffn} in bloom"),
        ),
        (
            activation != Activation::GeluTanh,
            format!("activation = {activation:?} in bloom"),
        ),
    ]
    .into_iter()
    .filter_map(|(is_wrong, line)| is_wrong.then_some(line))
    .collect()
}

/// Fields of `config.json` that the class has and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let model = &plan.model;
    json!({
        "seq_length": plan.seq_length,
        "hidden_size": model.d_model,
        "n_layer": model.layers,
        "n_head": model.heads,
        "layer_norm_epsilon": decimal(model.norm_eps),
        "apply_residual_connection_post_layernorm": false,
        "hidden_dropout": decimal(model.dropout),
        "attention_dropout": decimal(model.attention_dropout),
        "pretraining_tp": 1,
        "slow_but_exact": false,
    })
}

/// Model and length.
pub(crate) fn read(fields: &Fields<'_>) -> (ModelConfig, usize) {
    for name in OF_TRAINING {
        fields.take(name);
    }
    fields.only("apply_residual_connection_post_layernorm", false);
    if fields.flag("slow_but_exact", false) && fields.count_or("pretraining_tp", 1) > 1 {
        let wanted = "false with pretraining_tp above 1: the class leaves out biases otherwise";
        fields.wrong("slow_but_exact", "true", wanted);
    }
    let d_model = count(fields, ["n_embed", "hidden_size"], 64);
    let inner = fields.count_or("n_inner", d_model.saturating_mul(4));
    if inner != d_model.saturating_mul(4) {
        let wanted = format!("null or {}, 4 hidden_size", d_model.saturating_mul(4));
        fields.wrong("n_inner", &inner.to_string(), &wanted);
    }
    let model = ModelConfig {
        layers: count(fields, ["n_layer", "num_hidden_layers"], 2),
        d_model,
        heads: count(fields, ["n_head", "num_attention_heads"], 8),
        norm_eps: fields.number("layer_norm_epsilon", Some(1e-5)),
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        dropout: fields.number("hidden_dropout", Some(0.0)),
        ..ModelConfig::default()
    };
    (model, fields.count_or("seq_length", LENGTH))
}

/// A count with two names; that of the class, `absent`, without either.
fn count(fields: &Fields<'_>, names: [&str; 2], absent: usize) -> usize {
    let [first, second] = names.map(|name| fields.has(name).then(|| fields.count(name)));
    if let (Some(first), Some(second)) = (first, second)
        && first != second
    {
        let wanted = format!("{} = {first}", names[0]);
        fields.wrong(names[1], &second.to_string(), &wanted);
    }
    first.or(second).unwrap_or(absent)
}

/// All tensors but the head's.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (s, d) = (plan.shape(), plan.model.d_model);
    let same = |theirs: &str, ours: &str, dims: &[usize]| {
        Pair::of(format!("transformer.{theirs}"), ours.into(), dims)
    };
    let table = [plan.vocab, d];
    let mut pairs = vec![same("word_embeddings.weight", "embedding.weight", &table)];
    let norms = |pairs: &mut Vec<Pair>, theirs: &str, ours: &str| {
        for kind in ["weight", "bias"] {
            let (theirs, ours) = (format!("{theirs}.{kind}"), format!("{ours}.{kind}"));
            pairs.push(same(&theirs, &ours, &[d]));
        }
    };
    norms(&mut pairs, "word_embeddings_layernorm", "embedding.norm");
    let width = s.heads * s.d_head;
    for layer in 0..plan.model.layers {
        let (theirs, ours) = (format!("h.{layer}"), format!("layers.{layer}"));
        for (norm, own) in [
            ("input_layernorm", "norm1"),
            ("post_attention_layernorm", "norm2"),
        ] {
            norms(
                &mut pairs,
                &format!("{theirs}.{norm}"),
                &format!("{ours}.{own}"),
            );
        }
        let own = |name: &str, of: &str, dims: &[usize]| {
            same(&format!("{theirs}.{name}"), &format!("{ours}.{of}"), dims)
        };
        for linear in [
            Linear::by_column("self_attention.query_key_value", "qkv", [s.packed, d]),
            Linear::by_row("self_attention.dense", "out", [width, d]),
            Linear::by_column("mlp.dense_h_to_4h", "fc1", [s.d_ffn, d]),
            Linear::by_row("mlp.dense_4h_to_h", "fc2", [s.d_ffn, d]),
        ] {
            linear.add(&mut pairs, &own, true);
        }
    }
    norms(&mut pairs, "ln_f", "norm");
    pairs
}
