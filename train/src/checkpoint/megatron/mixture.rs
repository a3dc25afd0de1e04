//! A mixture's settings as arguments of Megatron-LM, and those that one side has and the other lacks. Names and meanings:
//! Megatron-LM's `megatron/training/arguments.py` of core 0.16, megatron-core 0.16.1's `TransformerConfig`,
//! `topk_routing_with_score_function` and `group_limited_topk`.

use crate::checkpoint::huggingface::described::decimal;
use crate::checkpoint::megatron::namespace::{Args, shown};
use crate::checkpoint::torch::pickle::Value;
use crate::checkpoint::torch::pickle_writer::Object;
use crate::config::moe::{DropPolicy, MoeConfig, RouterScope, RouterScore};
use crate::config::plan::Plan;
use crate::config::{Activation, Biases};

/// Settings of a dense layer that a mixture's depend on.
#[derive(Clone, Copy)]
pub(super) struct Dense {
    pub layers: usize,
    pub d_ffn: usize,
    pub has_biases: bool,
}

/// Experts whose scores make their group's score here. Megatron's number is `moe_router_topk / moe_router_group_topk`.
fn best_of_group(score: RouterScore) -> usize {
    match score {
        RouterScore::Sigmoid => 2,
        RouterScore::SoftmaxTopK | RouterScore::TopKSoftmax => 1,
    }
}

/// Whether Megatron scores groups as we do, or has none.
fn has_same_groups(moe: &MoeConfig) -> bool {
    let best = best_of_group(moe.score);
    let of_group = moe.experts.checked_div(moe.num_groups).unwrap_or(0);
    let theirs = moe.top_k.checked_div(moe.group_topk);
    moe.num_groups == 1 || (theirs == Some(best) && of_group >= best)
}

/// Settings of a mixture that Megatron's lacks, one line each.
pub(super) fn inexpressible(plan: &Plan) -> Vec<String> {
    let (made, mut lines) = (plan.model.architecture(), Vec::new());
    let Some(moe) = &plan.model.moe else {
        return lines;
    };
    let mut refuse = |is_wrong: bool, line: String| {
        if is_wrong {
            lines.push(line);
        }
    };
    let has_biases = made.biases == Biases::All;
    refuse(
        moe.biases != has_biases,
        format!("moe.biases = {} with bias = {:?}", moe.biases, made.biases),
    );
    refuse(
        moe.shared_d_ffn > 0 && has_biases,
        format!(
            "moe.shared_d_ffn = {} with bias = {:?}",
            moe.shared_d_ffn, made.biases
        ),
    );
    refuse(
        made.activation == Activation::GeluTanh,
        format!("activation = {:?} with moe", made.activation),
    );
    refuse(
        !has_same_groups(moe),
        format!(
            "moe.num_groups = {}, group_topk = {} with experts = {}, top_k = {}, score = {:?}",
            moe.num_groups, moe.group_topk, moe.experts, moe.top_k, moe.score
        ),
    );
    refuse(
        moe.top_k == 1 && moe.score == RouterScore::TopKSoftmax,
        format!("moe.score = {:?} with top_k = 1", moe.score),
    );
    refuse(
        moe.capacity_factor > 0.0 && moe.scope == RouterScope::Sequence,
        format!(
            "moe.capacity_factor = {} with scope = {:?}",
            moe.capacity_factor, moe.scope
        ),
    );
    lines
}

