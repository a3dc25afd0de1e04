//! An encoder and a decoder in the layout of transformers' `T5ForConditionalGeneration` (transformers 5.x
//! names); `MT5ForConditionalGeneration`, which has the same tensors, is read too.
//!
//! A tied head reads rows divided by the root of d_model, an untied head does not: the class stores both cases as
//! `scale_decoder_outputs`, older files as `tie_word_embeddings`. Positions are relative, so the class has no
//! lengths. The training lengths are stored as `n_positions`, as in the first T5 files, and as
//! `n_decoder_positions`, our own field, which the class ignores.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::{Read, decimal};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{GatedWidth, Own, Pair, Prefixes, Rows, add_gated};
use crate::config::plan::Plan;
use crate::config::{Activation, ModelConfig, TieEmbeddings};

/// Names of duplicates of the embedding in older files.
pub(crate) const TABLES: [&str; 2] = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];

/// Length if a file states none: T5's.
const LENGTH: usize = 512;

/// Names of feed-forward layers and their activations.
const LAYERS: [(&str, Activation); 8] = [
    ("relu", Activation::Relu),
    ("gated-gelu", Activation::GegluTanh),
    ("gated-gelu_python", Activation::Geglu),
    ("gated-silu", Activation::Swiglu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("quick_gelu", Activation::QuickGelu),
    ("relu2", Activation::SquaredRelu),
];

/// The activation function that the class derives from a layer's name; a field of that name would override it.
fn function(layer: &str) -> &str {
    match layer {
        "gated-gelu" => "gelu_new",
        other => other.strip_prefix("gated-").unwrap_or(other),
    }
}

/// `config.json` of the class.
pub(crate) fn config(plan: &Plan) -> Value {
    let (model, shape) = (&plan.model, plan.shape());
    let activation = model.architecture().activation;
    let layer = LAYERS.iter().find(|layer| layer.1 == activation);
    let (layer, _) = layer.expect("every activation is in the list");
    json!({
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": true,
        "vocab_size": plan.vocab,
        "n_positions": plan.seq_length,
        "n_decoder_positions": plan.decoder_length,
        "d_model": model.d_model,
        "d_kv": shape.d_head,
        "d_ff": model.d_ffn(),
        "num_layers": model.layers,
        "num_decoder_layers": model.blocks() - model.layers,
        "num_heads": model.heads,
        "relative_attention_num_buckets": model.relative_buckets,
        "relative_attention_max_distance": model.relative_max_distance,
        "dropout_rate": decimal(model.dropout),
        "layer_norm_epsilon": decimal(model.norm_eps),
        "feed_forward_proj": layer,
        "dense_act_fn": function(layer),
        "is_gated_act": activation.is_gated(),
        "tie_word_embeddings": model.is_tied(),
        "scale_decoder_outputs": model.is_tied(),
        "decoder_start_token_id": plan.start,
        "bos_token_id": Value::Null,
        "eos_token_id": plan.eod,
        "pad_token_id": plan.start,
        "dtype": "float32",
    })
}

/// Model and lengths; `is_multilingual`: the file is mT5's, whose heads are never scaled.
pub(crate) fn read(fields: &Fields<'_>, is_multilingual: bool) -> Read {
    let heads = fields.count("num_heads");
    let (d_model, d_kv) = (fields.count("d_model"), fields.count("d_kv"));
    let layers = fields.count("num_layers");
    let decoder_layers = fields.count_or("num_decoder_layers", layers);
    let dropout = fields.number("dropout_rate", Some(0.1));
    for name in ["initializer_factor", "classifier_dropout", "output_past"] {
        fields.take(name);
    }
    fields.only("is_decoder", false);
    let is_tied = fields.flag("tie_word_embeddings", !is_multilingual) && !is_multilingual;
    let is_scaled = fields.flag("scale_decoder_outputs", is_tied);
    if is_scaled && !is_tied {
        let wanted = "false: a head of its own reads rows as they are";
        fields.wrong("scale_decoder_outputs", "true", wanted);
    }
    let seq_length = fields.count_or("n_positions", LENGTH);
    let start = fields
        .take("decoder_start_token_id")
        .and_then(Value::as_u64);
    let model = ModelConfig {
        layers,
        // a number that follows from others is left out
        decoder_layers: if decoder_layers == layers {
            0
        } else {
            decoder_layers
        },
        d_model,
        heads,
        head_dim: if d_kv * heads == d_model { 0 } else { d_kv },
        d_ffn: fields.count("d_ff"),
        relative_buckets: fields.count_or("relative_attention_num_buckets", 32),
        relative_max_distance: fields.count_or("relative_attention_max_distance", 128),
        activation: read_activation(fields, is_multilingual),
        norm_eps: fields.number("layer_norm_epsilon", Some(1e-6)),
        dropout,
        attention_dropout: dropout,
        tie_embeddings: if is_scaled {
            TieEmbeddings::Tied
        } else {
            TieEmbeddings::Untied
        },
        ..ModelConfig::default()
    };
    Read {
        model,
        vocab: fields.count("vocab_size"),
        seq_length,
        decoder_length: fields.count_or("n_decoder_positions", seq_length),
        start: start.and_then(|id| u32::try_from(id).ok()),
        ..Read::default()
    }
}

/// None: ReLU, as the family has it.
fn read_activation(fields: &Fields<'_>, is_multilingual: bool) -> Option<Activation> {
    let default = if is_multilingual {
        "gated-gelu"
    } else {
        "relu"
    };
    let name = fields.text_or("feed_forward_proj", default);
    let plain = match name.as_str() {
        "gated-gelu_new" | "gated-gelu_pytorch_tanh" => "gated-gelu",
        "gated-swish" => "gated-silu",
        "gelu_pytorch_tanh" => "gelu_new",
        other => other,
    };
    let Some((_, found)) = LAYERS.iter().find(|layer| layer.0 == plain) else {
        let names: Vec<&str> = LAYERS.iter().map(|layer| layer.0).collect();
        fields.wrong("feed_forward_proj", &name, &names.join(", "));
        return None;
    };
    let derived = function(&name);
    let told = fields.text_or("dense_act_fn", derived);
    if told != derived {
        let wanted = format!("{derived}, as feed_forward_proj = {name} has it");
        fields.wrong("dense_act_fn", &told, &wanted);
    }
    fields.only("is_gated_act", found.is_gated());
    (*found != Activation::Relu).then_some(*found)
}

/// All tensors of the class.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (d, table) = (plan.model.d_model, [plan.vocab, plan.model.d_model]);
    let pair =
        |theirs: &str, ours: &str, dims: &[usize]| Pair::of(theirs.into(), ours.into(), dims);
    let mut pairs = vec![pair("shared.weight", "embedding.weight", &table)];
    let decoder_layers = plan.model.blocks() - plan.model.layers;
    for (stack, layers) in [("encoder", plan.model.layers), ("decoder", decoder_layers)] {
        let theirs =
            format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        let ours = format!("{stack}.relative_bias.weight");
        let dims = [plan.model.heads, plan.model.relative_buckets];
        pairs.push(pair(&theirs, &ours, &dims).transposed());
        for layer in 0..layers {
            let own = |theirs: &str, ours: &str, dims: &[usize]| {
                let theirs = format!("{stack}.block.{layer}.layer.{theirs}");
                Pair::of(theirs, format!("{stack}.layers.{layer}.{ours}"), dims)
            };
            add_block(&mut pairs, plan, stack == "decoder", &own);
        }
        let theirs = format!("{stack}.final_layer_norm.weight");
        pairs.push(pair(&theirs, &format!("{stack}.norm.weight"), &[d]));
    }
    if !plan.model.is_tied() {
        pairs.push(pair("lm_head.weight", "head.weight", &table));
    }
    pairs
}

