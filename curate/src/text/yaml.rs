//! YAML (1.2, and JSON, which is a part of it) to JSON values, as far as configurations need it.
//!
//! Plain scalars have the types of YAML 1.2's core schema, and integers may have `_` between digits, as OmegaConf reads
//! them. Aliases are refused: a few of them can stand for any amount of data. So are several documents and tags.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Deeper nesting is refused.
const MOST_DEPTH: usize = 64;

/// A list or a mapping that is open.
enum Open {
    List(Vec<Value>),
    /// With the key whose value comes next.
    Mapping(Map<String, Value>, Option<String>),
}

/// Parses a text.
///
/// # Errors
/// The place, found and wanted.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| e.to_string())?;
        let place = format!("line {}", span.start.line());
        let wrong = |found: &str, wanted: &str| format!("{place}: found {found}, wanted {wanted}");
        let done = match event {
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => continue,
            Event::Alias(_) => return Err(wrong("an alias", "the value itself")),
            Event::SequenceStart(_, None) => {
                open.push(Open::List(Vec::new()));
                None
            }
            Event::MappingStart(_, None) => {
                open.push(Open::Mapping(Map::new(), None));
                None
            }
            Event::Scalar(text, style, _, None) => Some(match style {
                ScalarStyle::Plain => plain(&text),
                _ => Value::String(text.into_owned()),
            }),
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                return Err(wrong("a tag", "a value without one"));
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(list)) => Some(Value::Array(list)),
                Some(Open::Mapping(mapping, _)) => Some(Value::Object(mapping)),
                None => None,
            },
        };
        if open.len() > MOST_DEPTH {
            return Err(wrong(
                "deeper nesting",
                &format!("at most {MOST_DEPTH} levels"),
            ));
        }
        let Some(value) = done else { continue };
        match open.last_mut() {
            None if root.is_some() => return Err(wrong("a second document", "one")),
            None => root = Some(value),
            Some(Open::List(list)) => list.push(value),
            Some(Open::Mapping(mapping, key @ None)) => match value {
                Value::String(name) if mapping.contains_key(&name) => {
                    return Err(wrong(&format!("{name:?} again"), "each key once"));
                }
                Value::String(name) => *key = Some(name),
                other => return Err(wrong(&other.to_string(), "a text as key")),
            },
            Some(Open::Mapping(mapping, key)) => {
                if let Some(name) = key.take() {
                    mapping.insert(name, value);
                }
            }
        }
    }
    root.ok_or_else(|| "found nothing, wanted a mapping".to_string())
}

/// A scalar without quotes.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digit = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digit.starts_with(|c: char| c.is_ascii_digit()) {
        if let Ok(whole) = text.replace('_', "").parse::<i64>() {
            return whole.into();
        }
        if let Ok(number) = text.parse::<f64>() {
            return number.into();
        }
    }
    Value::String(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mappings_lists_and_scalars_have_their_types() {
        let text = "a: 1\nb:\n  - 'x'\n  - 2.5\n  - \"3\"\n  - true\n  - ~\nc: {d: 1_000_000}\ne: $.a[?(@.b > 1)]\nf: \"p\n  q\"\n\
                    # note\ng: []\nh:\n";
        let wanted = json!({"a": 1, "b": ["x", 2.5, "3", true, null],
            "c": {"d": 1_000_000}, "e": "$.a[?(@.b > 1)]", "f": "p q", "g": [], "h": null});
        assert_eq!(parse(text), Ok(wanted));
        let same = json!({"a": [1, {"b": "x\n\"y\""}], "c": null});
        assert_eq!(parse(&same.to_string()), Ok(same));
    }

    #[test]
    fn what_configurations_do_not_need_is_refused_with_its_line() {
        for (text, wanted) in [
            ("a: &x [1]\nb: *x\n", "line 2: found an alias"),
            ("a: 1\na: 2\n", "line 2: found \"a\" again"),
            ("a: !!binary x\n", "line 1: found a tag"),
            ("1: 2\n", "line 1: found 1, wanted a text as key"),
            ("a\n---\nb\n", "found a second document"),
            ("", "found nothing"),
            ("a: [1\n", ""),
            ("a: \"x\n", ""),
            (&"[".repeat(100), "levels"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_ends_otherwise(text in "([a-z:\\-\\[\\]{},'\"#&*!|> \n0-9]|\\PC){0,60}") {
            let _ = parse(&text);
        }
    }
}
