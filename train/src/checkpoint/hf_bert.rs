//! An encoder in the layout of transformers: `BertForMaskedLM` if its norms follow the sums,
//! `MegatronBertForMaskedLM` if they go before the layers (transformers 5.x names).

use serde_json::{Value, json};

use crate::checkpoint::hf_config::decimal;
use crate::checkpoint::hf_names::{Pair, Rows};
use crate::config::Activation;
use crate::error::{Error, Result};
use crate::plan::Plan;

/// Name of the function in transformers.
fn activation(kind: Activation) -> Option<&'static str> {
    Some(match kind {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::QuickGelu => "quick_gelu",
        Activation::Relu => "relu",
        Activation::SquaredRelu => "relu2",
        Activation::Swiglu | Activation::Geglu | Activation::GegluTanh => return None,
    })
}

pub(crate) fn config(plan: &Plan) -> Result<Value> {
    let architecture = plan.model.architecture();
    let function = activation(architecture.activation).ok_or_else(|| Error::Request {
        what: "model to export",
        found: format!("{:?}", architecture.activation),
        wanted: "an activation without a gate: BERT in transformers has none".into(),
    })?;
    let is_post = architecture.is_post_norm;
    let (class, kind) = if is_post {
        ("BertForMaskedLM", "bert")
    } else {
        ("MegatronBertForMaskedLM", "megatron-bert")
    };
    Ok(json!({
        "architectures": [class],
        "model_type": kind,
        "vocab_size": plan.vocab,
        "max_position_embeddings": plan.seq_length,
        "type_vocab_size": 2,
        "hidden_size": plan.model.d_model,
        "intermediate_size": plan.model.d_ffn(),
        "num_hidden_layers": plan.model.layers,
        "num_attention_heads": plan.model.heads,
        "hidden_act": function,
        "layer_norm_eps": decimal(plan.model.norm_eps),
        "attention_probs_dropout_prob": decimal(plan.model.attention_dropout),
        "hidden_dropout_prob": decimal(plan.model.dropout),
        "initializer_range": decimal(plan.model.init_std),
        "tie_word_embeddings": plan.model.is_tied(),
        "dtype": "float32",
    }))
}

/// Names of the norms of a layer, and of the one over all layers or over the embedding.
struct Norms {
    first: &'static str,
    second: &'static str,
    single: (&'static str, &'static str),
}

const POST: Norms = Norms {
    first: "attention.output.LayerNorm",
    second: "output.LayerNorm",
    single: ("bert.embeddings.LayerNorm", "embedding.norm"),
};
const PRE: Norms = Norms {
    first: "attention.ln",
    second: "ln",
    single: ("bert.encoder.ln", "norm"),
};

/// All tensors of the class.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    let norms = if plan.model.architecture().is_post_norm {
        &POST
    } else {
        &PRE
    };
    let d = plan.model.d_model;
    let embedding = |theirs: &str, ours: &str, rows: usize| {
        let theirs = format!("bert.embeddings.{theirs}_embeddings.weight");
        Pair::of(theirs, ours.into(), &[rows, d])
    };
    let mut pairs = vec![
        embedding("word", "embedding.weight", plan.vocab),
        embedding("position", "position.weight", plan.seq_length),
        embedding("token_type", "segment.weight", 2),
    ];
    let pair =
        |theirs: &str, ours: &str, dims: &[usize]| Pair::of(theirs.into(), ours.into(), dims);
    let transform = "cls.predictions.transform";
    for kind in ["weight", "bias"] {
        for (theirs, ours) in [
            norms.single,
            ("cls.predictions.transform.LayerNorm", "head.norm"),
        ] {
            pairs.push(pair(
                &format!("{theirs}.{kind}"),
                &format!("{ours}.{kind}"),
                &[d],
            ));
        }
    }
    let weight = format!("{transform}.dense.weight");
    pairs.push(pair(&weight, "head.transform.weight", &[d, d]));
    pairs.push(pair(
        &format!("{transform}.dense.bias"),
        "head.transform.bias",
        &[d],
    ));
    for layer in 0..plan.model.layers {
        add_layer(&mut pairs, plan, layer, norms);
    }
    pairs.push(pair("cls.predictions.bias", "head.bias", &[plan.vocab]));
    if !plan.model.is_tied() {
        let name = "cls.predictions.decoder.weight";
        pairs.push(pair(name, "head.weight", &[plan.vocab, d]));
    }
    pairs
}

fn add_layer(pairs: &mut Vec<Pair>, plan: &Plan, layer: usize, norms: &Norms) {
    let shape = plan.shape();
    let (d, f, width) = (shape.d_model, shape.d_ffn, shape.heads * shape.d_head);
    let own = |theirs: &str, ours: &str, dims: &[usize]| {
        let theirs = format!("bert.encoder.layer.{layer}.{theirs}");
        Pair::of(theirs, format!("layers.{layer}.{ours}"), dims)
    };
    for kind in ["weight", "bias"] {
        let names = [(norms.first, "norm1"), (norms.second, "norm2")];
        for (theirs, ours) in names {
            pairs.push(own(
                &format!("{theirs}.{kind}"),
                &format!("{ours}.{kind}"),
                &[d],
            ));
        }
        let row: &[usize] = if kind == "weight" { &[d] } else { &[] };
        for (name, first) in [("query", 0), ("key", width), ("value", 2 * width)] {
            let theirs = format!("attention.self.{name}.{kind}");
            let pair = own(&theirs, &format!("qkv.{kind}"), &[&[width], row].concat());
            pairs.push(pair.rows(Rows::Packed, first));
        }
        let theirs = format!("intermediate.dense.{kind}");
        pairs.push(own(&theirs, &format!("fc1.{kind}"), &[&[f], row].concat()));
    }
    for (theirs, ours, rows) in [
        ("attention.output.dense", "out", width),
        ("output.dense", "fc2", f),
    ] {
        let weight = own(
            &format!("{theirs}.weight"),
            &format!("{ours}.weight"),
            &[rows, d],
        );
        pairs.push(weight.transposed());
        pairs.push(own(
            &format!("{theirs}.bias"),
            &format!("{ours}.bias"),
            &[d],
        ));
    }
}
