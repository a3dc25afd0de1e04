//! Metadata of DeepSeek-V2 and V3, llama.cpp's architecture `deepseek2` (`src/models/deepseek2.cpp`, `conversion/deepseek.py`).
//!
//! llama.cpp multiplies queries by the matrix of keys and mixes the latents themselves (DeepSeek-V2, arXiv:2405.04434, sec. 2.1.2). So a
//! file states one head of keys, as wide as the latent and the features with positions, and one of values, as wide as the latent; the
//! widths of the model's own heads are beside them (`_mla`).
//!
//! We differ from llama.cpp's converter: a model without a latent of queries has `q_lora_rank` = 0, without which llama.cpp loads it
//! with 26 or 27 layers alone; groups of experts are stated only where they limit a choice.

use serde_json::{Map, Value as Json, json};

use crate::checkpoint::gguf::value::{Metadata, Value, narrow};
use crate::checkpoint::huggingface::described::decimal;
use crate::config::latent::Latents;
use crate::config::moe::{MoeConfig, RouterScore};
use crate::config::plan::Plan;
use crate::config::{ModelConfig, RopeScaling};

/// `general.architecture`.
pub(super) const NAME: &str = "deepseek2";

/// `expert_gating_func`.
const SOFTMAX: u64 = 1;
const SIGMOID: u64 = 2;

const MAGNITUDE: &str = "rope.scaling.yarn_log_multiplier";

fn key(name: &str) -> String {
    format!("{NAME}.{name}")
}

/// Settings of a model of DeepSeek's classes that llama.cpp lacks or computes otherwise, one line each.
pub(super) fn lacking(plan: &Plan) -> Vec<String> {
    let model = &plan.model;
    let mut lines = Vec::new();
    let of_latents = model.latent_norm_eps();
    if model.norm_eps != of_latents {
        let own = model.norm_eps;
        lines.push(format!(
            "norm_eps = {own} beside latent_norm_eps = {of_latents}, of which a file has one"
        ));
    }
    if model.q_lora_rank > 0 && is_lite(model.layers, plan.vocab) {
        lines.push(format!(
            "q_lora_rank = {} with {} layers, as many as DeepSeek-V2-Lite or its kin, which have none",
            model.q_lora_rank, model.layers
        ));
    }
    if let Some(moe) = &model.moe
        && moe.score != RouterScore::Sigmoid
        && is_limited(moe)
    {
        lines.push(format!(
            "num_groups = {} without sigmoid scores: llama.cpp takes a group to be as good as its two best experts",
            moe.num_groups
        ));
    }
    lines.extend(unscalable(model));
    lines
}

/// Whether llama.cpp takes a model of this size to have no latent of queries, whatever its file states.
fn is_lite(layers: usize, vocab: usize) -> bool {
    matches!(layers, 26 | 27) || (layers, vocab) == (48, 128_256)
}

/// Whether groups keep a token from some experts.
fn is_limited(moe: &MoeConfig) -> bool {
    moe.group_topk < moe.num_groups
}

/// The scaling of rotary positions, unless llama.cpp computes the same.
fn unscalable(model: &ModelConfig) -> Option<String> {
    let found = match model.rope_scaling.as_ref()? {
        RopeScaling::Yarn {
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: Some(mscale),
            mscale_all_dim: Some(all),
            truncate: true,
            ..
        } if mscale == all => return None,
        RopeScaling::Yarn { .. } => "yarn",
        RopeScaling::Linear { .. } => "linear",
        RopeScaling::Dynamic { .. } => "dynamic",
        RopeScaling::Llama3 { .. } => "llama3",
    };
    Some(format!(
        "rope_scaling = {found} beside latents, not yarn with betas of 32 and 1 and mscale = mscale_all_dim"
    ))
}

/// Adds the widths of the latents and of heads.
pub(super) fn add_latents(metadata: &mut Metadata, latents: &Latents) {
    for (name, width) in [
        ("attention.q_lora_rank", latents.queries.unwrap_or(0)),
        ("attention.kv_lora_rank", latents.keys_values),
        ("attention.head_count_kv", 1),
        ("attention.key_length", latents.row()),
        ("attention.value_length", latents.keys_values),
        ("attention.key_length_mla", latents.key()),
        ("attention.value_length_mla", latents.values),
        ("rope.dimension_count", latents.turned),
    ] {
        metadata.set(key(name), width);
    }
}

