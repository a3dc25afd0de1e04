//! DeepSeek-V2 and DeepSeek-V3 in the layouts of transformers' `DeepseekV2ForCausalLM` and `DeepseekV3ForCausalLM`.
//!
//! Of a head's query, and of the row of keys and values, the features with positions come last in theirs and first in ours, and
//! their pairs are neighbours there and halves here. The last layers of V3's published files predict further tokens: they are passed
//! over, as in transformers, unless the model has depths of multi-token prediction. Weights of eight bits with scales of blocks: `files.rs`.
//!
//! We differ from transformers 4.57 in V2: scores have YaRN's factor of `mscale_all_dim`, as in DeepSeek's program and in V3.
//! Experts of groups that are not kept are never chosen, even where all biased scores of those kept are below 0.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::decimal;
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::pair::{GatedWidth, Own, Pair, Prefixes, Rows, add_gated};
use crate::checkpoint::huggingface::rope::{self, Rope};
use crate::config::latent::{KV_DOWN, KV_NORM, KV_UP, Latents, Q_DOWN, Q_NORM, Q_PROJ, Q_UP};
use crate::config::moe::{MoeConfig, RouterScope, RouterScore};
use crate::config::plan::Plan;
use crate::config::rope_scaling::RopeScaling;
use crate::config::{Activation, Family, ModelConfig};
use crate::model::param::head_name;

/// Added to the variance in norms of latents: the classes' constant, whatever `rms_norm_eps` is.
const LATENT_EPS: f32 = 1e-6;

/// Field of the number of layers that predict further tokens, and our own of those among them that are depths of the model.
pub(crate) const FURTHER: &str = "num_nextn_predict_layers";
const DEPTHS: &str = "mtp_num_layers";

/// Name within a layer of the biases by which experts are chosen.
pub(crate) const SCORE_BIAS: &str = "mlp.gate.e_score_correction_bias";

/// Names of a feed-forward layer's matrices.
const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Values of a class where a file has none.
struct Absent {
    heads_of_keys: Option<usize>,
    q_lora_rank: usize,
    groups: usize,
    kept_groups: usize,
    experts: usize,
    top_k: Option<usize>,
    d_expert: usize,
    shared: usize,
    dense_first: usize,
    scale: f64,
    balance_loss: f64,
    normed: bool,
}

fn absent(family: Family) -> Absent {
    let v2 = Absent {
        heads_of_keys: None,
        q_lora_rank: 1536,
        groups: 1,
        kept_groups: 1,
        experts: 64,
        top_k: None,
        d_expert: 1407,
        shared: 2,
        dense_first: 0,
        scale: 1.0,
        balance_loss: 0.001,
        normed: false,
    };
    if family != Family::DeepseekV3 {
        return v2;
    }
    Absent {
        heads_of_keys: Some(128),
        groups: 8,
        kept_groups: 4,
        experts: 256,
        top_k: Some(8),
        d_expert: 2048,
        shared: 1,
        dense_first: 3,
        scale: 2.5,
        balance_loss: 0.0,
        normed: true,
        ..v2
    }
}

/// Whether a family is one of these.
pub(crate) fn is_deepseek(family: Family) -> bool {
    matches!(family, Family::DeepseekV2 | Family::DeepseekV3)
}

/// Settings that these classes have no fields for, one line each.
pub(crate) fn inexpressible(model: &ModelConfig) -> Vec<String> {
    let (kind, made) = (format!("{:?}", model.family), model.architecture());
    let activation = made.activation;
    let eps = model.latent_norm_eps();
    [
        (
            activation != Activation::Swiglu,
            format!("activation = {activation:?} in {kind}"),
        ),
        (
            !made.has_latents,
            format!("multi_latent_attention = false in {kind}"),
        ),
        (
            eps != LATENT_EPS,
            format!("latent_norm_eps = {eps} in {kind}, not 1e-6"),
        ),
        (model.moe.is_none(), format!("no moe in {kind}")),
    ]
    .into_iter()
    .filter_map(|(is_wrong, line)| is_wrong.then_some(line))
    .collect()
}

/// Whether the family's class has every setting of this mixture.
pub(crate) fn has_mixture(model: &ModelConfig, moe: &MoeConfig) -> bool {
    let d_expert = model.d_expert();
    let has_shared = moe.shared_d_ffn > 0 && moe.shared_d_ffn.is_multiple_of(d_expert);
    let has_score = if model.family == Family::DeepseekV3 {
        // a group's score is of two of its experts
        let is_wide = moe.experts / moe.num_groups.max(1) > 1;
        moe.score == RouterScore::Sigmoid && moe.expert_bias && is_wide
    } else {
        moe.score == RouterScore::SoftmaxTopK
    };
    has_score && has_shared && !moe.shared_gate && !moe.biases && moe.every == 1
}

