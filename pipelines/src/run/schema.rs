//! `schema`: JSON Schema (draft 2020-12) of a job file, from the key reference, for editors that complete and check TOML.

use crate::job::reference::{Key, Table, tables};
use crate::log::print;
use anyhow::Result;
use serde_json::{Map, Value, json};

/// Tables that may also be written as plain values.
const SHORT_FORMS: [(&str, Short); 1] = [("curate.inputs", Short::Paths)];

/// A shorter way to write a value.
#[derive(Clone, Copy)]
enum Short {
    /// A path, or a list of paths and tables.
    Paths,
}

/// The verb.
///
/// # Errors
/// If stdout is closed.
pub(crate) fn schema() -> Result<()> {
    print(&format!("{:#}\n", of_jobs()))
}

fn of_jobs() -> Value {
    let mut defs = Map::new();
    let mut root = Map::new();
    for table in tables() {
        match table.path.as_str() {
            "" => root = of_table(table),
            path => {
                defs.insert(path.to_owned(), Value::Object(of_table(table)));
            }
        }
    }
    let mut all = Map::new();
    all.insert(
        "$schema".into(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    all.insert("title".into(), "A job of Millrace".into());
    all.extend(root);
    all.insert("$defs".into(), Value::Object(defs));
    Value::Object(all)
}

fn of_table(table: &Table) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in &table.keys {
        let name = key.path.rsplit('.').next().unwrap_or_default();
        properties.insert(name.to_owned(), of_key(key));
        if key.default == "required" {
            required.push(name);
        }
    }
    let mut all = Map::new();
    all.insert("type".into(), "object".into());
    if !table.meaning.is_empty() {
        all.insert("description".into(), table.meaning.clone().into());
    }
    all.insert("properties".into(), Value::Object(properties));
    all.insert("additionalProperties".into(), false.into());
    if !required.is_empty() {
        all.insert("required".into(), required.into());
    }
    all
}

fn of_key(key: &Key) -> Value {
    let mut value = of_kind(&key.kind, key);
    for (path, short) in SHORT_FORMS {
        if path == key.path {
            value = match short {
                Short::Paths => {
                    let items = json!({"anyOf": [{"type": "string"}, value["items"]]});
                    json!({"anyOf": [{"type": "string"}, {"type": "array", "items": items}]})
                }
            };
        }
    }
    let Value::Object(all) = &mut value else {
        return value;
    };
    let mut meaning = key.meaning.clone();
    for (word, of_word) in &key.words {
        meaning.push_str(&format!("\n\"{word}\": {of_word}"));
    }
    all.insert("description".into(), meaning.into());
    if let Some(default) = default_of(key) {
        all.insert("default".into(), default);
    }
    value
}

/// The default as JSON; `None` if the key is absent or required, or the reference says it in words.
fn default_of(key: &Key) -> Option<Value> {
    let text = format!("value = {}", key.default);
    let table: Map<String, Value> = toml::from_str(&text).ok()?;
    table.get("value").cloned()
}

/// The schema of a kind in the words of the reference: `integer`, `list of strings`, `table of numbers or booleans`, `[integer,
/// number]`, `boolean or table`.
fn of_kind(kind: &str, key: &Key) -> Value {
    if let Some(rest) = kind.strip_prefix("list of ") {
        return json!({"type": "array", "items": of_kind(&singular(rest), key)});
    }
    if let Some(rest) = kind.strip_prefix("table of ") {
        let mut value =
            json!({"type": "object", "additionalProperties": of_kind(&singular(rest), key)});
        if !key.names.is_empty() {
            value["propertyNames"] = json!({"enum": key.names});
        }
        return value;
    }
    if let Some(parts) = kind
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let parts: Vec<Value> = parts.split(", ").map(|part| of_kind(part, key)).collect();
        let count = parts.len();
        return json!({"type": "array", "prefixItems": parts, "items": false, "minItems": count});
    }
    if let Some((first, rest)) = kind.split_once(" or ") {
        return json!({"anyOf": [of_kind(first, key), of_kind(rest, key)]});
    }
    match kind {
        "word" if !key.words.is_empty() => {
            let words: Vec<&str> = key.words.iter().map(|(word, _)| word.as_str()).collect();
            json!({"enum": words})
        }
        "table" => {
            let of = |path: &String| json!({"$ref": format!("#/$defs/{path}")});
            let inside = format!("{}.", key.path);
            let named: Option<Map<String, Value>> = (key.tables.iter())
                .map(|path| Some((path.strip_prefix(&inside)?.to_owned(), of(path))))
                .collect();
            match (named, &key.tables[..]) {
                (_, []) => json!({"type": "object"}),
                // a table whose one key says which it is, as a step's
                (Some(named), _) => {
                    json!({"type": "object", "properties": named, "additionalProperties": false})
                }
                (None, [one]) => of(one),
                (None, all) => json!({"anyOf": all.iter().map(of).collect::<Vec<Value>>()}),
            }
        }
        "integer" | "number" | "boolean" => json!({"type": kind}),
        _ => json!({"type": "string"}),
    }
}

/// `strings` as `string`, also of alternatives.
fn singular(kinds: &str) -> String {
    if kinds.starts_with('[') {
        return kinds.to_owned();
    }
    let parts = kinds
        .split(" or ")
        .map(|part| part.strip_suffix('s').unwrap_or(part));
    parts.collect::<Vec<&str>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::reference::keys;

    #[test]
    fn every_key_has_a_type_and_every_reference_a_table() {
        let schema = of_jobs();
        let mut found = 0;
        let defs = schema["$defs"].as_object().unwrap();
        for table in std::iter::once(&schema).chain(defs.values()) {
            assert_eq!(table["additionalProperties"], false);
            for (name, key) in table["properties"].as_object().unwrap() {
                found += 1;
                let is_typed = ["type", "enum", "anyOf", "$ref"]
                    .iter()
                    .any(|kind| key.get(*kind).is_some());
                assert!(is_typed && key["description"].is_string(), "{name}: {key}");
            }
        }
        assert_eq!(found, keys().count());
        let text = schema.to_string();
        let mut refs = 0;
        for part in text.split("\"#/$defs/").skip(1) {
            let path = part.split('"').next().unwrap();
            assert!(defs.contains_key(path), "{path}");
            refs += 1;
        }
        assert!(refs > 50, "{refs}");
    }

    #[test]
    fn kinds_are_the_schemas_that_they_say() {
        let key = Key {
            words: vec![("a".into(), "A.".into()), ("b".into(), "B.".into())],
            names: vec!["x".into()],
            tables: vec!["t".into()],
            ..Key::default()
        };
        for (kind, wanted) in [
            (
                "list of strings",
                json!({"type": "array", "items": {"type": "string"}}),
            ),
            (
                "list of words",
                json!({"type": "array", "items": {"enum": ["a", "b"]}}),
            ),
            (
                "list of [integer, number]",
                json!({"type": "array", "items": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}],
                    "items": false, "minItems": 2}}),
            ),
            (
                "table of numbers or booleans",
                json!({"type": "object", "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "boolean"}]},
                    "propertyNames": {"enum": ["x"]}}),
            ),
            (
                "boolean or table",
                json!({"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/t"}]}),
            ),
            (
                "string or list of strings",
                json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
            ),
        ] {
            assert_eq!(of_kind(kind, &key), wanted, "{kind}");
        }
    }
}
