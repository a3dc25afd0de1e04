//! `[finetune.prompt]` and `[finetune.p_tuning]`: virtual tokens in front of every conversation, which alone are trained.

use serde::{Deserialize, Serialize};
use train::config::{EncoderKind, ModelConfig, PromptConfig, PromptEncoder};

use super::finetune::{FinetuneMethod, FinetuneTable};

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
    fn of_model(&self) -> PromptConfig {
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
    pub encoder: EncoderKind,
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
    fn of_model(&self) -> PromptConfig {
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

impl FinetuneMethod {
    /// The word of the job file.
    pub(super) fn shown(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }
}

impl FinetuneTable {
    /// `[model]` with the virtual tokens of the method. Only the tokenizer knows the ids of `init_text`.
    pub(super) fn add_prompt(&self, model: &mut ModelConfig) {
        let (is_encoded, of_table) = match self.method {
            FinetuneMethod::Prompt => (false, self.prompt.as_ref().map(PromptTable::of_model)),
            FinetuneMethod::PTuning => (true, self.p_tuning.as_ref().map(PTuningTable::of_model)),
            FinetuneMethod::Full | FinetuneMethod::Lora => return,
        };
        let is_alike = |prompt: &PromptConfig| prompt.encoder.is_some() == is_encoded;
        let of_source = model.prompt.take().filter(is_alike);
        let default = || match is_encoded {
            false => PromptTable::default().of_model(),
            true => PTuningTable::default().of_model(),
        };
        model.prompt = Some(of_table.or(of_source).unwrap_or_else(default));
    }

    /// Virtual tokens in front of every conversation, for a model that has `[model]` before this fine-tuning.
    pub(crate) fn virtual_tokens(&self, model: Option<&ModelConfig>) -> usize {
        let mut model = model.cloned().unwrap_or_default();
        self.adapt(&mut model);
        model.virtual_tokens()
    }

    /// Text that the virtual tokens start from; empty: none.
    pub(crate) fn init_text(&self) -> &str {
        match (self.method, &self.prompt) {
            (FinetuneMethod::Prompt, Some(table)) => &table.init_text,
            _ => "",
        }
    }

    /// Reports every contradiction with the model.
    pub(super) fn check_source(
        &self,
        model: &ModelConfig,
        add: &mut dyn FnMut(&str, String, &str),
    ) {
        let merges = "\"lora\", or a model that `millrace convert --to hf` has merged them into";
        for (is_there, what, wanted) in [
            (model.lora.is_some(), "adapters", merges),
            (
                model.prompt.is_some(),
                "virtual tokens",
                "\"prompt\" or \"p-tuning\"",
            ),
        ] {
            if self.method == FinetuneMethod::Full && is_there {
                let found = format!("\"full\" with the {what} of the model");
                add("finetune.method", found, wanted);
            }
        }
        let encoder = |model: &ModelConfig| model.prompt.as_ref().map(|prompt| prompt.encoder);
        let mut adapted = model.clone();
        self.add_prompt(&mut adapted);
        if model.prompt.is_some() && encoder(model) != encoder(&adapted) {
            let found = format!(
                "{} with other virtual tokens of the model",
                self.method.shown()
            );
            let wanted = "the method and the encoder that train.init_from was trained with";
            add("finetune.method", found, wanted);
        }
        if model.prompt.is_some() && !self.init_text().is_empty() {
            let found = format!(
                "{:?} with the virtual tokens of the model",
                self.init_text()
            );
            let wanted = "none: the virtual tokens of train.init_from go on";
            add("finetune.prompt.init_text", found, wanted);
        }
    }

    /// Reports tables that the method does not read.
    pub(super) fn check_prompt(&self, add: &mut dyn FnMut(&str, String, &str)) {
        for (key, is_there, method) in [
            ("prompt", self.prompt.is_some(), FinetuneMethod::Prompt),
            ("p_tuning", self.p_tuning.is_some(), FinetuneMethod::PTuning),
        ] {
            if is_there && self.method != method {
                let found = format!("a table with finetune.method = {}", self.method.shown());
                let wanted = format!("none, or finetune.method = {}", method.shown());
                add(&format!("finetune.{key}"), found, &wanted);
            }
        }
    }
}
