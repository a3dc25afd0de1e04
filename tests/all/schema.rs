//! Tests of `schema`, `completions` and `man`: every job in the repository is valid and wrong ones are not, and every verb is named.
//! The validator here knows the words of the schema alone; `oracles/job_schema.py` asks the `jsonschema` package.

use crate::jobs::{output, root, succeed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether a value is as a schema says.
fn is_valid(value: &Value, schema: &Value, root: &Value) -> bool {
    if let Some(path) = schema["$ref"].as_str() {
        let target = &root["$defs"][path.strip_prefix("#/$defs/").unwrap()];
        return target.is_object() && is_valid(value, target, root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|one| is_valid(value, one, root));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    match schema["type"].as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.as_array().is_some_and(|items| {
            let first = schema["prefixItems"].as_array();
            items.len() >= usize::try_from(schema["minItems"].as_u64().unwrap_or(0)).unwrap()
                && items.iter().enumerate().all(|(at, item)| {
                    match first.and_then(|first| first.get(at)) {
                        Some(of) => is_valid(item, of, root),
                        None => schema["items"] != false && is_valid(item, &schema["items"], root),
                    }
                })
        }),
        "object" => value.as_object().is_some_and(|table| {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut required = required.map(|key| key.as_str().unwrap());
            let names = schema["propertyNames"]["enum"].as_array();
            required.all(|key| table.contains_key(key))
                && table.iter().all(|(key, value)| {
                    names.is_none_or(|names| names.contains(&json!(key)))
                        && match (&schema["properties"][key], &schema["additionalProperties"]) {
                            (Value::Null, Value::Bool(false)) => false,
                            (Value::Null, Value::Null) => true,
                            (Value::Null, of) | (of, _) => is_valid(value, of, root),
                        }
                })
        }),
        other => panic!("{other}"),
    }
}

fn schema() -> Value {
    serde_json::from_slice(&succeed(&["schema"]).stdout).unwrap()
}

/// Every job file of the repository.
fn jobs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            jobs(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "toml") {
            found.push(path);
        }
    }
}

#[test]
fn every_job_is_valid_and_jobs_that_the_program_refuses_by_form_are_not() {
    let schema = schema();
    let mut found = Vec::new();
    jobs(&root().join("pipelines/jobs"), &mut found);
    assert!(found.len() > 10, "{found:?}");
    for path in &found {
        let text = std::fs::read_to_string(path).unwrap();
        let job: Value = toml::from_str(&text).unwrap();
        assert!(is_valid(&job, &schema, &schema), "{}", path.display());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    for (wrong, right) in [
        ("seeds = 1", "seed = 1"),
        ("seed = 'one'", "seed = 2"),
        ("seed = 1.5", "seed = 0"),
        ("determinism = 'all'", "determinism = 'run'"),
        ("[train]\nstep = 5", "[train]\nsteps = 5"),
        ("[train]\nlr = '1e-3'", "[train]\nlr = 1"),
        ("[train]\nprofile = 3", "[train]\nprofile = true"),
        ("[parallel]\ntp = '2'", "[parallel]\ntp = 2"),
        ("[model]\nfamily = 'lama'", "[model]\nfamily = 'llama'"),
        ("[finetune]\nmethod = 'rlhf'", "[finetune]\nmethod = 'dpo'"),
        ("[finetune.dpo]\nbeta = 'low'", "[finetune.dpo]\nbeta = 1"),
        (
            "[[curate.step]]\ngofer_quality = {}",
            "[[curate.step]]\ngopher_quality = {}",
        ),
        ("[curate]\ninputs = 5", "[curate]\ninputs = ['a.jsonl']"),
    ] {
        let valid = |text: &str| {
            let job: Value = toml::from_str(text).unwrap();
            is_valid(&job, &schema, &schema)
        };
        assert!(!valid(wrong), "{wrong}");
        assert!(valid(right), "{right}");
        std::fs::write(&path, format!("name = 'a'\nout = 'out'\n{wrong}\n")).unwrap();
        let refused = output(&["run", path.to_str().unwrap(), "--check"]);
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
    }
}

/// The verbs that `--help` lists.
fn verbs() -> Vec<String> {
    let help = String::from_utf8(succeed(&["--help"]).stdout).unwrap();
    let after = help.split("Commands:\n").nth(1).unwrap();
    let lines = after.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    });
    names.filter(|name| name != "help").collect()
}

#[test]
fn completions_of_every_shell_name_every_verb_and_bash_completes_one() {
    let verbs = verbs();
    assert!(verbs.len() > 25, "{verbs:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(succeed(&["completions", shell]).stdout).unwrap();
        for verb in &verbs {
            assert!(script.contains(verb.as_str()), "{shell}: {verb}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("millrace.bash");
    std::fs::write(&path, succeed(&["completions", "bash"]).stdout).unwrap();
    let ask = format!(
        "source {} && COMP_WORDS=(millrace decon) COMP_CWORD=1 && COMP_WORDS=(millrace fine) && _millrace millrace fine millrace && echo \"${{COMPREPLY[@]}}\"",
        path.display()
    );
    // without bash there is nothing to ask
    let Ok(answer) = Command::new("bash").args(["--norc", "-c", &ask]).output() else {
        return;
    };
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(
        answer.status.success() && text.trim() == "finetune",
        "{text:?} {answer:?}"
    );
    let unknown = output(&["completions", "cmd"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn every_verb_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man1");
    succeed(&["man", folder.to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(page("millrace.1").contains(".SH NAME"));
    for verb in verbs() {
        let text = page(&format!("millrace-{verb}.1"));
        assert!(
            text.contains(".TH") && text.contains(".SH SYNOPSIS"),
            "{verb}"
        );
    }
    // nested verbs have pages of their own
    assert!(page("millrace-classifier-train.1").contains(".SH OPTIONS"));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(
        output(&["man", file.to_str().unwrap()]).status.code(),
        Some(1)
    );
}
