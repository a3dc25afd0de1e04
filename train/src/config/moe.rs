//! The job's `[model.moe]` table: blocks whose feed-forward layer is a mixture of experts.
//! Papers: Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961 (load balance,
//! capacity); Zoph et al. 2022, arXiv:2202.08906 (z-loss); Jiang et al. 2024, arXiv:2401.04088 (Mixtral).
//!
//! We differ from Megatron in the scope of capacity and load balance: each sequence on its own, so that they depend
//! neither on the micro-batch nor on the ranks. `scope = "micro_batch"` is Megatron's.

use kernels::route;
use serde::{Deserialize, Serialize};

/// Maximum number of experts of a layer; their numbers stay exact in f32.
const MOST_EXPERTS: usize = 65_536;

/// How router logits become expert choices and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterScore {
    /// Softmax over all experts, then the k largest as they are (Switch, Qwen 1.5 MoE).
    SoftmaxTopK,
    /// The k largest logits, then softmax over them: the same as the k largest of a softmax
    /// divided by their sum (Mixtral).
    TopKSoftmax,
    /// Logistic function, the k largest; for k above 1 divided by their sum (DeepSeek-V3).
    Sigmoid,
}

/// Tokens that capacity and load balance are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterScope {
    /// Each sequence on its own.
    Sequence,
    /// The sequences of a micro-batch.
    MicroBatch,
}

/// Which choices are dropped when an expert is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropPolicy {
    /// Those of the last tokens.
    Position,
    /// Those with the smallest weights; of equal ones the later.
    Probability,
}

/// A mixture of experts in place of feed-forward layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MoeConfig {
    /// Experts of a layer. Default: 8, Mixtral.
    pub experts: usize,
    /// Experts per token. Default: 2, Mixtral.
    pub top_k: usize,
    /// Width of an expert; 0 means the model's `d_ffn`. Default: 0.
    pub d_ffn: usize,
    /// Interval of mixture layers: those whose number, counted from 1, is a multiple of it.
    /// Default: 1, all.
    pub every: usize,
    /// First layers that are dense in any case. Default: 0.
    pub dense_first: usize,
    /// Choices and weights. Default: `top_k_softmax`, Mixtral.
    pub score: RouterScore,
    /// Factor of the weights. Megatron's `moe_router_topk_scaling_factor`. Default: 1.
    pub scale: f32,
    /// Groups of neighbouring experts of which a token takes all of its own from the best (DeepSeek-V2, arXiv:2405.04434, sec.
    /// 2.2.2); a group is as good as its best expert or, with `score = "sigmoid"`, as the sum of its two best, `expert_bias`
    /// included (DeepSeek-V3). Megatron's `moe_router_num_groups`. Default: 1, no limit.
    pub num_groups: usize,
    /// Groups of a token. Megatron's `moe_router_group_topk`. Default: 1.
    pub group_topk: usize,
    /// Coefficient of the load balance loss `E sum_i f_i P_i`, which is 1 when even; summed over
    /// layers, mean over `scope`s. Default: 0.01.
    pub balance_loss: f64,
    /// Coefficient of the router's z-loss, the mean squared log-sum of its logits. Default: 0.
    pub z_loss: f64,
    /// Choose experts by score plus a bias per expert, which each step moves by `bias_update_rate` towards an even
    /// load; weights are made without it. Only with `score = "sigmoid"`. Megatron's
    /// `moe_router_enable_expert_bias`; Wang et al. 2024, arXiv:2408.15664. Default: false.
    pub expert_bias: bool,
    /// Change of an expert's selection bias per step: up if fewer tokens than the mean chose it, down if more.
    /// Megatron's `moe_router_bias_update_rate`. Default: 0.001.
    pub bias_update_rate: f32,
    /// Trained biases of the router's logits and of both matrices of each expert (gpt-oss); a shared expert has those of
    /// `model.bias`. Default: false.
    pub biases: bool,
    /// Scope of load balance and capacity. Default: `sequence`.
    pub scope: RouterScope,
    /// An expert takes at most ceil(factor * tokens * top_k / experts) choices of a scope in
    /// training; 0: all of them. Validation and inference never drop. Default: 0, dropless.
    pub capacity_factor: f64,
    /// Choices to drop when an expert is full. Default: `position`.
    pub drop: DropPolicy,
    /// Width of an expert that every token passes as well; 0: none. Default: 0.
    pub shared_d_ffn: usize,
    /// Multiply the shared expert's output by a learned logistic gate (Qwen MoE). Default: false.
    pub shared_gate: bool,
}

impl Default for MoeConfig {
    fn default() -> Self {
        MoeConfig {
            experts: 8,
            top_k: 2,
            d_ffn: 0,
            every: 1,
            dense_first: 0,
            score: RouterScore::TopKSoftmax,
            scale: 1.0,
            num_groups: 1,
            group_topk: 1,
            balance_loss: 0.01,
            z_loss: 0.0,
            expert_bias: false,
            bias_update_rate: 1e-3,
            biases: false,
            scope: RouterScope::Sequence,
            capacity_factor: 0.0,
            drop: DropPolicy::Position,
            shared_d_ffn: 0,
            shared_gate: false,
        }
    }
}

impl MoeConfig {
    /// True if layer `layer`, counted from 0, is a mixture.
    pub fn is_at(&self, layer: usize) -> bool {
        layer >= self.dense_first && (layer + 1).is_multiple_of(self.every.max(1))
    }

