//! Metadata of a GGUF file about its model, from our settings and to Hugging Face's `config.json`, which is read
//! further as that of any folder.

use kernels::rope::{Frequencies, Scaling};
use serde_json::{Map, Value as Json, json};

use crate::checkpoint::gguf::deepseek;
use crate::checkpoint::gguf::names::Heads;
use crate::checkpoint::gguf::value::{Metadata, narrow};
use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::described::decimal;
use crate::checkpoint::huggingface::moe::{Class, class_of};
use crate::config::plan::Plan;
use crate::config::{Activation, Family, RopeScaling};

/// An architecture of llama.cpp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Gpt2,
    /// Llama, Mistral and Mixtral.
    Llama,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    /// DeepSeek-V2 and V3.
    Deepseek2,
}

const ALL: [Architecture; 6] = [
    Architecture::Gpt2,
    Architecture::Llama,
    Architecture::Qwen2,
    Architecture::Qwen2Moe,
    Architecture::Qwen3,
    Architecture::Deepseek2,
];

impl Architecture {
    /// `general.architecture`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Architecture::Gpt2 => "gpt2",
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen2Moe => "qwen2moe",
            Architecture::Qwen3 => "qwen3",
            Architecture::Deepseek2 => deepseek::NAME,
        }
    }

    /// Heads as `names::places` takes them, of a model without latents.
    pub(super) fn heads(self, queries: usize, keys: usize) -> Heads {
        Heads {
            queries,
            keys,
            are_interleaved: self == Architecture::Llama,
            expanded: None,
        }
    }
}

/// llama.cpp's names of the architectures that are written.
pub(super) fn names() -> String {
    ALL.map(Architecture::name).join(", ")
}

/// The architecture that has every setting of the model; else what none has, one line each.
pub(super) fn architecture(plan: &Plan) -> Result<Architecture, Vec<String>> {
    let model = &plan.model;
    let mut lacking = config::inexpressible(plan);
    let class = match &model.moe {
        None => None,
        Some(moe) => match class_of(model, moe) {
            Ok(class) => Some(class),
            Err(error) => {
                lacking.push(error.to_string());
                None
            }
        },
    };
    let found = match (model.family, class) {
        (Family::Gpt, _) => Some(Architecture::Gpt2),
        (Family::Llama | Family::Mistral, None | Some(Class::Mixtral)) => Some(Architecture::Llama),
        (Family::Qwen2, None) => Some(Architecture::Qwen2),
        (Family::Qwen2, Some(Class::Qwen2Moe)) => Some(Architecture::Qwen2Moe),
        (Family::Qwen3, None) => Some(Architecture::Qwen3),
        (Family::DeepseekV2 | Family::DeepseekV3, Some(Class::Deepseek)) => {
            Some(Architecture::Deepseek2)
        }
        (
            Family::DeepseekV2 | Family::DeepseekV3,
            None | Some(Class::Mixtral | Class::Qwen2Moe | Class::GptOss),
        )
        | (
            Family::Bert
            | Family::T5
            | Family::Phi3
            | Family::GptNeox
            | Family::Opt
            | Family::Falcon
            | Family::Bloom
            | Family::Olmo2
            | Family::Gemma2
            | Family::Gemma3
            | Family::GptOss,
            _,
        )
        | (Family::Llama | Family::Mistral | Family::Qwen3, Some(Class::Qwen2Moe))
        | (Family::Qwen2 | Family::Qwen3, Some(Class::Mixtral))
        | (
            Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3,
            Some(Class::GptOss | Class::Deepseek),
        ) => None,
    };
    if found.is_none() {
        let kind = match class {
            Some(class) => format!("family = {:?} as {class:?}", model.family),
            None => format!("family = {:?}", model.family),
        };
        lacking.push(kind);
    }
    let activation = model.architecture().activation;
    let wanted = match found {
        Some(Architecture::Gpt2) => Activation::GeluTanh,
        _ => Activation::Swiglu,
    };
    if found.is_some() && activation != wanted {
        lacking.push(format!("activation = {activation:?}, not {wanted:?}"));
    }
    if model.sliding_window > 0 && model.sliding_window < plan.seq_length {
        lacking.push(format!("sliding_window = {}", model.sliding_window));
    }
    if model.mtp_num_layers > 0 {
        lacking.push(format!("mtp_num_layers = {}", model.mtp_num_layers));
    }
    if model.classify.is_some() {
        lacking.push("a classification head".into());
    }
    if found == Some(Architecture::Deepseek2) {
        lacking.extend(deepseek::lacking(plan));
    } else {
        lacking.extend(unscalable(model.rope_scaling.as_ref()));
    }
    let normalizes = model.moe.as_ref().is_some_and(|moe| {
        found == Some(Architecture::Qwen2Moe)
            && moe.score == crate::config::moe::RouterScore::TopKSoftmax
    });
    if normalizes {
        lacking.push("a Qwen MoE whose chosen weights are normalized".into());
    }
    match found {
        Some(found) if lacking.is_empty() => Ok(found),
        _ => Err(lacking),
    }
}