/// Fields of `config.json` that the classes have and others have not.
pub(crate) fn config(plan: &Plan) -> Value {
    let (shape, model) = (plan.shape(), &plan.model);
    let mut config = json!({
        "max_position_embeddings": rope::positions(plan),
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "hidden_act": "silu",
        "rms_norm_eps": decimal(model.norm_eps),
        "rope_theta": decimal(model.rope_theta),
        "rope_parameters": rope::to_json(model),
        "rope_scaling": null,
        "attention_bias": false,
        "attention_dropout": decimal(model.attention_dropout),
        "kv_lora_rank": model.kv_lora_rank,
        "q_lora_rank": (model.q_lora_rank > 0).then_some(model.q_lora_rank),
        "qk_nope_head_dim": model.qk_head_dim,
        "qk_rope_head_dim": model.qk_pos_emb_head_dim,
        "v_head_dim": model.v_head_dim,
        // with an id, a row of the embedding gets no gradient
        "pad_token_id": null,
    });
    if model.family == Family::DeepseekV3 {
        config["rope_interleave"] = json!(true);
    } else {
        config["mlp_bias"] = json!(false);
    }
    if model.mtp_num_layers > 0 {
        config[FURTHER] = json!(model.mtp_num_layers);
        config[DEPTHS] = json!(model.mtp_num_layers);
    }
    rope::add_scaling(&mut config, model);
    rope::add_length(&mut config, plan);
    config
}

/// Has the field with which `read` takes layers that predict further tokens as depths, as many as a job has, if the files have them.
pub(crate) fn ask_for_depths(config: &mut Value, depths: usize) {
    let further = further_count(config);
    if further == 0 {
        // other classes do not know the field
        return;
    }
    if let Some(table) = config.as_object_mut() {
        let asked = further.min(depths as u64);
        table.insert(DEPTHS.into(), json!(asked));
    }
}

/// Fields of the mixture.
pub(crate) fn mixture_config(model: &ModelConfig, moe: &MoeConfig) -> Value {
    let is_v3 = model.family == Family::DeepseekV3;
    let method = match (is_v3, moe.num_groups) {
        (true, _) => "noaux_tc",
        (false, 1) => "greedy",
        (false, _) => "group_limited_greedy",
    };
    json!({
        "n_routed_experts": moe.experts,
        "n_shared_experts": moe.shared_d_ffn / model.d_expert(),
        "num_experts_per_tok": moe.top_k,
        "moe_intermediate_size": model.d_expert(),
        "moe_layer_freq": 1,
        "first_k_dense_replace": moe.dense_first,
        "n_group": moe.num_groups,
        "topk_group": moe.group_topk,
        "topk_method": method,
        "scoring_func": if is_v3 { "sigmoid" } else { "softmax" },
        "norm_topk_prob": is_v3 && moe.top_k > 1,
        "routed_scaling_factor": decimal(moe.scale),
        "aux_loss_alpha": moe.balance_loss,
        "seq_aux": moe.scope == RouterScope::Sequence,
    })
}

