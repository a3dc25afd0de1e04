//! Tests of `millrace schema`: it accepts the job files of this repository and refuses wrong ones where jsonschema
//! (`oracles/job_schema.py`) refuses them. The checker here knows the keywords that the schema has, and is held to jsonschema.

use crate::jobs::{output, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Adds the places of `value`, as JSON paths, where the schema refuses it.
fn check(all: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut BTreeSet<String>) {
    let mut no = || {
        wrong.insert(at.to_string());
    };
    for (keyword, wanted) in schema.as_object().unwrap() {
        match (keyword.as_str(), value) {
            ("$ref", _) => {
                let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                check(all, &all["$defs"][name], value, at, wrong);
                return;
            }
            ("type", _) => {
                let is_of = |kind: &Value| match kind.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "number" => value.is_number(),
                    "integer" => value.is_i64() || value.is_u64(),
                    other => panic!("{other}"),
                };
                let fits = match wanted {
                    Value::Array(kinds) => kinds.iter().any(is_of),
                    kind => is_of(kind),
                };
                if !fits {
                    no();
                    return;
                }
            }
            ("enum", _) if !wanted.as_array().unwrap().contains(value) => no(),
            ("required", Value::Object(table)) => {
                let names = wanted.as_array().unwrap().iter().flat_map(Value::as_str);
                if names.into_iter().any(|name| !table.contains_key(name)) {
                    no();
                }
            }
            ("minimum", Value::Number(n)) if n.as_f64() < wanted.as_f64() => no(),
            ("exclusiveMinimum", Value::Number(n)) if n.as_f64() <= wanted.as_f64() => no(),
            ("maximum", Value::Number(n)) if n.as_f64() > wanted.as_f64() => no(),
            ("exclusiveMaximum", Value::Number(n)) if n.as_f64() >= wanted.as_f64() => no(),
            ("minProperties", Value::Object(table)) if table.is_empty() => no(),
            ("maxProperties", Value::Object(table)) if table.len() > 1 => no(),
            ("minItems", Value::Array(list)) if (list.len() as u64) < wanted.as_u64().unwrap() => {
                no()
            }
            ("anyOf", _) => {
                let fits = |of: &Value| {
                    let mut found = BTreeSet::new();
                    check(all, of, value, at, &mut found);
                    found.is_empty()
                };
                if !wanted.as_array().unwrap().iter().any(fits) {
                    no();
                }
            }
            (
                "enum"
                | "required"
                | "minimum"
                | "exclusiveMinimum"
                | "maximum"
                | "exclusiveMaximum"
                | "minProperties"
                | "maxProperties"
                | "minItems"
                | "properties"
                | "additionalProperties"
                | "items"
                | "prefixItems"
                | "description"
                | "default"
                | "title"
                | "$schema"
                | "$defs",
                _,
            ) => {}
            (other, _) => panic!("{other} is no keyword that the checker knows"),
        }
    }
    match value {
        Value::Object(table) => {
            for (name, inner) in table {
                let below = format!("{at}.{name}");
                match (&schema["properties"][name], &schema["additionalProperties"]) {
                    (Value::Null, Value::Bool(false)) => {
                        wrong.insert(at.to_string());
                    }
                    (Value::Null, Value::Null) => {}
                    (Value::Null, of) => check(all, of, inner, &below, wrong),
                    (of, _) => check(all, of, inner, &below, wrong),
                }
            }
        }
        Value::Array(list) => {
            for (i, inner) in list.iter().enumerate() {
                let below = format!("{at}[{i}]");
                match (&schema["prefixItems"][i], &schema["items"]) {
                    (Value::Null, Value::Bool(false)) => {
                        wrong.insert(at.to_string());
                    }
                    (Value::Null, Value::Null) => {}
                    (Value::Null, of) | (of, _) => check(all, of, inner, &below, wrong),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn schema() -> Value {
    let printed = output(&["schema"]);
    assert!(printed.status.success());
    serde_json::from_slice(&printed.stdout).unwrap()
}

fn wrong_places(schema: &Value, job: &str) -> Vec<String> {
    let job: toml::Table = job.parse().unwrap();
    let mut wrong = BTreeSet::new();
    check(
        schema,
        schema,
        &serde_json::to_value(job).unwrap(),
        "$",
        &mut wrong,
    );
    wrong.into_iter().collect()
}

fn jobs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            jobs(&path, found);
        } else if path.extension().is_some_and(|e| e == "toml") {
            found.push(path);
        }
    }
}

#[test]
fn every_job_of_the_repository_is_valid() {
    let schema = schema();
    let mut found = Vec::new();
    jobs(&root().join("pipelines/jobs"), &mut found);
    assert!(found.len() >= 13, "{found:?}");
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(wrong_places(&schema, &text), [""; 0], "{}", path.display());
    }
}

#[test]
fn wrong_jobs_are_refused_where_jsonschema_refuses_them() {
    let schema = schema();
    let golden = std::fs::read_to_string(root().join("tests/data/job_schema.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let cases = golden["wrong"].as_object().unwrap();
    assert!(cases.len() >= 20);
    for (job, places) in cases {
        let found = wrong_places(&schema, job);
        assert_eq!(serde_json::json!(found), *places, "{job}");
        assert!(!found.is_empty(), "{job}");
    }
    // a wrong key in an input is an error of the input, not of all its alternatives
    for (job, at) in [
        ("[curate]\ninputs = [{ paht = 'a' }]", "$.curate.inputs[0]"),
        (
            "[curate]\ninputs = ['b', { path = 1 }]",
            "$.curate.inputs[1].path",
        ),
        (
            "[tokenize]\ninputs = ['b', { path = 'a', format = 'jsnl' }]",
            "$.tokenize.inputs[1].format",
        ),
    ] {
        assert_eq!(cases[job], serde_json::json!([at]), "{job}");
    }
}
