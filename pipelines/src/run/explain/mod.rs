//! `explain`, `filters` and `formats`: keys, filters, rules and verbs, from the key reference and the program itself.

mod probe;
mod rules;

use crate::job::WrongUse;
use crate::job::reference::{Key, Table, keys, source, tables};
use crate::log::{print, printable};
use anyhow::Result;
use curate::language::languages;
use curate::pipeline::{Step, metrics_of};
use curate::read::ReadRule;
use curate::verdict::Side;
pub(super) use probe::bounds;
use probe::last;
use serde::Serialize;
use serde_json::json;

/// Path of the steps' tables.
const STEPS: &str = "curate.step.";
/// The key whose words are languages.
const LANGUAGES: &str = "curate.step.language.keep";
/// Columns that lists of names are padded to.
const NAME_WIDTH: usize = 18;

/// An explanation; a field that its kind does not have is absent.
#[derive(Debug, Serialize)]
struct Explanation {
    name: String,
    /// `key`, `table`, `filter`, `rule` or `verb`.
    kind: &'static str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    value_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    meaning: String,
    /// Accepted words, keys, rules or flags, with their meanings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<String>,
}

#[derive(Debug, Serialize)]
struct Part {
    name: String,
    meaning: String,
}

/// The verb: explains a name, everything of this name if there are several.
///
/// # Errors
/// `WrongUse` for a name that nothing has, with the nearest.
pub(crate) fn explain(name: &str, is_json: bool, program: &clap::Command) -> Result<()> {
    let found = find(name, program);
    let Some(first) = found.first() else {
        let known = names(program);
        let known = known.iter().map(String::as_str);
        let kind =
            "key, filter, rule or verb; `millrace filters` and pipelines/docs/keys.md list them";
        return Err(WrongUse::unknown(name, kind, known).into());
    };
    if is_json {
        let mut value = serde_json::to_value(first)?;
        if found.len() > 1 {
            value["also"] = json!(&found[1..]);
        }
        return print(&format!("{value}\n"));
    }
    let texts: Vec<String> = found.iter().map(text).collect();
    print(&printable(&texts.join("\n")))
}

/// `filters`: the steps of a curation.
pub(crate) fn filters(is_json: bool) -> Result<()> {
    list(is_json, steps().map(part_of_table).collect())
}

/// `formats`: the formats of inputs.
pub(crate) fn formats(is_json: bool) -> Result<()> {
    let format = keys().find(|key| key.path == "curate.inputs.format");
    list(is_json, format.map(words_of).unwrap_or_default())
}

fn list(is_json: bool, parts: Vec<Part>) -> Result<()> {
    if is_json {
        return print(&format!("{}\n", json!(parts)));
    }
    print(&printable(&lines(&parts, "")))
}

fn lines(parts: &[Part], indent: &str) -> String {
    let line = |part: &Part| format!("{indent}{:<NAME_WIDTH$} {}\n", part.name, part.meaning);
    parts.iter().map(line).collect()
}

fn steps() -> impl Iterator<Item = &'static Table> {
    tables().iter().filter(|table| step_name(table).is_some())
}

/// The name of a step if the table has a step's settings.
fn step_name(table: &Table) -> Option<&str> {
    let name = table.path.strip_prefix(STEPS)?;
    (!name.contains('.')).then_some(name)
}

fn part_of_table(table: &Table) -> Part {
    Part {
        name: last(&table.path).to_string(),
        meaning: table.meaning.clone(),
    }
}

fn words_of(key: &Key) -> Vec<Part> {
    let part = |(word, meaning): &(String, String)| Part {
        name: word.clone(),
        meaning: meaning.clone(),
    };
    key.words.iter().map(part).collect()
}