/// Model and length; the mixture is for `read_mixture`.
pub(crate) fn read(fields: &Fields<'_>, family: Family) -> (ModelConfig, usize) {
    let absent = absent(family);
    let heads = fields.count("num_attention_heads");
    let of_keys = absent.heads_of_keys.unwrap_or(heads);
    let of_keys = match fields.is_null("num_key_value_heads") {
        true => heads,
        false => fields.count_or("num_key_value_heads", of_keys),
    };
    if of_keys != heads {
        let wanted = format!("num_attention_heads = {heads}");
        fields.wrong("num_key_value_heads", &of_keys.to_string(), &wanted);
    }
    let activation = fields.text_or("hidden_act", "silu");
    if activation != "silu" {
        fields.wrong("hidden_act", &activation, "silu");
    }
    fields.only("attention_bias", false);
    if family == Family::DeepseekV3 {
        fields.only("rope_interleave", true);
    } else {
        fields.only("mlp_bias", false);
    }
    let length = fields.count("max_position_embeddings");
    let Rope {
        theta,
        scaling,
        share,
    } = rope::read(fields, length);
    if let Some(share) = share.filter(|share| *share != 1.0) {
        let name = "rope_parameters.partial_rotary_factor";
        fields.wrong(name, &share.to_string(), "1");
    }
    let turned = fields.count_or("qk_rope_head_dim", 64);
    // the class sets it to the turned features, whatever a file has
    let head_dim = fields.count_or("head_dim", turned);
    if head_dim != turned {
        let wanted = format!("qk_rope_head_dim = {turned}");
        fields.wrong("head_dim", &head_dim.to_string(), &wanted);
    }
    if fields.has("qk_head_dim") {
        let all = fields.count("qk_head_dim");
        let wanted = fields
            .count_or("qk_nope_head_dim", 128)
            .saturating_add(turned);
        if all != wanted {
            let wanted = format!("{wanted}, those with and without positions");
            fields.wrong("qk_head_dim", &all.to_string(), &wanted);
        }
    }
    let is_stretched = scaling.as_ref().and_then(RopeScaling::score_factor);
    if family == Family::DeepseekV2 && is_stretched.is_some() {
        let line = "rope_scaling.mscale_all_dim multiplies scores, as in DeepSeek's own program; transformers' class \
                    of V2 leaves this factor out";
        fields.notes.borrow_mut().push(line.to_string());
    }
    let model = ModelConfig {
        layers: fields.count("num_hidden_layers"),
        d_model: fields.count("hidden_size"),
        heads,
        d_ffn: fields.count("intermediate_size"),
        q_lora_rank: match fields.is_null("q_lora_rank") {
            true => 0,
            false => fields.count_or("q_lora_rank", absent.q_lora_rank),
        },
        kv_lora_rank: fields.count_or("kv_lora_rank", 512),
        qk_head_dim: fields.count_or("qk_nope_head_dim", 128),
        qk_pos_emb_head_dim: turned,
        v_head_dim: fields.count_or("v_head_dim", 128),
        norm_eps: fields.number("rms_norm_eps", Some(1e-6)),
        latent_norm_eps: LATENT_EPS,
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        rope_theta: theta.unwrap_or(rope::THETA),
        rope_scaling: scaling,
        ..ModelConfig::default()
    };
    let further = fields.count_or(FURTHER, 0);
    // our own field: those of these layers that are ours
    let depths = fields.count_or(DEPTHS, 0);
    if depths > further {
        let wanted = format!("at most {FURTHER} = {further}");
        fields.wrong(DEPTHS, &depths.to_string(), &wanted);
    }
    if depths > 0 && family != Family::DeepseekV3 {
        let wanted = "0: this class has no layers for further tokens";
        fields.wrong(DEPTHS, &depths.to_string(), wanted);
    }
    let model = ModelConfig {
        mtp_num_layers: depths,
        ..model
    };
    // our own field
    (model, fields.count_or("seq_length", length))
}

/// The mixture of a file's fields.
pub(crate) fn read_mixture(fields: &Fields<'_>, family: Family) -> MoeConfig {
    let (absent, is_v3) = (absent(family), family == Family::DeepseekV3);
    let d_ffn = fields.count_or("moe_intermediate_size", absent.d_expert);
    let top_k = match absent.top_k {
        Some(top_k) => fields.count_or("num_experts_per_tok", top_k),
        None => fields.count("num_experts_per_tok"),
    };
    let expect = |name: &str, found: String, wanted: &str| {
        if found != wanted {
            fields.wrong(name, &found, wanted);
        }
    };
    let wanted = if is_v3 { "sigmoid" } else { "softmax" };
    expect(
        "scoring_func",
        fields.text_or("scoring_func", wanted),
        wanted,
    );
    let frequency = fields.count_or("moe_layer_freq", 1);
    expect("moe_layer_freq", frequency.to_string(), "1");
    let normed = fields.flag("norm_topk_prob", absent.normed);
    let is_normed = is_v3 && top_k > 1;
    expect("norm_topk_prob", normed.to_string(), &is_normed.to_string());
    // how many processes it was trained or runs with
    fields.count_or("ep_size", 1);
    let method = if is_v3 { "noaux_tc" } else { "greedy" };
    let method = fields.text_or("topk_method", method);
    let groups = [
        fields.count_or("n_group", absent.groups),
        fields.count_or("topk_group", absent.kept_groups),
    ];
    let [num_groups, group_topk] = match (is_v3, method.as_str()) {
        (true, "noaux_tc") | (false, "group_limited_greedy") => groups,
        (false, "greedy") => [1, 1],
        _ => {
            let wanted = match is_v3 {
                true => "noaux_tc",
                false => "greedy or group_limited_greedy",
            };
            fields.wrong("topk_method", &method, wanted);
            [1, 1]
        }
    };
    let shared = fields.count_or("n_shared_experts", absent.shared);
    if shared == 0 {
        fields.wrong("n_shared_experts", "0", "1 or more: the class adds them");
    }
    MoeConfig {
        experts: fields.count_or("n_routed_experts", absent.experts),
        top_k,
        d_ffn,
        dense_first: fields.count_or("first_k_dense_replace", absent.dense_first),
        score: match is_v3 {
            true => RouterScore::Sigmoid,
            false => RouterScore::SoftmaxTopK,
        },
        scale: fields.number("routed_scaling_factor", Some(absent.scale)),
        num_groups,
        group_topk,
        balance_loss: fields.wide("aux_loss_alpha", Some(absent.balance_loss)),
        expert_bias: is_v3,
        scope: match fields.flag("seq_aux", true) {
            true => RouterScope::Sequence,
            false => RouterScope::MicroBatch,
        },
        shared_d_ffn: shared.saturating_mul(d_ffn),
        ..MoeConfig::default()
    }
}

