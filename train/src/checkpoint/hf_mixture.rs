//! Mixtures of experts under the names of published checkpoints: Mixtral (`w1` gate, `w3` up, `w2`
//! down, every layer) and Qwen 1.5 MoE (a gated shared expert beside them, dense layers between).
//! Experts lie in these files one by one, as here; transformers stacks them when it loads.

use serde_json::{Value, json};

use crate::checkpoint::hf::{Out, Source, as_is, gated_mlp};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::mixture::{MoeConfig, RouterScore};

/// Which class in transformers a mixture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Mixtral,
    Qwen2Moe,
}

/// The class that has everything of this mixture.
///
/// # Errors
/// `Request` if there is none, with what keeps each from being it.
pub(crate) fn class_of(model: &ModelConfig, moe: &MoeConfig) -> Result<Class> {
    let is_everywhere = moe.every == 1 && moe.dense_first == 0;
    let is_mixtral = is_everywhere
        && moe.shared_d_ffn == 0
        && moe.score == RouterScore::TopKSoftmax
        && (model.d_ffn == 0 || moe.d_ffn == 0 || model.d_ffn == moe.d_ffn);
    let is_qwen = moe.shared_d_ffn > 0 && moe.shared_gate && moe.score != RouterScore::Sigmoid;
    match (is_mixtral, is_qwen) {
        _ if moe.scale != 1.0 => {}
        (true, _) => return Ok(Class::Mixtral),
        (_, true) => return Ok(Class::Qwen2Moe),
        _ => {}
    }
    Err(Error::Request {
        what: "mixture to export",
        found: format!("{moe:?}"),
        wanted: "Mixtral (every layer, top_k_softmax, no shared expert, one d_ffn) or Qwen MoE (a \
                 shared expert with its gate, a softmax score); scale 1"
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
        Class::Qwen2Moe => json!({
            "architectures": ["Qwen2MoeForCausalLM"],
            "model_type": "qwen2_moe",
            "num_experts": moe.experts,
            "moe_intermediate_size": model.d_expert(),
            "shared_expert_intermediate_size": moe.shared_d_ffn,
            "norm_topk_prob": moe.score == RouterScore::TopKSoftmax,
            "decoder_sparse_step": moe.every,
            "mlp_only_layers": (0..moe.dense_first).collect::<Vec<usize>>(),
            "qkv_bias": false,
            "use_sliding_window": false,
        }),
    };
    let both = json!({
        "num_experts_per_tok": moe.top_k,
        "output_router_logits": false,
        // theirs counts a token k times and is a mean over layers, ours a sum
        "router_aux_loss_coef": moe.balance_loss * layers as f64 / moe.top_k as f64,
    });
    for (key, value) in [own, both].iter().filter_map(Value::as_object).flatten() {
        config[key] = value.clone();
    }
    config
}

/// Router and experts of a layer.
pub(crate) fn tensors(
    class: Class,
    source: &Source<'_>,
    moe: &MoeConfig,
    (at, from): (&str, &str),
) -> Vec<Out> {
    const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
    let (block, names) = match class {
        Class::Mixtral => (format!("{at}.block_sparse_moe"), ["w1", "w3", "w2"]),
        Class::Qwen2Moe => (format!("{at}.mlp"), PROJECTIONS),
    };
    let router = format!("{from}.router.weight");
    let mut tensors = vec![as_is(source, format!("{block}.gate.weight"), &router)];
    for expert in 0..moe.experts {
        let to = format!("{block}.experts.{expert}");
        let from = format!("{from}.experts.{expert}");
        tensors.extend(gated_mlp(source, (&to, &from), names));
    }
    if class == Class::Qwen2Moe {
        let (to, shared) = (format!("{block}.shared_expert"), format!("{from}.shared"));
        tensors.extend(gated_mlp(source, (&to, &shared), PROJECTIONS));
        let (to, gate) = (
            format!("{to}_gate.weight"),
            format!("{from}.shared_gate.weight"),
        );
        tensors.push(as_is(source, to, &gate));
    }
    tensors
}
