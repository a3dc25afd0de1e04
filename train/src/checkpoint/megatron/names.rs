//! Names, dims and order of elements of a GPT's tensors in Megatron-Core, dense or with mixtures of experts.
//!
//! Layers' tensors are stacked, `[layers, ..]`, under `decoder.layers.*`; a model whose layers differ has them one by one under
//! `decoder.layers.N.*`. Experts are stacked within a layer, `[experts, out, in]` under `mlp.experts.experts.*`, whichever class computed
//! them: SequentialMLP, GroupedMLP (whose own matrices are transposed) and TEGroupedMLP write the same. Rows of queries, keys and values
//! are packed per group as ours; gates come before ups; row-parallel matrices are `[out, in]`, ours `[in, out]`. Source: the
//! `sharded_state_dict` methods of megatron-core 0.16.1, and what it wrote (tests/oracles/megatron_dist.py, megatron_dist_mixture.py).

use crate::checkpoint::huggingface::pair::{Own, Pair, Rows};
use crate::config::architecture::Positions;
use crate::config::moe::MoeConfig;
use crate::config::plan::Plan;
use crate::config::{Biases, NormKind};

/// Beginning of the names of layers' tensors.
pub(super) const LAYERS: &str = "decoder.layers.";

/// Names that a norm has where it is not fused with the layer behind it.
const APART: [(&str, &str); 2] = [
    ("self_attention.linear_qkv.layer_norm_", "input_layernorm."),
    ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."),
];

/// The names under which a tensor of `pairs` may be stored.
pub(super) fn alternatives(name: &str) -> Vec<String> {
    let other = APART.iter().find(|(fused, _)| name.contains(fused));
    let other = other.map(|(fused, apart)| name.replace(fused, apart));
    [name.to_owned()].into_iter().chain(other).collect()
}

/// Whether Megatron stacks the layers of this model: all are alike.
pub(super) fn is_stacked(plan: &Plan) -> bool {
    let moe = plan.model.moe.as_ref();
    moe.is_none_or(|moe| moe.every == 1 && moe.dense_first == 0)
}

/// All tensors of a GPT of this plan. The norm before a mixture has two names, that of local layers and, as a copy, that of
/// TransformerEngine's.
pub(super) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (s, d, made) = (plan.shape(), plan.model.d_model, plan.model.architecture());
    let kinds: &[&str] = match made.norm {
        NormKind::Layer => &["weight", "bias"],
        NormKind::Rms => &["weight"],
    };
    let same =
        |theirs: &str, ours: &str, dims: &[usize]| Pair::of(theirs.into(), ours.into(), dims);
    let mut pairs = vec![same(
        "embedding.word_embeddings.weight",
        "embedding.weight",
        &[plan.vocab, d],
    )];
    if made.positions == Positions::Learned {
        let theirs = "embedding.position_embeddings.weight";
        pairs.push(same(theirs, "position.weight", &[plan.position_rows(), d]));
    }
    let width = s.heads * s.d_head;
    for layer in 0..plan.model.layers {
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            let theirs = format!("{LAYERS}{layer}.{theirs}");
            Pair::of(theirs, format!("layers.{layer}.{ours}"), dims)
        };
        let moe = plan.model.moe_at(layer);
        for kind in kinds {
            let [first, second] = APART.map(|(fused, _)| format!("{fused}{kind}"));
            let ours = format!("norm2.{kind}");
            pairs.push(own(&first, &format!("norm1.{kind}"), &[d]));
            pairs.push(own(&second, &ours, &[d]));
            if moe.is_some() {
                let [_, (_, apart)] = APART;
                pairs.push(own(&format!("{apart}{kind}"), &ours, &[d]).copy());
            }
        }
        pairs.extend([
            own(
                "self_attention.linear_qkv.weight",
                "qkv.weight",
                &[s.packed, d],
            ),
            own(
                "self_attention.linear_proj.weight",
                "out.weight",
                &[width, d],
            )
            .transposed(),
        ]);
        let dense = Mlp {
            theirs: "mlp",
            ours: String::new(),
            f: s.d_ffn,
        };
        match moe {
            None => pairs.extend(dense.weights(plan, &own)),
            Some(moe) => add_mixture(&mut pairs, plan, moe, &own),
        }
        if made.biases != Biases::None {
            pairs.push(own(
                "self_attention.linear_qkv.bias",
                "qkv.bias",
                &[s.packed],
            ));
        }
        if made.biases == Biases::All {
            pairs.push(own("self_attention.linear_proj.bias", "out.bias", &[d]));
            if moe.is_none() {
                pairs.extend(dense.biases(plan, &own));
            }
        }
        if made.qk_norm {
            for (theirs, ours) in [("q_layernorm", "q_norm"), ("k_layernorm", "k_norm")] {
                let theirs = format!("self_attention.{theirs}.weight");
                pairs.push(own(&theirs, &format!("{ours}.weight"), &[s.d_head]));
            }
        }
    }
    for kind in kinds {
        let theirs = format!("decoder.final_layernorm.{kind}");
        pairs.push(same(&theirs, &format!("norm.{kind}"), &[d]));
    }
    if !plan.model.is_tied() {
        pairs.push(same("output_layer.weight", "head.weight", &[plan.vocab, d]));
    }
    pairs
}

