//! `[model]` as `[finetune]` completes it with `method = "prompt"` and `"p-tuning"`, and contradictions with the model.

use train::config::{ModelConfig, PromptConfig};

use super::finetune::{FinetuneMethod, FinetuneTable};
use super::prompt_tuning::{PTuningTable, PromptTable};

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
            FinetuneMethod::Full | FinetuneMethod::Lora | FinetuneMethod::Dpo => return,
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