/// A scaling of rotary positions that llama.cpp lacks without latents.
fn unscalable(scaling: Option<&RopeScaling>) -> Option<String> {
    match scaling {
        Some(RopeScaling::Dynamic { .. }) => Some("dynamic rope_scaling".into()),
        Some(RopeScaling::Yarn {
            beta_fast,
            beta_slow,
            attention_factor,
            mscale,
            truncate,
            ..
        }) if *beta_fast != 32.0
            || *beta_slow != 1.0
            || attention_factor.is_some()
            || mscale.is_some()
            || !truncate =>
        {
            Some("yarn with other betas, another attention factor or truncate = false".into())
        }
        Some(
            RopeScaling::Yarn { .. } | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. },
        )
        | None => None,
    }
}

/// Metadata about the model; the tokenizer's and the file's are added by the caller.
pub(super) fn to_metadata(plan: &Plan, architecture: Architecture) -> Metadata {
    let (shape, model) = (plan.shape(), &plan.model);
    let mut metadata = Metadata::default();
    let kind = architecture.name();
    metadata.set("general.architecture", kind);
    metadata.set("general.type", "model");
    let mut set = |key: &str, value: usize| metadata.set(format!("{kind}.{key}"), value);
    set("context_length", plan.seq_length);
    set("embedding_length", shape.d_model);
    set("block_count", model.layers);
    set("feed_forward_length", shape.d_ffn);
    set("vocab_size", plan.vocab);
    set("attention.head_count", shape.heads);
    if let Some(moe) = &model.moe {
        set("expert_count", moe.experts);
        set("expert_used_count", moe.top_k);
        match architecture {
            Architecture::Qwen2Moe => {
                set("expert_feed_forward_length", model.d_expert());
                set("expert_shared_feed_forward_length", moe.shared_d_ffn);
            }
            Architecture::Gpt2
            | Architecture::Llama
            | Architecture::Qwen2
            | Architecture::Qwen3 => set("feed_forward_length", model.d_expert()),
            Architecture::Deepseek2 => deepseek::add_mixture(&mut metadata, plan, moe),
        }
    }
    if architecture == Architecture::Gpt2 {
        metadata.set("gpt2.attention.layer_norm_epsilon", model.norm_eps);
        return metadata;
    }
    match model.latents() {
        Some(latents) => deepseek::add_latents(&mut metadata, &latents),
        None => {
            let mut set = |key: &str, value: usize| metadata.set(format!("{kind}.{key}"), value);
            set("attention.head_count_kv", shape.kv_heads);
            set("attention.key_length", shape.d_head);
            set("attention.value_length", shape.d_head);
            set("rope.dimension_count", shape.d_head);
        }
    }
    let epsilon = format!("{kind}.attention.layer_norm_rms_epsilon");
    metadata.set(epsilon, model.norm_eps);
    metadata.set(format!("{kind}.rope.freq_base"), model.rope_theta);
    let mut scaled = |name: &str, factor: f64, original: Option<usize>| {
        let key = |key: &str| format!("{kind}.rope.scaling.{key}");
        metadata.set(key("type"), name);
        metadata.set(key("factor"), narrow(factor));
        if let Some(original) = original {
            metadata.set(key("original_context_length"), original);
        }
    };
    match &model.rope_scaling {
        Some(RopeScaling::Linear { factor }) => scaled("linear", *factor, None),
        Some(RopeScaling::Yarn {
            factor,
            original_length,
            mscale_all_dim,
            ..
        }) => {
            scaled("yarn", *factor, Some(*original_length));
            if let Some(mscale) = mscale_all_dim {
                deepseek::add_magnitude(&mut metadata, *mscale);
            }
        }
        // the factors of Llama 3 are a tensor of their own, for which the length of its models need not be told
        Some(RopeScaling::Llama3 {
            original_length, ..
        }) if *original_length != ORIGINAL => {
            let key = format!("{kind}.rope.scaling.original_context_length");
            metadata.set(key, *original_length);
        }
        Some(RopeScaling::Llama3 { .. } | RopeScaling::Dynamic { .. }) | None => {}
    }
    metadata
}

