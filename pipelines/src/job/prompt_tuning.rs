//! `[finetune.prompt]` and `[finetune.p_tuning]`: virtual tokens in front of every conversation, or at the markers of a task template,
//! which alone are trained.

use super::task_template::{TemplateKeys, placed};
use serde::{Deserialize, Serialize};
use train::config::{PromptConfig, PromptEncoder};

/// Settings of `method = "prompt"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptTable {
    /// Virtual tokens in front of every conversation, or of every text of the template, PEFT's `num_virtual_tokens`. They count in
    /// `seq_length`. Default: 20.
    pub virtual_tokens: usize,
    /// Text whose tokens' embeddings the virtual tokens start from, again and again until all have one: PEFT's
    /// `prompt_tuning_init_text`. Empty, the default: normal values with the deviation `model.init_std`.
    pub init_text: String,
    /// Text of each sample, NeMo's `prompt_template`: markers `<|VIRTUAL_PROMPT_0|>`, `<|VIRTUAL_PROMPT_1|>`, ..., where virtual tokens
    /// stand, and fields of a row in braces, the answer last. Empty, the default: rows are conversations.
    pub template: String,
    /// Virtual tokens at each marker of the template, NeMo's `virtual_token_splits`. Empty, the default: all at its only one.
    pub splits: Vec<usize>,
    /// Field of the answer. Empty, the default: the template's last.
    pub answer_field: String,
    /// Field that loses its end where a text is too long and `too_long = "truncate"`, NeMo's `truncate_field`. Empty, the default: none.
    pub truncate_field: String,
}

impl Default for PromptTable {
    fn default() -> Self {
        PromptTable {
            virtual_tokens: PromptConfig::default().virtual_tokens,
            init_text: String::new(),
            template: String::new(),
            splits: Vec::new(),
            answer_field: String::new(),
            truncate_field: String::new(),
        }
    }
}

impl PromptTable {
    pub(super) fn of_model(&self) -> PromptConfig {
        PromptConfig {
            virtual_tokens: self.virtual_tokens,
            splits: placed(&self.template, &self.splits, self.virtual_tokens),
            template: self.template.clone(),
            ..PromptConfig::default()
        }
    }

    pub(super) fn template_keys(&self) -> TemplateKeys<'_> {
        TemplateKeys {
            table: "finetune.prompt".into(),
            virtual_tokens: self.virtual_tokens,
            template: &self.template,
            splits: &self.splits,
            answer_field: &self.answer_field,
            truncate_field: &self.truncate_field,
            is_one_of_many: false,
        }
    }
}

/// Settings of `method = "p-tuning"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PTuningTable {
    /// Virtual tokens in front of every conversation, or of every text of the template, PEFT's `num_virtual_tokens`. They count in
    /// `seq_length`. Default: 20.
    pub virtual_tokens: usize,
    /// Network that makes them: `mlp`, three linear layers with ReLU, or `lstm`, a bidirectional LSTM and two of them. Default: mlp.
    pub encoder: train::config::EncoderKind,
    /// Features within the network (of an LSTM in each direction), PEFT's `encoder_hidden_size`; 0, the default: `model.d_model`.
    pub hidden: usize,
    /// Layers of an LSTM, PEFT's `encoder_num_layers`. An MLP wants the default, 2.
    pub layers: usize,
    /// Text of each sample, NeMo's `prompt_template`: markers `<|VIRTUAL_PROMPT_0|>`, `<|VIRTUAL_PROMPT_1|>`, ..., where virtual tokens
    /// stand, and fields of a row in braces, the answer last. Empty, the default: rows are conversations.
    pub template: String,
    /// Virtual tokens at each marker of the template, NeMo's `virtual_token_splits`. Empty, the default: all at its only one.
    pub splits: Vec<usize>,
    /// Field of the answer. Empty, the default: the template's last.
    pub answer_field: String,
    /// Field that loses its end where a text is too long and `too_long = "truncate"`, NeMo's `truncate_field`. Empty, the default: none.
    pub truncate_field: String,
}

impl Default for PTuningTable {
    fn default() -> Self {
        let encoder = PromptEncoder::default();
        PTuningTable {
            virtual_tokens: PromptConfig::default().virtual_tokens,
            encoder: encoder.kind,
            hidden: encoder.hidden,
            layers: encoder.layers,
            template: String::new(),
            splits: Vec::new(),
            answer_field: String::new(),
            truncate_field: String::new(),
        }
    }
}

impl PTuningTable {
    pub(super) fn of_model(&self) -> PromptConfig {
        PromptConfig {
            virtual_tokens: self.virtual_tokens,
            splits: placed(&self.template, &self.splits, self.virtual_tokens),
            template: self.template.clone(),
            encoder: Some(PromptEncoder {
                kind: self.encoder,
                hidden: self.hidden,
                layers: self.layers,
            }),
            ..PromptConfig::default()
        }
    }

    pub(super) fn template_keys(&self) -> TemplateKeys<'_> {
        TemplateKeys {
            table: "finetune.p_tuning".into(),
            virtual_tokens: self.virtual_tokens,
            template: &self.template,
            splits: &self.splits,
            answer_field: &self.answer_field,
            truncate_field: &self.truncate_field,
            is_one_of_many: false,
        }
    }
}
