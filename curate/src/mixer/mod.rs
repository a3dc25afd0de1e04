//! Configurations of dolma's mixer, translated to jobs: `millrace mixer CONFIG`.
//!
//! Every stream becomes inputs with its attributes, and steps in the mixer's order: `expression` for `filter.include` and
//! for each pattern of `filter.exclude`, `spans` for `span_replacement`, `tag` for `discard_fields`, and an `expression` for
//! `min_text_length`. Of several streams the steps have conditions on the source. Keys that are no part of a job are reported; those that cannot
//! be said in a job are refused, all at once. Facts: dolma 1.2.1, `src/mixer.rs`, `src/shard.rs`, `src/filters.rs`.

mod config;
mod jq;
mod jsonpath;
mod place;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::check::Problem;
use crate::error::{At, Error, Result};
use crate::expression::{self, Kind};
use crate::text::yaml;
use config::{Filter, Mixer, Replacement, Stream, Syntax};

/// A configuration as a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// The job's keys: `name`, `out`, `curate`.
    pub job: Value,
    /// Keys of the configuration that a job has no counterpart for, and why.
    pub notes: Vec<String>,
}

/// Longest configuration.
const MOST_BYTES: u64 = 4 << 20;

/// Translates a file, YAML or JSON.
///
/// # Errors
/// `Io`; `Input` for a file that is no configuration of the mixer, and for the keys that have no counterpart, all of
/// them.
pub fn translate(path: &Path) -> Result<Translation> {
    let wrong = |why: String| Error::Input {
        path: path.to_path_buf(),
        why,
    };
    let bytes = std::fs::metadata(path).at(path)?.len();
    if bytes > MOST_BYTES {
        return Err(wrong(format!(
            "found {bytes} bytes, wanted at most {MOST_BYTES}"
        )));
    }
    let text = std::fs::read_to_string(path).at(path)?;
    let value = yaml::parse(&text).map_err(wrong)?;
    let mut problems = Vec::new();
    let translated = of_value(&value, &mut |key, found, wanted| {
        problems.push(format!("{key}: found {found}, wanted {wanted}"));
    });
    match (translated, problems.is_empty()) {
        (Some(translated), true) => Ok(translated),
        _ => Err(wrong(problems.join("\n  "))),
    }
}

/// Translates a parsed configuration; None, or problems, if it has no counterpart.
fn of_value(value: &Value, problem: Problem<'_>) -> Option<Translation> {
    variables(value, "", problem);
    let mixer: Mixer = match serde_json::from_value(value.clone()) {
        Ok(mixer) => mixer,
        Err(why) => {
            problem("configuration", why.to_string(), "keys of dolma's mixer");
            return None;
        }
    };
    let mut notes = Vec::new();
    for (key, value, why) in [
        (
            "processes",
            &mixer.processes,
            "a job's number of threads is `threads`, and changes no output",
        ),
        ("work_dir", &mixer.work_dir, "files are read where they are"),
        (
            "shuffle",
            &mixer.shuffle,
            "documents stay in the order of their files",
        ),
        (
            "dryrun",
            &mixer.dryrun,
            "`millrace curate JOB --check` checks a job",
        ),
        ("debug", &mixer.debug, "it changes no output"),
    ] {
        if value.is_some() {
            notes.push(format!("{key}: {why}"));
        }
    }
    if mixer.streams.is_empty() {
        problem("streams", "[]".to_string(), "at least one stream");
        return None;
    }
    let is_single = mixer.streams.len() == 1;
    let mut curate = Map::new();
    let (mut inputs, mut steps) = (Vec::new(), Vec::new());
    let mut format = None;
    for (i, stream) in mixer.streams.iter().enumerate() {
        let at = format!("streams[{i}]");
        let mut of_stream = OfStream {
            at: &at,
            source: plain(&stream.name),
            is_single,
            steps: &mut steps,
            notes: &mut notes,
            problem,
        };
        inputs.extend(of_stream.inputs(stream));
        of_stream.translate(stream);
        let extension = stream
            .compression
            .as_ref()
            .and_then(|c| c.output.as_deref());
        let output = match extension {
            None | Some("gz") => "jsonl_gz",
            Some("zst") => "jsonl_zst",
            Some(other) => {
                let wanted = "\"gz\" or \"zst\"";
                problem(
                    &format!("{at}.compression.output"),
                    format!("{other:?}"),
                    wanted,
                );
                continue;
            }
        };
        if format.is_some_and(|format| format != output) {
            let wanted = "the same for all streams: a job has one output format";
            problem(
                &format!("{at}.compression.output"),
                format!("{output:?}"),
                wanted,
            );
        }
        format = Some(output);
    }
    for (i, stream) in mixer.streams.iter().enumerate() {
        let same = |other: &Stream| plain(&other.name) == plain(&stream.name);
        if mixer.streams[..i].iter().any(same) {
            let wanted = "another name for each stream";
            problem(
                &format!("streams[{i}].name"),
                format!("{:?}", stream.name),
                wanted,
            );
        }
    }
    let first = mixer.streams.first()?;
    if mixer
        .streams
        .iter()
        .any(|s| s.output.path != first.output.path)
    {
        notes.push("output.path: the job has one folder, that of the first stream; documents have their stream's name as `source`".to_string());
    }
    curate.insert("output".to_string(), format.unwrap_or("jsonl_gz").into());
    curate.insert("inputs".to_string(), inputs.into());
    curate.insert("step".to_string(), steps.into());
    notes.push("metadata.provenance: `id` and `source` name a document's origin".to_string());
    notes.push("a document without a text is dropped, as `read.empty`".to_string());
    Some(Translation {
        job: json!({"name": plain(&first.name), "out": first.output.path, "curate": curate}),
        notes,
    })
}

