//! `[[finetune.templates]]`: one of several task templates, whose virtual tokens are trained together.

use serde::{Deserialize, Serialize};
use train::config::PromptTask;

use super::task_template::{RowSettings, TemplateKeys};

/// One of several tasks, an entry of NeMo's `task_templates`. Its virtual tokens are rows of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TemplateTable {
    /// Name of the task, which rows have in their column `taskname`: letters, digits, `-`, `_`, `.` and `/`.
    pub name: String,
    /// Text of each sample, NeMo's `prompt_template`: markers `<|VIRTUAL_PROMPT_0|>`, `<|VIRTUAL_PROMPT_1|>`, ..., where virtual tokens
    /// stand, and fields of a row in braces, the answer last.
    pub template: String,
    /// Virtual tokens of the task, NeMo's `total_virtual_tokens`. They count in `seq_length`. 0, the default: the sum of `splits`, or without
    /// these as many as the method's table says.
    pub virtual_tokens: usize,
    /// Virtual tokens at each marker of the template, NeMo's `virtual_token_splits`. Empty, the default: all at its only one.
    pub splits: Vec<usize>,
    /// Field of the answer. Empty, the default: the template's last.
    pub answer_field: String,
    /// Field that loses its end where a text is too long and `too_long = "truncate"`, NeMo's `truncate_field`. Empty, the default: none.
    pub truncate_field: String,
    /// Only answers, with the token that ends them, count in the loss of this task. Absent: as `finetune.answer_only_loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_only_loss: Option<bool>,
    /// Text whose tokens' embeddings the virtual tokens of the task start from, of `method = "prompt"`. Empty, the default: that of
    /// `finetune.prompt`. All tasks have one, or none.
    pub init_text: String,
}

impl TemplateTable {
    /// Virtual tokens of the task, `default` where it says none.
    fn virtual_tokens(&self, default: usize) -> usize {
        let sum = |sum: usize, own: &usize| sum.saturating_add(*own);
        match (self.virtual_tokens, self.splits.is_empty()) {
            (0, true) => default,
            (0, false) => self.splits.iter().fold(0, sum),
            (tokens, _) => tokens,
        }
    }

    pub(super) fn of_model(&self, default: usize) -> PromptTask {
        PromptTask {
            name: self.name.clone(),
            template: self.template.clone(),
            splits: match self.splits.is_empty() {
                true => vec![self.virtual_tokens(default)],
                false => self.splits.clone(),
            },
        }
    }

    pub(super) fn keys(&self, number: usize, default: usize) -> TemplateKeys<'_> {
        TemplateKeys {
            table: format!("finetune.templates[{number}]"),
            virtual_tokens: self.virtual_tokens(default),
            template: &self.template,
            splits: &self.splits,
            answer_field: &self.answer_field,
            truncate_field: &self.truncate_field,
            is_one_of_many: true,
        }
    }

    pub(super) fn settings(&self) -> RowSettings {
        RowSettings {
            truncated: self.truncate_field.clone(),
            answer_only: self.answer_only_loss,
        }
    }
}