/// Adds what is beside the numbers of experts.
pub(super) fn add_mixture(metadata: &mut Metadata, plan: &Plan, moe: &MoeConfig) {
    let d_expert = plan.model.d_expert();
    let is_sigmoid = moe.score == RouterScore::Sigmoid;
    metadata.set(key("leading_dense_block_count"), moe.dense_first);
    metadata.set(key("expert_feed_forward_length"), d_expert);
    metadata.set(key("expert_shared_count"), moe.shared_d_ffn / d_expert);
    metadata.set(key("expert_weights_scale"), moe.scale);
    // one weight is not brought to a sum of 1
    let is_normed = is_sigmoid && moe.top_k > 1;
    metadata.set(key("expert_weights_norm"), is_normed);
    let gating = if is_sigmoid { SIGMOID } else { SOFTMAX };
    metadata.set(key("expert_gating_func"), Value::Whole(gating.into()));
    if is_limited(moe) {
        metadata.set(key("expert_group_count"), moe.num_groups);
        metadata.set(key("expert_group_used_count"), moe.group_topk);
    }
}

/// Adds what is beside the factor and length of YaRN. Files have a tenth of `mscale_all_dim`.
pub(super) fn add_magnitude(metadata: &mut Metadata, mscale_all_dim: f64) {
    metadata.set(key(MAGNITUDE), narrow(0.1 * mscale_all_dim));
    metadata.set(key("rope.scaling.yarn_beta_fast"), 32.0_f32);
    metadata.set(key("rope.scaling.yarn_beta_slow"), 1.0_f32);
}

/// `mscale_all_dim` of a file; `None` without latents or without YaRN's factor of scores.
pub(super) fn magnitude(metadata: &Metadata) -> Option<f64> {
    let tenth = metadata.real(&key(MAGNITUDE))?;
    let found = decimal(narrow(decimal(narrow(tenth)) / 0.1));
    (found != 0.0).then_some(found)
}

/// `model_type` of a file: the class whose scores of experts it has.
pub(super) fn class(metadata: &Metadata) -> &'static str {
    match metadata.whole(&key("expert_gating_func")) {
        Some(SIGMOID) => "deepseek_v3",
        Some(_) | None => "deepseek_v2",
    }
}

/// Fields of `config.json` that DeepSeek's classes have and others have not.
///
/// # Errors
/// One line for each key that is missing, contradicts another or is of no such class.
pub(super) fn fields(metadata: &Metadata) -> Result<Map<String, Json>, Vec<String>> {
    let mut problems = Vec::new();
    let whole = |name: &str| metadata.whole(&key(name));
    let mut wanted = |name: &str| metadata.wanted(&key(name), &mut problems);
    let [rank, turned, width, values, experts, used, d_expert, shared] = [
        "attention.kv_lora_rank",
        "rope.dimension_count",
        "attention.key_length_mla",
        "attention.value_length_mla",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "expert_shared_count",
    ]
    .map(&mut wanted);
    let mut wrong = |name: &str, found: u64, want: String| {
        problems.push(format!("{}: found {found}, want {want}", key(name)));
    };
    if width <= turned {
        let want = format!("more than rope.dimension_count = {turned}");
        wrong("attention.key_length_mla", width, want);
    }
    for (name, want) in [
        ("attention.head_count_kv", 1),
        ("attention.key_length", rank.saturating_add(turned)),
        ("attention.value_length", rank),
        ("nextn_predict_layers", 0),
    ] {
        if let Some(found) = whole(name).filter(|&found| found != want) {
            wrong(name, found, want.to_string());
        }
    }
    // without it the scores are a softmax, as in files that are older than the key
    let gating = whole("expert_gating_func").filter(|&found| found > 0);
    if let Some(found) = gating.filter(|found| ![SOFTMAX, SIGMOID].contains(found)) {
        let want = format!("{SOFTMAX} (softmax) or {SIGMOID} (sigmoid)");
        wrong("expert_gating_func", found, want);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let several = |name: &str| whole(name).filter(|&groups| groups > 1);
    let (groups, kept) = (
        several("expert_group_count"),
        whole("expert_group_used_count"),
    );
    let (method, scores) = match (gating, groups) {
        (Some(SIGMOID), _) => ("noaux_tc", "sigmoid"),
        (_, Some(_)) => ("group_limited_greedy", "softmax"),
        (_, None) => ("greedy", "softmax"),
    };
    // 0 is no factor, as in llama.cpp
    let scale = metadata.real(&key("expert_weights_scale"));
    let scale = scale.filter(|&scale| scale != 0.0).unwrap_or(1.0);
    let table = json!({
        "q_lora_rank": whole("attention.q_lora_rank").filter(|&rank| rank > 0),
        "kv_lora_rank": rank,
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": width - turned,
        "v_head_dim": values,
        "first_k_dense_replace": whole("leading_dense_block_count").unwrap_or(0),
        "n_routed_experts": experts,
        "num_experts_per_tok": used,
        "moe_intermediate_size": d_expert,
        "n_shared_experts": shared,
        "n_group": groups.unwrap_or(1),
        "topk_group": groups.and(kept).unwrap_or(1),
        "topk_method": method,
        "scoring_func": scores,
        "routed_scaling_factor": decimal(narrow(scale)),
        "norm_topk_prob": metadata.flag(&key("expert_weights_norm")).unwrap_or(false),
    });
    Ok(table.as_object().cloned().unwrap_or_default())
}
