//! The job's `[model]` table, and settings shared by all of a plan; `[parallel]` is in config/parallel.rs,
//! `[train]` in config/train.rs.
//!
//! Vocabulary and sequence length come from the data and are joined to these in `Plan`.

use kernels::attention::{Alibi, Scores};
use kernels::rope::{Frequencies, Scaling};
use serde::{Deserialize, Serialize};

use crate::config::architecture::Positions;
use crate::config::choices::{
    Activation, Biases, Family, NormKind, NormPlace, QkNormOver, TieEmbeddings,
};
use crate::config::classify::ClassifyConfig;
use crate::config::exact::narrow;
use crate::config::lora::{Adaptable, LoraConfig};
use crate::config::moe::MoeConfig;
use crate::config::prompt::PromptConfig;
use crate::config::rope_scaling::RopeScaling;

/// Shape of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Architecture. Default: `gpt`.
    pub family: Family,
    /// Transformer blocks; of t5 the encoder's. Default: 12, GPT-2 small.
    pub layers: usize,
    /// t5: blocks of the decoder; 0 means `layers`. Default: 0.
    pub decoder_layers: usize,
    /// t5: rows of the table of relative positions. Default: 32, T5.
    pub relative_buckets: usize,
    /// t5: distance from which all positions share the last bucket. Default: 128, T5.
    pub relative_max_distance: usize,
    /// Width of the residual stream. Default: 768, GPT-2 small.
    pub d_model: usize,
    /// Query heads. Default: 12, GPT-2 small.
    pub heads: usize,
    /// Width of a head; 0 means `d_model / heads`. Default: 0.
    pub head_dim: usize,
    /// Key and value heads; 0 means `heads`. Default: 0.
    pub kv_heads: usize,
    /// Width of the feed-forward layer; 0 means the family's: 4 `d_model` for gpt, 8/3 `d_model`
    /// rounded up to a multiple of 64 with a gate. Default: 0.
    pub d_ffn: usize,
    /// Added to the variance in norms. Default: 1e-5, GPT-2 and LLaMA 2.
    pub norm_eps: f32,
    /// Norms. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormKind>,
    /// Feed-forward activation. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    /// bert: norms follow the sums, the embedding has one too, the last block has none after it (the
    /// published BERT). Default: false.
    pub post_norm: bool,
    /// bert: also predict whether the second segment followed the first (next-sentence prediction). Default: false,
    /// as it does not help (Liu et al. 2019, arXiv:1907.11692).
    pub next_sentence: bool,
    /// Biases of projections. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias: Option<Biases>,
    /// RMS norms of queries and keys. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_norm: Option<bool>,
    /// With `qk_norm`: the features over which each norm goes. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_norm_over: Option<QkNormOver>,
    /// Rows of a decoder's block that have norms. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_place: Option<NormPlace>,
    /// RMS norms multiply with 1 + weight, and weights start from 0 (Gemma). Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_plus_one: Option<bool>,
    /// Embeddings of tokens are multiplied by the root of `d_model` (Gemma). Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled_embedding: Option<bool>,
    /// The sum of embeddings goes through a norm (BLOOM). Not bert and t5. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_norm: Option<bool>,
    /// Linear biases of scores in place of other positions (ALiBi, Press et al. 2022, arXiv:2108.12409): head h of n, a power of
    /// two, has -2^(-8 h / n) for each token from a query back to a key; of other numbers, the heads beyond the power of two below
    /// have every second slope of twice that power. Not bert and t5. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibi: Option<bool>,
    /// Each head has a learned score that every softmax of attention counts beside those of the keys, and that adds no value: a
    /// row may attend to nothing (gpt-oss, arXiv:2508.10925). Not bert and t5. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_sinks: Option<bool>,
    /// Queries, keys and values of all heads come from narrow rows, the latents (DeepSeek-V2, arXiv:2405.04434, sec. 2.1); a head
    /// has the widths below in place of `head_dim`. Not bert and t5. Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_latent_attention: Option<bool>,
    /// With `multi_latent_attention`: width of the latent of queries; 0: queries are a projection of the rows themselves
    /// (DeepSeek-V2-Lite). Default: 0.
    pub q_lora_rank: usize,
    /// With `multi_latent_attention`: width of the latent of keys and values. Default: 512, DeepSeek-V2.
    pub kv_lora_rank: usize,
    /// With `multi_latent_attention`: features of a head's query and key without positions. Default: 128, DeepSeek-V2.
    pub qk_head_dim: usize,
    /// With `multi_latent_attention`: those with rotary positions beside them, whose keys all heads share. Default: 64, DeepSeek-V2.
    pub qk_pos_emb_head_dim: usize,
    /// With `multi_latent_attention`: features of a head's value. Default: 128, DeepSeek-V2.
    pub v_head_dim: usize,
    /// With `multi_latent_attention`: added to the variance in norms of latents; 0: `norm_eps`. Transformers' DeepSeek: 1e-6.
    /// Default: 0.
    pub latent_norm_eps: f32,
    /// Attention and feed-forward layer of a block read the same rows, each through its norm, and both outputs are added to them
    /// (GPT-J, GPT-NeoX). Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_residual: Option<bool>,
    /// With `parallel_residual`: a block has one norm, through which both layers read (Falcon 7B). Absent: the family's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_norm: Option<bool>,
    /// Keys a query sees, itself and those before it; 0: all of them. Default: 0.
    pub sliding_window: usize,
    /// With `sliding_window`: every layer whose number, counted from 1, is a multiple of this sees all keys (Gemma 3: 6); 0: none
    /// does. Default: 0.
    pub global_every: usize,
    /// Scores of attention are products of queries and keys divided by the root of this number; 0: the width of a head. Not t5.
    /// Default: 0.
    pub score_divisor: f32,
    /// Scores of attention become cap tanh(score / cap) before the mask (Gemma 2: 50); 0: they stay. Not t5. Default: 0.
    pub attention_cap: f32,
    /// Logits of the vocabulary become cap tanh(logit / cap) (Gemma 2: 30); 0: they stay. Default: 0.
    pub logit_cap: f32,
    /// Dropout probability for embeddings (not opt and bloom) and for the outputs of attention and feed-forward layers. Default: 0;
    /// GPT-2: 0.1.
    pub dropout: f32,
    /// Share of attention probabilities that is set to 0 in training. Default: 0; GPT-2: 0.1.
    pub attention_dropout: f32,
    /// Scaling of rotary wavelengths for longer contexts. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Share of a head's features with rotary embedding, the first ones. Default: 1.
    pub rotary_percent: f32,
    /// Base of the rotary wavelengths (not gpt, opt, bloom and with `alibi`). Default: 10000, Su et al. 2021.
    pub rope_theta: f32,
    /// Base of the rotary wavelengths of layers with a window, which `rope_scaling` leaves alone then (Gemma 3: 10000); 0: that of
    /// all layers. Default: 0.
    pub local_rope_theta: f32,
    /// Whether head and embedding share weights. Default: `family`.
    pub tie_embeddings: TieEmbeddings,
    /// Standard deviation of initial weights; projections into the residual stream are divided by
    /// `sqrt(2 layers)`. Not t5, which starts as published. Default: 0.02, GPT-2.
    pub init_std: f32,
    /// Depths of multi-token prediction after the last layer (DeepSeek-V3, arXiv:2412.19437, sec. 2.2): depth k learns the k-th token
    /// after the next one. Decoders with rotary positions. Default: 0.
    pub mtp_num_layers: usize,
    /// With `mtp_num_layers`: factor of the depths' mean loss beside the main one. Default: 0.1, Megatron.
    pub mtp_loss_scaling_factor: f64,
    /// Mixture of experts in place of feed-forward layers. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moe: Option<MoeConfig>,
    /// A classification head in place of the language model's. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classify: Option<ClassifyConfig>,
    /// Low-rank adapters, which are trained while all other weights are frozen. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Virtual tokens in front of every text, which are trained while all other weights are frozen. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptConfig>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            family: Family::Gpt,
            layers: 12,
            decoder_layers: 0,
            relative_buckets: 32,
            relative_max_distance: 128,
            d_model: 768,
            heads: 12,
            head_dim: 0,
            kv_heads: 0,
            d_ffn: 0,
            norm_eps: 1e-5,
            norm: None,
            activation: None,
            post_norm: false,
            next_sentence: false,
            bias: None,
            qk_norm: None,
            qk_norm_over: None,
            norm_place: None,
            norm_plus_one: None,
            scaled_embedding: None,
            embedding_norm: None,
            alibi: None,
            attention_sinks: None,
            multi_latent_attention: None,
            q_lora_rank: 0,
            kv_lora_rank: 512,
            qk_head_dim: 128,
            qk_pos_emb_head_dim: 64,
            v_head_dim: 128,
            latent_norm_eps: 0.0,
            parallel_residual: None,
            shared_norm: None,
            sliding_window: 0,
            global_every: 0,
            score_divisor: 0.0,
            attention_cap: 0.0,
            logit_cap: 0.0,
            dropout: 0.0,
            attention_dropout: 0.0,
            rope_scaling: None,
            rotary_percent: 1.0,
            rope_theta: 10_000.0,
            local_rope_theta: 0.0,
            tie_embeddings: TieEmbeddings::Family,
            init_std: 0.02,
            mtp_num_layers: 0,
            mtp_loss_scaling_factor: 0.1,
            moe: None,
            classify: None,
            lora: None,
            prompt: None,
        }
    }
}

