//! Decoders in the layout of transformers' `Gemma2ForCausalLM` and `Gemma3ForCausalLM`, text alone.
//!
//! The tensors are named as LLaMA's, with a norm more on either side of a block's layers. Which layers have a window is a list,
//! `layer_types`, or follows from the class's pattern where a file has none; Gemma 3's layers with a window turn by a base of their
//! own, Gemma 2 caps scores and logits.
//! Transformers 5 has a table of rotary positions for each type of layer, versions before it have fields for both.

use serde_json::{Map, Value, json};

use crate::checkpoint::huggingface::described::{decimal, function, stated_width};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::layer_types::{self, FULL, SLIDING};
use crate::checkpoint::huggingface::rope::{self, Rope};
use crate::config::plan::Plan;
use crate::config::{Activation, Family, ModelConfig};

/// Values of a class where a file has none.
struct Absent {
    /// Base of the rotary wavelengths of layers that see all keys.
    theta: f32,
    /// Base of the others, if it is one of its own.
    local_theta: Option<f32>,
    /// Layers whose numbers are multiples of this see all keys.
    global_every: usize,
    /// Caps of scores and of logits.
    caps: [f64; 2],
}

/// Fields of the caps of scores and of logits.
const CAPS: [&str; 2] = ["attn_logit_softcapping", "final_logit_softcapping"];
/// Field of the base of the rotary wavelengths of layers with a window.
const LOCAL_THETA: &str = "rope_local_base_freq";
const WINDOW: usize = 4096;
const HEAD_DIM: usize = 256;
const DIVISOR: f64 = 256.0;

fn absent(family: Family) -> Absent {
    match family {
        Family::Gemma3 => Absent {
            theta: 1e6,
            local_theta: Some(1e4),
            global_every: 6,
            caps: [0.0; 2],
        },
        Family::Gemma2 => Absent {
            theta: 1e4,
            local_theta: None,
            global_every: 2,
            caps: [50.0, 30.0],
        },
        Family::Gpt
        | Family::GptNeox
        | Family::Opt
        | Family::Falcon
        | Family::Bloom
        | Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Phi3
        | Family::Olmo2
        | Family::GptOss
        | Family::DeepseekV2
        | Family::DeepseekV3
        | Family::Bert
        | Family::T5 => unreachable!("the families of this file"),
    }
}

/// Fields of `config.json` that the class has and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let (shape, model) = (plan.shape(), &plan.model);
    let absent = absent(model.family);
    let divisor = match model.score_divisor {
        0.0 => json!(shape.d_head),
        // as published files have it
        divisor if divisor.fract() == 0.0 => json!(divisor.to_string().parse::<u64>().ok()),
        divisor => json!(decimal(divisor)),
    };
    let mut config = json!({
        "max_position_embeddings": rope::positions(plan),
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.d_head,
        "hidden_activation": function(model.architecture().activation),
        "rms_norm_eps": decimal(model.norm_eps),
        "query_pre_attn_scalar": divisor,
        "sliding_window": layer_types::window(model, plan.seq_length),
        "layer_types": layer_types::kinds(model),
        "rope_theta": decimal(model.rope_theta),
        "attention_bias": false,
        "attention_dropout": decimal(model.attention_dropout),
        // with the class's own, a row of the embedding gets no gradient
        "pad_token_id": null,
    });
    rope::add_length(&mut config, plan);
    for (name, cap) in CAPS.into_iter().zip([model.attention_cap, model.logit_cap]) {
        config[name] = match cap {
            0.0 => Value::Null,
            cap => json!(decimal(cap)),
        };
    }
    if let Some(theta) = absent.local_theta {
        let theta = match model.local_rope_theta {
            // no layer turns by it
            0.0 if model.sliding_window == 0 => theta,
            0.0 => model.rope_theta,
            own => own,
        };
        config[LOCAL_THETA] = json!(decimal(theta));
        config["rope_scaling"] = match model.rope_scaling {
            None => Value::Null,
            Some(_) => {
                let mut scaling = rope::to_json(model);
                if let Some(table) = scaling.as_object_mut() {
                    table.shift_remove("rope_theta");
                }
                scaling
            }
        };
    }
    config
}

