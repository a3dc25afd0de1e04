//! `[model]` as `[finetune]` completes it with `method = "prompt"` and `"p-tuning"`, and contradictions with the model.

use train::config::{ModelConfig, PromptConfig, PromptTask, TaskMarkers};

use super::finetune::{ChatFormat, FinetuneMethod, FinetuneTable, TooLong};
use super::markers::task_of;
use super::prompt_tuning::{PTuningTable, PromptTable};
use super::task_template::{RowSettings, TaskTemplates, TemplateKeys};

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
        let mut prompt = of_table.or(of_source).unwrap_or_else(default);
        if !self.templates.is_empty() {
            let count = self.default_virtual_tokens();
            prompt.tasks = (self.templates.iter())
                .map(|own| own.of_model(count))
                .collect();
            (prompt.template, prompt.splits) = (String::new(), Vec::new());
            prompt.virtual_tokens = prompt.markers().last().map_or(0, TaskMarkers::end);
        }
        model.prompt = Some(prompt);
    }

    /// Virtual tokens of a task that says none.
    fn default_virtual_tokens(&self) -> usize {
        let of_table = match self.method {
            FinetuneMethod::Prompt => self.prompt.as_ref().map(|own| own.virtual_tokens),
            FinetuneMethod::PTuning => self.p_tuning.as_ref().map(|own| own.virtual_tokens),
            FinetuneMethod::Full | FinetuneMethod::Lora | FinetuneMethod::Dpo => None,
        };
        of_table.unwrap_or(PromptConfig::default().virtual_tokens)
    }

    /// Virtual tokens in front of every conversation, for a model that has `[model]` before this fine-tuning; 0 with a task template,
    /// whose texts have them.
    pub(crate) fn virtual_tokens(&self, model: Option<&ModelConfig>) -> usize {
        let prompt = self.prompt_of(model);
        let in_front = prompt.filter(|own| own.template.is_empty() && own.tasks.is_empty());
        in_front.map_or(0, |prompt| prompt.virtual_tokens)
    }

    /// The task templates that make the texts, for a model that has `[model]` before this fine-tuning.
    pub(crate) fn task_templates(&self, model: Option<&ModelConfig>) -> Option<TaskTemplates> {
        let settings: Vec<RowSettings> = match self.templates.is_empty() {
            true => (self.template_keys().iter())
                .map(|keys| RowSettings {
                    truncated: keys.truncate_field.to_owned(),
                    answer_only: None,
                })
                .collect(),
            false => self.templates.iter().map(|own| own.settings()).collect(),
        };
        TaskTemplates::of(&self.prompt_of(model)?, &settings)
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
        let of_table = self.template_keys();
        if let Some(keys) = &of_table {
            keys.check(add);
        }
        self.check_templates(add);
        let Some(prompt) = self.prompt_of(Some(model)) else {
            return;
        };
        if prompt.template.is_empty() && prompt.tasks.is_empty() {
            return;
        }
        let is_of_model = of_table.is_none() && self.templates.is_empty();
        let all = self.keys_of(&prompt, of_table);
        if is_of_model {
            all.iter().for_each(|keys| keys.check(add));
        }
        self.check_too_long(&all, add);
        if self.format != ChatFormat::Auto {
            let found = serde_json::json!(self.format).to_string();
            let wanted = "\"auto\": rows have the fields of the task template";
            add("finetune.format", found, wanted);
        }
        if !self.chat_template.is_empty() {
            let found = format!("{:?} with a task template", self.chat_template);
            add("finetune.chat_template", found, "none: it makes the text");
        }
        if prompt.are_in_front() {
            return;
        }
        for (number, name) in asked.tasks.iter().enumerate() {
            if !name.ends_with(".toml") {
                let key = format!("train.eval_tasks.tasks[{number}]");
                let wanted = "the file of a task whose prompt has the markers of the template";
                add(&key, format!("{name:?}"), wanted);
            }
        }
        let markers: Vec<TaskMarkers> = prompt.markers();
        for (number, text) in asked.prompts.iter().enumerate() {
            if let Err(why) = task_of(text, &markers) {
                let (found, wanted) = why.split_once(", want ").unwrap_or((&why, ""));
                let found = found.trim_start_matches("found ");
                let found = format!("{found} in {text:?}");
                add(&format!("generate.prompts[{number}]"), found, wanted);
            }
        }
    }

    /// The keys of every template: those of the list, of the method's table, or else of the model.
    fn keys_of<'a>(
        &'a self,
        prompt: &'a PromptConfig,
        of_table: Option<TemplateKeys<'a>>,
    ) -> Vec<TemplateKeys<'a>> {
        if !self.templates.is_empty() {
            let count = self.default_virtual_tokens();
            let all = self.templates.iter().enumerate();
            return all.map(|(number, own)| own.keys(number, count)).collect();
        }
        if let Some(keys) = of_table {
            return vec![keys];
        }
        let of_model = |table: String, template: &'a str, splits: &'a [usize]| TemplateKeys {
            table,
            virtual_tokens: splits.iter().fold(0, |sum, own| sum.saturating_add(*own)),
            template,
            splits,
            answer_field: "",
            truncate_field: "",
            is_one_of_many: false,
        };
        let of_task = |(number, task): (usize, &'a PromptTask)| {
            let table = format!("model.prompt.tasks[{number}]");
            of_model(table, &task.template, &task.splits)
        };
        match prompt.tasks.is_empty() {
            true => vec![TemplateKeys {
                virtual_tokens: prompt.virtual_tokens,
                ..of_model("model.prompt".into(), &prompt.template, &prompt.splits)
            }],
            false => prompt.tasks.iter().enumerate().map(of_task).collect(),
        }
    }

    /// Reports contradictions of `[[finetune.templates]]` with each other and with the method's table.
    fn check_templates(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if self.templates.is_empty() {
            return;
        }
        let count = self.default_virtual_tokens();
        let table = match self.method {
            FinetuneMethod::Prompt => "finetune.prompt",
            FinetuneMethod::PTuning => "finetune.p_tuning",
            FinetuneMethod::Full | FinetuneMethod::Lora | FinetuneMethod::Dpo => {
                let found = format!("templates with finetune.method = {}", self.method.shown());
                let wanted = "none, or method = \"prompt\" or \"p-tuning\"";
                add("finetune.templates", found, wanted);
                return;
            }
        };
        if let Some(keys) = self.template_keys()
            && !keys.template.is_empty()
        {
            let found = format!("{:?} beside finetune.templates", keys.template);
            add(&format!("{table}.template"), found, "one of them");
        }
        let texts: Vec<&str> = self.init_texts();
        for (number, own) in self.templates.iter().enumerate() {
            own.keys(number, count).check(add);
            let key = |name: &str| format!("finetune.templates[{number}].{name}");
            let task = own.of_model(count);
            if !task.is_named() {
                let wanted = "letters, digits, `-`, `_`, `.` and `/`";
                add(&key("name"), format!("{:?}", own.name), wanted);
            } else if (self.templates[..number].iter()).any(|other| other.name == own.name) {
                let wanted = "a name that no other template has";
                add(&key("name"), format!("{:?}", own.name), wanted);
            }
            if self.method == FinetuneMethod::PTuning && !own.init_text.is_empty() {
                let found = format!("{:?} with an encoder", own.init_text);
                add(
                    &key("init_text"),
                    found,
                    "none: it makes the virtual tokens",
                );
            } else if texts[number].is_empty() && texts.iter().any(|text| !text.is_empty()) {
                let wanted = "a text, as other templates have one, or none of all";
                add(&key("init_text"), "\"\"".into(), wanted);
            }
        }
    }

    /// Reports a contradiction of `too_long` with the fields that may lose their end.
    fn check_too_long(&self, all: &[TemplateKeys<'_>], add: &mut dyn FnMut(&str, String, &str)) {
        let truncated = |keys: &&TemplateKeys<'_>| !keys.truncate_field.is_empty();
        match (self.too_long, all.iter().find(truncated)) {
            (TooLong::Truncate, None) => {
                let table = match all {
                    [only] => only.table.as_str(),
                    _ => "finetune.templates",
                };
                let wanted = format!(
                    "\"drop\" or \"refuse\", or a {table}.truncate_field: at the end of a text is its answer"
                );
                add("finetune.too_long", "\"truncate\"".into(), &wanted);
            }
            (TooLong::Drop | TooLong::Refuse, Some(keys)) => {
                let wanted = "none, or finetune.too_long = \"truncate\"";
                let key = format!("{}.truncate_field", keys.table);
                add(&key, format!("{:?}", keys.truncate_field), wanted);
            }
            (TooLong::Truncate, Some(_)) | (TooLong::Drop | TooLong::Refuse, None) => {}
        }
    }

    /// Texts that the virtual tokens of each template start from, or of the only one; empty: none.
    pub(crate) fn init_texts(&self) -> Vec<&str> {
        let of_all = self.init_text();
        match (self.method, self.templates.is_empty()) {
            (FinetuneMethod::Prompt, false) => (self.templates.iter())
                .map(|own| match own.init_text.is_empty() {
                    true => of_all,
                    false => own.init_text.as_str(),
                })
                .collect(),
            (_, false) => vec![""; self.templates.len()],
            (_, true) => vec![of_all],
        }
    }

    /// Text that the virtual tokens start from; empty: none.
    fn init_text(&self) -> &str {
        let is_used = self.method == FinetuneMethod::Prompt;
        let table = self.prompt.as_ref().filter(|_| is_used);
        table.map_or("", |table| &table.init_text)
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
        let of_table = [("finetune.prompt.init_text".to_owned(), self.init_text())];
        let of_tasks = (self.templates.iter().enumerate()).map(|(number, own)| {
            let key = format!("finetune.templates[{number}].init_text");
            (key, own.init_text.as_str())
        });
        for (key, text) in of_table.into_iter().chain(of_tasks) {
            if model.prompt.is_some() && !text.is_empty() {
                let found = format!("{text:?} with the virtual tokens of the model");
                let wanted = "none: the virtual tokens of train.init_from go on";
                add(&key, found, wanted);
            }
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