/// Name of the tensor of divisors of rotary frequencies.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Divisors of the rotary frequencies of Llama 3, `[d_head / 2]`; `None` for other models.
pub(super) fn rope_factors(plan: &Plan) -> Option<Vec<f32>> {
    let Some(RopeScaling::Llama3 {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_length,
    }) = plan.model.rope_scaling
    else {
        return None;
    };
    let scaling = Scaling::Llama3 {
        factor,
        low: low_freq_factor,
        high: high_freq_factor,
        original: original_length,
    };
    let (theta, width) = (f64::from(plan.model.rope_theta), plan.shape().d_head);
    let plain = Frequencies::new(theta, width, &Scaling::Plain).ok()?;
    let scaled = Frequencies::new(theta, width, &scaling).ok()?;
    let pairs = plain.steps().iter().zip(scaled.steps());
    Some(
        pairs
            .map(|(plain, scaled)| narrow(plain / scaled))
            .collect(),
    )
}

/// Tensors of a file that its settings depend on.
pub(super) struct Tensors {
    /// Rows of the embedding.
    pub vocab: usize,
    /// Whether the head has a matrix of its own.
    pub has_output: bool,
    /// Whether queries, keys and values have biases.
    pub has_attention_biases: bool,
    /// Whether the feed-forward layers have biases.
    pub has_mlp_biases: bool,
    /// Divisors of the rotary frequencies.
    pub rope_factors: Option<Vec<f32>>,
}

/// Bands of Llama 3's rotary scaling, which are the same in all of its models.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
const ORIGINAL: usize = 8192;
/// Largest relative difference of divisors that another program computed in f32.
const NEAR: f32 = 1e-5;

/// The architecture and Hugging Face's `config.json` of a file.
///
/// # Errors
/// One line for each key that is missing or that our models lack.
pub(super) fn to_config(
    metadata: &Metadata,
    tensors: &Tensors,
) -> Result<(Architecture, Json), Vec<String>> {
    let name = metadata.text("general.architecture").unwrap_or("nothing");
    let Some(architecture) = ALL.into_iter().find(|one| one.name() == name) else {
        let known = ALL.map(Architecture::name).join(", ");
        return Err(vec![format!(
            "general.architecture: found {name}, want one of {known}"
        )]);
    };
    let mut problems = Vec::new();
    let mut fields = Map::new();
    let mut set = |key: &str, value: Json| {
        fields.insert(key.to_owned(), value);
    };
    let whole = |key: &str| metadata.whole(&format!("{name}.{key}"));
    let mut wanted = |key: &str| metadata.wanted(&format!("{name}.{key}"), &mut problems);
    let [length, width, layers, heads, ffn] = [
        "context_length",
        "embedding_length",
        "block_count",
        "attention.head_count",
        "feed_forward_length",
    ]
    .map(&mut wanted);
    set("vocab_size", json!(tensors.vocab));
    set("tie_word_embeddings", json!(!tensors.has_output));
    if let Some(id) = metadata.whole("tokenizer.ggml.eos_token_id") {
        set("eos_token_id", json!(id));
    }
    let epsilon = |key: &str| {
        let found = metadata.real(&format!("{name}.{key}"));
        json!(decimal(narrow(found.unwrap_or(1e-5))))
    };
    if architecture == Architecture::Gpt2 {
        set("model_type", json!("gpt2"));
        set("n_positions", json!(length));
        set("n_embd", json!(width));
        set("n_layer", json!(layers));
        set("n_head", json!(heads));
        set("n_inner", json!(ffn));
        set(
            "layer_norm_epsilon",
            epsilon("attention.layer_norm_epsilon"),
        );
        return done(architecture, fields, problems);
    }
    let experts = whole("expert_count").filter(|&experts| experts > 0);
    let class = match (architecture, experts) {
        (Architecture::Llama, Some(_)) => "mixtral",
        (Architecture::Qwen2Moe, _) => "qwen2_moe",
        (Architecture::Deepseek2, _) => deepseek::class(metadata),
        (
            Architecture::Gpt2 | Architecture::Llama | Architecture::Qwen2 | Architecture::Qwen3,
            _,
        ) => name,
    };
    set("model_type", json!(class));
    set("max_position_embeddings", json!(length));
    set("hidden_size", json!(width));
    set("num_hidden_layers", json!(layers));
    set("num_attention_heads", json!(heads));
    set("intermediate_size", json!(ffn));
    set("rms_norm_eps", epsilon("attention.layer_norm_rms_epsilon"));
    let theta = metadata
        .real(&format!("{name}.rope.freq_base"))
        .unwrap_or(10_000.0);
    set("rope_theta", json!(decimal(narrow(theta))));
    if architecture == Architecture::Deepseek2 {
        set("num_key_value_heads", json!(heads));
        match deepseek::fields(metadata) {
            Ok(own) => own.into_iter().for_each(|(key, value)| set(&key, value)),
            Err(lines) => problems.extend(lines),
        }
    } else {
        let keys = whole("attention.head_count_kv").unwrap_or(heads);
        set("num_key_value_heads", json!(keys));
        let of_width = width.checked_div(heads).unwrap_or(0);
        let d_head = whole("attention.key_length").unwrap_or(of_width);
        set("head_dim", json!(d_head));
        match class {
            "llama" => {
                set("attention_bias", json!(tensors.has_attention_biases));
                set("mlp_bias", json!(tensors.has_mlp_biases));
            }
            "mixtral" => {
                set("num_local_experts", json!(experts));
                set("num_experts_per_tok", json!(wanted("expert_used_count")));
            }
            "qwen2_moe" => {
                set("num_experts", json!(experts));
                set("num_experts_per_tok", json!(wanted("expert_used_count")));
                set(
                    "moe_intermediate_size",
                    json!(wanted("expert_feed_forward_length")),
                );
                let shared = wanted("expert_shared_feed_forward_length");
                set("shared_expert_intermediate_size", json!(shared));
            }
            _ => {}
        }
        for (key, found, want) in [
            (
                "attention.value_length",
                whole("attention.value_length"),
                d_head,
            ),
            (
                "rope.dimension_count",
                whole("rope.dimension_count"),
                d_head,
            ),
        ] {
            if let Some(found) = found.filter(|&found| found != want) {
                problems.push(format!("{name}.{key}: found {found}, want {want}"));
            }
        }
    }
    match scaling(metadata, name, tensors, theta) {
        Ok(None) => {}
        Ok(Some(found)) => set("rope_scaling", found),
        Err(problem) => problems.push(problem),
    }
    done(architecture, fields, problems)
}

