//! Python's `json.dumps(value, indent=4)`, byte for byte: the text that Megatron hashes to name its cache files.
//!
//! Items end with a comma and a line break, keys with a colon and a space, four spaces per level, empty containers
//! on one line, every character outside ASCII as UTF-16 escapes, floats as Python's `repr`. Source: Python 3's
//! `json` (facts).

use serde_json::Value;

/// The text.
pub(super) fn dumps(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out
}

fn write(value: &Value, level: usize, out: &mut String) {
    let line = |out: &mut String, level: usize| {
        out.push('\n');
        out.push_str(&"    ".repeat(level));
    };
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => match n.as_f64().filter(|_| n.is_f64()) {
            Some(x) => out.push_str(&float(x)),
            None => out.push_str(&n.to_string()),
        },
        Value::String(s) => text(s, out),
        Value::Array(a) if a.is_empty() => out.push_str("[]"),
        Value::Object(o) if o.is_empty() => out.push_str("{}"),
        Value::Array(a) => {
            out.push('[');
            for (i, v) in a.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                line(out, level + 1);
                write(v, level + 1, out);
            }
            line(out, level);
            out.push(']');
        }
        Value::Object(o) => {
            out.push('{');
            for (i, (k, v)) in o.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                line(out, level + 1);
                text(k, out);
                out.push_str(": ");
                write(v, level + 1, out);
            }
            line(out, level);
            out.push('}');
        }
    }
}

fn text(s: &str, out: &mut String) {
    out.push('"');
    for unit in s.encode_utf16() {
        match u8::try_from(unit) {
            Ok(b'"') => out.push_str("\\\""),
            Ok(b'\\') => out.push_str("\\\\"),
            Ok(b'\n') => out.push_str("\\n"),
            Ok(b'\r') => out.push_str("\\r"),
            Ok(b'\t') => out.push_str("\\t"),
            Ok(8) => out.push_str("\\b"),
            Ok(12) => out.push_str("\\f"),
            Ok(c @ 0x20..=0x7e) => out.push(char::from(c)),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
}

/// `repr(x)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(x: f64) -> String {
    let shortest = format!("{x:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else {
        return shortest; // inf, nan
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{x:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Texts: Python 3.11, json.dumps(value, indent=4) and repr.
    #[test]
    fn floats_are_pythons() {
        for (x, want) in [
            (0.949, "0.949"),
            (1e-7, "1e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (0.0, "0.0"),
            (1.0 / 3.0, "0.3333333333333333"),
        ] {
            assert_eq!(float(x), want);
        }
    }

    #[test]
    fn nesting_escapes_and_empty_containers_are_pythons() {
        let value =
            json!({"a": [1, [0, 0.5], null], "b": {}, "c": [], "d": "x\"\u{e9}\u{1f600}\n\u{7f}"});
        let want = r#"{
    "a": [
        1,
        [
            0,
            0.5
        ],
        null
    ],
    "b": {},
    "c": [],
    "d": "x\"\u00e9\ud83d\ude00\n\u007f"
}"#;
        assert_eq!(dumps(&value), want);
    }
}
