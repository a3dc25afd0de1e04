//! Parser from a JSON line to a document: simd-json first, serde_json as fallback, then Python's extensions:
//! duplicate names (the last one counts), `NaN` and infinities.
//!
//! Required: `text` (string). Used if present: `id` (string or number), `url`, and `meta` or
//! `metadata` with `pile_set_name` (The Pile's layout), `url`, `language`. Other fields are ignored.

use serde::Deserialize;
use serde_json::Value;

use crate::text::json;

/// The fields of a line.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Line {
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) id: Value,
    #[serde(default)]
    pub(crate) url: Value,
    #[serde(default)]
    meta: Value,
    #[serde(default)]
    metadata: Value,
}

impl Line {
    /// `meta.KEY` or `metadata.KEY` as a string.
    fn meta(&self, key: &str) -> Option<&str> {
        [&self.meta, &self.metadata]
            .into_iter()
            .find_map(|m| m.get(key)?.as_str())
    }

    /// `meta.pile_set_name`.
    pub(crate) fn subset(&self) -> Option<&str> {
        self.meta("pile_set_name")
    }

    /// The record's own id.
    pub(crate) fn own_id(&self) -> Option<String> {
        id_of(&self.id)
    }

    /// The record's address.
    pub(crate) fn address(&self) -> Option<&str> {
        self.url.as_str().or_else(|| self.meta("url"))
    }
}

/// A string that is not empty, or a number.
pub(crate) fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct JsonScratch {
    buffers: simd_json::Buffers,
    line: Vec<u8>,
}

/// Parses a line; the error is a one-line reason.
pub(crate) fn parse_line(bytes: &[u8], scratch: &mut JsonScratch) -> Result<Line, String> {
    scratch.line.clear();
    scratch.line.extend_from_slice(bytes);
    let fast: Result<Line, _> =
        simd_json::serde::from_slice_with_buffers(&mut scratch.line, &mut scratch.buffers);
    let line = match fast {
        Ok(line) => line,
        Err(_) => slow(bytes).map_err(|e| reason(bytes, &e))?,
    };
    if line.text.is_none() {
        return Err("no text field".to_string());
    }
    Ok(line)
}

fn slow(bytes: &[u8]) -> serde_json::Result<Line> {
    serde_json::from_slice(bytes).or_else(|error| {
        // of repeated names the last one counts, as in Python
        let value: Value = json::from_slice(bytes)?;
        if value.is_object() {
            serde_json::from_value(value)
        } else {
            Err(error)
        }
    })
}

/// Why a line cannot be parsed.
pub(crate) fn reason(bytes: &[u8], error: &serde_json::Error) -> String {
    match std::str::from_utf8(bytes) {
        Err(e) => format!("invalid UTF-8 at byte {} of the line", e.valid_up_to()),
        Ok(_) => format!("broken JSON: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_reads_is_read() {
        let mut scratch = JsonScratch::default();
        for line in [
            r#"{"text":"a","n":NaN}"#,
            r#"{"text":"a","n":[{"x":-Infinity}],"id":NaN,"url":Infinity}"#,
            r#"{"text":"a","n":1e999}"#,
            r#"{"text":"b","text":"a"}"#,
            r#"{"text":"a","meta":{"pile_set_name":NaN,"x":1},"meta":null}"#,
        ] {
            let line = parse_line(line.as_bytes(), &mut scratch).unwrap();
            assert_eq!(line.text.as_deref(), Some("a"));
            assert_eq!(
                (line.own_id(), line.address(), line.subset()),
                (None, None, None)
            );
        }
        for line in [r#"{"text":NaN}"#, r#"{"text":"a","n":nan}"#, "NaN"] {
            assert!(parse_line(line.as_bytes(), &mut scratch).is_err(), "{line}");
        }
    }

    #[test]
    fn fields_are_found_and_reasons_given() {
        let mut scratch = JsonScratch::default();
        let line = parse_line(
            br#"{"text":"a\u00e9","id":7,"meta":{"pile_set_name":"ArXiv","url":"http://x.y/"},"z":[1]}"#,
            &mut scratch,
        )
        .unwrap();
        assert_eq!(line.text.as_deref(), Some("a\u{e9}"));
        assert_eq!(line.own_id().as_deref(), Some("7"));
        assert_eq!(
            (line.subset(), line.address()),
            (Some("ArXiv"), Some("http://x.y/"))
        );
        for (bytes, want) in [
            (&br#"{"text":"#[..], "broken JSON"),
            (&b"{\"text\":\"\xff\"}"[..], "invalid UTF-8 at byte 9"),
            (&br#"{"body":"x"}"#[..], "no text field"),
            (&br#"{"text":3}"#[..], "broken JSON"),
        ] {
            let why = parse_line(bytes, &mut scratch).unwrap_err();
            assert!(why.contains(want), "{why}");
        }
    }
}
