//! Architecture of a model's blocks: the family's choices, overridden by the options of `[model]`. Layers, the list
//! of tensors, the formulas and the export ask here and never look at the family.
//!
//! | family  | norm  | positions | activation | biases | head   |
//! |---------|-------|-----------|------------|--------|--------|
//! | gpt     | layer | learned   | tanh-GELU  | all    | tied   |
//! | opt     | layer | learned   | ReLU       | all    | tied   |
//! | llama   | RMS   | rotary    | SwiGLU     | none   | untied |
//! | bert    | layer | learned   | erf-GELU   | all    | tied, with transform and bias |
//! | mistral | RMS   | rotary    | SwiGLU     | none   | untied |
//! | qwen2   | RMS   | rotary    | SwiGLU     | qkv    | untied |
//! | qwen3   | RMS   | rotary    | SwiGLU     | none   | untied |
//! | phi3    | RMS   | rotary    | SwiGLU     | none   | untied |
//! | gpt_neox | layer | rotary   | erf-GELU   | all    | untied |
//! | falcon  | layer | rotary    | erf-GELU   | none   | tied   |
//! | bloom   | layer | ALiBi     | tanh-GELU  | all    | tied   |
//! | olmo2   | RMS   | rotary    | SwiGLU     | none   | untied |
//! | gemma2  | RMS   | rotary    | tanh-GeGLU | none   | tied   |
//! | gemma3  | RMS   | rotary    | tanh-GeGLU | none   | tied   |
//! | gpt_oss | RMS   | rotary    | clamped SwiGLU | all | untied |
//! | deepseek_v2 | RMS | rotary    | SwiGLU     | none   | untied |
//! | deepseek_v3 | RMS | rotary    | SwiGLU     | none   | untied |
//! | t5      | RMS   | relative  | ReLU       | none   | tied, rows divided by the root of d_model |
//!
//! qwen3 also has norms of queries and keys; attention and feed-forward layer of gpt_neox and falcon are parallel, with one norm for both
//! in falcon; bloom has a norm of the embedding; the norms of olmo2 go after the layers, and those of queries and keys over all heads; those of
//! gemma2 and gemma3 are on both sides of the layers, in gemma3 of queries and keys as well, and multiply with 1 + weight; attention of gpt_oss has
//! sinks; queries, keys and values of deepseek_v2 and deepseek_v3 come from latents; t5 is an encoder and a decoder.

use crate::config::choices::{Activation, Biases, NormKind, NormPlace, QkNormOver};

/// How a model encodes positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A table with one row per position, added to the embedding.
    Learned,
    /// Rotary embedding of queries and keys.
    Rotary,
    /// A bias on scores by distance.
    Relative,
    /// A bias on scores, linear in the distance.
    Alibi,
}

/// The resolved choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// Kind of every norm in the model; a layer norm has a bias, an RMS norm has none.
    pub norm: NormKind,
    pub positions: Positions,
    /// Row of the first position in the table of learned positions; those before it belong to no token.
    pub first_position: usize,
    /// Dropout also applies to the sum of embeddings.
    pub drops_embedding: bool,
    pub activation: Activation,
    pub biases: Biases,
    /// RMS norms of queries and keys.
    pub qk_norm: bool,
    /// Features over which each of them goes.
    pub qk_norm_over: QkNormOver,
    /// The head multiplies with the embedding's weights.
    pub is_tied: bool,
    /// Rows of a decoder's block that have norms.
    pub norm_place: NormPlace,
    /// RMS norms multiply with 1 + weight.
    pub norm_plus_one: bool,
    /// Embeddings of tokens are multiplied by the root of the width.
    pub scaled_embedding: bool,
    /// The sum of embeddings goes through a norm.
    pub has_embedding_norm: bool,
    /// Softmaxes of attention count a learned score per head beside those of the keys.
    pub has_sinks: bool,
    /// Queries, keys and values come from latents.
    pub has_latents: bool,
    /// Norms follow the sums of the residual stream instead of going before each layer.
    pub is_post_norm: bool,
    /// Attention and feed-forward layer read the same rows; both outputs are added to them.
    pub is_parallel: bool,
    /// Both layers of a parallel block read the rows through its one norm.
    pub has_shared_norm: bool,
    /// Every token sees the whole sequence and the masked ones are to be predicted: tokens have
    /// segments, the head has a transform.
    pub is_masked: bool,
    /// The head also predicts whether the second segment follows the first.
    pub next_sentence: bool,
    /// Two stacks: the decoder starts from its own embeddings and attends to all of the encoder's rows. Scores are
    /// not divided by the root of the head width.
    pub is_encoder_decoder: bool,
}

impl Architecture {
    /// Rows of the first feed-forward matrix per feature of the hidden width: 2 with a gate.
    pub(crate) fn fc1_widths(&self) -> usize {
        if self.activation.is_gated() { 2 } else { 1 }
    }
}