/// A feed-forward layer within a layer.
struct Mlp<'a> {
    theirs: &'a str,
    /// Beginning of our names.
    ours: String,
    /// Its inner width.
    f: usize,
}

impl Mlp<'_> {
    /// `[widths * f, d]` and `[d, f]`.
    fn weights(&self, plan: &Plan, own: Own<'_>) -> [Pair; 2] {
        let (d, rows) = (plan.model.d_model, self.rows(plan));
        [
            self.gated(plan, self.pair(own, "fc1", "weight", &[rows, d])),
            self.pair(own, "fc2", "weight", &[self.f, d]).transposed(),
        ]
    }

    /// Those of their rows.
    fn biases(&self, plan: &Plan, own: Own<'_>) -> [Pair; 2] {
        let (d, rows) = (plan.model.d_model, self.rows(plan));
        [
            self.gated(plan, self.pair(own, "fc1", "bias", &[rows])),
            self.pair(own, "fc2", "bias", &[d]),
        ]
    }

    fn rows(&self, plan: &Plan) -> usize {
        plan.model.architecture().fc1_widths() * self.f
    }

    fn pair(&self, own: Own<'_>, layer: &str, kind: &str, dims: &[usize]) -> Pair {
        let theirs = format!("{}.linear_{layer}.{kind}", self.theirs);
        own(&theirs, &format!("{}{layer}.{kind}", self.ours), dims)
    }

    fn gated(&self, plan: &Plan, fc1: Pair) -> Pair {
        match plan.model.architecture().activation.is_gated() {
            true => fc1.rows(Rows::Gated(self.f), 0),
            false => fc1,
        }
    }
}

/// Router, experts and shared expert of a layer.
fn add_mixture(pairs: &mut Vec<Pair>, plan: &Plan, moe: &MoeConfig, own: Own<'_>) {
    let (d, experts) = (plan.model.d_model, moe.experts);
    pairs.push(own("mlp.router.weight", "router.weight", &[experts, d]));
    if moe.expert_bias {
        pairs.push(own(EXPERT_BIAS, "router.bias", &[experts]));
    }
    if moe.biases {
        pairs.push(own("mlp.router.bias", "router.logit_bias", &[experts]));
    }
    for expert in 0..experts {
        let mlp = Mlp {
            theirs: "mlp.experts.experts",
            ours: format!("experts.{expert}."),
            f: plan.model.d_expert(),
        };
        let biases = moe.biases.then(|| mlp.biases(plan, own));
        let all = mlp.weights(plan, own).into_iter();
        let all = all.chain(biases.into_iter().flatten());
        pairs.extend(all.map(|pair| pair.part_of(expert, experts)));
    }
    if moe.shared_d_ffn > 0 {
        let mlp = Mlp {
            theirs: "mlp.shared_experts",
            ours: "shared.".into(),
            f: moe.shared_d_ffn,
        };
        pairs.extend(mlp.weights(plan, own));
    }
    if moe.shared_gate {
        let theirs = "mlp.shared_experts.gate_weight";
        pairs.push(own(theirs, "shared_gate.weight", &[1, d]));
    }
}