fn done(
    architecture: Architecture,
    fields: Map<String, Json>,
    problems: Vec<String>,
) -> Result<(Architecture, Json), Vec<String>> {
    match problems.is_empty() {
        true => Ok((architecture, Json::Object(fields))),
        false => Err(problems),
    }
}

/// `rope_scaling` of a file.
fn scaling(
    metadata: &Metadata,
    name: &str,
    tensors: &Tensors,
    theta: f64,
) -> Result<Option<Json>, String> {
    let key = |key: &str| format!("{name}.rope.scaling.{key}");
    if let Some(factors) = &tensors.rope_factors {
        let original = metadata.whole(&key("original_context_length"));
        let original = original.and_then(|length| usize::try_from(length).ok());
        return llama3(factors, theta, original.unwrap_or(ORIGINAL)).map(Some);
    }
    let kind = metadata.text(&key("type")).unwrap_or("none");
    let factor = metadata.real(&key("factor")).unwrap_or(1.0);
    match kind {
        "none" => Ok(None),
        "linear" => Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
        "yarn" => {
            let mut found = json!({"rope_type": "yarn", "factor": factor});
            if let Some(original) = metadata.whole(&key("original_context_length")) {
                found["original_max_position_embeddings"] = json!(original);
            }
            for beta in ["beta_fast", "beta_slow"] {
                if let Some(turns) = metadata.real(&key(&format!("yarn_{beta}"))) {
                    found[beta] = json!(decimal(narrow(turns)));
                }
            }
            if let Some(mscale) = deepseek::magnitude(metadata) {
                // llama.cpp takes both to be equal
                found["mscale"] = json!(mscale);
                found["mscale_all_dim"] = json!(mscale);
            }
            Ok(Some(found))
        }
        _ => Err(format!(
            "{}: found {kind}, want none, linear or yarn",
            key("type")
        )),
    }
}

/// The scaling of models of `original` tokens whose divisors these are.
fn llama3(factors: &[f32], theta: f64, original: usize) -> Result<Json, String> {
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    let scaling = Scaling::Llama3 {
        factor,
        low: LOW,
        high: HIGH,
        original,
    };
    let width = 2 * factors.len();
    let both = [Scaling::Plain, scaling].map(|scaling| Frequencies::new(theta, width, &scaling));
    let [Ok(plain), Ok(scaled)] = both else {
        return Err(format!("{ROPE_FACTORS}: found no divisors of frequencies"));
    };
    let ours = plain.steps().iter().zip(scaled.steps());
    let ours = ours.map(|(plain, scaled)| narrow(plain / scaled));
    let is_near = |(ours, found): (f32, &f32)| (ours - found).abs() <= NEAR * ours;
    match ours.zip(factors).all(is_near) {
        true => Ok(json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": LOW,
            "high_freq_factor": HIGH, "original_max_position_embeddings": original,
        })),
        false => Err(format!(
            "{ROPE_FACTORS}: found other divisors than Llama 3's with bands {LOW} and {HIGH} of {original} tokens"
        )),
    }
}