fn add_block(pairs: &mut Vec<Pair>, plan: &Plan, is_decoder: bool, own: Own<'_>) {
    let s = plan.shape();
    let (d, f, width) = (s.d_model, s.d_ffn, s.heads * s.d_head);
    let mut attention = |at: &str, parts: [(&str, &str, Rows, usize); 3], out: &str| {
        for (name, ours, rows, first) in parts {
            let pair = own(&format!("{at}.{name}.weight"), ours, &[width, d]);
            pairs.push(pair.rows(rows, first));
        }
        let out = own(&format!("{at}.o.weight"), out, &[width, d]);
        pairs.push(out.transposed());
    };
    let qkv = |name, first| (name, "qkv.weight", Rows::Packed, first);
    let parts = [qkv("q", 0), qkv("k", width), qkv("v", 2 * width)];
    attention("0.SelfAttention", parts, "out.weight");
    if is_decoder {
        let kv = |name, first| (name, "cross_kv.weight", Rows::KeysValues, first);
        let q = ("q", "cross_q.weight", Rows::Same, 0);
        let parts = [q, kv("k", 0), kv("v", width)];
        attention("1.EncDecAttention", parts, "cross_out.weight");
    }
    let last = 1 + usize::from(is_decoder);
    for layer in 0..=last {
        let ours = format!("norm{}.weight", layer + 1);
        pairs.push(own(&format!("{layer}.layer_norm.weight"), &ours, &[d]));
    }
    let at = format!("{last}.DenseReluDense");
    if plan.model.architecture().activation.is_gated() {
        let prefixes = Prefixes { to: &at, from: "" };
        add_gated(
            pairs,
            own,
            GatedWidth { f, d },
            prefixes,
            ["wi_0", "wi_1", "wo"],
        );
    } else {
        pairs.push(own(&format!("{at}.wi.weight"), "fc1.weight", &[f, d]));
        let wo = own(&format!("{at}.wo.weight"), "fc2.weight", &[f, d]);
        pairs.push(wo.transposed());
    }
}
