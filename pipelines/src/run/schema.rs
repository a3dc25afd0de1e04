//! `schema`: the JSON Schema (draft 2020-12) of job files, made from the key reference, for editors and other checkers.
//!
//! It knows keys, types, words, defaults and the limits 0 and 1 of numbers of every table. Contradictions between keys and other
//! ranges are left to `--check`.

use super::explain::bounds;
use crate::job::reference::{Key, Table, tables};
use crate::log::print;
use anyhow::Result;
use serde_json::{Map, Value, json};

/// Prints the schema.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn schema() -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(&made())?))
}

fn made() -> Value {
    let mut tables = tables().iter();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job file of Millrace",
    });
    let top = tables.next().map(of_table).unwrap_or_default();
    let inner: Map<String, Value> = tables
        .map(|table| (table.path.clone(), Value::Object(of_table(table))))
        .collect();
    if let Value::Object(all) = &mut schema {
        all.extend(top);
        all.insert("$defs".into(), Value::Object(inner));
    }
    schema
}

fn of_table(table: &Table) -> Map<String, Value> {
    let name = |key: &Key| key.path.rsplit('.').next().unwrap_or_default().to_string();
    let keys = table.keys.iter();
    let properties: Map<String, Value> = keys
        .map(|key| (name(key), Value::Object(of_key(key))))
        .collect();
    let keys = table.keys.iter().filter(|key| key.default == "required");
    let required: Vec<String> = keys.map(name).collect();
    let mut schema = Map::new();
    if !table.meaning.is_empty() {
        schema.insert("description".into(), json!(table.meaning));
    }
    // a text may stand for the table, and only objects have properties, so that a wrong key is an error at its own place
    let kind = match may_be_text(table) {
        true => json!(["object", "string"]),
        false => json!("object"),
    };
    schema.insert("type".into(), kind);
    schema.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema.insert("additionalProperties".into(), json!(false));
    schema
}

fn of_key(key: &Key) -> Map<String, Value> {
    let mut schema = of_kind(key, &key.kind);
    let mut meaning = key.meaning.clone();
    for (word, text) in &key.words {
        meaning.push_str(&format!("\n\"{word}\": {text}"));
    }
    schema.insert("description".into(), json!(meaning));
    let limits = bounds(key);
    let limits = [
        ("minimum", limits.minimum),
        ("exclusiveMinimum", limits.exclusive_minimum),
        ("maximum", limits.maximum),
        ("exclusiveMaximum", limits.exclusive_maximum),
    ];
    for (keyword, limit) in limits {
        schema.extend(limit.map(|limit| (keyword.to_string(), json!(limit))));
    }
    let default = format!("x = {}", key.default).parse::<toml::Table>();
    let default = default.ok().and_then(|mut table| table.remove("x"));
    if let Some(default) = default.and_then(|value| serde_json::to_value(value).ok()) {
        schema.insert("default".into(), default);
    }
    schema
}

/// The schema of a type, by its name in the reference.
fn of_kind(key: &Key, kind: &str) -> Map<String, Value> {
    let inner = |kind: &str| Value::Object(of_kind(key, kind));
    let schema = if let Some(parts) = list_of(kind) {
        let parts: Vec<Value> = parts.map(inner).collect();
        let count = parts.len();
        json!({"type": "array", "prefixItems": parts, "items": false, "minItems": count})
    } else if let Some(list) = kind.strip_suffix(FORMS) {
        let table = inner(&singular(&list["list of ".len()..]));
        json!({"type": ["array", "string"], "items": table})
    } else if let Some((first, second)) = alternatives(kind) {
        json!({"anyOf": [inner(first), inner(second)]})
    } else if let Some(of) = kind.strip_prefix("list of ") {
        json!({"type": "array", "items": inner(&singular(of))})
    } else if let Some(of) = kind.strip_prefix("table of ") {
        map_of(key, &inner(&singular(of)))
    } else {
        match kind {
            "word" if !key.words.is_empty() => {
                let words: Vec<&str> = key.words.iter().map(|(word, _)| word.as_str()).collect();
                json!({"type": "string", "enum": words})
            }
            "table" => of_tables(key),
            "integer" | "number" | "boolean" => json!({"type": kind}),
            _ => json!({"type": "string"}),
        }
    };
    match schema {
        Value::Object(schema) => schema,
        // every branch makes an object
        _ => Map::new(),
    }
}

/// Words that the reference adds to the type of a list whose tables may be texts, as may the list.
const FORMS: &str = " or strings, or string";