/// The router's selection bias, which Megatron keeps in f32 in models of 16 bits, too.
pub(super) const EXPERT_BIAS: &str = "mlp.router.expert_bias";

/// The layers that have a module.
#[derive(Clone, Copy)]
enum Holder {
    Every,
    /// Layers whose norms of queries and keys are tensors.
    QkNorm,
    Dense,
    Mixture,
    /// Mixtures with a shared expert.
    Shared,
    /// Each expert of a mixture.
    Experts,
}

/// Modules of a layer that have an entry beside their weights: the local and TransformerEngine's.
const STATEFUL: [(&str, Holder); 12] = [
    ("self_attention.linear_qkv", Holder::Every),
    ("self_attention.linear_proj", Holder::Every),
    ("self_attention.core_attention", Holder::Every),
    ("mlp.linear_fc1", Holder::Dense),
    ("mlp.linear_fc2", Holder::Dense),
    ("self_attention.q_layernorm", Holder::QkNorm),
    ("self_attention.k_layernorm", Holder::QkNorm),
    ("pre_mlp_layernorm", Holder::Mixture),
    ("mlp.shared_experts.linear_fc1", Holder::Shared),
    ("mlp.shared_experts.linear_fc2", Holder::Shared),
    ("mlp.experts.experts.linear_fc1", Holder::Experts),
    ("mlp.experts.experts.linear_fc2", Holder::Experts),
];

/// Names of the entries beside weights.
pub(super) fn stateful(plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for (module, holder) in STATEFUL {
        for layer in 0..plan.model.layers {
            let moe = plan.model.moe_at(layer);
            let has_it = match holder {
                Holder::Every => true,
                Holder::QkNorm => plan.model.architecture().qk_norm,
                Holder::Dense => moe.is_none(),
                Holder::Mixture | Holder::Experts => moe.is_some(),
                Holder::Shared => moe.is_some_and(|moe| moe.shared_d_ffn > 0),
            };
            if !has_it {
                continue;
            }
            let is_of_experts = matches!(holder, Holder::Experts);
            let experts = moe.filter(|_| is_of_experts).map(|moe| moe.experts);
            let module = match is_stacked(plan) {
                true => format!("{LAYERS}{module}"),
                false => format!("{LAYERS}{layer}.{module}"),
            };
            let layers = is_stacked(plan).then_some((layer, plan.model.layers));
            match experts {
                None => names.push(state_name(&module, layers.into_iter())),
                Some(experts) => names.extend((0..experts).map(|expert| {
                    state_name(&module, layers.into_iter().chain([(expert, experts)]))
                })),
            }
        }
    }
    names.push("decoder.final_layernorm._extra_state/shard_0_1".into());
    names
}

/// Name of a module's state: its place, and the count of places, in each stack that it is in.
fn state_name(module: &str, stacks: impl Iterator<Item = (usize, usize)>) -> String {
    let (at, of): (Vec<String>, Vec<String>) = stacks
        .map(|(at, of)| (at.to_string(), of.to_string()))
        .unzip();
    match at.is_empty() {
        true => format!("{module}._extra_state/shard_0_1"),
        false => format!(
            "{module}._extra_state/shard_{}_{}",
            at.join("."),
            of.join(".")
        ),
    }
}