/// A path without brackets and numbers of elements: `curate.inputs[0].path` is `curate.inputs.path`.
fn plain(name: &str) -> String {
    let name = name.trim().trim_matches(['[', ']', '`']);
    let name = name.replace('[', ".").replace(']', "");
    let parts = name
        .split('.')
        .filter(|part| part.parse::<usize>().is_err());
    parts.collect::<Vec<_>>().join(".")
}

/// Everything of this name, the most exact first.
fn find(name: &str, program: &clap::Command) -> Vec<Explanation> {
    let path = through_links(&plain(name));
    let verb = program
        .find_subcommand(&path)
        .filter(|verb| !verb.is_hide_set());
    let mut found: Vec<Explanation> = Vec::new();
    found.extend(verb.map(of_verb));
    found.extend(keys().filter(|key| key.path == path).map(of_key));
    let is_table = |table: &&Table| !table.path.is_empty() && table.path == path;
    found.extend(tables().iter().filter(is_table).map(of_table));
    found.extend(
        steps()
            .filter(|table| step_name(table) == Some(&*path))
            .map(of_table),
    );
    let of_table_of_rules = || rules::exact(&path).map(|rule| of_named_rule(&path, rule));
    found.extend(of_rule(&path).or_else(of_table_of_rules));
    let mut of_readers = ReadRule::ALL.into_iter();
    found.extend(of_readers.find(|rule| rule.name() == path).map(of_reader));
    if found.is_empty() {
        // `min_doc_words`, `gopher_quality.min_doc_words`
        let suffix = format!(".{path}");
        found.extend(keys().filter(|key| key.path.ends_with(&suffix)).map(of_key));
        let ends = |table: &&Table| table.path.ends_with(&suffix);
        found.extend(tables().iter().filter(ends).map(of_table));
    }
    if found.is_empty() {
        // `sample.s`, `decontaminate.hellaswag`
        found.extend(rules::form(&path).map(|rule| of_named_rule(&path, rule)));
    }
    found
}

/// A path through tables that are described at another key: `tokenize.inputs.path` is `curate.inputs.path`.
fn through_links(path: &str) -> String {
    if keys().any(|key| key.path == path) {
        return path.to_string();
    }
    for (at, _) in path.match_indices('.') {
        let (before, rest) = (&path[..at], &path[at + 1..]);
        let linked = keys().find(|key| key.path == before);
        for table in linked.iter().flat_map(|key| &key.tables) {
            let there = format!("{table}.{rest}");
            if *table != before && keys().any(|key| key.path == there) {
                return there;
            }
        }
    }
    path.to_string()
}

fn of_key(key: &Key) -> Explanation {
    let table = tables()
        .iter()
        .find(|t| t.keys.iter().any(|k| k.path == key.path));
    let mut parts = words_of(key);
    parts.extend(key.names.iter().map(|name| Part {
        name: name.clone(),
        meaning: String::new(),
    }));
    if key.path == LANGUAGES {
        parts.push(Part {
            name: "builtin".to_string(),
            meaning: format!("knows {}", languages().join(", ")),
        });
    }
    Explanation {
        name: key.path.clone(),
        kind: "key",
        value_type: Some(key.kind.clone()),
        default: Some(key.default.clone()),
        range: Some(probe::range(key)),
        meaning: key.meaning.clone(),
        parts,
        source: table.map_or_else(String::new, source),
        example: Some(probe::example(key)),
    }
}

fn of_table(table: &Table) -> Explanation {
    let step = step_name(table);
    let mut parts: Vec<Part> = table
        .keys
        .iter()
        .map(|key| Part {
            name: last(&key.path).to_string(),
            meaning: format!("{} ({}, {})", key.meaning, key.kind, default_of(key)),
        })
        .collect();
    parts.extend(
        step.iter()
            .flat_map(|name| rules(name))
            .map(|(name, side)| Part {
                name,
                meaning: side,
            }),
    );
    let example = match step {
        Some(name) => format!("[[curate.step]]\n{name} = {{}}\n"),
        None => format!("{}\n", table.heading),
    };
    Explanation {
        name: step.unwrap_or(&table.path).to_string(),
        kind: match step {
            Some(_) => "filter",
            None => "table",
        },
        value_type: None,
        default: None,
        range: None,
        meaning: table.meaning.clone(),
        parts,
        source: source(table),
        example: Some(example),
    }
}

