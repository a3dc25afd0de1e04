//! The job's `[train]` table: optimizer, schedule, checkpoints and logging.

use serde::{Deserialize, Serialize};

use crate::config::Problem;
use crate::config::eval_tasks::EvalTasks;
use crate::config::loss_mean::LossMean;
use crate::config::loss_scale::LossScaleConfig;
use crate::config::offload::Offload;
use crate::config::precision::Bf16Sums;
use crate::config::precision::Fp8Config;
use crate::config::precision::Precision;
use crate::config::preference::PreferenceConfig;
use crate::config::profile::Profile;
use crate::config::resume::{DATA, ON_REQUEST};

/// Activation recomputation: the tensors that the backward pass recomputes instead of keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Recompute nothing.
    None,
    /// Recompute attention between the projections: softmax and mixed values (Korthikanti et al. 2022).
    Selective,
    /// Recompute whole layers from their input.
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
    /// `lr`, and over the last `wsd_decay_steps` down to `min_lr` (warm-up, stable, decay: Hu et al.
    /// 2024, arXiv:2404.06395).
    Wsd,
    /// `lr sqrt(warmup_steps / step)`, not below `min_lr` (Vaswani et al. 2017, arXiv:1706.03762).
    InverseSquareRoot,
}

/// Shape of the decay of `wsd`; x runs from 0 to 1 over it. Megatron's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WsdDecay {
    /// 1 - x.
    Linear,
    /// Half a cosine.
    Cosine,
    /// 2 * 0.5^x - 1.
    Exponential,
    /// 1 - sqrt(x).
    MinusSqrt,
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// AdamW for everything.
    Adamw,
    /// Muon for the blocks' matrices, AdamW for embeddings, head, norms, biases and routers.
    Muon,
}

/// Constants of Muon. Its learning rate and decay are those of AdamW: updates are scaled by
/// 0.2 sqrt(larger side), so that they are of AdamW's size (Liu et al. 2025, arXiv:2502.16982).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MuonConfig {
    /// Decay of the momentum. Default: 0.95.
    pub momentum: f32,
    /// Newton-Schulz iterations that orthogonalize the direction. Default: 5.
    pub iterations: usize,
}

impl Default for MuonConfig {
    fn default() -> Self {
        MuonConfig {
            momentum: 0.95,
            iterations: 5,
        }
    }
}

/// A global batch that grows in equal steps, as Megatron's `rampup-batch-size`. The learning rate
/// still follows the number of steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRampup {
    /// Sequences of the first step.
    pub start: usize,
    /// Sequences by which the batch grows at a time.
    pub increment: usize,
    /// Samples over which it grows to `global_batch`.
    pub samples: u64,
}

/// Reaction to a step whose loss or gradient is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadStepAction {
    /// The run ends by an error.
    Stop,
    /// Weights stay as they are; the step's samples are used up.
    Skip,
}

/// Handling of bad steps (loss or gradient norm not finite or far too large). The batch is written to `bad_steps/`
/// either way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnBadStep {
    /// Default: `stop`.
    pub action: BadStepAction,
    /// A loss or gradient norm above this many times the median of the last good steps is bad too; 0: only values
    /// that are not finite. Default: 0.
    pub factor: f64,
    /// Good steps that the median covers; until there are that many, `factor` has no effect. Default: 64.
    pub window: usize,
    /// Skipped steps in a row after which the run ends by an error. Default: 8.
    pub limit: u64,
}

impl Default for OnBadStep {
    fn default() -> Self {
        OnBadStep {
            action: BadStepAction::Stop,
            factor: 0.0,
            window: 64,
            limit: 8,
        }
    }
}

/// End of a run whose validation loss has stopped falling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EarlyStop {
    /// Validations in a row without a lower loss after which the run ends; 0: never. Default: 0.
    pub patience: u64,
    /// Minimum improvement of the loss, nats. Default: 0.
    pub min_delta: f64,
    /// Name of the validation set. Default: `valid`, the blend's.
    pub set: String,
}

