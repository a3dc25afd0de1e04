//! `[model.lora]`: low-rank adapters beside frozen linear layers (Hu et al. 2021, arXiv:2106.09685). `[finetune]` of a job fills
//! it in with `method = "lora"`.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Adapters: y = x W^T + scale (x A^T) B^T, with A `[rank, in]` and B `[out, rank]`. All other weights are frozen.
///
/// A packed layer (queries, keys and values; gate and up features) has one adapter, as NeMo's `linear_qkv` and `linear_fc1` have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoraConfig {
    /// Rows of A. Default: 8, PEFT's `r`.
    pub rank: usize,
    /// Numerator of the scale, PEFT's `lora_alpha`: scale = alpha / rank. Default: 8.
    pub alpha: f64,
    /// The scale is alpha / sqrt(rank) (rsLoRA: Kalajdzievski 2023, arXiv:2312.03732). PEFT's `use_rslora`. Default: false.
    pub rs_lora: bool,
    /// Probability with which an element of the adapters' input is dropped in training; the frozen layer reads all of it. PEFT's
    /// `lora_dropout`. Default: 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub dropout: f32,
    /// Linear layers that have adapters. Default: `qkv`, `out`, `fc1` and `fc2`, PEFT's `all-linear` without experts, their
    /// router and the gate of a shared expert (Qwen MoE), which has no adapter.
    pub targets: Vec<LoraTarget>,
}

/// Linear layers of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoraTarget {
    /// Queries, keys and values: PEFT's `q_proj`, `k_proj`, `v_proj`, or `c_attn`; of latent attention `q_a_proj`, `q_b_proj` (or
    /// `q_proj`), `kv_a_proj_with_mqa` and `kv_b_proj`.
    Qkv,
    /// The projection after attention: `o_proj`, or `attn.c_proj`.
    Out,
    /// The first matrix of the feed-forward layer, of shared experts too: `gate_proj` and `up_proj`, or `c_fc`.
    Fc1,
    /// The second one: `down_proj`, or `mlp.c_proj`.
    Fc2,
    /// Both matrices of each expert of a mixture, each with an adapter of its own: `w1`, `w3` and `w2`, or those of `experts.0`,
    /// `experts.1`, ...
    Experts,
    /// The router of a mixture: `gate`.
    Router,
    /// The matrix of the vocabulary behind the last block: `lm_head`.
    Head,
}

impl LoraTarget {
    /// All of them.
    pub const ALL: [LoraTarget; 7] = [
        LoraTarget::Qkv,
        LoraTarget::Out,
        LoraTarget::Fc1,
        LoraTarget::Fc2,
        LoraTarget::Experts,
        LoraTarget::Router,
        LoraTarget::Head,
    ];

    /// Those of a model without experts and head, which are the default.
    pub const DENSE: [LoraTarget; 4] = [
        LoraTarget::Qkv,
        LoraTarget::Out,
        LoraTarget::Fc1,
        LoraTarget::Fc2,
    ];
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &f32) -> bool {
    *number == 0.0
}

impl Default for LoraConfig {
    fn default() -> Self {
        LoraConfig {
            rank: 8,
            alpha: 8.0,
            rs_lora: false,
            dropout: 0.0,
            targets: LoraTarget::DENSE.to_vec(),
        }
    }
}

/// Layers of a model that only some models have.
#[derive(Clone, Copy)]
pub(crate) struct Adaptable {
    pub has_experts: bool,
    /// Some block's feed-forward layer is dense or has a shared expert.
    pub has_feed_forward: bool,
    /// The embedding is another matrix than the head's.
    pub has_own_head: bool,
}

/// Most rows of an adapter's matrices: as many as the widest layers have.
const MOST_RANK: usize = 1 << 16;

impl LoraConfig {
    /// Refuses targets that the model has no layer for.
    fn check_targets(&self, model: Adaptable, problem: Problem<'_>) {
        let has = |target: &LoraTarget| self.targets.contains(target);
        let of_mixture = [LoraTarget::Experts, LoraTarget::Router];
        if !model.has_experts && of_mixture.iter().any(has) {
            let wanted = "neither experts nor router: model.moe is absent";
            problem("targets", format!("{:?}", self.targets), wanted);
        }
        if !model.has_own_head && has(&LoraTarget::Head) {
            let wanted = "no head: tied embeddings share its matrix, which would change for every token that is read";
            problem("targets", format!("{:?}", self.targets), wanted);
        }
        let of_dense = [LoraTarget::Fc1, LoraTarget::Fc2];
        let is_of_dense = self.targets.iter().all(|target| of_dense.contains(target));
        if !self.targets.is_empty() && is_of_dense && !model.has_feed_forward {
            let wanted = "experts: no block has another feed-forward layer";
            problem("targets", format!("{:?}", self.targets), wanted);
        }
        if self.dropout > 0.0 && has(&LoraTarget::Experts) {
            let found = format!("{} with experts among targets", self.dropout);
            let wanted = "0: experts do not get the positions that a row's draws come from";
            problem("dropout", found, wanted);
        }
    }

    /// Factor of the adapters' output.
    pub(crate) fn scale(&self) -> f64 {
        let rank = self.rank.max(1) as f64;
        match self.rs_lora {
            true => self.alpha / rank.sqrt(),
            false => self.alpha / rank,
        }
    }

    /// Calls `problem` for every contradiction, among the settings and with the model's layers.
    pub(crate) fn check(&self, model: Adaptable, problem: Problem<'_>) {
        self.check_targets(model, problem);
        if self.rank == 0 {
            problem("rank", "0".into(), "at least 1");
        }
        if self.rank > MOST_RANK {
            let wanted = "at most 65536: an adapter of more rows than its layer adds nothing";
            problem("rank", self.rank.to_string(), wanted);
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            let found = self.alpha.to_string();
            problem("alpha", found, "a finite number above 0");
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let found = self.dropout.to_string();
            problem("dropout", found, "at least 0 and below 1");
        }
        let repeats =
            (1..self.targets.len()).any(|at| self.targets[..at].contains(&self.targets[at]));
        if self.targets.is_empty() || repeats {
            let found = format!("{:?}", self.targets);
            problem(
                "targets",
                found,
                "qkv, out, fc1, fc2, experts, router and head, each at most once, at least one",
            );
        }
    }
}
