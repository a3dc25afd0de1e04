//! Values of columns (Parquet, Arrow) as JSON text.

use serde::Serialize;

use crate::text::json;

/// Appends a value.
pub(super) fn write_json(
    out: &mut Vec<u8>,
    value: &(impl Serialize + ?Sized),
) -> Result<(), String> {
    serde_json::to_writer(out, value).map_err(|e| e.to_string())
}

/// Appends a text of the column `name`; of `metadata` and `meta` an object that is JSON text is that object.
pub(super) fn write_text(out: &mut Vec<u8>, name: &str, text: &str) -> Result<(), String> {
    if matches!(name, "metadata" | "meta") && text.starts_with('{') && json::is_json(text) {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    write_json(out, text)
}

/// A number that JSON does not know, as Python writes it.
pub(super) fn special(number: f64) -> Option<&'static str> {
    match number {
        n if n.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}