impl Default for EarlyStop {
    fn default() -> Self {
        EarlyStop {
            patience: 0,
            min_delta: 0.0,
            set: "valid".into(),
        }
    }
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
    /// Every rank writes its own shards to files concurrently; otherwise one writer joins tensors into whole files,
    /// whose bytes are the same for every layout. Any layout can resume from either. Default: false.
    pub sharded: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            every: 100,
            keep: 2,
            keep_every: 0,
            sharded: false,
        }
    }
}

/// How a run resumes from a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeConfig {
    /// Keys of `[train]` that may differ from the checkpoint's from the next step on, such as `["lr", "steps"]`:
    /// learning rate, schedule, steps, the optimizer's constants; and `data`, other samples or another order of them. Weights,
    /// moments and the position in the data stay: after n samples of the old order the new one goes on with its sample n, counted
    /// from 0. Every change is reported, in `metrics.jsonl` and in later checkpoints. Default: none.
    pub allow: Vec<String>,
    /// A checkpoint of another run with its optimizer's state, or a folder of checkpoints, to resume from while
    /// this run has none of its own: a branch, such as the decay of `wsd`. Empty: none. Default: empty.
    pub from: String,
}

impl ResumeConfig {
    /// Whether another order of samples may follow.
    #[must_use]
    pub fn allows_data(&self) -> bool {
        self.allows(DATA)
    }

    /// Whether a key of `[train]` may change.
    pub(crate) fn allows(&self, key: &str) -> bool {
        self.allow.iter().any(|allowed| allowed == key)
    }

    fn is_default(&self) -> bool {
        *self == ResumeConfig::default()
    }

    fn check(&self, problem: Problem<'_>) {
        let unknown = self.allow.iter();
        let is_known = |key: &str| key == DATA || ON_REQUEST.contains(&key);
        for key in unknown.filter(|key| !is_known(key)) {
            let wanted = format!("keys of [train] among {}, or {DATA}", ON_REQUEST.join(", "));
            problem("resume.allow", format!("{key:?}"), &wanted);
        }
    }
}