/// Model and length.
pub(crate) fn read(fields: &Fields<'_>, family: Family) -> (ModelConfig, usize) {
    let absent = absent(family);
    let heads = fields.count("num_attention_heads");
    let d_model = fields.count("hidden_size");
    let layers = fields.count("num_hidden_layers");
    let head_dim = fields.count_or("head_dim", HEAD_DIM);
    let positions = fields.count("max_position_embeddings");
    fields.only("attention_bias", false);
    fields.only("use_bidirectional_attention", false);
    // published files name the cache that transformers generates with, which has no influence on the numbers
    if fields.has("cache_implementation") {
        fields.text("cache_implementation");
    }
    if family == Family::Gemma2 {
        read_old_names(fields);
    }
    let [attention_cap, logit_cap] = [0, 1].map(|i: usize| {
        let (name, absent) = (CAPS[i], absent.caps[i]);
        if fields.is_null(name) {
            return 0.0;
        }
        let cap = fields.number(name, Some(absent));
        // the class of Gemma 3 has the field and never reads it
        let is_ignored = family == Family::Gemma3 && i == 0;
        if !(cap.is_finite() && (cap > 0.0 || absent == 0.0 && cap == 0.0)) {
            fields.wrong(name, &cap.to_string(), "null or a number above 0");
        } else if is_ignored && cap > 0.0 {
            let wanted = "null: scores of this family have no cap";
            fields.wrong(name, &cap.to_string(), wanted);
        }
        cap
    });
    let activation = match fields
        .text_or("hidden_activation", "gelu_pytorch_tanh")
        .as_str()
    {
        "gelu_new" | "gelu_pytorch_tanh" => None,
        "gelu" => Some(Activation::Geglu),
        "silu" | "swish" => Some(Activation::Swiglu),
        other => {
            let wanted = "gelu_pytorch_tanh, gelu or silu";
            fields.wrong("hidden_activation", other, wanted);
            None
        }
    };
    let global_every = layer_types::read(fields, layers, pattern(fields, family));
    let sliding_window = layer_types::read_window(fields, WINDOW, global_every);
    let (rope, local) = match absent.local_theta {
        Some(_) => read_rope(fields, positions, &absent),
        None => (refuse_share(fields, rope::read(fields, positions)), None),
    };
    // our own field, as in `positions`
    let length = fields.count_or("seq_length", positions);
    if let (Family::Gemma2, Some(scaling)) = (family, &rope.scaling) {
        let wanted = "null: positions of this family are not scaled";
        fields.wrong("rope_scaling", &format!("{scaling:?}"), wanted);
    }
    let has_window = sliding_window > 0 && global_every != 1;
    let divisor = fields.number("query_pre_attn_scalar", Some(DIVISOR));
    if !(divisor.is_finite() && divisor > 0.0) {
        let wanted = "a number above 0";
        fields.wrong("query_pre_attn_scalar", &divisor.to_string(), wanted);
    }
    let model = ModelConfig {
        family,
        layers,
        d_model,
        heads,
        head_dim: stated_width(head_dim, heads, d_model),
        kv_heads: fields.count("num_key_value_heads"),
        d_ffn: fields.count("intermediate_size"),
        activation,
        norm_eps: fields.number("rms_norm_eps", Some(1e-6)),
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        sliding_window: if has_window { sliding_window } else { 0 },
        global_every: if has_window { global_every } else { 0 },
        attention_cap,
        logit_cap,
        score_divisor: if divisor == head_dim as f32 {
            0.0
        } else {
            divisor
        },
        rope_theta: rope.theta.unwrap_or(absent.theta),
        local_rope_theta: match local {
            Some(theta) if has_window => theta,
            _ => 0.0,
        },
        rope_scaling: rope.scaling,
        ..ModelConfig::default()
    };
    (model, length)
}

/// Fields of published files that the class does not read, beside those that it reads.
fn read_old_names(fields: &Fields<'_>) {
    // the same function by both names
    let own = fields.text_or("hidden_activation", "gelu_pytorch_tanh");
    let old = fields.text_or("hidden_act", &own);
    let tanh = ["gelu_new", "gelu_pytorch_tanh"];
    let is_same = own == old || [&own, &old].iter().all(|of| tanh.contains(&of.as_str()));
    if !is_same {
        fields.wrong("hidden_act", &old, &format!("{own}, as hidden_activation"));
    }
    if fields.has("sliding_window_size") {
        let own = fields.count_or("sliding_window", WINDOW);
        let old = fields.count_or("sliding_window_size", own);
        if own != old {
            let wanted = format!("{own}, as sliding_window");
            fields.wrong("sliding_window_size", &old.to_string(), &wanted);
        }
    }
}

/// Number of which the layers that see all keys are multiples where a file has no list of them.
fn pattern(fields: &Fields<'_>, family: Family) -> usize {
    let absent = absent(family).global_every;
    // the class of Gemma 2 has no other pattern than its own
    if family != Family::Gemma3 {
        return absent;
    }
    let saved = fields.count_or("_sliding_window_pattern", absent);
    fields.count_or("sliding_window_pattern", saved)
}

/// Rotary positions of layers that see all keys, and the base of the others if it is one of its own.
fn read_rope(fields: &Fields<'_>, length: usize, absent: &Absent) -> (Rope, Option<f32>) {
    let local = absent
        .local_theta
        .map(|theta| fields.number(LOCAL_THETA, Some(f64::from(theta))));
    let empty = Map::new();
    let by_kind = match fields.has("rope_parameters") {
        true => fields.table("rope_parameters").unwrap_or(&empty),
        false => return (refuse_share(fields, rope::read(fields, length)), local),
    };
    // transformers 5
    let tables = Fields::of(by_kind, "rope_parameters");
    let of = |kind: &str| {
        let at = format!("rope_parameters.{kind}");
        let own = Fields::of(tables.table(kind).unwrap_or(&empty), &at);
        let read = refuse_share(&own, rope::of_table(&own, length));
        fields.problems.borrow_mut().extend(own.finish());
        fields.notes.borrow_mut().extend(own.notes.take());
        read
    };
    let (full, sliding) = (of(FULL), of(SLIDING));
    if let Some(scaling) = &sliding.scaling {
        let wanted = "default";
        tables.wrong(
            &format!("{SLIDING}.rope_type"),
            &format!("{scaling:?}"),
            wanted,
        );
    }
    fields.problems.borrow_mut().extend(tables.finish());
    fields.notes.borrow_mut().extend(tables.notes.take());
    let old = fields.number_or("rope_theta");
    let bases = [
        ("rope_theta", old, full.theta),
        (LOCAL_THETA, fields.number_or(LOCAL_THETA), sliding.theta),
    ];
    for (name, old, new) in bases {
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            let wanted = format!("{new}, as in rope_parameters");
            fields.wrong(name, &old.to_string(), &wanted);
        }
    }
    let theta = full.theta.or(old);
    (Rope { theta, ..full }, sliding.theta.or(local))
}

/// All features of a head are turned.
fn refuse_share(fields: &Fields<'_>, rope: Rope) -> Rope {
    if let Some(share) = rope.share.filter(|share| *share != 1.0) {
        fields.wrong("partial_rotary_factor", &share.to_string(), "1");
    }
    rope
}