fn default_of(key: &Key) -> String {
    match key.default.as_str() {
        "required" => "required".to_string(),
        "none" => "no default".to_string(),
        other => format!("default {other}"),
    }
}

/// Metrics of a step as it is without settings, with their limits; none of a step that needs a setting or a file.
fn rules(step: &str) -> Vec<(String, String)> {
    let opened = serde_json::from_value::<Step>(json!({step: {}})).ok();
    let metrics = opened.and_then(|step| metrics_of(&step).ok());
    let words = |side: Side, limit: f64| match side {
        Side::AtMost => format!("rule: at most {limit}"),
        Side::AtLeast => format!("rule: at least {limit}"),
    };
    let metrics = metrics.into_iter().flatten();
    metrics
        .map(|metric| {
            let side = metric.rule.map(|rule| words(rule.side, rule.limit));
            (metric.name, side.unwrap_or_else(|| "metric".to_string()))
        })
        .collect()
}

fn of_rule(name: &str) -> Option<Explanation> {
    let (step, short) = name.split_once('.')?;
    let table = steps().find(|table| step_name(table) == Some(step))?;
    let limits = table
        .keys
        .iter()
        .find(|key| key.names.iter().any(|n| n == short));
    let found = rules(step).into_iter().find(|(rule, _)| rule == name);
    let limit = match (&found, limits) {
        (None, None) => return None,
        (Some((_, limit)), _) => limit.clone(),
        (None, Some(_)) => "rule".to_string(),
    };
    let number = limit.rsplit(' ').next().unwrap_or_default().to_string();
    let is_same = |key: &&Key| {
        let (a, b) = (key.default.parse::<f64>(), number.parse::<f64>());
        a.is_ok() && a == b
    };
    let example = match limits {
        Some(key) => format!(
            "[[curate.step]]\n{step} = {{ {} = {{ {short} = {} }} }}\n",
            last(&key.path),
            number
                .parse::<f64>()
                .map_or("false".to_string(), |_| number.clone())
        ),
        None => format!("[[curate.step]]\n{step} = {{}}\n"),
    };
    let parts = table.keys.iter().filter(is_same).map(|key| Part {
        name: last(&key.path).to_string(),
        meaning: format!("key with this default: {}", key.meaning),
    });
    Some(Explanation {
        name: name.to_string(),
        kind: "rule",
        value_type: Some("number".to_string()),
        default: Some(limit),
        range: Some("any number; a document on the wrong side of the limit is dropped".to_string()),
        meaning: format!("A rule or metric of the step `{step}`: {}", table.meaning),
        parts: parts.collect(),
        source: source(table),
        example: Some(example),
    })
}

/// A rule of the table, with the settings of its step if it is one's.
fn of_named_rule(name: &str, rule: &rules::NamedRule) -> Explanation {
    let step = name.split('.').next().unwrap_or_default();
    let table = steps().find(|table| step_name(table) == Some(step));
    let table = table.filter(|_| name.contains('.'));
    Explanation {
        name: name.to_string(),
        kind: "rule",
        value_type: None,
        default: None,
        range: None,
        meaning: match table {
            Some(_) => format!("A rule of the step `{step}`. {}", rule.meaning),
            None => rule.meaning.to_string(),
        },
        parts: Vec::new(),
        source: match table {
            Some(table) => source(table),
            None => rules::source(name).to_string(),
        },
        example: table.map(|_| format!("[[curate.step]]\n{step} = {{}}\n")),
    }
}