/// Optimisation and bookkeeping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimizer steps in all; with a `time_budget` an upper limit. Default: 1000.
    pub steps: u64,
    /// Checkpoint (of any step, or `ema.safetensors` in one), or a Hugging Face or Megatron folder, whose weights
    /// the run starts from at step 0; a run that has its own checkpoints resumes from those. Empty: weights drawn
    /// from the seed. Default: empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub init_from: String,
    /// Wall-clock time of all runs of the job together, such as `24h`, `90m` or `1h30m`; empty: no
    /// limit. The schedule then runs by the share of time used, or of steps where that is more, so
    /// bits depend on the machine (Izsak et al. 2021, arXiv:2104.07705). Default: empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub time_budget: String,
    /// Tokens attend only to their own document; documents end with the end-of-document token.
    /// Megatron's name. Default: false.
    pub reset_attention_mask: bool,
    /// Positions count from the start of each document. Megatron's name. Default: false.
    pub reset_position_ids: bool,
    /// The token after an end of document does not count in the loss. Megatron's name.
    /// Default: false.
    pub eod_mask_loss: bool,
    /// The mean that the loss is: `token`, over all predictions of the batch that count; `text`, over its texts, of each of
    /// which it is the mean over its own. Only decoders know `text`. Default: token.
    #[serde(skip_serializing_if = "LossMean::is_token")]
    pub loss_mean: LossMean,
    /// Learning from pairs of a chosen and a rejected answer. `[finetune]` fills it in with `method = "dpo"`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceConfig>,
    /// Sequences per step over all ranks. Default: 32.
    pub global_batch: usize,
    /// Growth of the batch from a smaller one. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_rampup: Option<BatchRampup>,
    /// Sequences per micro-batch. In layout mode, a size that is not a power of two is split into aligned
    /// power-of-two parts. Default: 4.
    pub micro_batch: usize,
    /// Peak learning rate. Default: 6e-4, GPT-3 small.
    pub lr: f64,
    /// Learning rate at the end. Default: 6e-5, a tenth of the peak.
    pub min_lr: f64,
    /// Steps of linear warm-up from 0. Default: 100.
    pub warmup_steps: u64,
    /// Shape after warm-up. Default: `cosine`.
    pub schedule: Schedule,
    /// Step at which `cosine`, `linear` and `wsd` reach `min_lr`, which stays from there on; 0:
    /// `steps`. Default: 0.
    pub decay_steps: u64,
    /// Steps of the decay of `wsd`, which ends at `decay_steps`; 0: a tenth of them. Default: 0.
    pub wsd_decay_steps: u64,
    /// Shape of the decay of `wsd`. Default: `linear`.
    pub wsd_decay: WsdDecay,
    /// Default: `adamw`.
    pub optimizer: OptimizerKind,
    /// Constants of `optimizer = "muon"`.
    pub muon: MuonConfig,
    /// Decay per step of an exponential moving average of the weights, kept for evaluation and export; 0: none.
    /// Default: 0.
    pub ema_decay: f32,
    /// Decoupled weight decay of matrices; norms and biases have none. Default: 0.1, GPT-3.
    pub weight_decay: f32,
    /// AdamW's decay of the first moment. Default: 0.9.
    pub beta1: f32,
    /// AdamW's decay of the second moment. Default: 0.95, GPT-3.
    pub beta2: f32,
    /// Added to AdamW's denominator. Default: 1e-8.
    pub eps: f32,
    /// Coefficient of the z-loss, which is added to the training loss and reported separately: this times the mean
    /// of (ln sum exp of the logits)^2. PaLM: 1e-4. Default: 0.
    pub z_loss: f64,
    /// Largest L2 norm of the whole gradient; 0: no clipping. Default: 1.0, GPT-3.
    pub clip_norm: f64,
    /// Steps with a loss or gradient that is not finite or far above the usual.
    pub on_bad_step: OnBadStep,
    /// Activation recomputation in the backward pass. Default: `none`.
    pub recompute: Recompute,
    /// Number of layers to recompute, the first ones of each pipeline rank; one number for all ranks or one per
    /// rank. Empty: all layers.
    pub recompute_layers: Vec<usize>,
    /// Computes logits and cross entropy one eighth of the vocabulary at a time, so that the logits of all ids are
    /// never in memory at once nor kept for the backward pass. The cost: one more product with the head's matrix
    /// beside three, as the backward pass computes the logits again. With `determinism = "layout"` no bits change;
    /// otherwise sums over the vocabulary are made in another order. Default: `false`.
    pub chunked_cross_entropy: bool,
    /// Activations that are offloaded to a file until their backward pass.
    pub offload: Offload,
    /// Number format of the operands of products. Default: `f32`.
    pub precision: Precision,
    /// Order of summation in bf16 products of linear layers, experts and attention. Default: `auto`.
    pub bf16_sums: Bf16Sums,
    /// With sums in tiles, keeps weights packed for them from a step's first micro-batch to its last: 4 bytes more per
    /// weight of a linear layer. No effect with a single micro-batch or ZeRO-3. Default: true.
    pub keep_packed: bool,
    /// Scale of the loss with `precision = "fp16"`.
    pub loss_scale: LossScaleConfig,
    /// Choices of `precision = "fp8"`.
    pub fp8: Fp8Config,
    /// Steps between validations, which also follow the last step; 0: none. Default: 100.
    pub eval_every: u64,
    /// Validation sequences, the first of the set; fewer if it holds fewer. Default: 64.
    pub eval_samples: u64,
    /// Evaluation tasks during training.
    #[serde(skip_serializing_if = "EvalTasks::is_default")]
    pub eval_tasks: EvalTasks,
    /// End when a validation loss no longer falls.
    pub early_stop: EarlyStop,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Settings that a resumed run may change, and a checkpoint of another run to resume from.
    #[serde(skip_serializing_if = "ResumeConfig::is_default")]
    pub resume: ResumeConfig,
    /// Steps between reports to `Events::step`; metrics.jsonl has every step. Default: 1.
    pub log_every: u64,
    /// Peak of all cores of the run together, 10^12 floating-point operations per second, of which `mfu` is
    /// the share; 0: measured at the start on the threads of every process (`kernels::peak_flops`). Default: 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub peak_tflops: f64,
    /// Traces of steps: `true`: the first ten of each run, `{ steps = [from, to] }`: those. Default: `false`.
    pub profile: Profile,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            steps: 1000,
            init_from: String::new(),
            time_budget: String::new(),
            reset_attention_mask: false,
            reset_position_ids: false,
            eod_mask_loss: false,
            loss_mean: LossMean::Token,
            preference: None,
            global_batch: 32,
            batch_rampup: None,
            micro_batch: 4,
            lr: 6e-4,
            min_lr: 6e-5,
            warmup_steps: 100,
            schedule: Schedule::Cosine,
            decay_steps: 0,
            wsd_decay_steps: 0,
            wsd_decay: WsdDecay::Linear,
            optimizer: OptimizerKind::Adamw,
            muon: MuonConfig::default(),
            ema_decay: 0.0,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            z_loss: 0.0,
            clip_norm: 1.0,
            on_bad_step: OnBadStep::default(),
            recompute: Recompute::None,
            recompute_layers: Vec::new(),
            chunked_cross_entropy: false,
            offload: Offload::default(),
            precision: Precision::F32,
            bf16_sums: Bf16Sums::Auto,
            keep_packed: true,
            loss_scale: LossScaleConfig::default(),
            fp8: Fp8Config::default(),
            eval_every: 100,
            eval_samples: 64,
            eval_tasks: EvalTasks::default(),
            early_stop: EarlyStop::default(),
            checkpoint: CheckpointConfig::default(),
            resume: ResumeConfig::default(),
            log_every: 1,
            peak_tflops: 0.0,
            profile: Profile::Switch(false),
        }
    }
}