impl ModelConfig {
    /// Whether weights beside the model's own are trained, and these are frozen.
    pub(crate) fn is_adapted(&self) -> bool {
        self.lora.is_some() || self.prompt.is_some()
    }

    /// Rows of virtual tokens: those of every text, or of the texts of all tasks.
    pub fn virtual_tokens(&self) -> usize {
        (self.prompt.as_ref()).map_or(0, |prompt| prompt.virtual_tokens)
    }

    /// Key and value heads with the default filled in.
    pub fn kv_heads(&self) -> usize {
        if self.kv_heads == 0 {
            self.heads
        } else {
            self.kv_heads
        }
    }

    /// Width of a head with the default filled in.
    pub fn d_head(&self) -> usize {
        if let Some(latents) = self.latents() {
            latents.key()
        } else if self.head_dim == 0 {
            self.d_model / self.heads.max(1)
        } else {
            self.head_dim
        }
    }

    /// Feed-forward width with the default filled in.
    pub fn d_ffn(&self) -> usize {
        match self.d_ffn {
            0 if self.architecture().activation.is_gated() => {
                let width = self.d_model.saturating_mul(8).div_ceil(3);
                width.div_ceil(64).saturating_mul(64)
            }
            0 => self.d_model.saturating_mul(4),
            width => width,
        }
    }

