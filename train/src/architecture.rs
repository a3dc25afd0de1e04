//! What a model's blocks are made of: the family's choices with the options of `[model]` laid over
//! them. Layers, the list of tensors, the formulas and the export ask here and never look at the
//! family.
//!
//! | family  | norm  | positions | activation | biases | head   |
//! |---------|-------|-----------|------------|--------|--------|
//! | gpt     | layer | learned   | tanh-GELU  | all    | tied   |
//! | llama   | RMS   | rotary    | SwiGLU     | none   | untied |
//! | bert    | layer | learned   | erf-GELU   | all    | tied, with transform and bias |
//! | mistral | RMS   | rotary    | SwiGLU     | none   | untied |
//! | qwen2   | RMS   | rotary    | SwiGLU     | qkv    | untied |
//! | qwen3   | RMS   | rotary    | SwiGLU     | none   | untied |
//! | t5      | RMS   | relative  | ReLU       | none   | tied, rows divided by the root of d_model |
//!
//! qwen3 also has norms of queries and keys; t5 is an encoder and a decoder.

use crate::config::{Activation, Biases, Family, ModelConfig, NormKind, TieEmbeddings};

/// How a model knows where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A table with one row per position, added to the embedding.
    Learned,
    /// Queries and keys are turned.
    Rotary,
    /// Scores have a bias by distance.
    Relative,
}

/// Every choice made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// Of every norm of the model; a layer norm has a bias, an RMS norm has none.
    pub norm: NormKind,
    pub positions: Positions,
    pub activation: Activation,
    pub biases: Biases,
    /// RMS norms of queries and keys over the head width.
    pub qk_norm: bool,
    /// The head multiplies with the embedding's weights.
    pub is_tied: bool,
    /// Norms follow the sums of the residual stream instead of going before each layer.
    pub is_post_norm: bool,
    /// Every token sees the whole sequence and the masked ones are to be predicted: tokens have
    /// segments, the head has a transform.
    pub is_masked: bool,
    /// The head also tells whether the second segment follows the first.
    pub next_sentence: bool,
    /// Two stacks: the second goes on from its own rows and sees all the first one's. Scores are not
    /// divided by the root of the head width.
    pub is_encoder_decoder: bool,
}

impl Architecture {
    pub(crate) fn of(model: &ModelConfig) -> Architecture {
        let gpt = Architecture {
            norm: NormKind::Layer,
            positions: Positions::Learned,
            activation: Activation::GeluTanh,
            biases: Biases::All,
            qk_norm: false,
            is_tied: true,
            is_post_norm: false,
            is_masked: false,
            next_sentence: false,
            is_encoder_decoder: false,
        };
        let llama = Architecture {
            norm: NormKind::Rms,
            positions: Positions::Rotary,
            activation: Activation::Swiglu,
            biases: Biases::None,
            qk_norm: false,
            is_tied: false,
            ..gpt
        };
        let bert = Architecture {
            activation: Activation::Gelu,
            is_post_norm: model.post_norm,
            is_masked: true,
            next_sentence: model.next_sentence,
            ..gpt
        };
        let family = match model.family {
            Family::Gpt => gpt,
            Family::Llama | Family::Mistral => llama,
            Family::Qwen2 => Architecture {
                biases: Biases::Qkv,
                ..llama
            },
            Family::Qwen3 => Architecture {
                qk_norm: true,
                ..llama
            },
            Family::Bert => bert,
            Family::T5 => Architecture {
                positions: Positions::Relative,
                activation: Activation::Relu,
                is_tied: true,
                is_encoder_decoder: true,
                ..llama
            },
        };
        Architecture {
            norm: model.norm.unwrap_or(family.norm),
            activation: model.activation.unwrap_or(family.activation),
            biases: model.bias.unwrap_or(family.biases),
            qk_norm: model.qk_norm.unwrap_or(family.qk_norm),
            is_tied: match model.tie_embeddings {
                TieEmbeddings::Family => family.is_tied,
                TieEmbeddings::Tied => true,
                TieEmbeddings::Untied => false,
            },
            ..family
        }
    }

    /// Rows of the first feed-forward matrix per feature of the hidden width: 2 with a gate.
    pub(crate) fn fc1_widths(&self) -> usize {
        if self.activation.is_gated() { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_lie_over_the_familys_choices() {
        let mut model = ModelConfig {
            family: Family::Llama,
            ..ModelConfig::default()
        };
        assert!(!Architecture::of(&model).is_tied);
        (model.norm, model.bias) = (Some(NormKind::Layer), Some(Biases::All));
        model.activation = Some(Activation::Relu);
        model.tie_embeddings = TieEmbeddings::Tied;
        let found = Architecture::of(&model);
        model.family = Family::Gpt;
        let gpt = Architecture::of(&model);
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