/// A rule that readers have whatever the job says.
fn of_reader(rule: ReadRule) -> Explanation {
    Explanation {
        name: rule.name().to_string(),
        kind: "rule",
        value_type: None,
        default: None,
        range: None,
        meaning: format!(
            "A rule of the readers, which no key changes: the record is dropped and counted under this name. {}",
            rule.meaning()
        ),
        parts: Vec::new(),
        source: "curate/docs/input.md".to_string(),
        example: None,
    }
}

fn of_verb(verb: &clap::Command) -> Explanation {
    let about = verb
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let parts = verb
        .get_arguments()
        .filter(|flag| !flag.is_hide_set() && flag.get_id() != "help")
        .map(|flag| {
            let name = match flag.get_long() {
                Some(long) => format!("--{long}"),
                None => flag.get_id().to_string().to_uppercase(),
            };
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            Part {
                name,
                meaning: help,
            }
        });
    let mut shown = verb
        .clone()
        .bin_name(format!("millrace {}", verb.get_name()));
    let usage = shown.render_usage().to_string();
    Explanation {
        name: verb.get_name().to_string(),
        kind: "verb",
        value_type: None,
        default: None,
        range: None,
        meaning: about,
        parts: parts.collect(),
        source: format!("millrace {} --help", verb.get_name()),
        example: Some(usage.trim_start_matches("Usage:").trim().to_string() + "\n"),
    }
}

fn text(found: &Explanation) -> String {
    let mut text = format!("{} ({})\n", found.name, found.kind);
    if !found.meaning.is_empty() {
        text += &format!("  {}\n", found.meaning);
    }
    let facts = [
        ("type", &found.value_type),
        ("default", &found.default),
        ("range", &found.range),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            text += &format!("  {name:<8} {value}\n");
        }
    }
    text += &format!("  {:<8} {}\n", "source", found.source);
    text += &lines(&found.parts, "    ");
    if let Some(example) = &found.example {
        text += "  example\n";
        example
            .lines()
            .for_each(|line| text += &format!("    {line}\n"));
    }
    text
}