/// Number of layers of V3 that predict further tokens.
fn further_count(config: &Value) -> u64 {
    let is_v3 = config["model_type"] == "deepseek_v3";
    let further = config[FURTHER].as_u64().unwrap_or(0);
    // published models have one
    if is_v3 { further.min(8) } else { 0 }
}

/// Beginnings of the names of layers that predict further tokens and are no depths of the model.
pub(crate) fn further_layers(config: &Value) -> Vec<String> {
    let count = |name: &str| config[name].as_u64().unwrap_or(0);
    let (layers, depths) = (count("num_hidden_layers"), count(DEPTHS));
    (depths..further_count(config))
        .filter_map(|number| layers.checked_add(number))
        .map(|layer| format!("model.layers.{layer}."))
        .collect()
}

/// Attention of a layer.
pub(crate) fn add_attention(pairs: &mut Vec<Pair>, plan: &Plan, latents: &Latents, own: Own<'_>) {
    let Latents { still, turned, .. } = *latents;
    for weight in latents.weights(plan.model.d_model, plan.model.heads) {
        let (theirs, rows) = match weight.layer {
            Q_PROJ => ("q_proj", Rows::TurnedLast { still, turned }),
            Q_DOWN => ("q_a_proj", Rows::Same),
            Q_NORM => ("q_a_layernorm", Rows::Same),
            Q_UP => ("q_b_proj", Rows::TurnedLast { still, turned }),
            KV_DOWN => {
                let still = latents.keys_values;
                ("kv_a_proj_with_mqa", Rows::TurnedLast { still, turned })
            }
            KV_NORM => ("kv_a_layernorm", Rows::Same),
            KV_UP => ("kv_b_proj", Rows::Same),
            other => unreachable!("{other} is no weight of latents"),
        };
        let ours = format!("{}.weight", weight.layer);
        let theirs = format!("self_attn.{theirs}.weight");
        pairs.push(own(&theirs, &ours, &weight.dims).rows(rows, 0));
    }
    let (s, d) = (plan.shape(), plan.model.d_model);
    let dims = [s.heads * s.d_value, d];
    pairs.push(own("self_attn.o_proj.weight", "out.weight", &dims).transposed());
}

/// Of a layer that predicts a further token, the tensors that other layers have not. The embedding and the head are the model's,
/// of which published files have a copy there.
pub(crate) fn add_depth(pairs: &mut Vec<Pair>, plan: &Plan, layer: usize, own: Own<'_>) {
    let d = plan.model.d_model;
    let table = [plan.vocab, d];
    for (theirs, ours) in [
        ("embed_tokens", "embedding.weight"),
        ("shared_head.head", head_name(plan)),
    ] {
        let theirs = format!("model.layers.{layer}.{theirs}.weight");
        pairs.push(Pair::of(theirs, ours.into(), &table).copy());
    }
    pairs.extend([
        own("enorm.weight", "enorm.weight", &[d]),
        own("hnorm.weight", "hnorm.weight", &[d]),
        own("eh_proj.weight", "eh_proj.weight", &[d, 2 * d]),
        own("shared_head.norm.weight", "norm.weight", &[d]),
    ]);
}

/// Router and experts of a layer.
pub(crate) fn add_mixture(pairs: &mut Vec<Pair>, plan: &Plan, moe: &MoeConfig, own: Own<'_>) {
    let (d, experts) = (plan.model.d_model, moe.experts);
    pairs.push(own("mlp.gate.weight", "router.weight", &[experts, d]));
    if moe.expert_bias {
        pairs.push(own(SCORE_BIAS, "router.bias", &[experts]));
    }
    let mut add = |to: &str, from: &str, f: usize| {
        let prefixes = Prefixes { to, from };
        add_gated(pairs, own, GatedWidth { f, d }, prefixes, PROJECTIONS);
    };
    for expert in 0..experts {
        let (to, from) = (
            format!("mlp.experts.{expert}"),
            format!("experts.{expert}."),
        );
        add(&to, &from, plan.model.d_expert());
    }
    add("mlp.shared_experts", "shared.", moe.shared_d_ffn);
}
