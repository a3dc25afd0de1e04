//! Parser from a JSON line to a document: simd-json first, then Python's dialect (text/json.rs), at which simd-json
//! fails: `NaN`, infinities, integers beyond 64 bits, halves of surrogate pairs. Of duplicate names the last one counts.
//!
//! Which fields are used is the input's to say (parse.rs).

use serde_json::{Map, Value};

use crate::text::json;

/// A string that is not empty, or a number.
pub(crate) fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        other => json::long_integer(other).map(str::to_string),
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct JsonScratch {
    buffers: simd_json::Buffers,
    line: Vec<u8>,
}

/// Parses a line to its fields; the error is a one-line reason.
pub(crate) fn parse_object(
    bytes: &[u8],
    scratch: &mut JsonScratch,
) -> Result<Map<String, Value>, String> {
    scratch.line.clear();
    scratch.line.extend_from_slice(bytes);
    let fast: Result<Map<String, Value>, _> =
        simd_json::serde::from_slice_with_buffers(&mut scratch.line, &mut scratch.buffers);
    let object =
        fast.or_else(|_| json::from_slice_with_halves(bytes).map_err(|e| reason(bytes, &e)))?;
    // serde_json takes null for an empty map, and a number of Python's dialect is an object inside
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err("broken JSON: want an object".into());
    }
    Ok(object)
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
    use serde_json::json;

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
            let object = parse_object(line.as_bytes(), &mut scratch).unwrap();
            assert_eq!(object["text"], "a");
            assert_eq!(object.get("id").and_then(id_of), None);
        }
        for line in [r#"{"text":"a","n":nan}"#, "NaN", " null", "[1]"] {
            assert!(
                parse_object(line.as_bytes(), &mut scratch).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn ids_are_integers_of_any_length_as_they_are_written() {
        let mut scratch = JsonScratch::default();
        for id in [
            "18446744073709551616",
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            "-9223372036854775809",
            "18446744073709551615",
        ] {
            let line = format!(r#"{{"text":"a \ud83d","id":{id}}}"#);
            let object = parse_object(line.as_bytes(), &mut scratch).unwrap();
            assert_eq!(id_of(&object["id"]).as_deref(), Some(id));
            assert_eq!(object["text"], "a \u{fffd}");
        }
    }

    #[test]
    fn numbers_keep_their_digits_and_reasons_are_given() {
        let mut scratch = JsonScratch::default();
        let line = br#"{"text":"a\u00e9","id":7,"n":[18446744073709551615,-9223372036854775808,0.1,1e-7]}"#;
        let object = parse_object(line, &mut scratch).unwrap();
        let want = json!({"text": "a\u{e9}", "id": 7, "n": [u64::MAX, i64::MIN, 0.1, 1e-7]});
        assert_eq!(Value::Object(object), want);
        for (bytes, want) in [
            (&br#"{"text":"#[..], "broken JSON"),
            (&b"{\"text\":\"\xff\"}"[..], "invalid UTF-8 at byte 9"),
        ] {
            let why = parse_object(bytes, &mut scratch).unwrap_err();
            assert!(why.contains(want), "{why}");
        }
    }
}