/// Every name that can be explained.
fn names(program: &clap::Command) -> Vec<String> {
    let verbs = program
        .get_subcommands()
        .map(|verb| verb.get_name().to_string());
    let mut names: Vec<String> = verbs.collect();
    names.extend(keys().map(|key| key.path.clone()));
    names.extend(keys().map(|key| last(&key.path).to_string()));
    names.extend(tables().iter().map(|table| table.path.clone()));
    names.extend(ReadRule::ALL.map(|rule| rule.name().to_string()));
    names.extend(rules::RULES.iter().map(|rule| rule.name.to_string()));
    for name in steps().filter_map(step_name) {
        names.push(name.to_string());
        names.extend(rules(name).into_iter().map(|(rule, _)| rule));
    }
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Vec<Explanation> {
        let program =
            clap::Command::new("millrace").subcommand(clap::Command::new("train").about("Trains."));
        find(name, &program)
    }

    #[test]
    fn every_key_of_the_reference_is_explained_under_its_path() {
        for key in keys() {
            let found = found(&key.path);
            let answer = found.iter().find(|e| e.kind == "key").unwrap();
            assert_eq!(answer.name, key.path);
            assert!(
                answer.range.as_ref().is_some_and(|r| !r.is_empty()),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn every_step_of_the_program_is_a_filter_and_its_rules_are_explained() {
        // an unknown step makes serde list them all
        let error = serde_json::from_str::<Step>("{\"none\": {}}").unwrap_err();
        let message = error.to_string();
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        assert_eq!(known.len(), steps().count());
        for name in known {
            assert!(found(name).iter().any(|e| e.kind == "filter"), "{name}");
            for (rule, _) in rules(name) {
                assert!(found(&rule).iter().any(|e| e.kind == "rule"), "{rule}");
            }
        }
        // Rae et al. 2021, app. A: at least 50 words
        let rule = found("gopher_quality.short_doc").remove(0);
        assert_eq!(rule.default.as_deref(), Some("rule: at least 50"));
    }

    /// Names in quotes that begin with a step's, in curate's sources without their tests.
    fn names_in_sources() -> Vec<String> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../curate/src");
        let mut folders = vec![std::path::PathBuf::from(root)];
        let mut names = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if path.is_dir() {
                    folders.push(path);
                } else if name.ends_with(".rs") && name != "tests.rs" {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                    let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
                    names.extend(
                        code.flat_map(|line| line.split('"').skip(1).step_by(2))
                            .map(String::from),
                    );
                }
            }
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        names.retain(|name| {
            let Some((step, rule)) = name.split_once('.') else {
                return false;
            };
            let is_file = ["md", "txt"].contains(&rule);
            let is_step = steps().any(|table| step_name(table) == Some(step));
            is_step && !is_file && !rule.is_empty() && rule.chars().all(plain)
        });
        names.sort();
        names.dedup();
        names
    }

    #[test]
    fn every_rule_that_the_sources_name_is_explained() {
        let names = names_in_sources();
        assert!(names.len() > 150, "{}", names.len());
        for known in [
            "c4.curly_bracket",
            "extract.empty",
            "url.subword",
            "length.min_chars",
        ] {
            assert!(names.iter().any(|name| name == known), "{known}");
        }
        let unknown: Vec<&String> = names.iter().filter(|name| found(name).is_empty()).collect();
        assert_eq!(unknown, [""; 0]);
        // the table has no rule that the sources do not have
        for rule in &rules::RULES {
            let is_step = steps().any(|table| rule.name.split('.').next() == step_name(table));
            let is_own = is_step && rule.name.contains('.') && !rule.name.ends_with("NAME");
            assert!(
                !is_own || names.iter().any(|name| name == rule.name),
                "{}",
                rule.name
            );
        }
    }

    #[test]
    fn outcomes_and_rules_with_a_name_of_the_job_are_explained() {
        for name in [
            "sample.s",
            "sample.s.weight",
            "expression.short",
            "classifier.edu.score",
            "quality.web.min_score",
            "perplexity.books.max",
            "pii.national_id.br_cpf",
            "decontaminate.hellaswag",
            "decontaminate.cut",
            "duplicate.exact",
            "duplicate.near",
            "duplicate.semantic",
            "quarantined",
            "kept",
        ] {
            let answers = found(name);
            assert!(
                answers.iter().any(|e| e.kind == "rule"),
                "{name}: {answers:?}"
            );
        }
        let both: Vec<&str> = found("sample").iter().map(|e| e.kind).collect();
        assert!(
            both.contains(&"filter") && both.contains(&"rule"),
            "{both:?}"
        );
        let keep = found("curate.step.language.keep").remove(0);
        let known = &keep.parts.last().unwrap().meaning;
        assert!(
            known.contains(" de, ") && known.contains(" zh, "),
            "{known}"
        );
    }

    #[test]
    fn names_are_found_as_people_write_them() {
        let first = |name: &str| found(name).remove(0).name;
        assert_eq!(first("curate.inputs[0].path"), "curate.inputs.path");
        assert_eq!(first("curate.inputs.0.path"), "curate.inputs.path");
        assert_eq!(first("tokenize.inputs.format"), "curate.inputs.format");
        assert_eq!(first("[[curate.inputs]]"), "curate.inputs");
        assert_eq!(
            first("min_doc_words"),
            "curate.step.gopher_quality.min_doc_words"
        );
        let kinds: Vec<&str> = found("train").iter().map(|e| e.kind).collect();
        assert_eq!(kinds, ["verb", "key", "table"]);
        for rule in ReadRule::ALL {
            let found = found(rule.name());
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].meaning.ends_with(rule.meaning()), "{found:?}");
        }
        assert!(found("nonsense_of_mine").is_empty());
    }
}
