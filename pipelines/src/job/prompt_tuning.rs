//! `[finetune.prompt]` and `[finetune.p_tuning]`: virtual tokens in front of every conversation, which alone are trained.

use serde::{Deserialize, Serialize};
use train::config::{PromptConfig, PromptEncoder};

/// Settings of `method = "prompt"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptTable {
    /// Virtual tokens in front of every conversation, PEFT's `num_virtual_tokens`. They count in `seq_length`. Default: 20.
    pub virtual_tokens: usize,
    /// Text whose tokens' embeddings the virtual tokens start from, again and again until all have one: PEFT's
    /// `prompt_tuning_init_text`. Empty, the default: normal values with the deviation `model.init_std`.
    pub init_text: String,
}

impl Default for PromptTable {
    fn default() -> Self {
        PromptTable {
            virtual_tokens: PromptConfig::default().virtual_tokens,
            init_text: String::new(),
        }
    }
}

impl PromptTable {
    pub(super) fn of_model(&self) -> PromptConfig {
        PromptConfig {
            virtual_tokens: self.virtual_tokens,
            ..PromptConfig::default()
        }
    }
}

/// Settings of `method = "p-tuning"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PTuningTable {
    /// Virtual tokens in front of every conversation, PEFT's `num_virtual_tokens`. They count in `seq_length`. Default: 20.
    pub virtual_tokens: usize,
    /// Network that makes them: `mlp`, three linear layers with ReLU, or `lstm`, a bidirectional LSTM and two of them. Default: mlp.
    pub encoder: train::config::EncoderKind,
    /// Features within the network (of an LSTM in each direction), PEFT's `encoder_hidden_size`; 0, the default: `model.d_model`.
    pub hidden: usize,
    /// Layers of an LSTM, PEFT's `encoder_num_layers`. An MLP wants the default, 2.
    pub layers: usize,
}

impl Default for PTuningTable {
    fn default() -> Self {
        let encoder = PromptEncoder::default();
        PTuningTable {
            virtual_tokens: PromptConfig::default().virtual_tokens,
            encoder: encoder.kind,
            hidden: encoder.hidden,
            layers: encoder.layers,
        }
    }
}

impl PTuningTable {
    pub(super) fn of_model(&self) -> PromptConfig {
        PromptConfig {
            virtual_tokens: self.virtual_tokens,
            encoder: Some(PromptEncoder {
                kind: self.encoder,
                hidden: self.hidden,
                layers: self.layers,
            }),
            ..PromptConfig::default()
        }
    }
}
