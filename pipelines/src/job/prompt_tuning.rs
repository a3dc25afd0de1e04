//! `[finetune.prompt]`: virtual tokens in front of every conversation, which alone are trained.

use serde::{Deserialize, Serialize};
use train::config::{ModelConfig, PromptConfig};

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

impl FinetuneMethod {
    /// The word of the job file.
    pub(super) fn shown(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }
}

impl FinetuneTable {
    /// `[model]` with the virtual tokens of the method. Only the tokenizer knows the ids of `init_text`.
    pub(super) fn add_prompt(&self, model: &mut ModelConfig) {
        if self.method != FinetuneMethod::Prompt {
            return;
        }
        let of_source = model.prompt.take();
        let of_table = self.prompt.as_ref().map(|table| PromptConfig {
            virtual_tokens: table.virtual_tokens,
            ..PromptConfig::default()
        });
        model.prompt = Some(of_table.or(of_source).unwrap_or_default());
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
            (model.prompt.is_some(), "virtual tokens", "\"prompt\""),
        ] {
            if self.method == FinetuneMethod::Full && is_there {
                let found = format!("\"full\" with the {what} of the model");
                add("finetune.method", found, wanted);
            }
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

    /// Reports a table that the method does not read.
    pub(super) fn check_prompt(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if self.method != FinetuneMethod::Prompt && self.prompt.is_some() {
            let found = format!("a table with finetune.method = {}", self.method.shown());
            let wanted = "none, or finetune.method = \"prompt\"";
            add("finetune.prompt", found, wanted);
        }
    }
}