/// The arguments of a mixture, or of a model without one. How experts are computed and tokens travel is left to the run that loads them.
pub(super) fn args(plan: &Plan) -> Vec<(&'static str, Object)> {
    let Some(moe) = &plan.model.moe else {
        return vec![("num_experts", Object::None)];
    };
    let (count, flag) = (Object::count, Object::Bool);
    let or_none = |is_set: bool, value: Object| match is_set {
        true => value,
        false => Object::None,
    };
    let layers = 0..plan.model.layers;
    let every = match layers.clone().all(|layer| moe.is_at(layer)) {
        true => Object::Int(1),
        false => Object::List(layers.map(|at| Object::Int(moe.is_at(at).into())).collect()),
    };
    let (score, is_before) = match moe.score {
        RouterScore::TopKSoftmax => ("softmax", false),
        RouterScore::SoftmaxTopK => ("softmax", true),
        RouterScore::Sigmoid => ("sigmoid", false),
    };
    let balance = match (moe.balance_loss > 0.0, moe.scope) {
        (false, _) => "none",
        (true, RouterScope::Sequence) => "seq_aux_loss",
        (true, RouterScope::MicroBatch) => "aux_loss",
    };
    let drop = match moe.drop {
        DropPolicy::Probability => "probs",
        DropPolicy::Position => "position",
    };
    let (has_groups, has_shared) = (moe.num_groups > 1, moe.shared_d_ffn > 0);
    let (capacity, scale) = (moe.capacity_factor, Object::Float(decimal(moe.scale)));
    vec![
        ("num_experts", count(moe.experts)),
        ("moe_layer_freq", every),
        ("moe_ffn_hidden_size", count(plan.model.d_expert())),
        ("moe_router_topk", count(moe.top_k)),
        ("moe_router_score_function", Object::text(score)),
        ("moe_router_pre_softmax", flag(is_before)),
        (
            "moe_router_topk_scaling_factor",
            or_none(moe.scale != 1.0, scale),
        ),
        (
            "moe_router_num_groups",
            or_none(has_groups, count(moe.num_groups)),
        ),
        (
            "moe_router_group_topk",
            or_none(has_groups, count(moe.group_topk)),
        ),
        ("moe_router_enable_expert_bias", flag(moe.expert_bias)),
        (
            "moe_router_bias_update_rate",
            Object::Float(decimal(moe.bias_update_rate)),
        ),
        ("moe_router_dtype", Object::text("fp32")),
        ("moe_router_load_balancing_type", Object::text(balance)),
        ("moe_aux_loss_coeff", Object::Float(moe.balance_loss)),
        (
            "moe_z_loss_coeff",
            or_none(moe.z_loss > 0.0, Object::Float(moe.z_loss)),
        ),
        (
            "moe_expert_capacity_factor",
            or_none(capacity > 0.0, Object::Float(capacity)),
        ),
        ("moe_token_drop_policy", Object::text(drop)),
        (
            "moe_shared_expert_intermediate_size",
            or_none(has_shared, count(moe.shared_d_ffn)),
        ),
        ("moe_shared_expert_gate", flag(moe.shared_gate)),
        ("expert_model_parallel_size", Object::Int(1)),
    ]
}

/// The mixture of these arguments, if they have one; settings that we lack are problems of `args`.
pub(super) fn read(args: &Args<'_>, dense: Dense) -> Option<MoeConfig> {
    let experts = args.count("num_experts").filter(|&experts| experts > 0)?;
    for flag in [
        "moe_apply_probs_on_input",
        "moe_router_force_load_balancing",
    ] {
        args.refuse_flag(flag);
    }
    for name in ["moe_latent_size", "moe_router_topk_limited_devices"] {
        args.refuse(name, "None");
    }
    if args.wide("moe_input_jitter_eps").unwrap_or(0.0) != 0.0 {
        args.refuse("moe_input_jitter_eps", "None");
    }
    let default = MoeConfig::default();
    let (every, dense_first) = layers(args, dense.layers);
    let shared = "moe_shared_expert_intermediate_size";
    let shared_d_ffn = args.count(shared).unwrap_or(0);
    if shared_d_ffn > 0 && dense.has_biases {
        args.refuse(shared, "None with add_bias_linear");
    }
    let d_ffn = args.count("moe_ffn_hidden_size");
    let scale = args.number("moe_router_topk_scaling_factor", 1.0);
    let mut moe = MoeConfig {
        experts,
        top_k: args.count("moe_router_topk").unwrap_or(2),
        d_ffn: d_ffn.filter(|&width| width != dense.d_ffn).unwrap_or(0),
        every,
        dense_first,
        score: score(args),
        // Megatron multiplies by no 0
        scale: if scale == 0.0 { 1.0 } else { scale },
        z_loss: args.wide("moe_z_loss_coeff").unwrap_or(0.0),
        expert_bias: args.flag("moe_router_enable_expert_bias"),
        bias_update_rate: args.number("moe_router_bias_update_rate", default.bias_update_rate),
        biases: dense.has_biases,
        drop: drop_policy(args),
        shared_d_ffn,
        shared_gate: shared_d_ffn > 0 && args.flag("moe_shared_expert_gate"),
        ..default
    };
    read_groups(args, &mut moe);
    read_balance(args, &mut moe);
    Some(moe)
}

fn score(args: &Args<'_>) -> RouterScore {
    let is_before = args.flag("moe_router_pre_softmax");
    match args.text("moe_router_score_function", "softmax") {
        "softmax" if is_before => RouterScore::SoftmaxTopK,
        "softmax" => RouterScore::TopKSoftmax,
        "sigmoid" => RouterScore::Sigmoid,
        other => {
            args.wrong("moe_router_score_function", other, "softmax or sigmoid");
            RouterScore::TopKSoftmax
        }
    }
}

fn drop_policy(args: &Args<'_>) -> DropPolicy {
    match args.text("moe_token_drop_policy", "probs") {
        "probs" => DropPolicy::Probability,
        "position" => DropPolicy::Position,
        other => {
            args.wrong("moe_token_drop_policy", other, "probs or position");
            DropPolicy::Probability
        }
    }
}

