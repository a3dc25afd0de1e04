//! Mixtures of experts under the names of published checkpoints: Mixtral (`w1` gate, `w3` up, `w2`
//! down, every layer) and Qwen 1.5 MoE (a gated shared expert beside them, dense layers between), which store experts one by
//! one, as ours do; transformers stacks them when it loads. gpt-oss, which stacks them: `gpt_oss.rs`. DeepSeek: `deepseek.rs`.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::deepseek;
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::gpt_oss;
use crate::checkpoint::huggingface::pair::{GatedWidth, Own, Pair, Prefixes, add_gated};
use crate::config::moe::{MoeConfig, RouterScore};
use crate::config::plan::Plan;
use crate::config::{Family, ModelConfig};
use crate::error::{Error, Result};

/// The transformers class of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Mixtral,
    Qwen2Moe,
    GptOss,
    Deepseek,
}

impl Class {
    /// By `model_type`.
    pub(crate) fn named(kind: &str) -> Option<Class> {
        match kind {
            "mixtral" => Some(Class::Mixtral),
            "qwen2_moe" => Some(Class::Qwen2Moe),
            "gpt_oss" => Some(Class::GptOss),
            "deepseek_v2" | "deepseek_v3" => Some(Class::Deepseek),
            _ => None,
        }
    }
}

/// The class that supports every setting of this mixture.
///
/// # Errors
/// `Request` if there is none, with the settings that rule out each class.
pub(crate) fn class_of(model: &ModelConfig, moe: &MoeConfig) -> Result<Class> {
    if deepseek::is_deepseek(model.family) {
        if deepseek::has_mixture(model, moe) {
            return Ok(Class::Deepseek);
        }
        return Err(Error::Request {
            what: "mixture to export",
            found: format!("{moe:?}"),
            wanted: "DeepSeek's: every layer after those of dense_first, shared_d_ffn a multiple of d_ffn above 0, no shared_gate, no \
                     biases; in deepseek_v2 softmax_top_k, in deepseek_v3 sigmoid with expert_bias and groups of two or more"
                .into(),
        });
    }
    let is_everywhere = moe.every == 1 && moe.dense_first == 0;
    let is_mixtral = is_everywhere
        && moe.shared_d_ffn == 0
        && moe.score == RouterScore::TopKSoftmax
        && (model.d_ffn == 0 || moe.d_ffn == 0 || model.d_ffn == moe.d_ffn);
    let is_gpt_oss = model.family == Family::GptOss;
    let is_qwen = moe.shared_d_ffn > 0 && moe.shared_gate && moe.score != RouterScore::Sigmoid;
    match (is_mixtral, is_qwen) {
        _ if moe.scale != 1.0 || moe.num_groups > 1 || moe.biases != is_gpt_oss => {}
        (true, _) if is_gpt_oss => return Ok(Class::GptOss),
        _ if is_gpt_oss => {}
        (true, _) => return Ok(Class::Mixtral),
        (_, true) => return Ok(Class::Qwen2Moe),
        _ => {}
    }
    Err(Error::Request {
        what: "mixture to export",
        found: format!("{moe:?}"),
        wanted: "Mixtral (every layer, top_k_softmax, no shared expert, one d_ffn) or Qwen MoE (a \
                 shared expert with its gate, a softmax score), both without biases, or gpt-oss (as Mixtral with biases); scale 1, no groups"
            .into(),
    })
}

/// The configuration of the class, over that of a dense model.
pub(crate) fn config(class: Class, model: &ModelConfig, moe: &MoeConfig, dense: Value) -> Value {
    let mut config = dense;
    let layers = (0..model.layers).filter(|&layer| moe.is_at(layer)).count();
    let own = match class {
        Class::Mixtral => json!({
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "intermediate_size": model.d_expert(),
            "num_local_experts": moe.experts,
            "router_jitter_noise": 0.0,
            "sliding_window": null,
        }),
        Class::Deepseek => deepseek::mixture_config(model, moe),
        Class::GptOss => json!({
            "intermediate_size": model.d_expert(),
            "num_local_experts": moe.experts,
        }),
        Class::Qwen2Moe => json!({
            "architectures": ["Qwen2MoeForCausalLM"],
            "model_type": "qwen2_moe",
            "num_experts": moe.experts,
            "moe_intermediate_size": model.d_expert(),
            "shared_expert_intermediate_size": moe.shared_d_ffn,
            "norm_topk_prob": moe.score == RouterScore::TopKSoftmax,
            "decoder_sparse_step": moe.every,
            "mlp_only_layers": (0..moe.dense_first).collect::<Vec<usize>>(),
            "qkv_bias": model.family == Family::Qwen2,
            "use_sliding_window": model.sliding_window > 0,
        }),
    };
    let of_all = json!({
        "num_experts_per_tok": moe.top_k,
        // without it their models leave the loss out
        "output_router_logits": moe.balance_loss > 0.0,
        // their loss counts each token k times and is a mean over layers, ours a sum
        "router_aux_loss_coef": moe.balance_loss * layers as f64 / moe.top_k as f64,
    });
    let of_all = (class != Class::Deepseek).then_some(of_all);
    let tables = [Some(own), of_all];
    for (key, value) in tables
        .iter()
        .flatten()
        .filter_map(Value::as_object)
        .flatten()
    {
        config[key] = value.clone();
    }
    config
}