    /// The kernel's rule.
    pub(crate) fn router(&self) -> route::Router {
        route::Router {
            k: self.top_k,
            groups: (self.num_groups > 1).then_some(route::Groups {
                count: self.num_groups,
                kept: self.group_topk,
            }),
            score: match self.score {
                RouterScore::SoftmaxTopK => route::Score::SoftmaxTopK,
                RouterScore::TopKSoftmax => route::Score::TopKSoftmax,
                RouterScore::Sigmoid => route::Score::Sigmoid,
            },
            scale: self.scale,
        }
    }

    /// Contradictions among groups of experts.
    fn check_groups(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let (groups, kept, experts) = (self.num_groups, self.group_topk, self.experts);
        if groups == 0 || groups > route::MOST_GROUPS || !experts.is_multiple_of(groups) {
            let found = format!("{groups} with experts = {experts}");
            let wanted = format!("a divisor of experts, at most {}", route::MOST_GROUPS);
            return problem("num_groups", found, &wanted);
        }
        let held = kept.saturating_mul(experts / groups);
        if kept == 0 || kept > groups || held < self.top_k.min(experts) {
            let found = format!("{kept} with num_groups = {groups}, top_k = {}", self.top_k);
            let wanted = "1 to num_groups, of which the experts are top_k or more";
            problem("group_topk", found, wanted);
        }
    }

    /// Calls `problem` for every contradiction within this table.
    pub(crate) fn check(&self, layers: usize, problem: &mut dyn FnMut(&str, String, &str)) {
        for (key, value) in [
            ("experts", self.experts),
            ("top_k", self.top_k),
            ("every", self.every),
        ] {
            if value == 0 {
                problem(key, "0".into(), "at least 1");
            }
        }
        if self.experts > MOST_EXPERTS {
            let wanted = format!("at most {MOST_EXPERTS}");
            problem("experts", self.experts.to_string(), &wanted);
        }
        if self.top_k > self.experts {
            let found = format!("{} with experts = {}", self.top_k, self.experts);
            let wanted = format!("at most experts; nearest {}", self.experts.max(1));
            problem("top_k", found, &wanted);
        }
        self.check_groups(problem);
        let last = layers - layers.checked_rem(self.every).unwrap_or(0);
        if last <= self.dense_first {
            let (every, first) = (self.every, self.dense_first);
            let found = format!("{every} with dense_first = {first}, layers = {layers}");
            problem("every", found, "at least one layer with experts");
        }
        if !(self.scale.is_finite() && self.scale > 0.0) {
            problem("scale", self.scale.to_string(), "a finite number above 0");
        }
        for (key, value) in [("balance_loss", self.balance_loss), ("z_loss", self.z_loss)] {
            if !(value.is_finite() && value >= 0.0) {
                problem(key, value.to_string(), "a finite number, 0 or more");
            }
        }
        if self.expert_bias && self.score != RouterScore::Sigmoid {
            let wanted = "false, or score = \"sigmoid\": a bias is added to sigmoid scores only";
            problem("expert_bias", "true with a softmax score".into(), wanted);
        }
        if !(self.bias_update_rate.is_finite() && self.bias_update_rate >= 0.0) {
            let found = self.bias_update_rate.to_string();
            problem("bias_update_rate", found, "a finite number, 0 or more");
        }
        let factor = self.capacity_factor;
        if factor != 0.0 && !(factor.is_finite() && factor >= 1.0) {
            let wanted = "0 for no limit, or at least 1: below it choices are dropped even when \
                          they are even";
            problem("capacity_factor", factor.to_string(), wanted);
        }
        if self.shared_gate && self.shared_d_ffn == 0 {
            let found = "true with shared_d_ffn = 0".into();
            problem("shared_gate", found, "false, or shared_d_ffn above 0");
        }
        if self.score == RouterScore::TopKSoftmax && self.top_k == 1 && self.experts > 1 {
            let found = "top_k_softmax with top_k = 1".into();
            let wanted = "softmax_top_k or sigmoid: the weight of one of one is always 1";
            problem("score", found, wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(moe: &MoeConfig) -> Vec<String> {
        let mut found = Vec::new();
        moe.check(4, &mut |key, _, _| found.push(key.to_owned()));
        found
    }

    #[test]
    fn layers_with_experts_are_those_that_every_divides_after_the_dense_ones() {
        let at = |every, dense_first| -> Vec<usize> {
            let moe = MoeConfig {
                every,
                dense_first,
                ..MoeConfig::default()
            };
            (0..6).filter(|&layer| moe.is_at(layer)).collect()
        };
        assert_eq!(at(1, 0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(at(2, 0), [1, 3, 5]);
        assert_eq!(at(2, 2), [3, 5]);
        assert_eq!(at(1, 1), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn every_contradiction_is_told_at_once() {
        assert!(problems(&MoeConfig::default()).is_empty());
        let bad = MoeConfig {
            experts: 2,
            top_k: 3,
            dense_first: 4,
            scale: f32::NAN,
            num_groups: 3,
            balance_loss: -1.0,
            z_loss: f64::INFINITY,
            expert_bias: true,
            bias_update_rate: -1.0,
            capacity_factor: 0.5,
            shared_gate: true,
            ..MoeConfig::default()
        };
        let keys = [
            "top_k",
            "num_groups",
            "every",
            "scale",
            "balance_loss",
            "z_loss",
            "expert_bias",
            "bias_update_rate",
            "capacity_factor",
            "shared_gate",
        ];
        assert_eq!(problems(&bad), keys);
        for (group_topk, top_k) in [(0, 2), (5, 2), (1, 3)] {
            let few = MoeConfig {
                num_groups: 4,
                group_topk,
                top_k,
                ..MoeConfig::default()
            };
            assert_eq!(problems(&few), ["group_topk"]);
        }
        let one = MoeConfig {
            top_k: 1,
            ..MoeConfig::default()
        };
        assert_eq!(problems(&one), ["score"]);
    }
}