    /// Whether the feed-forward network has a gate, such as SwiGLU's.
    pub fn is_gated(&self) -> bool {
        self.architecture().activation.is_gated()
    }

    /// Blocks of all stacks, numbered one after the other.
    pub(crate) fn blocks(&self) -> usize {
        if !self.architecture().is_encoder_decoder {
            return self.layers;
        }
        let decoder = match self.decoder_layers {
            0 => self.layers,
            layers => layers,
        };
        self.layers.saturating_add(decoder)
    }

    /// True if a block has cross attention to an encoder's rows.
    pub(crate) fn is_decoder_block(&self, block: usize) -> bool {
        self.architecture().is_encoder_decoder && block >= self.layers
    }

    /// True if a decoder follows after the block.
    pub(crate) fn is_last_of_encoder(&self, block: usize) -> bool {
        self.architecture().is_encoder_decoder && block + 1 == self.layers
    }

    /// True if a block's rows attend to none after them.
    pub(crate) fn is_causal(&self, block: usize) -> bool {
        let architecture = self.architecture();
        !architecture.is_masked
            && (!architecture.is_encoder_decoder || self.is_decoder_block(block))
    }

    /// Start of the names of a block's tensors.
    pub(crate) fn block_name(&self, block: usize) -> String {
        if let Some(name) = self.name_of_depth(block) {
            name
        } else if self.is_decoder_block(block) {
            format!("decoder.layers.{}", block - self.layers)
        } else if self.architecture().is_encoder_decoder {
            format!("encoder.layers.{block}")
        } else {
            format!("layers.{block}")
        }
    }

    /// Number of the first of a block's dropouts; 0 is the embedding's.
    pub(crate) fn first_dropout(&self, block: usize) -> u32 {
        let of_a_block = if self.architecture().is_encoder_decoder {
            8
        } else {
            4
        };
        u32::try_from(1 + of_a_block * block).expect("a model has fewer than 2^29 blocks")
    }

