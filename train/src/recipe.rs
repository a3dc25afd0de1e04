//! The job's `[train]` table: optimizer, schedule, and what is kept and told on the way.

use serde::{Deserialize, Serialize};

/// What the backward pass computes again instead of keeping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Nothing.
    None,
    /// Attention between the projections: softmax and mixed values (Korthikanti et al. 2022).
    Selective,
    /// Whole layers, from their input.
    Full,
}

/// Shape of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Half a cosine from `lr` to `min_lr`.
    Cosine,
    /// A straight line from `lr` to `min_lr`.
    Linear,
    /// `lr` to the end.
    Constant,
}

/// Number format of weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// IEEE single precision throughout.
    F32,
}

/// When checkpoints are written and how many stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; 0: only after the last step. Default: 100.
    pub every: u64,
    /// Newest checkpoints kept, at least 1. Default: 2, so that a damaged one has a predecessor.
    pub keep: usize,
    /// Checkpoints of steps that are multiples of this are never dropped; 0: none. Default: 0.
    pub keep_every: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            every: 100,
            keep: 2,
            keep_every: 0,
        }
    }
}

/// Optimisation and bookkeeping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimizer steps in all. Default: 1000.
    pub steps: u64,
    /// Tokens see their own document alone; documents end with the end-of-document token.
    /// Megatron's name. Default: false.
    pub reset_attention_mask: bool,
    /// Positions count from the start of each document. Megatron's name. Default: false.
    pub reset_position_ids: bool,
    /// The token after an end of document does not count in the loss. Megatron's name.
    /// Default: false.
    pub eod_mask_loss: bool,
    /// Sequences per step over all ranks. Default: 32.
    pub global_batch: usize,
    /// Sequences a rank works on at once. In layout mode one that is no power of two is worked on
    /// in aligned power-of-two parts. Default: 4.
    pub micro_batch: usize,
    /// Peak learning rate. Default: 6e-4, GPT-3 small.
    pub lr: f64,
    /// Learning rate at the end. Default: 6e-5, a tenth of the peak.
    pub min_lr: f64,
    /// Steps of linear warm-up from 0. Default: 100.
    pub warmup_steps: u64,
    /// Shape after warm-up. Default: `cosine`.
    pub schedule: Schedule,
    /// Decoupled weight decay of matrices; norms and biases have none. Default: 0.1, GPT-3.
    pub weight_decay: f32,
    /// AdamW's decay of the first moment. Default: 0.9.
    pub beta1: f32,
    /// AdamW's decay of the second moment. Default: 0.95, GPT-3.
    pub beta2: f32,
    /// Added to AdamW's denominator. Default: 1e-8.
    pub eps: f32,
    /// Largest L2 norm of the whole gradient; 0: no clipping. Default: 1.0, GPT-3.
    pub clip_norm: f64,
    /// What backward computes again. Default: `none`.
    pub recompute: Recompute,
    /// Layers of each pipeline rank that do so, its first ones; one number for all ranks or one per
    /// rank. Empty: all layers.
    pub recompute_layers: Vec<usize>,
    /// Number format. Default: `f32`.
    pub precision: Precision,
    /// Steps between validations, which also follow the last step; 0: none. Default: 100.
    pub eval_every: u64,
    /// Validation sequences, the first of the set; fewer if it holds fewer. Default: 64.
    pub eval_samples: u64,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Steps between reports to `Events::step`; metrics.jsonl has every step. Default: 1.
    pub log_every: u64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            steps: 1000,
            reset_attention_mask: false,
            reset_position_ids: false,
            eod_mask_loss: false,
            global_batch: 32,
            micro_batch: 4,
            lr: 6e-4,
            min_lr: 6e-5,
            warmup_steps: 100,
            schedule: Schedule::Cosine,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            clip_norm: 1.0,
            recompute: Recompute::None,
            recompute_layers: Vec::new(),
            precision: Precision::F32,
            eval_every: 100,
            eval_samples: 64,
            checkpoint: CheckpointConfig::default(),
            log_every: 1,
        }
    }
}

impl TrainConfig {
    /// What layer `index` of a pipeline rank (counted from 0 over its pieces) recomputes.
    pub(crate) fn recompute_of(&self, pp_rank: usize, index: usize) -> Recompute {
        let layers = match self.recompute_layers.as_slice() {
            [] => usize::MAX,
            [one] => *one,
            each => each.get(pp_rank).copied().unwrap_or(0),
        };
        if index < layers {
            self.recompute
        } else {
            Recompute::None
        }
    }

    /// Calls `problem` for every contradiction within this table.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let counts = [
            ("steps", self.steps),
            ("global_batch", self.global_batch as u64),
            ("micro_batch", self.micro_batch as u64),
            ("checkpoint.keep", self.checkpoint.keep as u64),
            ("log_every", self.log_every),
        ];
        for (key, value) in counts {
            if value == 0 {
                problem(key, "0".into(), "at least 1");
            }
        }
        if self.warmup_steps > self.steps {
            let found = format!("{} with steps = {}", self.warmup_steps, self.steps);
            problem("warmup_steps", found, "at most steps");
        }
        if !(self.lr.is_finite() && self.lr > 0.0) {
            problem("lr", self.lr.to_string(), "a finite number above 0");
        }
        if !(self.min_lr >= 0.0 && self.min_lr <= self.lr) {
            let found = format!("{} with lr = {}", self.min_lr, self.lr);
            problem("min_lr", found, "from 0 to lr");
        }
        for (key, value) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&value) {
                problem(key, value.to_string(), "from 0 to below 1");
            }
        }
        if !(self.eps.is_finite() && self.eps > 0.0) {
            problem("eps", self.eps.to_string(), "a finite number above 0");
        }
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            problem(
                "weight_decay",
                self.weight_decay.to_string(),
                "a finite number, 0 or more",
            );
        }
        if !(self.clip_norm.is_finite() && self.clip_norm >= 0.0) {
            problem(
                "clip_norm",
                self.clip_norm.to_string(),
                "a finite number, 0 or more",
            );
        }
        if self.eval_every > 0 && self.eval_samples == 0 {
            problem("eval_samples", "0".into(), "at least 1, or eval_every = 0");
        }
    }
}
