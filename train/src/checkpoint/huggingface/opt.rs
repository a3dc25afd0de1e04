//! A decoder in the layout of transformers' `OPTForCausalLM`.
//!
//! The table of positions begins with two rows that no token has, and norms have the class's own epsilon. Dropout is not
//! of embeddings (Zhang et al. 2022, arXiv:2205.01068, sec. 2.2).

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::{decimal, function, plain};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{Linear, Pair, Rows};
use crate::config::plan::Plan;
use crate::config::{Activation, ModelConfig};

/// Epsilon of every norm: torch's.
pub(crate) const NORM_EPS: f32 = 1e-5;

/// Fields of `config.json` that the class has and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let model = &plan.model;
    json!({
        "max_position_embeddings": plan.seq_length,
        "hidden_size": model.d_model,
        "word_embed_proj_dim": model.d_model,
        "ffn_dim": model.d_ffn(),
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "activation_function": function(model.architecture().activation),
        "do_layer_norm_before": true,
        "_remove_final_layer_norm": false,
        "enable_bias": true,
        "layer_norm_elementwise_affine": true,
        "dropout": decimal(model.dropout),
        "attention_dropout": decimal(model.attention_dropout),
        "layerdrop": 0.0,
        // with the class's own, a row of the embedding gets no gradient
        "pad_token_id": null,
    })
}

/// Model and length.
pub(crate) fn read(fields: &Fields<'_>) -> (ModelConfig, usize) {
    let activation = plain(fields, "activation_function", "relu");
    let d_model = fields.count("hidden_size");
    let of_embedding = fields.count_or("word_embed_proj_dim", d_model);
    if of_embedding != d_model {
        let wanted = format!("hidden_size = {d_model}: embeddings are not projected");
        fields.wrong("word_embed_proj_dim", &of_embedding.to_string(), &wanted);
    }
    for (name, wanted) in [
        ("do_layer_norm_before", true),
        ("_remove_final_layer_norm", false),
        ("enable_bias", true),
        ("layer_norm_elementwise_affine", true),
    ] {
        fields.only(name, wanted);
    }
    for name in ["layerdrop", "activation_dropout"] {
        let found = fields.number(name, Some(0.0));
        if found != 0.0 {
            fields.wrong(name, &found.to_string(), "0: no dropout of this family");
        }
    }
    let model = ModelConfig {
        layers: fields.count("num_hidden_layers"),
        d_model,
        heads: fields.count("num_attention_heads"),
        d_ffn: fields.count("ffn_dim"),
        activation: (activation != Activation::Relu).then_some(activation),
        norm_eps: NORM_EPS,
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        dropout: fields.number("dropout", Some(0.1)),
        ..ModelConfig::default()
    };
    (model, fields.count("max_position_embeddings"))
}

/// All tensors but the head's.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (s, d) = (plan.shape(), plan.model.d_model);
    let same = |theirs: &str, ours: &str, dims: &[usize]| {
        Pair::of(format!("model.decoder.{theirs}"), ours.into(), dims)
    };
    let mut pairs = vec![
        same("embed_tokens.weight", "embedding.weight", &[plan.vocab, d]),
        same(
            "embed_positions.weight",
            "position.weight",
            &[plan.position_rows(), d],
        ),
    ];
    for kind in ["weight", "bias"] {
        pairs.push(same(
            &format!("final_layer_norm.{kind}"),
            &format!("norm.{kind}"),
            &[d],
        ));
    }
    let width = s.heads * s.d_head;
    for layer in 0..plan.model.layers {
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            let theirs = format!("layers.{layer}.{theirs}");
            same(&theirs, &format!("layers.{layer}.{ours}"), dims)
        };
        for (at, name) in ["q_proj", "k_proj", "v_proj"].into_iter().enumerate() {
            for (kind, dims) in [("weight", &[width, d][..]), ("bias", &[width])] {
                let pair = own(
                    &format!("self_attn.{name}.{kind}"),
                    &format!("qkv.{kind}"),
                    dims,
                );
                pairs.push(pair.rows(Rows::Packed, at * width));
            }
        }
        for (theirs, ours) in [
            ("self_attn_layer_norm", "norm1"),
            ("final_layer_norm", "norm2"),
        ] {
            for kind in ["weight", "bias"] {
                pairs.push(own(
                    &format!("{theirs}.{kind}"),
                    &format!("{ours}.{kind}"),
                    &[d],
                ));
            }
        }
        for linear in [
            Linear::by_row("self_attn.out_proj", "out", [width, d]),
            Linear::by_column("fc1", "fc1", [s.d_ffn, d]),
            Linear::by_row("fc2", "fc2", [s.d_ffn, d]),
        ] {
            linear.add(&mut pairs, &own, true);
        }
    }
    pairs
}