fn read_groups(args: &Args<'_>, moe: &mut MoeConfig) {
    let kept = args.count("moe_router_group_topk").unwrap_or(0);
    if kept == 0 {
        return;
    }
    (moe.num_groups, moe.group_topk) = (args.needed("moe_router_num_groups"), kept);
    if !has_same_groups(moe) {
        let best = best_of_group(moe.score);
        let found = format!("{kept} with moe_router_topk = {}", moe.top_k);
        let wanted = format!(
            "a quotient moe_router_topk / moe_router_group_topk of {best} with this score function, and groups of as many"
        );
        args.wrong("moe_router_group_topk", &found, &wanted);
    }
}

/// Load balance and capacity, and what they are over: Megatron's capacity is over a micro-batch.
fn read_balance(args: &Args<'_>, moe: &mut MoeConfig) {
    let name = "moe_router_load_balancing_type";
    let loss = args.wide("moe_aux_loss_coeff").unwrap_or(0.0);
    let (loss, is_by_sequence) = match args.text(name, "aux_loss") {
        "aux_loss" => (loss, false),
        "seq_aux_loss" => (loss, true),
        "none" => (0.0, false),
        other => {
            args.wrong(name, other, "aux_loss, seq_aux_loss or none");
            (loss, false)
        }
    };
    let has_loss = loss != 0.0;
    let capacity = "moe_expert_capacity_factor";
    // Megatron takes none below 0
    let factor = args.wide(capacity).unwrap_or(0.0).max(0.0);
    if factor > 0.0 && has_loss && is_by_sequence {
        args.refuse(capacity, "None with seq_aux_loss");
    }
    (moe.balance_loss, moe.capacity_factor) = (loss, factor);
    moe.scope = match (has_loss && !is_by_sequence) || factor > 0.0 {
        true => RouterScope::MicroBatch,
        false => RouterScope::Sequence,
    };
}

/// `every` and `dense_first` of the layers that are mixtures.
fn layers(args: &Args<'_>, count: usize) -> (usize, usize) {
    let name = "moe_layer_freq";
    let list = match args.get(name) {
        None | Some(Value::Int(1)) => return (1, 0),
        Some(Value::List(list)) => args.items(list),
        Some(other) => {
            // an interval of theirs begins with a mixture, one of ours ends with it
            args.wrong(name, &shown(other), "1 or a list of 0 and 1");
            return (1, 0);
        }
    };
    let marks: Option<Vec<bool>> = list
        .map(|mark| match mark {
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            _ => None,
        })
        .collect();
    let found = marks.filter(|marks| marks.len() == count);
    let found = found.and_then(|marks| interval(&marks));
    found.unwrap_or_else(|| {
        let wanted = format!("0 or 1 for each of {count} layers, the 1s at the multiples of an interval (counted from 1) after dense layers in front");
        args.refuse(name, &wanted);
        (1, 0)
    })
}

/// `every` and `dense_first` that have their mixtures at these layers.
fn interval(marks: &[bool]) -> Option<(usize, usize)> {
    let mut mixtures = (0..marks.len()).filter(|&layer| marks[layer]);
    let first = mixtures.next()?;
    let every = match mixtures.next() {
        Some(second) => second - first,
        None if first + 1 == marks.len() => 1,
        None => first + 1,
    };
    let moe = MoeConfig {
        every,
        dense_first: match every > 1 && first + 1 == every {
            true => 0,
            false => first,
        },
        ..MoeConfig::default()
    };
    let is_it = (0..marks.len()).all(|layer| moe.is_at(layer) == marks[layer]);
    is_it.then_some((moe.every, moe.dense_first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_mixtures_are_found_and_other_orders_are_not() {
        let marks = |text: &str| -> Vec<bool> { text.chars().map(|c| c == '1').collect() };
        for (text, want) in [
            ("111", Some((1, 0))),
            ("0111", Some((1, 1))),
            ("0001", Some((1, 3))),
            ("010101", Some((2, 0))),
            ("000101", Some((2, 3))),
            ("001001", Some((3, 0))),
            ("0100", None),
            ("0010", Some((3, 0))),
            ("1010", None),
            ("1101", None),
            ("000", None),
            ("", None),
        ] {
            assert_eq!(interval(&marks(text)), want, "{text}");
        }
        // every order that our settings can have is found again
        for every in 1..5 {
            for dense_first in 0..6 {
                let moe = MoeConfig {
                    every,
                    dense_first,
                    ..MoeConfig::default()
                };
                let at: Vec<bool> = (0..7).map(|layer| moe.is_at(layer)).collect();
                let found = interval(&at).map(|(every, dense_first)| MoeConfig {
                    every,
                    dense_first,
                    ..MoeConfig::default()
                });
                let found: Option<Vec<bool>> =
                    found.map(|moe| (0..7).map(|layer| moe.is_at(layer)).collect());
                assert_eq!(
                    found,
                    at.contains(&true).then_some(at),
                    "{every} {dense_first}"
                );
            }
        }
    }
}
