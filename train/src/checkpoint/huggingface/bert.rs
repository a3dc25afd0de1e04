//! An encoder in the layout of transformers: `BertForMaskedLM` if its norms follow the sums,
//! `MegatronBertForMaskedLM` if they go before the layers; `...ForPreTraining` if the model has a next-sentence
//! head (transformers 5.x names).

use serde_json::{Value, json};

use crate::checkpoint::huggingface::classes;
use crate::checkpoint::huggingface::described::{decimal, function};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{Pair, Rows};
use crate::config::plan::Plan;
use crate::config::{Activation, ModelConfig};
use crate::model::param::{CLASSES, POOLER};

pub(crate) fn config(plan: &Plan) -> Value {
    let architecture = plan.model.architecture();
    let is_post = architecture.is_post_norm;
    let (prefix, kind) = if is_post {
        ("Bert", "bert")
    } else {
        ("MegatronBert", "megatron-bert")
    };
    let purpose = match &plan.model.classify {
        Some(classify) => classes::ending(classify),
        None if architecture.next_sentence => PRE_TRAINING,
        None => "ForMaskedLM",
    };
    let mut config = json!({
        "architectures": [format!("{prefix}{purpose}")],
        "model_type": kind,
        "vocab_size": plan.vocab,
        "max_position_embeddings": plan.seq_length,
        "type_vocab_size": 2,
        "hidden_size": plan.model.d_model,
        "intermediate_size": plan.model.d_ffn(),
        "num_hidden_layers": plan.model.layers,
        "num_attention_heads": plan.model.heads,
        "hidden_act": function(architecture.activation),
        "layer_norm_eps": decimal(plan.model.norm_eps),
        "attention_probs_dropout_prob": decimal(plan.model.attention_dropout),
        "hidden_dropout_prob": decimal(plan.model.dropout),
        "initializer_range": decimal(plan.model.init_std),
        "tie_word_embeddings": plan.model.is_tied(),
        "dtype": "float32",
    });
    if let Some(classify) = &plan.model.classify {
        classes::describe(classify, &mut config);
    }
    config
}

/// End of the name of the class with both heads.
const PRE_TRAINING: &str = "ForPreTraining";

/// Model and length.
pub(crate) fn read(fields: &Fields<'_>, post_norm: bool) -> (ModelConfig, usize) {
    let activation = match fields.text_or("hidden_act", "gelu").as_str() {
        "gelu" => None,
        "gelu_new" | "gelu_pytorch_tanh" => Some(Activation::GeluTanh),
        "quick_gelu" => Some(Activation::QuickGelu),
        "relu" => Some(Activation::Relu),
        "relu2" => Some(Activation::SquaredRelu),
        other => {
            fields.wrong(
                "hidden_act",
                other,
                "gelu, gelu_new, quick_gelu, relu or relu2",
            );
            None
        }
    };
    if fields.count_or("type_vocab_size", 2) != 2 {
        fields.wrong("type_vocab_size", "another number", "2");
    }
    if fields.text_or("position_embedding_type", "absolute") != "absolute" {
        fields.wrong("position_embedding_type", "another kind", "absolute");
    }
    fields.only("is_decoder", false);
    fields.only("add_cross_attention", false);
    fields.take("classifier_dropout");
    let classes = fields.texts("architectures").unwrap_or_default();
    let model = ModelConfig {
        next_sentence: classes.iter().any(|class| class.ends_with(PRE_TRAINING)),
        layers: fields.count("num_hidden_layers"),
        d_model: fields.count("hidden_size"),
        heads: fields.count("num_attention_heads"),
        d_ffn: fields.count("intermediate_size"),
        activation,
        norm_eps: fields.number("layer_norm_eps", Some(1e-12)),
        attention_dropout: fields.number("attention_probs_dropout_prob", Some(0.1)),
        dropout: fields.number("hidden_dropout_prob", Some(0.1)),
        post_norm,
        ..ModelConfig::default()
    };
    (model, fields.count("max_position_embeddings"))
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
    let classify = plan.model.classify.as_ref();
    let transform = "cls.predictions.transform";
    let of_transform = ("cls.predictions.transform.LayerNorm", "head.norm");
    let single = match classify {
        Some(_) => vec![norms.single],
        None => vec![norms.single, of_transform],
    };
    for kind in ["weight", "bias"] {
        for &(theirs, ours) in &single {
            pairs.push(pair(
                &format!("{theirs}.{kind}"),
                &format!("{ours}.{kind}"),
                &[d],
            ));
        }
    }
    if let Some(classify) = classify {
        pairs.extend(pooler(plan));
        pairs.extend(full("classifier", CLASSES, [classify.classes, d]));
        for layer in 0..plan.model.layers {
            add_layer(&mut pairs, plan, layer, norms);
        }
        return pairs;
    }
    let weight = format!("{transform}.dense.weight");
    pairs.push(pair(&weight, "head.transform.weight", &[d, d]));
    pairs.push(pair(
        &format!("{transform}.dense.bias"),
        "head.transform.bias",
        &[d],
    ));
    if plan.model.next_sentence {
        pairs.extend(pooler(plan));
        pairs.extend(full("cls.seq_relationship", "head.order", [2, d]));
    }
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

/// The pooler, which files of models without a use for it may have as well.
pub(crate) fn pooler(plan: &Plan) -> [Pair; 2] {
    let d = plan.model.d_model;
    full("bert.pooler.dense", POOLER, [d, d])
}

/// Weight and bias of a layer that every rank has whole.
fn full(theirs: &str, ours: &str, [rows, d]: [usize; 2]) -> [Pair; 2] {
    let of = |kind: &str, dims: &[usize]| {
        Pair::of(format!("{theirs}.{kind}"), format!("{ours}.{kind}"), dims)
    };
    [of("weight", &[rows, d]), of("bias", &[rows])]
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