/// Whether a text may stand for each table of a list.
fn may_be_text(table: &Table) -> bool {
    let mut keys = tables().iter().flat_map(|table| &table.keys);
    keys.any(|key| key.kind.ends_with(FORMS) && key.tables.first() == Some(&table.path))
}

/// A table whose keys are names to choose, or of those that the program has.
fn map_of(key: &Key, value: &Value) -> Value {
    if key.names.is_empty() {
        return json!({"type": "object", "additionalProperties": value});
    }
    let names = key.names.iter().map(|name| (name.clone(), value.clone()));
    let properties: Map<String, Value> = names.collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// A table, or one with a single key that names a variant.
fn of_tables(key: &Key) -> Value {
    let reference = |path: &String| json!({"$ref": format!("#/$defs/{path}")});
    let below = format!("{}.", key.path);
    let variants = key.tables.iter().filter_map(|path| {
        let name = path.strip_prefix(&below)?;
        Some((name.to_string(), reference(path)))
    });
    let variants: Map<String, Value> = variants.collect();
    match key.tables.first() {
        _ if !variants.is_empty() => json!({
            "type": "object", "properties": variants, "additionalProperties": false,
            "minProperties": 1, "maxProperties": 1,
        }),
        Some(path) => reference(path),
        None => json!({"type": "object"}),
    }
}

/// `[integer, number]`: the types of a list of a fixed form.
fn list_of(kind: &str) -> Option<impl Iterator<Item = &str>> {
    let parts = kind.strip_prefix('[')?.strip_suffix(']')?;
    Some(parts.split(", "))
}

/// `boolean or table`; not `table of numbers or booleans`, whose values are of two types.
fn alternatives(kind: &str) -> Option<(&str, &str)> {
    match kind.starts_with("table of ") {
        true => None,
        false => kind.split_once(" or "),
    }
}

/// `integer` of `integers`, `number or boolean` of `numbers or booleans`.
fn singular(kinds: &str) -> String {
    let one = |kind: &str| kind.strip_suffix('s').unwrap_or(kind).to_string();
    kinds
        .split(" or ")
        .map(one)
        .collect::<Vec<_>>()
        .join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_the_reference_has_its_schema() {
        let key = Key {
            names: vec!["short".into()],
            ..Key::default()
        };
        let of = |kind: &str| Value::Object(of_kind(&key, kind));
        let (integer, number) = (json!({"type": "integer"}), json!({"type": "number"}));
        assert_eq!(
            of("list of integers"),
            json!({"type": "array", "items": integer})
        );
        let pair = json!({"type": "array", "prefixItems": [integer, number], "items": false, "minItems": 2});
        assert_eq!(
            of("list of [integer, number]"),
            json!({"type": "array", "items": pair})
        );
        let either = json!({"anyOf": [number, {"type": "boolean"}]});
        assert_eq!(
            of("table of numbers or booleans"),
            json!({"type": "object", "properties": {"short": either}, "additionalProperties": false})
        );
        let text = json!({"type": "string"});
        let texts = json!({"type": "array", "items": text});
        assert_eq!(
            of("string or list of strings"),
            json!({"anyOf": [text, texts]})
        );
        // the table's own schema takes a text as well
        let tables = json!({"type": ["array", "string"], "items": {"type": "object"}});
        assert_eq!(of("list of tables or strings, or string"), tables);
    }

    #[test]
    fn tables_for_which_a_text_may_stand_are_no_alternatives() {
        let schema = made();
        for at in ["curate", "tokenize"] {
            let inputs = &schema["$defs"][at]["properties"]["inputs"];
            assert_eq!(inputs["type"], json!(["array", "string"]), "{at}");
            let name = inputs["items"]["$ref"].as_str().unwrap();
            let table = &schema["$defs"][name.strip_prefix("#/$defs/").unwrap()];
            assert_eq!(table["type"], json!(["object", "string"]), "{at}");
            assert!(table["properties"]["path"].is_object());
        }
        assert_eq!(schema["$defs"]["curate"]["type"], "object");
    }

    #[test]
    fn every_table_that_is_named_is_defined() {
        let schema = made();
        let text = schema.to_string();
        let named = text
            .split("\"#/$defs/")
            .skip(1)
            .flat_map(|rest| rest.split('"').next());
        let mut count = 0;
        for path in named {
            assert!(schema["$defs"][path].is_object(), "{path}");
            count += 1;
        }
        assert!(count > 60, "{count}");
    }
}