    /// Name of the norm before the head.
    pub(crate) fn final_norm(&self) -> &'static str {
        if self.architecture().is_encoder_decoder {
            "decoder.norm"
        } else {
            "norm"
        }
    }

    /// Features of a head with rotary embedding.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a width; other numbers saturate and are refused by check"
    )]
    pub(crate) fn rotary(&self) -> usize {
        if let Some(latents) = self.latents() {
            return latents.turned;
        }
        (self.d_head() as f64 * f64::from(self.rotary_percent)) as usize
    }

    /// Angles of positions for texts of `length` tokens.
    ///
    /// # Errors
    /// Numbers that give no angles; `check` reports them.
    pub(crate) fn frequencies(&self, length: usize) -> kernels::Result<Frequencies> {
        let scaling = self.rope_scaling.as_ref();
        let scaling = scaling.map_or(Scaling::Plain, |scaling| scaling.resolve(length));
        self.frequencies_of(self.rope_theta, &scaling)
    }

    /// Angles of positions in a block, as `frequencies`.
    ///
    /// # Errors
    /// As `frequencies`.
    pub(crate) fn frequencies_at(
        &self,
        block: usize,
        length: usize,
    ) -> kernels::Result<Frequencies> {
        if self.local_rope_theta == 0.0 || self.window_at(block) == 0 {
            return self.frequencies(length);
        }
        self.frequencies_of(self.local_rope_theta, &Scaling::Plain)
    }

    fn frequencies_of(&self, theta: f32, scaling: &Scaling) -> kernels::Result<Frequencies> {
        // the decimal that the user wrote: 1e-1f32 is no tenth in f64
        let theta = theta.to_string().parse();
        Frequencies::new(theta.unwrap_or(f64::NAN), self.rotary(), scaling)
    }

    /// Keys that a query of a block sees; 0: all of them.
    pub(crate) fn window_at(&self, block: usize) -> usize {
        // blocks after the layers are of the last one's kind
        let number = (block + 1).min(self.layers);
        let sees_all = self.global_every > 0 && number.is_multiple_of(self.global_every);
        if sees_all { 0 } else { self.sliding_window }
    }

    /// How products of queries and keys become scores on a rank that has the first heads.
    pub(crate) fn scores(&self) -> Scores {
        let divisor = match self.score_divisor {
            _ if self.architecture().positions == Positions::Relative => Some(1.0),
            0.0 => self.stretched_divisor(),
            divisor => Some(divisor),
        };
        Scores {
            divisor,
            cap: self.attention_cap,
            alibi: (self.architecture().positions == Positions::Alibi).then_some(Alibi {
                heads: self.heads,
                first: 0,
            }),
        }
    }

    /// The divisor under the root of a model with latents whose positions are stretched: YaRN's factor of scores is in it.
    fn stretched_divisor(&self) -> Option<f32> {
        let factor = self.rope_scaling.as_ref()?.score_factor()?;
        let latents = self.latents()?;
        Some(narrow(latents.key() as f64 / (factor * factor)))
    }

    /// The mixture of layer `layer`, counted from 0, if it is one. Blocks after the layers are of the last one's kind.
    pub(crate) fn moe_at(&self, layer: usize) -> Option<&MoeConfig> {
        let kind = layer.min(self.layers.saturating_sub(1));
        self.moe.as_ref().filter(|moe| moe.is_at(kind))
    }

    /// Width of one of the mixture's experts with the default filled in.
    pub(crate) fn d_expert(&self) -> usize {
        match &self.moe {
            Some(moe) if moe.d_ffn > 0 => moe.d_ffn,
            _ => self.d_ffn(),
        }
    }

    /// Sequences that are the choices of one question; 1 for all models but those that choose.
    pub(crate) fn choices(&self) -> usize {
        let head = self.classify.as_ref();
        head.map_or(1, |classify| classify.choices.max(1))
    }

    /// Whether the model has a classification head whose score is a number.
    pub(crate) fn is_regression(&self) -> bool {
        let head = self.classify.as_ref();
        head.is_some_and(ClassifyConfig::is_regression)
    }

    /// True if the head shares the embedding's weights.
    pub fn is_tied(&self) -> bool {
        self.architecture().is_tied
    }

    /// Calls `problem` for every contradiction within this table.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        for (key, is_set) in [
            ("post_norm", self.post_norm),
            ("next_sentence", self.next_sentence),
        ] {
            if is_set && self.family != Family::Bert {
                let found = format!("true with family = {:?}", self.family);
                problem(key, found, "false: only bert has it");
            }
        }
        let has_own_blocks = matches!(self.family, Family::Bert | Family::T5);
        if has_own_blocks && self.architecture().is_parallel {
            let found = format!("true with family = {:?}", self.family);
            problem("parallel_residual", found, "false: only decoders have it");
        }
        if self.architecture().has_shared_norm && !self.architecture().is_parallel {
            let found = "true without parallel_residual".into();
            let wanted = "false: layers in turn have a norm each";
            problem("shared_norm", found, wanted);
        }
        if self.qk_norm_over.is_some() && !self.architecture().qk_norm {
            let found = "a choice without qk_norm".into();
            problem("qk_norm_over", found, "none: there are no such norms");
        }
        if self.architecture().norm_place.is_after() {
            let place = self.architecture().norm_place;
            let is_parallel = self.architecture().is_parallel;
            let (found, wanted) = match (has_own_blocks, is_parallel) {
                (true, _) => (
                    format!("family = {:?}", self.family),
                    "only decoders have a choice",
                ),
                (_, true) => (
                    "parallel_residual".into(),
                    "parallel layers have norms before them",
                ),
                (false, false) => (String::new(), ""),
            };
            if !wanted.is_empty() {
                let found = format!("{place:?} with {found}");
                problem("norm_place", found, &format!("before: {wanted}"));
            }
        }
        for (key, value) in [
            ("layers", self.layers),
            ("d_model", self.d_model),
            ("heads", self.heads),
        ] {
            if value == 0 {
                problem(key, "0".into(), "at least 1");
            }
        }
        self.check_latents(problem);
        self.check_depths(problem);
        let is_derived = self.head_dim == 0 && self.latents().is_none();
        if self.heads > 0 && is_derived && !self.d_model.is_multiple_of(self.heads) {
            let found = format!("{} with d_model = {}", self.heads, self.d_model);
            problem("heads", found, "a divisor of d_model, or head_dim");
        }
        if self.kv_heads() > 0 && !self.heads.is_multiple_of(self.kv_heads()) {
            let found = format!("{} with heads = {}", self.kv_heads(), self.heads);
            problem("kv_heads", found, "a divisor of heads");
        }
        if self.architecture().positions == Positions::Rotary {
            self.check_rotary(problem);
        }
        for (key, value) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
        ] {
            if !(0.0..1.0).contains(&value) {
                problem(key, value.to_string(), "from 0 to below 1");
            }
        }
        self.check_gemma(problem);
        self.check_choices(has_own_blocks, problem);
        for (key, value) in [("norm_eps", self.norm_eps), ("rope_theta", self.rope_theta)] {
            if !(value.is_finite() && value > 0.0) {
                problem(key, value.to_string(), "a finite number above 0");
            }
        }
        if !(self.init_std.is_finite() && self.init_std >= 0.0) {
            problem(
                "init_std",
                self.init_std.to_string(),
                "a finite number, 0 or more",
            );
        }
        if self.architecture().is_encoder_decoder {
            self.check_pair(problem);
        } else if self.decoder_layers > 0 {
            let found = format!("{} with family = {:?}", self.decoder_layers, self.family);
            problem(
                "decoder_layers",
                found,
                "0: only t5 has a decoder beside the encoder",
            );
        }
        if let Some(classify) = &self.classify {
            classify.check(&mut |key, found, wanted| {
                problem(&format!("classify.{key}"), found, wanted);
            });
            self.check_classified(problem);
        }
        if let Some(lora) = &self.lora {
            lora.check(self.adaptable(), &mut |key, found, wanted| {
                problem(&format!("lora.{key}"), found, wanted);
            });
            if !self.can_be_adapted() {
                let found = format!("a table with family = {:?}", self.family);
                let wanted = "none: adapters are for decoders without classification heads";
                problem("lora", found, wanted);
            }
        }
        if let Some(prompt) = &self.prompt {
            prompt.check(&mut |key, found, wanted| {
                problem(&format!("prompt.{key}"), found, wanted);
            });
            if !self.can_be_adapted() || self.moe.is_some() || self.has_latents() {
                let found = format!("a table with family = {:?}", self.family);
                let wanted = "none: virtual tokens are for decoders without experts, latents and classification heads";
                problem("prompt", found, wanted);
            }
            if self.lora.is_some() {
                let found = "a table beside model.lora".into();
                problem("prompt", found, "one of model.lora and model.prompt");
            }
        }
        if let Some(moe) = &self.moe {
            moe.check(self.layers, &mut |key, found, wanted| {
                problem(&format!("moe.{key}"), found, wanted);
            });
        }
    }

    /// Contradictions among the settings that only decoders have, and among those of BLOOM.
    fn check_choices(&self, has_own_blocks: bool, problem: &mut dyn FnMut(&str, String, &str)) {
        for (key, choice) in [
            ("embedding_norm", self.embedding_norm),
            ("alibi", self.alibi),
            ("attention_sinks", self.attention_sinks),
        ] {
            if let (true, Some(choice)) = (has_own_blocks, choice) {
                let found = format!("{choice} with family = {:?}", self.family);
                problem(key, found, "none: only decoders have a choice");
            }
        }
        if self.architecture().positions != Positions::Alibi {
            return;
        }
        if self.attention_cap > 0.0 {
            let found = format!("{} with alibi", self.attention_cap);
            problem("attention_cap", found, "0: biased scores have no cap");
        }
        let is_turned = [
            ("rope_scaling", self.rope_scaling.is_some()),
            ("rotary_percent", self.rotary_percent != 1.0),
            ("local_rope_theta", self.local_rope_theta != 0.0),
        ];
        for (key, _) in is_turned.into_iter().filter(|(_, is_set)| *is_set) {
            problem(key, "a value with alibi".into(), "none: nothing is turned");
        }
    }

    /// Contradictions among the settings that Gemma's models have.
    fn check_gemma(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let architecture = self.architecture();
        if architecture.norm_plus_one && architecture.norm != NormKind::Rms {
            let wanted = "false: only RMS norms have it";
            problem("norm_plus_one", "true with norm = layer".into(), wanted);
        }
        if architecture.scaled_embedding && self.prompt.is_some() {
            let wanted = "false: virtual tokens have no scaled embeddings";
            problem("scaled_embedding", "true with prompt".into(), wanted);
        }
        for (key, value) in [
            ("score_divisor", self.score_divisor),
            ("attention_cap", self.attention_cap),
            ("logit_cap", self.logit_cap),
            ("local_rope_theta", self.local_rope_theta),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                problem(key, value.to_string(), "a finite number, 0 or more");
            }
        }
        if self.sliding_window > 0 {
            return;
        }
        for (key, found) in [
            (
                "global_every",
                (self.global_every > 0).then(|| self.global_every.to_string()),
            ),
            (
                "local_rope_theta",
                (self.local_rope_theta > 0.0).then(|| self.local_rope_theta.to_string()),
            ),
        ] {
            if let Some(found) = found {
                problem(
                    key,
                    format!("{found} without sliding_window"),
                    "0: no layer has a window",
                );
            }
        }
    }

    /// Whether its linear layers can have adapters.
    pub(crate) fn can_be_adapted(&self) -> bool {
        let architecture = self.architecture();
        let is_decoder = !architecture.is_masked && !architecture.is_encoder_decoder;
        is_decoder && self.classify.is_none()
    }

    fn adaptable(&self) -> Adaptable {
        let has_shared = self.moe.as_ref().is_some_and(|moe| moe.shared_d_ffn > 0);
        let is_dense = |layer| self.moe_at(layer).is_none();
        // mixtures repeat after so many layers
        let period = self.moe.as_ref();
        let period = period.map_or(1, |moe| moe.dense_first.saturating_add(moe.every));
        Adaptable {
            has_experts: self.moe.is_some(),
            has_feed_forward: has_shared || (0..self.layers.min(period)).any(is_dense),
            has_own_head: !self.is_tied(),
        }
    }

    /// Settings that do not go with a classification head.
    fn check_classified(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if self.architecture().is_encoder_decoder {
            let found = format!("a table with family = {:?}", self.family);
            problem("classify", found, "none: t5 answers with text");
        }
        if self.next_sentence {
            let wanted = "false: the classification head takes its place";
            problem("next_sentence", "true with classify".into(), wanted);
        }
    }

    /// Settings that t5 requires or does not support.
    fn check_pair(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let buckets = self.relative_buckets;
        if buckets < 4 || !buckets.is_multiple_of(2) {
            problem("relative_buckets", buckets.to_string(), "even, at least 4");
        }
        if self.relative_max_distance <= buckets / 2 {
            let found = self.relative_max_distance.to_string();
            let wanted = format!("above {}, half of relative_buckets", buckets / 2);
            problem("relative_max_distance", found, &wanted);
        }
        let has_bias = self.architecture().biases != Biases::None;
        for (key, is_set) in [
            ("bias", has_bias),
            ("qk_norm", self.architecture().qk_norm),
            ("sliding_window", self.sliding_window > 0),
            ("norm_plus_one", self.architecture().norm_plus_one),
            ("scaled_embedding", self.architecture().scaled_embedding),
            ("score_divisor", self.score_divisor != 0.0),
            ("attention_cap", self.attention_cap != 0.0),
            ("moe", self.moe.is_some()),
            ("rope_scaling", self.rope_scaling.is_some()),
            ("init_std", self.init_std != ModelConfig::default().init_std),
        ] {
            if is_set {
                problem(
                    key,
                    "a choice of one's own".into(),
                    "none: t5 is as published there",
                );
            }
        }
    }

    fn check_rotary(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if !(self.rotary_percent > 0.0 && self.rotary_percent <= 1.0) {
            let wanted = "above 0, at most 1";
            return problem("rotary_percent", self.rotary_percent.to_string(), wanted);
        }
        let is_wide = self.rotary() > Frequencies::MOST_ROTARY;
        if !self.rotary().is_multiple_of(2) || self.rotary() == 0 || is_wide {
            let (key, found) = match (self.head_dim, self.rotary_percent) {
                _ if self.latents().is_some() => ("qk_pos_emb_head_dim", self.rotary().to_string()),
                (0, 1.0) => ("heads", format!("d_model / heads = {}", self.d_head())),
                (_, 1.0) => ("head_dim", self.head_dim.to_string()),
                (_, share) => {
                    let width = self.d_head();
                    let found = format!("{share} of a width of {width} = {}", self.rotary());
                    ("rotary_percent", found)
                }
            };
            let most = Frequencies::MOST_ROTARY;
            let wanted = format!("an even width of at most {most}: rotary positions turn pairs");
            return problem(key, found, &wanted);
        }
        if let Some(scaling) = &self.rope_scaling {
            scaling.check(&mut |found, wanted| problem("rope_scaling", found, wanted));
        }
        let divisor = self.stretched_divisor();
        if divisor.is_some_and(|divisor| !(divisor.is_finite() && divisor > 0.0)) {
            let found = format!("{:?}", self.rope_scaling);
            let wanted = "an mscale_all_dim whose factor of scores is a number";
            problem("rope_scaling", found, wanted);
        }
        if let (true, Err(error)) = (self.rope_theta > 0.0, self.frequencies(1)) {
            let found = format!("{:?}", self.rope_scaling);
            problem(
                "rope_scaling",
                found,
                &format!("numbers that give rotary angles ({error})"),
            );
        }
    }
}

/// Reproducibility guarantee for the bits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// The fastest order of additions. On this backend the same layout still gives the same bits.
    Off,
    /// The same bits for the same layout and micro-batch, for any thread count and any resume.
    Run,
    /// The same bits for every layout, micro-batch and thread count.
    Layout,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::architecture::Architecture;

    #[test]
    fn options_lie_over_the_familys_choices() {
        let mut model = ModelConfig {
            family: Family::Llama,
            ..ModelConfig::default()
        };
        assert!(!model.architecture().is_tied);
        (model.norm, model.bias) = (Some(NormKind::Layer), Some(Biases::All));
        model.activation = Some(Activation::Relu);
        model.tie_embeddings = TieEmbeddings::Tied;
        let found = model.architecture();
        model.family = Family::Gpt;
        let gpt = model.architecture();
        assert_eq!(
            found,
            Architecture {
                positions: Positions::Rotary,
                ..gpt
            }
        );
        assert_eq!(found.fc1_widths(), 1);
    }
}
