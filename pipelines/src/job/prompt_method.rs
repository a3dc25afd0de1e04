//! `[model]` as `[finetune]` completes it with `method = "prompt"` and `"p-tuning"`, and contradictions with the model.

use train::config::{ModelConfig, PromptConfig};

use super::finetune::{ChatFormat, FinetuneMethod, FinetuneTable, TooLong};
use super::prompt_tuning::{PTuningTable, PromptTable};
use super::task_template::{TaskTemplate, TemplateKeys, check_markers};

/// Texts of a job that its model is asked with.
pub(super) struct AskedTexts<'a> {
    /// Those of `[generate]`.
    pub(super) prompts: &'a [String],
    /// Names of `train.eval_tasks`.
    pub(super) tasks: &'a [String],
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

    /// Virtual tokens in front of every conversation, for a model that has `[model]` before this fine-tuning; 0 with a task template,
    /// whose texts have them.
    pub(crate) fn virtual_tokens(&self, model: Option<&ModelConfig>) -> usize {
        let prompt = self.prompt_of(model);
        let in_front = prompt.filter(|prompt| prompt.template.is_empty());
        in_front.map_or(0, |prompt| prompt.virtual_tokens)
    }

    /// The task template that makes the texts, for a model that has `[model]` before this fine-tuning.
    pub(crate) fn task_template(&self, model: Option<&ModelConfig>) -> Option<TaskTemplate> {
        let keys = self.template_keys();
        let truncated = keys.map_or("", |keys| keys.truncate_field);
        TaskTemplate::of(&self.prompt_of(model)?, truncated)
    }

    /// `[model.prompt]` of the model that is trained.
    fn prompt_of(&self, model: Option<&ModelConfig>) -> Option<PromptConfig> {
        let mut model = model.cloned().unwrap_or_default();
        self.adapt(&mut model);
        model.prompt
    }

    /// The template's keys of the method's table, if there is one.
    fn template_keys(&self) -> Option<TemplateKeys<'_>> {
        match self.method {
            FinetuneMethod::Prompt => self.prompt.as_ref().map(PromptTable::template_keys),
            FinetuneMethod::PTuning => self.p_tuning.as_ref().map(PTuningTable::template_keys),
            FinetuneMethod::Full | FinetuneMethod::Lora | FinetuneMethod::Dpo => None,
        }
    }

    /// Reports every contradiction of a task template, and of the settings beside it.
    pub(super) fn check_template(
        &self,
        model: &ModelConfig,
        asked: &AskedTexts<'_>,
        add: &mut dyn FnMut(&str, String, &str),
    ) {
        let table = self.template_keys();
        if let Some(keys) = &table {
            keys.check(add);
        }
        let Some(prompt) = self.prompt_of(Some(model)) else {
            return;
        };
        if prompt.template.is_empty() {
            return;
        }
        if table.is_none() {
            let keys = TemplateKeys {
                table: "model.prompt",
                virtual_tokens: prompt.virtual_tokens,
                template: &prompt.template,
                splits: &prompt.splits,
                answer_field: "",
                truncate_field: "",
            };
            keys.check(add);
        }
        let truncated = table.as_ref().map_or("", |keys| keys.truncate_field);
        let table = table.as_ref().map_or("model.prompt", |keys| keys.table);
        match (self.too_long, truncated.is_empty()) {
            (TooLong::Truncate, true) => {
                let wanted = format!(
                    "\"drop\" or \"refuse\", or a {table}.truncate_field: at the end of a text is its answer"
                );
                add("finetune.too_long", "\"truncate\"".into(), &wanted);
            }
            (TooLong::Drop | TooLong::Refuse, false) => {
                let wanted = "none, or finetune.too_long = \"truncate\"";
                let key = format!("{table}.truncate_field");
                add(&key, format!("{truncated:?}"), wanted);
            }
            (TooLong::Truncate, false) | (TooLong::Drop | TooLong::Refuse, true) => {}
        }
        if self.format != ChatFormat::Auto {
            let found = serde_json::json!(self.format).to_string();
            let wanted = "\"auto\": rows have the fields of the task template";
            add("finetune.format", found, wanted);
        }
        if !self.chat_template.is_empty() {
            let found = format!("{:?} with a task template", self.chat_template);
            add("finetune.chat_template", found, "none: it makes the text");
        }
        if prompt.splits.is_empty() {
            return;
        }
        for (number, name) in asked.tasks.iter().enumerate() {
            if !name.ends_with(".toml") {
                let key = format!("train.eval_tasks.tasks[{number}]");
                let wanted = "the file of a task whose prompt has the markers of the template";
                add(&key, format!("{name:?}"), wanted);
            }
        }
        for (number, text) in asked.prompts.iter().enumerate() {
            if let Err(why) = check_markers(text, prompt.splits.len()) {
                let (found, wanted) = why.split_once(", want ").unwrap_or((&why, ""));
                let found = found.trim_start_matches("found ");
                let found = format!("{found} in {text:?}");
                add(&format!("generate.prompts[{number}]"), found, wanted);
            }
        }
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
