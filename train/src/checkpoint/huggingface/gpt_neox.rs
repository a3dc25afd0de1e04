//! A decoder in the layout of transformers' `GPTNeoXForCausalLM`, as GPT-NeoX, Pythia and RedPajama-INCITE have it.
//!
//! `query_key_value` has the queries, keys and values of one head after those of another, which is our order for as many
//! heads of keys as of queries. The share and the base of rotary positions have three names: `rotary_pct` and
//! `rotary_emb_base`, those of any family, and since transformers 5 `rope_parameters` alone.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::{decimal, function, plain};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{Linear, Pair};
use crate::checkpoint::huggingface::rope;
use crate::config::plan::Plan;
use crate::config::{Activation, ModelConfig};

/// The output head.
pub(crate) const HEAD: &str = "embed_out.weight";

/// Fields of `config.json` that the class has and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let (model, architecture) = (&plan.model, plan.model.architecture());
    let share = decimal(model.rotary_percent);
    let mut rope = rope::to_json(model);
    rope["partial_rotary_factor"] = json!(share);
    json!({
        "max_position_embeddings": plan.seq_length,
        "hidden_size": model.d_model,
        "intermediate_size": model.d_ffn(),
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "hidden_act": function(architecture.activation),
        "layer_norm_eps": decimal(model.norm_eps),
        "rotary_pct": share,
        "rotary_emb_base": decimal(model.rope_theta),
        "rope_parameters": rope,
        "use_parallel_residual": architecture.is_parallel,
        "attention_bias": true,
        "attention_dropout": decimal(model.attention_dropout),
        "hidden_dropout": decimal(model.dropout),
    })
}

/// Model and length.
pub(crate) fn read(fields: &Fields<'_>) -> (ModelConfig, usize) {
    let activation = plain(fields, "hidden_act", "gelu");
    let length = fields.count("max_position_embeddings");
    let rope = rope::read(fields, length);
    if let Some(scaling) = rope.scaling {
        let wanted = "null: positions of this family are not scaled";
        fields.wrong("rope_scaling", &format!("{scaling:?}"), wanted);
    }
    let bases = [
        ("rotary_emb_base", fields.number_or("rotary_emb_base")),
        ("rope_theta", rope.theta),
    ];
    let shares = [
        ("rotary_pct", fields.number_or("rotary_pct")),
        (
            "partial_rotary_factor",
            fields.number_or("partial_rotary_factor"),
        ),
        ("rope_parameters.partial_rotary_factor", rope.share),
    ];
    fields.only("attention_bias", true);
    // of token classifiers alone
    fields.take("classifier_dropout");
    // those of GPT-NeoX-20B, which its class does not read
    for name in ["attention_probs_dropout_prob", "hidden_dropout_prob"] {
        let found = fields.number(name, Some(0.0));
        if found != 0.0 {
            fields.wrong(name, &found.to_string(), "0: the class does not read it");
        }
    }
    let model = ModelConfig {
        layers: fields.count("num_hidden_layers"),
        d_model: fields.count("hidden_size"),
        heads: fields.count("num_attention_heads"),
        d_ffn: fields.count("intermediate_size"),
        activation: (activation != Activation::Gelu).then_some(activation),
        norm_eps: fields.number("layer_norm_eps", Some(1e-5)),
        rope_theta: agreed(fields, &bases).unwrap_or(rope::THETA),
        rotary_percent: agreed(fields, &shares).unwrap_or(0.25),
        parallel_residual: (!fields.flag("use_parallel_residual", true)).then_some(false),
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        dropout: fields.number("hidden_dropout", Some(0.0)),
        ..ModelConfig::default()
    };
    (model, length)
}

/// The number of the first of these fields that is there; the others must have the same.
fn agreed(fields: &Fields<'_>, found: &[(&str, Option<f32>)]) -> Option<f32> {
    let mut given = found
        .iter()
        .filter_map(|(name, number)| Some((name, (*number)?)));
    let (first, number) = given.next()?;
    for (name, other) in given.filter(|(_, other)| *other != number) {
        let wanted = format!("{first} = {number}");
        fields.wrong(name, &other.to_string(), &wanted);
    }
    Some(number)
}

/// All tensors but the head's.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (s, d) = (plan.shape(), plan.model.d_model);
    let same = |theirs: &str, ours: &str, dims: &[usize]| {
        Pair::of(format!("gpt_neox.{theirs}"), ours.into(), dims)
    };
    let mut pairs = vec![same(
        "embed_in.weight",
        "embedding.weight",
        &[plan.vocab, d],
    )];
    for layer in 0..plan.model.layers {
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            let theirs = format!("layers.{layer}.{theirs}");
            same(&theirs, &format!("layers.{layer}.{ours}"), dims)
        };
        for (theirs, ours) in [
            ("input_layernorm", "norm1"),
            ("post_attention_layernorm", "norm2"),
        ] {
            for kind in ["weight", "bias"] {
                pairs.push(own(
                    &format!("{theirs}.{kind}"),
                    &format!("{ours}.{kind}"),
                    &[d],
                ));
            }
        }
        let width = s.heads * s.d_head;
        for linear in [
            Linear::by_column("attention.query_key_value", "qkv", [s.packed, d]),
            Linear::by_row("attention.dense", "out", [width, d]),
            Linear::by_column("mlp.dense_h_to_4h", "fc1", [s.d_ffn, d]),
            Linear::by_row("mlp.dense_4h_to_h", "fc2", [s.d_ffn, d]),
        ] {
            linear.add(&mut pairs, &own, true);
        }
    }
    for kind in ["weight", "bias"] {
        pairs.push(same(
            &format!("final_layer_norm.{kind}"),
            &format!("norm.{kind}"),
            &[d],
        ));
    }
    pairs
}
