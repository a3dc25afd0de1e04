//! `[finetune]`: supervised fine-tuning on conversations and instructions.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::adapter_table::AdapterTable;
use super::prompt_tuning::{PTuningTable, PromptTable};
use super::template_table::TemplateTable;
use train::config::{ModelConfig, TrainConfig};

/// `[finetune]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FinetuneTable {
    /// Task of the training and the weights that it changes: `full`, answers, with all weights; `lora`, answers, with low-rank adapters beside
    /// frozen weights; `prompt`, answers, with virtual tokens in front of every conversation or at places of a task template, before frozen
    /// weights; `p-tuning`, the same, made by an encoder that is trained; `dpo`, to prefer one answer to another, with all weights, or with adapters if
    /// there is `[finetune.lora]`. Default: full.
    pub method: FinetuneMethod,
    /// Adapters of `method = "lora"` or `"dpo"`, in place of `[model.lora]`. Absent: those of `train.init_from` if it has some, else the
    /// defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<train::config::LoraConfig>,
    /// Several adapters, trained together over one base. Empty: one, whose files are beside those of the training.
    pub adapters: Vec<AdapterTable>,
    /// Loss of `method = "dpo"`. Absent: DPO's own with beta 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dpo: Option<train::config::PreferenceConfig>,
    /// Virtual tokens of `method = "prompt"`. Absent: those of `train.init_from` if it has some, else the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptTable>,
    /// Virtual tokens and encoder of `method = "p-tuning"`. Absent: those of `train.init_from` if it has some, else the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_tuning: Option<PTuningTable>,
    /// Task templates of `method = "prompt"` and `"p-tuning"`, of which the column `taskname` of a row names one. Empty: the only one of the
    /// method's table, or those of `train.init_from`.
    pub templates: Vec<TemplateTable>,
    /// Files of conversations to train on: JSONL, JSON, Parquet, Arrow, CSV or TSV, plain or compressed.
    pub train: Vec<PathBuf>,
    /// Files of conversations to validate on after each epoch. The first is the set `valid`, the others have the names of
    /// their files.
    pub valid: Vec<PathBuf>,
    /// Form of the rows; `auto` takes the one that a row's columns fit. Default: auto.
    pub format: ChatFormat,
    /// Tokenizer. Empty: that of `[tokenize]`, else the one in or above `train.init_from`.
    pub tokenizer: PathBuf,
    /// Jinja template that makes a conversation one text: a file, or the built-in `chatml` or `plain`. Empty: the one that comes
    /// with the tokenizer.
    pub chat_template: String,
    /// Tokens per sample. Default: 1024.
    pub seq_length: usize,
    /// Only answers, with the token that ends them, count in the loss. Default: true.
    pub answer_only_loss: bool,
    /// Several conversations share a sample (best-fit decreasing), none of which sees another. Default: true.
    pub packing: bool,
    /// Conversations of more than `seq_length` + 1 tokens: `drop`, `truncate` (they lose their end) or `refuse`. Those left out are
    /// counted and named in `finetune/left_out.jsonl`. Default: drop.
    pub too_long: TooLong,
    /// Rows that are no conversations, such as one with an empty answer: `refuse`, or `drop`, which counts and names them in
    /// `finetune/left_out.jsonl`. Default: refuse.
    pub bad_rows: BadRows,
    /// Epochs of training, in place of `train.steps`, which is refused beside it. Default: 3.
    pub epochs: u64,
    /// Share of the steps that warm up the learning rate, in place of `train.warmup_steps`, which is refused beside it. Default: 0.03.
    pub warmup: f64,
    /// Conversations of the first validation file, or else of the first training file, whose last answer the trained model
    /// writes for the report. Default: 4.
    pub samples: usize,
}

impl Default for FinetuneTable {
    fn default() -> Self {
        FinetuneTable {
            method: FinetuneMethod::Full,
            lora: None,
            adapters: Vec::new(),
            dpo: None,
            prompt: None,
            p_tuning: None,
            templates: Vec::new(),
            train: Vec::new(),
            valid: Vec::new(),
            format: ChatFormat::Auto,
            tokenizer: PathBuf::new(),
            chat_template: String::new(),
            seq_length: 1024,
            answer_only_loss: true,
            packing: true,
            too_long: TooLong::Drop,
            bad_rows: BadRows::Refuse,
            epochs: 3,
            warmup: 0.03,
            samples: 4,
        }
    }
}

/// Weights that fine-tuning changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinetuneMethod {
    /// All weights of the model.
    Full,
    /// Low-rank adapters (Hu et al. 2021, arXiv:2106.09685).
    Lora,
    /// Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290): pairs of a chosen and a rejected answer, against
    /// the model as it was before.
    Dpo,
    /// Virtual tokens (Lester et al. 2021, arXiv:2104.08691).
    Prompt,
    /// Virtual tokens that an encoder makes (Liu et al. 2021, arXiv:2103.10385).
    #[serde(rename = "p-tuning")]
    PTuning,
}

