//! Reader for evaluation sets: files of JSON lines or of plain text, compressed or not.
//!
//! A line that is a JSON object is a record: its texts are the strings of the named fields, at any depth, or all its
//! strings. Any other line is a text. A record's task is the value of `task_field`, or else the file's name up to the first
//! dot, with `_` for white space. A file without a single text is an error, as nothing could match it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::decontaminate::config::{DecontaminateConfig, DecontaminateProfile};
use crate::error::{Error, Result};
use crate::read::{Batch, Reader};

/// A line of an evaluation file.
pub(super) enum Entry<'a> {
    Record(&'a Map<String, Value>),
    /// JSON that is no object.
    Other(&'a Value),
    Line(&'a str),
}

/// Longest record.
const MOST_BYTES: usize = 64 << 20;

/// Calls `take` with the task and the entry of every line; it returns the number of texts it used, or the problem.
pub(super) fn each_entry(
    config: &DecontaminateConfig,
    take: &mut dyn FnMut(&str, &Entry<'_>) -> Result<u64, String>,
) -> Result<()> {
    for file in &config.files {
        let path = Path::new(file);
        let texts = each_of_file(config, path, take)?;
        if texts == 0 {
            let found = match config.fields.as_slice() {
                [] => "found no text".to_string(),
                fields => format!("found no text in fields {fields:?}"),
            };
            return Err(Error::Input {
                path: PathBuf::from(path),
                why: format!("{found}, wanted an evaluation set"),
            });
        }
    }
    Ok(())
}

fn each_of_file(
    config: &DecontaminateConfig,
    path: &Path,
    take: &mut dyn FnMut(&str, &Entry<'_>) -> Result<u64, String>,
) -> Result<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of_file = name.split('.').next().unwrap_or_default();
    let only_objects = config.profile == DecontaminateProfile::Datatrove;
    let mut texts = 0;
    let mut reader = Reader::open_lines(path, &BTreeMap::new(), MOST_BYTES)?;
    let mut batch = Batch::default();
    while reader.fill(&mut batch)? {
        for raw in &batch.records {
            let wrong = |why: String| Error::Input {
                path: PathBuf::from(path),
                why: format!("record {}{why}", raw.number),
            };
            if let Some(why) = &raw.bad {
                return Err(wrong(format!(": {why}")));
            }
            let bytes = batch.bytes(raw);
            let parsed = crate::text::json::from_slice::<Value>(bytes);
            let (task, entry) = match &parsed {
                Ok(Value::Object(map)) => {
                    let named = map.get(&config.task_field).and_then(Value::as_str);
                    (named.unwrap_or(of_file), Entry::Record(map))
                }
                _ if only_objects => return Err(wrong(" is no object".to_string())),
                Ok(other) if config.fields.is_empty() => (of_file, Entry::Other(other)),
                // Not JSON: a line of plain text.
                _ => match std::str::from_utf8(bytes) {
                    Ok(text) => (of_file, Entry::Line(text)),
                    Err(_) => return Err(wrong(" is not UTF-8".to_string())),
                },
            };
            let task = task.replace(char::is_whitespace, "_");
            texts += take(&task, &entry).map_err(|why| wrong(format!(": {why}")))?;
        }
    }
    Ok(texts)
}

/// Calls `take` with the texts of an entry and counts them.
pub(super) fn each_text(fields: &[String], entry: &Entry<'_>, take: &mut dyn FnMut(&str)) -> u64 {
    match entry {
        Entry::Line(text) => {
            take(text);
            1
        }
        Entry::Other(value) => strings(value, take),
        Entry::Record(map) => map
            .iter()
            .filter(|(key, _)| fields.is_empty() || fields.contains(key))
            .map(|(_, value)| strings(value, take))
            .sum(),
    }
}

fn strings(value: &Value, take: &mut dyn FnMut(&str)) -> u64 {
    match value {
        Value::String(text) => {
            take(text);
            1
        }
        Value::Array(list) => list.iter().map(|v| strings(v, take)).sum(),
        Value::Object(map) => map.values().map(|v| strings(v, take)).sum(),
        _ => 0,
    }
}