impl TrainConfig {
    /// Recomputation of layer `index` of a pipeline rank (counted from 0 over its model chunks).
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

    /// Sequences of the step that starts at sample `consumed`: Megatron's
    /// `RampupBatchsizeNumMicroBatchesCalculator`.
    pub fn batch_at(&self, consumed: u64) -> usize {
        let Some(ramp) = &self.batch_rampup else {
            return self.global_batch;
        };
        let increments = self.global_batch.saturating_sub(ramp.start) / ramp.increment.max(1);
        if consumed > ramp.samples || increments == 0 {
            return self.global_batch;
        }
        let samples_of_one = ramp.samples as f64 / increments as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most the number of increments, as consumed is at most their samples"
        )]
        let passed = (consumed as f64 / samples_of_one) as usize;
        ramp.start + passed.min(increments) * ramp.increment
    }

    /// Samples that all steps use.
    pub fn samples(&self) -> u64 {
        let (mut step, mut consumed) = (0, 0u64);
        while step < self.steps {
            let batch = self.batch_at(consumed);
            if batch == self.global_batch {
                let rest = (self.steps - step).saturating_mul(batch as u64);
                return consumed.saturating_add(rest);
            }
            consumed = consumed.saturating_add(batch as u64);
            step += 1;
        }
        consumed
    }

    /// Seconds of the time budget, if there is one.
    pub(crate) fn budget_secs(&self) -> Option<f64> {
        duration(&self.time_budget)
    }

    /// Step at which the decay ends.
    pub(crate) fn decay_end(&self) -> u64 {
        if self.decay_steps == 0 {
            self.steps
        } else {
            self.decay_steps
        }
    }

    /// Steps of the decay of `wsd`.
    pub(crate) fn wsd_steps(&self) -> u64 {
        if self.wsd_decay_steps == 0 {
            self.decay_end().div_ceil(10)
        } else {
            self.wsd_decay_steps
        }
    }

    /// Calls `problem` for every contradiction within this table.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        self.check_schedule(problem);
        self.check_optimizer(problem);
        self.check_policies(problem);
        self.profile.check(self.steps, problem);
        self.offload.check(problem);
        self.fp8.check(problem);
        self.resume.check(problem);
        self.eval_tasks.check(self.checkpoint.every, problem);
        if let Some(preference) = &self.preference {
            preference.check(&mut |key, found, wanted| {
                problem(&format!("preference.{key}"), found, wanted);
            });
        }
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
        if !(self.peak_tflops.is_finite() && self.peak_tflops >= 0.0) {
            let wanted = "a finite number above 0, or 0: measured";
            problem("peak_tflops", self.peak_tflops.to_string(), wanted);
        }
        if self.eval_every > 0 && self.eval_samples == 0 {
            problem("eval_samples", "0".into(), "at least 1, or eval_every = 0");
        }
    }
    fn check_schedule(&self, problem: Problem<'_>) {
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
        let end = self.decay_end();
        if self.decay_steps > 0 && self.decay_steps <= self.warmup_steps {
            let found = format!("{end} with warmup_steps = {}", self.warmup_steps);
            problem("decay_steps", found, "above warmup_steps, or 0: steps");
        }
        let stable = end.saturating_sub(self.warmup_steps);
        if self.schedule == Schedule::Wsd && self.wsd_decay_steps > stable {
            let (found, warmup) = (self.wsd_decay_steps, self.warmup_steps);
            let found = format!("{found} with warmup_steps = {warmup}, decay to step {end}");
            problem("wsd_decay_steps", found, &format!("at most {stable}"));
        }
        if !self.time_budget.is_empty() && self.budget_secs().is_none() {
            let found = format!("{:?}", self.time_budget);
            let wanted = "a time above 0 such as \"24h\", \"90m\", \"1h30m\" or \"45s\"";
            problem("time_budget", found, wanted);
        }
    }

    fn check_optimizer(&self, problem: Problem<'_>) {
        if !(1..100).contains(&self.muon.iterations) {
            let found = self.muon.iterations.to_string();
            problem("muon.iterations", found, "from 1 to 99");
        }
        for (key, value) in [
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("muon.momentum", self.muon.momentum),
            ("ema_decay", self.ema_decay),
        ] {
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
        for (key, value) in [("z_loss", self.z_loss), ("clip_norm", self.clip_norm)] {
            if !(value.is_finite() && value >= 0.0) {
                problem(key, value.to_string(), "a finite number, 0 or more");
            }
        }
    }

    fn check_policies(&self, problem: Problem<'_>) {
        self.loss_scale.check(problem);
        let bad = &self.on_bad_step;
        if !(bad.factor == 0.0 || bad.factor.is_finite() && bad.factor > 1.0) {
            let wanted = "a number above 1, or 0: only values that are not finite";
            problem("on_bad_step.factor", bad.factor.to_string(), wanted);
        }
        for (key, value) in [("window", bad.window as u64), ("limit", bad.limit)] {
            if value == 0 {
                problem(&format!("on_bad_step.{key}"), "0".into(), "at least 1");
            }
        }
        let stop = &self.early_stop;
        if !(stop.min_delta.is_finite() && stop.min_delta >= 0.0) {
            let wanted = "a finite number, 0 or more";
            problem("early_stop.min_delta", stop.min_delta.to_string(), wanted);
        }
        if stop.patience > 0 && self.eval_every == 0 {
            let found = format!("{} with eval_every = 0", stop.patience);
            problem("early_stop.patience", found, "0, or eval_every above 0");
        }
        if let Some(ramp) = &self.batch_rampup {
            let found = |what: usize| format!("{what} with global_batch = {}", self.global_batch);
            if ramp.start == 0 || ramp.start > self.global_batch {
                let wanted = "from 1 to global_batch";
                problem("batch_rampup.start", found(ramp.start), wanted);
            } else if ramp.increment == 0
                || !(self.global_batch - ramp.start).is_multiple_of(ramp.increment)
            {
                let wanted = format!("a divisor of {}", self.global_batch - ramp.start);
                problem("batch_rampup.increment", found(ramp.increment), &wanted);
            }
            if ramp.samples == 0 {
                problem("batch_rampup.samples", "0".into(), "at least 1");
            }
        }
    }
}