/// Variables of OmegaConf are refused: a job has none.
fn variables(value: &Value, key: &str, problem: Problem<'_>) {
    match value {
        Value::String(text) if text.contains("${") => {
            problem(
                key,
                format!("{text:?}"),
                "the value itself in place of ${...}",
            );
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                variables(value, &format!("{key}[{i}]"), problem);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                let dot = if key.is_empty() { "" } else { "." };
                variables(value, &format!("{key}{dot}{name}"), problem);
            }
        }
        _ => {}
    }
}

/// A name with letters, digits, `-` and `_` only.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = name
        .chars()
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    match plain.is_empty() {
        true => "stream".to_string(),
        false => plain,
    }
}

/// The expression of a pattern.
fn condition(pattern: &str, syntax: Option<Syntax>) -> std::result::Result<String, String> {
    let condition = match syntax {
        Some(Syntax::Jq) => jq::condition(pattern),
        Some(Syntax::Jsonpath) | None => jsonpath::condition(pattern),
    }?;
    // what compares a text of the document with a number has no counterpart, for one
    match expression::check(&condition, Kind::Truth) {
        Ok(_) => Ok(condition),
        Err(why) => Err(format!("{why}, in {condition:?}")),
    }
}

/// Top-level fields of a document beside `id`, `text` and `metadata` (dolma's docs/data-format.md).
const FIELDS: [&str; 5] = ["source", "added", "created", "version", "attributes"];

/// A stream being translated.
struct OfStream<'a> {
    at: &'a str,
    source: String,
    is_single: bool,
    steps: &'a mut Vec<Value>,
    notes: &'a mut Vec<String>,
    problem: Problem<'a>,
}