/// Reads the mixture's settings from a class's fields; `model` is the dense part.
pub(crate) fn read(fields: &Fields<'_>, class: Class, model: &ModelConfig) -> MoeConfig {
    let mut moe = MoeConfig::default();
    moe.top_k = fields.count_or("num_experts_per_tok", moe.top_k);
    let has_loss = fields.flag("output_router_logits", false);
    let default = match class {
        Class::Mixtral => {
            moe.experts = fields.count_or("num_local_experts", moe.experts);
            let noise = fields.wide("router_jitter_noise", Some(0.0));
            if noise != 0.0 {
                fields.wrong("router_jitter_noise", &noise.to_string(), "0");
            }
            0.001
        }
        Class::GptOss => {
            gpt_oss::read_mixture(fields, &mut moe);
            0.9
        }
        Class::Deepseek => return deepseek::read_mixture(fields, model.family),
        Class::Qwen2Moe => {
            moe.experts = fields.count("num_experts");
            moe.d_ffn = fields.count("moe_intermediate_size");
            moe.shared_d_ffn = fields.count("shared_expert_intermediate_size");
            moe.shared_gate = true;
            moe.every = fields.count_or("decoder_sparse_step", 1);
            moe.dense_first = read_dense_first(fields);
            if !fields.flag("norm_topk_prob", false) {
                moe.score = RouterScore::SoftmaxTopK;
            }
            if model.family == Family::Llama {
                fields.only("use_sliding_window", false);
            }
            0.001
        }
    };
    let layers = (0..model.layers).filter(|&layer| moe.is_at(layer)).count();
    let theirs = fields.wide("router_aux_loss_coef", Some(default));
    moe.balance_loss = match has_loss {
        true => theirs * moe.top_k as f64 / layers.max(1) as f64,
        false => 0.0,
    };
    moe
}

/// Dense layers in front, if those named are.
fn read_dense_first(fields: &Fields<'_>) -> usize {
    let given = fields.take("mlp_only_layers");
    let Some(list) = given.and_then(Value::as_array) else {
        return 0;
    };
    let in_front = |(at, value): (usize, &Value)| value.as_u64() == Some(at as u64);
    if !list.iter().enumerate().all(in_front) {
        let wanted = "the first layers in order";
        fields.wrong(
            "mlp_only_layers",
            &Value::from(list.clone()).to_string(),
            wanted,
        );
    }
    list.len()
}

/// Router and experts of a layer.
pub(crate) fn add(pairs: &mut Vec<Pair>, plan: &Plan, moe: &MoeConfig, own: Own<'_>) {
    if plan.model.family == Family::GptOss {
        return gpt_oss::add_mixture(pairs, plan, moe, own);
    }
    if deepseek::is_deepseek(plan.model.family) {
        return deepseek::add_mixture(pairs, plan, moe, own);
    }
    const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
    let d = plan.model.d_model;
    let is_mixtral = class_of(&plan.model, moe).is_ok_and(|class| class == Class::Mixtral);
    let (block, names) = if is_mixtral {
        ("block_sparse_moe", ["w1", "w3", "w2"])
    } else {
        ("mlp", PROJECTIONS)
    };
    let router = format!("{block}.gate.weight");
    pairs.push(own(&router, "router.weight", &[moe.experts, d]));
    for expert in 0..moe.experts {
        let (to, from) = (
            format!("{block}.experts.{expert}"),
            format!("experts.{expert}."),
        );
        let width = GatedWidth {
            f: plan.model.d_expert(),
            d,
        };
        let prefixes = Prefixes {
            to: &to,
            from: &from,
        };
        add_gated(pairs, own, width, prefixes, names);
    }
    if moe.shared_d_ffn > 0 {
        let (to, f) = (format!("{block}.shared_expert"), moe.shared_d_ffn);
        let prefixes = Prefixes {
            to: &to,
            from: "shared.",
        };
        add_gated(pairs, own, GatedWidth { f, d }, prefixes, PROJECTIONS);
        let gate = format!("{to}_gate.weight");
        pairs.push(own(&gate, "shared_gate.weight", &[1, d]));
    }
}