/// Seconds of a time such as `1d2h30m5s`; None if the text is not a time, or 0.
pub(crate) fn duration(text: &str) -> Option<f64> {
    let (mut total, mut number) = (0.0, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' | '.' => {
                number.push(c);
                continue;
            }
            'd' => 86_400.0,
            'h' => 3_600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => return None,
        };
        total += unit * std::mem::take(&mut number).parse::<f64>().ok()?;
    }
    (number.is_empty() && total > 0.0 && f64::is_finite(total)).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, secs) in [
            ("24h", 86_400.0),
            ("1h30m", 5_400.0),
            ("1d0.5h", 88_200.0),
            ("45s", 45.0),
        ] {
            assert_eq!(duration(text), Some(secs), "{text}");
        }
        for text in ["", "24", "h", "1x", "0s", "1h5", "1..5h", "-1h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    /// tests/oracles/megatron_lr.json: megatron-core 0.16.1.
    #[test]
    fn batches_grow_as_megatrons() {
        let text = include_str!("../../tests/oracles/megatron_lr.json");
        let golden: serde_json::Value = serde_json::from_str(text).unwrap();
        for case in golden["batches"].as_array().unwrap() {
            let number = |key: &str| case[key].as_u64().unwrap();
            let size = |key: &str| usize::try_from(number(key)).unwrap();
            let config = TrainConfig {
                global_batch: size("global"),
                batch_rampup: Some(BatchRampup {
                    start: size("start"),
                    increment: size("increment"),
                    samples: number("samples"),
                }),
                ..TrainConfig::default()
            };
            let mut consumed = 0;
            for (step, want) in (1..).zip(case["sizes"].as_array().unwrap()) {
                let batch = config.batch_at(consumed) as u64;
                assert_eq!(Some(batch), want.as_u64(), "{case} after {consumed}");
                consumed += batch;
                let so_far = TrainConfig {
                    steps: step,
                    ..config.clone()
                };
                assert_eq!(so_far.samples(), consumed);
            }
        }
    }

    #[test]
    fn policies_that_contradict_themselves_are_named() {
        let config = TrainConfig {
            schedule: Schedule::Wsd,
            wsd_decay_steps: 950,
            time_budget: "soon".into(),
            eval_every: 0,
            on_bad_step: OnBadStep {
                factor: 0.5,
                limit: 0,
                ..OnBadStep::default()
            },
            early_stop: EarlyStop {
                patience: 3,
                ..EarlyStop::default()
            },
            batch_rampup: Some(BatchRampup {
                start: 8,
                increment: 5,
                samples: 0,
            }),
            ..TrainConfig::default()
        };
        let mut found = Vec::new();
        config.check(&mut |key, found_there, wanted| {
            found.push(format!("{key}: found {found_there}, want {wanted}"));
        });
        let want = [
            "wsd_decay_steps: found 950 with warmup_steps = 100, decay to step 1000, want at most 900",
            "time_budget: found \"soon\", want a time above 0 such as \"24h\", \"90m\", \"1h30m\" or \"45s\"",
            "on_bad_step.factor: found 0.5, want a number above 1, or 0: only values that are not finite",
            "on_bad_step.limit: found 0, want at least 1",
            "early_stop.patience: found 3 with eval_every = 0, want 0, or eval_every above 0",
            "batch_rampup.increment: found 5 with global_batch = 32, want a divisor of 24",
            "batch_rampup.samples: found 0, want at least 1",
        ];
        assert_eq!(found, want);
    }
}