/// Form of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatFormat {
    /// By the row's columns.
    Auto,
    /// OpenAI's `messages`, each with `role` and `content`.
    Messages,
    /// ShareGPT's `conversations`, each with `from` and `value`.
    Sharegpt,
    /// Alpaca's `instruction`, `input` and `output`; Dolly's `context` and `response`.
    Alpaca,
    /// `prompt` and `completion`: texts, which no template changes, or lists of messages.
    PromptCompletion,
}

/// Conversations that do not fit a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TooLong {
    /// They are left out.
    Drop,
    /// They lose their end.
    Truncate,
    /// The run ends.
    Refuse,
}

/// Rows that are no conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadRows {
    /// The run ends.
    Refuse,
    /// They are left out.
    Drop,
}

impl FinetuneTable {
    /// `[model]` with the adapters of the method.
    pub(super) fn adapt(&self, model: &mut ModelConfig) {
        match self.method {
            FinetuneMethod::Lora => {
                let lora = self.lora.clone().or_else(|| model.lora.take());
                model.lora = Some(lora.unwrap_or_default());
            }
            FinetuneMethod::Dpo => model.lora = self.lora.clone().or_else(|| model.lora.take()),
            FinetuneMethod::Full | FinetuneMethod::Prompt | FinetuneMethod::PTuning => {}
        }
        self.add_prompt(model);
    }

    /// Whether low-rank adapters can learn it.
    fn may_have_adapters(&self) -> bool {
        match self.method {
            FinetuneMethod::Lora | FinetuneMethod::Dpo => true,
            FinetuneMethod::Full | FinetuneMethod::Prompt | FinetuneMethod::PTuning => false,
        }
    }

    /// Whether a row is a pair of conversations, with a chosen and a rejected answer.
    pub(crate) fn has_pairs(&self) -> bool {
        self.method == FinetuneMethod::Dpo
    }

    /// `[train]` with the steps of the epochs, their warm-up, a validation of every sample after each, and conversations that
    /// share a sample kept apart.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the steps"
    )]
    pub(crate) fn schedule(&self, train: &TrainConfig, steps_of_epoch: u64) -> TrainConfig {
        let steps = steps_of_epoch.saturating_mul(self.epochs);
        let are_apart = self.packing || self.has_pairs();
        TrainConfig {
            steps,
            warmup_steps: (self.warmup * steps as f64).round() as u64,
            eval_every: match train.eval_every {
                0 => 0,
                _ => steps_of_epoch,
            },
            eval_samples: u64::MAX,
            reset_attention_mask: are_apart,
            reset_position_ids: are_apart,
            preference: (self.has_pairs()).then(|| self.dpo.clone().unwrap_or_default()),
            ..train.clone()
        }
    }

    /// Reports every contradiction.
    pub(super) fn check(&self, add: &mut dyn FnMut(&str, String, &str)) {
        self.check_prompt(add);
        if !self.may_have_adapters() && self.lora.is_some() {
            let found = format!("a table with finetune.method = {}", self.method.shown());
            add(
                "finetune.lora",
                found,
                "none, or finetune.method = \"lora\"",
            );
        }
        self.check_pairs(add);
        if self.train.is_empty() && self.adapters.is_empty() {
            add("finetune.train", "[]".into(), "at least one file");
        }
        if self.seq_length < 2 {
            let found = self.seq_length.to_string();
            add("finetune.seq_length", found, "at least 2");
        }
        if self.epochs == 0 {
            add("finetune.epochs", "0".into(), "at least 1");
        }
        if !(0.0..=1.0).contains(&self.warmup) {
            add("finetune.warmup", self.warmup.to_string(), "0 to 1");
        }
    }

    /// Reports contradictions about pairs.
    fn check_pairs(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if !self.has_pairs() {
            if self.dpo.is_some() {
                let found = "a table without finetune.method = \"dpo\"".into();
                add("finetune.dpo", found, "none, or finetune.method = \"dpo\"");
            }
            return;
        }
        if self.format != ChatFormat::Auto {
            let found = serde_json::json!(self.format).to_string();
            let wanted = "\"auto\": rows of pairs have columns chosen and rejected";
            add("finetune.format", found, wanted);
        }
        if !self.answer_only_loss {
            let wanted = "true: pairs are compared by their answers";
            add("finetune.answer_only_loss", "false".into(), wanted);
        }
        if self.too_long == TooLong::Truncate {
            let wanted =
                "\"drop\" or \"refuse\": an answer that is cut is not the one that was judged";
            add("finetune.too_long", "\"truncate\"".into(), wanted);
        }
    }
}
