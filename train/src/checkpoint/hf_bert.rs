//! An encoder in the layout of transformers: `BertForMaskedLM` if its norms follow the sums,
//! `MegatronBertForMaskedLM` if they go before the layers (transformers 5.x names).

use serde_json::{Value, json};

use crate::checkpoint::hf::{Out, Source, as_is, decimal, ours, transposed, unpacked, vocabulary};
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
        "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0,
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

pub(crate) fn tensors(model: &Source<'_>) -> Vec<Out> {
    let plan = model.plan;
    let norms = if plan.model.architecture().is_post_norm {
        &POST
    } else {
        &PRE
    };
    let embeddings = "bert.embeddings";
    let mut tensors = vec![
        vocabulary(
            model,
            &format!("{embeddings}.word_embeddings.weight"),
            "embedding.weight",
        ),
        as_is(
            model,
            format!("{embeddings}.position_embeddings.weight"),
            "position.weight",
        ),
        as_is(
            model,
            format!("{embeddings}.token_type_embeddings.weight"),
            "segment.weight",
        ),
    ];
    let mut norm = |name: &str, from: &str| {
        for kind in ["weight", "bias"] {
            tensors.push(as_is(
                model,
                format!("{name}.{kind}"),
                &format!("{from}.{kind}"),
            ));
        }
    };
    norm(norms.single.0, norms.single.1);
    norm("cls.predictions.transform.dense", "head.transform");
    norm("cls.predictions.transform.LayerNorm", "head.norm");
    for layer in 0..plan.model.layers {
        let (at, from) = (
            format!("bert.encoder.layer.{layer}"),
            format!("layers.{layer}"),
        );
        norm(&format!("{at}.{}", norms.first), &format!("{from}.norm1"));
        norm(&format!("{at}.{}", norms.second), &format!("{from}.norm2"));
    }
    for layer in 0..plan.model.layers {
        layer_tensors(model, layer, &mut tensors);
    }
    let (bias, _) = ours(model, "head.bias");
    tensors.push(Out {
        name: "cls.predictions.bias".into(),
        dims: vec![plan.vocab],
        values: bias[..plan.vocab].to_vec(),
    });
    if !plan.model.is_tied() {
        let name = "cls.predictions.decoder.weight";
        tensors.push(vocabulary(model, name, "head.weight"));
    }
    tensors
}

fn layer_tensors(model: &Source<'_>, layer: usize, tensors: &mut Vec<Out>) {
    let shape = model.plan.shape();
    let (d, width) = (shape.d_model, shape.heads * shape.d_head);
    let (at, from) = (
        format!("bert.encoder.layer.{layer}"),
        format!("layers.{layer}"),
    );
    for kind in ["weight", "bias"] {
        let packed = ours(model, &format!("{from}.qkv.{kind}")).0;
        let parts = unpacked(packed, &shape);
        for (name, values) in ["query", "key", "value"].into_iter().zip(parts) {
            let dims = match kind {
                "weight" => vec![values.len() / d, d],
                _ => vec![values.len()],
            };
            let name = format!("{at}.attention.self.{name}.{kind}");
            tensors.push(Out { name, dims, values });
        }
    }
    for (name, source, rows) in [
        ("attention.output.dense", "out", width),
        ("output.dense", "fc2", shape.d_ffn),
    ] {
        let values = ours(model, &format!("{from}.{source}.weight")).0;
        tensors.push(transposed(format!("{at}.{name}.weight"), values, rows, d));
        let bias = format!("{from}.{source}.bias");
        tensors.push(as_is(model, format!("{at}.{name}.bias"), &bias));
    }
    for kind in ["weight", "bias"] {
        let name = format!("{at}.intermediate.dense.{kind}");
        tensors.push(as_is(model, name, &format!("{from}.fc1.{kind}")));
    }
}
