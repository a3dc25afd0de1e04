//! Strict reader for the fields of a `config.json`: fields that are missing, of the wrong type or never read are
//! reported by name, all at the end.

use std::cell::RefCell;

use serde_json::{Map, Value};

/// Fields that do not shape the model.
const PASSED_OVER: &[&str] = &[
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "model_type",
    "initializer_range",
    "task_specific_params",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "id2label",
    "label2id",
    "problem_type",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "n_ctx",
    "pretraining_tp",
    "tokenizer_class",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "reorder_and_upcast_attn",
    "gradient_checkpointing",
    "auto_map",
    "attn_implementation",
    "_attn_implementation",
];

/// Fields that published files have, that no class of transformers 5 reads for these families, and that say how a model
/// was made or is used by others. They are noted.
const HARMLESS: &[&str] = &[
    "_commit_hash",
    "_flash_attn_2_enabled",
    "begin_suppress_tokens",
    "directionality",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "is_llama_config",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "model_max_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "prefix",
    "repetition_penalty",
    "sep_token_id",
    "temperature",
    "tokenizer_config",
    "top_k",
    "top_p",
    "transformers.js_config",
    "typical_p",
    "unsloth_version",
];

/// The fields of a table, with the names read so far and the problems found.
pub(crate) struct Fields<'a> {
    table: &'a Map<String, Value>,
    pub at: &'a str,
    taken: RefCell<Vec<String>>,
    pub problems: RefCell<Vec<String>>,
    /// Unknown fields that change no number, a line each.
    pub notes: RefCell<Vec<String>>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(table: &'a Map<String, Value>, at: &'a str) -> Fields<'a> {
        Fields {
            table,
            at,
            taken: RefCell::default(),
            problems: RefCell::default(),
            notes: RefCell::default(),
        }
    }

    fn path(&self, name: &str) -> String {
        if self.at.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.at)
        }
    }

    pub(crate) fn wrong(&self, name: &str, found: &str, wanted: &str) {
        let line = format!("{}: found {found}, want {wanted}", self.path(name));
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&line) {
            problems.push(line);
        }
    }

    /// The field, unless it is missing or null.
    pub(crate) fn take(&self, name: &str) -> Option<&'a Value> {
        self.taken.borrow_mut().push(name.to_owned());
        self.table.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.get(name).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.taken.borrow_mut().push(name.to_owned());
        self.table.get(name).is_some_and(Value::is_null)
    }

    /// `convert` of a field's value; `default` if the field is absent; a recorded problem if there is no default
    /// either.
    fn get<T>(
        &self,
        name: &str,
        (wanted, default): (&str, Option<T>),
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        match (self.take(name), default) {
            (None, None) => {
                self.wrong(name, "nothing", wanted);
                None
            }
            (None, default) => default,
            (Some(value), _) => {
                let converted = convert(value);
                if converted.is_none() {
                    self.wrong(name, &value.to_string(), wanted);
                }
                converted
            }
        }
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        let convert = |value: &Value| usize::try_from(value.as_u64()?).ok();
        self.get(name, ("a count", None), convert).unwrap_or(1)
    }

    pub(crate) fn count_or(&self, name: &str, default: usize) -> usize {
        let convert = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let found = self.get(name, ("a count", Some(default)), convert);
        found.unwrap_or(default)
    }

    pub(crate) fn wide(&self, name: &str, default: Option<f64>) -> f64 {
        let found = self.get(name, ("a number", default), Value::as_f64);
        found.unwrap_or(1.0)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the model's numbers are f32"
    )]
    pub(crate) fn number(&self, name: &str, default: Option<f64>) -> f32 {
        self.wide(name, default) as f32
    }

    pub(crate) fn number_or(&self, name: &str) -> Option<f32> {
        self.has(name).then(|| self.number(name, None))
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        let found = self.get(name, ("true or false", Some(default)), Value::as_bool);
        found.unwrap_or(default)
    }

    /// A flag that we have in one way only.
    pub(crate) fn only(&self, name: &str, wanted: bool) {
        let found = self.flag(name, wanted);
        if found != wanted {
            self.wrong(name, &found.to_string(), &wanted.to_string());
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let convert = |value: &Value| value.as_str().map(str::to_owned);
        self.get(name, ("a name", None), convert)
    }

    pub(crate) fn text_or(&self, name: &str, default: &str) -> String {
        let convert = |value: &Value| value.as_str().map(str::to_owned);
        let found = self.get(name, ("a name", Some(default.to_owned())), convert);
        found.unwrap_or_else(|| default.to_owned())
    }

    pub(crate) fn texts(&self, name: &str) -> Option<Vec<String>> {
        let convert = |value: &Value| {
            let texts = value.as_array()?.iter();
            texts.map(|text| text.as_str().map(str::to_owned)).collect()
        };
        self.has(name)
            .then(|| self.get(name, ("a list of names", None), convert))
            .flatten()
    }

    pub(crate) fn table(&self, name: &str) -> Option<&'a Map<String, Value>> {
        let value = self.take(name)?;
        if !value.is_object() {
            self.wrong(name, &value.to_string(), "a table");
        }
        value.as_object()
    }

    /// All problems, unknown fields last. An unknown field that turns nothing on is noted instead.
    pub(crate) fn finish(&self) -> Vec<String> {
        for (name, value) in self.table {
            let is_known = self.taken.borrow().contains(name);
            if is_known || PASSED_OVER.contains(&name.as_str()) || value.is_null() {
                continue;
            }
            if is_off(value) || HARMLESS.contains(&name.as_str()) {
                let line = format!("{} = {} is ignored", self.path(name), short(value));
                self.notes.borrow_mut().push(line);
            } else {
                self.wrong(name, &short(value), "no such field");
            }
        }
        self.problems.take()
    }
}

/// Whether this value switches a field off, whatever the field is called.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(table) => table.is_empty(),
    }
}

/// A value in a message.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