impl OfStream<'_> {
    fn wrong(&mut self, key: &str, found: String, wanted: &str) {
        (self.problem)(&format!("{}.{key}", self.at), found, wanted);
    }

    /// The condition that a document is of this stream.
    fn is_mine(&self) -> String {
        format!("source == \"{}\"", self.source)
    }

    /// A condition for keeping the stream's documents.
    fn keep(&mut self, name: &str, condition: &str) {
        let (name, keep) = match self.is_single {
            true => (name.to_string(), condition.to_string()),
            false => (
                format!("{}_{name}", self.source),
                format!("not {} or {condition}", self.is_mine()),
            ),
        };
        self.steps
            .push(json!({"expression": {"name": name, "keep": keep}}));
    }

    /// Adds the condition on the stream to a step.
    fn only_mine(&self, step: &mut Map<String, Value>) {
        if !self.is_single {
            step.insert("where".to_string(), self.is_mine().into());
        }
    }

    fn inputs(&mut self, stream: &Stream) -> Vec<Value> {
        let attributes = stream.attributes.clone().unwrap_or_default();
        if stream.documents.is_empty() {
            self.wrong(
                "documents",
                "[]".to_string(),
                "at least one file or pattern",
            );
        }
        let paths = stream.documents.iter();
        let inputs = paths.map(|path| {
            let mut input = json!({"path": path, "format": "dolma", "source": self.source});
            if !attributes.is_empty() {
                input["attributes"] = attributes.clone().into();
            }
            input
        });
        inputs.collect()
    }

    fn translate(&mut self, stream: &Stream) {
        if let Some(filter) = &stream.filter {
            self.filter(filter);
        }
        self.spans(stream.span_replacement.as_deref().unwrap_or_default());
        self.discard(stream.output.discard_fields.as_deref().unwrap_or_default());
        let least = stream.output.min_text_length.unwrap_or(0);
        if least > 0 {
            self.keep("min_text_length", &format!("bytes(trim(text)) >= {least}"));
        }
        if stream.output.max_size_in_bytes.is_some() {
            let at = self.at;
            self.notes.push(format!(
                "{at}.output.max_size_in_bytes: a file of documents is a file of the output"
            ));
        }
        if stream
            .compression
            .as_ref()
            .is_some_and(|c| c.input.is_some())
        {
            let at = self.at;
            self.notes.push(format!(
                "{at}.compression.input: told by each file's first bytes"
            ));
        }
    }

    fn filter(&mut self, filter: &Filter) {
        let include = filter.include.as_deref().unwrap_or_default();
        let exclude = filter.exclude.as_deref().unwrap_or_default();
        let translate = |pattern: &String| condition(pattern, filter.syntax);
        let mut any = Vec::new();
        for (i, pattern) in include.iter().enumerate() {
            match translate(pattern) {
                Ok(condition) => any.push(condition),
                Err(why) => self.untranslated(&format!("filter.include[{i}]"), pattern, &why),
            }
        }
        if !any.is_empty() {
            let any = any.join(" or ");
            self.keep("include", &format!("({any})"));
        }
        for (i, pattern) in exclude.iter().enumerate() {
            match translate(pattern) {
                Ok(condition) => self.keep(&format!("exclude_{i}"), &format!("not ({condition})")),
                Err(why) => self.untranslated(&format!("filter.exclude[{i}]"), pattern, &why),
            }
        }
    }

    fn untranslated(&mut self, key: &str, pattern: &str, why: &str) {
        self.wrong(
            key,
            format!("{pattern:?} ({why})"),
            "a pattern that a job can say",
        );
    }

    fn spans(&mut self, replacements: &[Replacement]) {
        let mut replace = Vec::new();
        for (i, one) in replacements.iter().enumerate() {
            let spans = match one.syntax {
                Some(Syntax::Jq) => jq::path(&one.span),
                Some(Syntax::Jsonpath) | None => jsonpath::path(&one.span),
            };
            let spans = match spans {
                Ok(spans) => spans,
                Err(why) => {
                    self.untranslated(&format!("span_replacement[{i}].span"), &one.span, &why);
                    continue;
                }
            };
            let mut step = Map::new();
            step.insert("spans".to_string(), spans.into());
            for (key, score) in [("min_score", one.min_score), ("max_score", one.max_score)] {
                if let Some(score) = score {
                    step.insert(key.to_string(), score.into());
                }
            }
            match one.replacement.strip_prefix('$').map(jq::path) {
                None if one.replacement.is_empty() => {}
                None => drop(step.insert("with".to_string(), one.replacement.clone().into())),
                Some(Ok(path)) => drop(step.insert("with_value".to_string(), path.into())),
                Some(Err(why)) => {
                    let key = format!("span_replacement[{i}].replacement");
                    self.untranslated(&key, &one.replacement, &why);
                }
            }
            replace.push(Value::Object(step));
        }
        if !replace.is_empty() {
            let mut step = Map::new();
            step.insert("replace".to_string(), replace.into());
            self.only_mine(&mut step);
            self.steps.push(json!({ "spans": step }));
        }
    }

    fn discard(&mut self, fields: &[String]) {
        if fields.is_empty() {
            return;
        }
        for (i, field) in fields.iter().enumerate() {
            if field == "id" || field == "text" {
                let key = format!("output.discard_fields[{i}]");
                self.wrong(&key, format!("{field:?}"), "a field other than id and text");
            }
        }
        let mut step = Map::new();
        if fields.iter().any(|field| field == "metadata") {
            let is_kept = |field: &&&str| !fields.iter().any(|f| f == **field);
            let kept: Vec<&str> = FIELDS.iter().filter(is_kept).copied().collect();
            step.insert("keep".to_string(), kept.into());
        } else {
            step.insert("drop".to_string(), fields.into());
        }
        self.only_mine(&mut step);
        self.steps.push(json!({ "tag": step }));
    }
}
