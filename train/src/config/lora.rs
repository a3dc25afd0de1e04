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
    /// Linear layers of each block that have adapters. Default: all of them, PEFT's `all-linear`.
    pub targets: Vec<LoraTarget>,
}

/// A linear layer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoraTarget {
    /// Queries, keys and values: PEFT's `q_proj`, `k_proj`, `v_proj`, or `c_attn`.
    Qkv,
    /// The projection after attention: `o_proj`, or `attn.c_proj`.
    Out,
    /// The first matrix of the feed-forward layer: `gate_proj` and `up_proj`, or `c_fc`.
    Fc1,
    /// The second one: `down_proj`, or `mlp.c_proj`.
    Fc2,
}

impl LoraTarget {
    /// All of them.
    pub const ALL: [LoraTarget; 4] = [
        LoraTarget::Qkv,
        LoraTarget::Out,
        LoraTarget::Fc1,
        LoraTarget::Fc2,
    ];

    /// The target that a layer of this name is, if it is one.
    pub(crate) fn of_layer(name: &str) -> Option<LoraTarget> {
        let last = name.rsplit('.').next()?;
        let mut all = LoraTarget::ALL.into_iter();
        all.find(|target| target.layer() == last)
    }

    /// Whether tensor parallelism splits its outputs; else its inputs.
    pub(crate) fn is_column(self) -> bool {
        match self {
            LoraTarget::Qkv | LoraTarget::Fc1 => true,
            LoraTarget::Out | LoraTarget::Fc2 => false,
        }
    }

    /// Last part of the layer's name.
    pub(crate) fn layer(self) -> &'static str {
        match self {
            LoraTarget::Qkv => "qkv",
            LoraTarget::Out => "out",
            LoraTarget::Fc1 => "fc1",
            LoraTarget::Fc2 => "fc2",
        }
    }
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
            targets: LoraTarget::ALL.to_vec(),
        }
    }
}

impl LoraConfig {
    /// Factor of the adapters' output.
    pub(crate) fn scale(&self) -> f64 {
        let rank = self.rank.max(1) as f64;
        match self.rs_lora {
            true => self.alpha / rank.sqrt(),
            false => self.alpha / rank,
        }
    }

    pub(crate) fn check(&self, problem: Problem<'_>) {
        if self.rank == 0 {
            problem("rank", "0".into(), "at least 1");
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
                "qkv, out, fc1 and fc2, each at most once, at least one",
            );
        }
    }
}
