//! Values of columns (Parquet, Arrow) as JSON text.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
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

/// A column whose own value is written.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    /// It has texts, so that bytes which are no UTF-8 are no value of it.
    pub(super) is_text: bool,
}

/// Appends bytes: a text if they are UTF-8, else base64; of a column of texts an error that names it.
pub(super) fn write_bytes(
    out: &mut Vec<u8>,
    column: Option<Column<'_>>,
    bytes: &[u8],
) -> Result<(), String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_text(out, column.map_or("", |column| column.name), text),
        Err(e) => match column.filter(|column| column.is_text) {
            Some(Column { name, .. }) => {
                let at = e.valid_up_to();
                Err(format!("invalid UTF-8 at byte {at} of the column {name:?}"))
            }
            None => write_json(out, &BASE64_STANDARD.encode(bytes)),
        },
    }
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
