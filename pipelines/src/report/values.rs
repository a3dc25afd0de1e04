//! Readers for JSON values: numbers and text with defaults.

use crate::generation::trained_tokenizer::TOKENIZER;
use serde_json::Value;

pub(super) fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}

pub(super) fn text_value(v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether a name is a whole stage, not a part of one (`curate/00003`).
pub(super) fn is_stage(name: &str) -> bool {
    !name.contains('/') || name == TOKENIZER
}
