//! Files for inspection that name documents: lines about removed ones are left out, the numbers of others corrected.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde_json::Value;

use super::removals::Removals;
use crate::error::{At, Result, damaged};
use crate::text::narrow;
use crate::write::{AtomicFile, OutputFile};

/// JSON lines that name documents by shard and number, below a job's folder.
pub const INSPECTED: [&str; 4] = [
    "keep/clusters.jsonl",
    "keep/pairs.jsonl",
    "keep/dropped.jsonl",
    "decontaminate/hits.jsonl",
];

/// Writes a file of JSON lines below `to` without the lines about removed documents.
///
/// # Errors
/// `Io`; `Damaged` for a line that is no JSON.
pub fn rewrite_lines(out: &Path, to: &Path, name: &str, removals: &Removals) -> Result<OutputFile> {
    let path = out.join(name);
    let mut reader = BufReader::new(std::fs::File::open(&path).at(&path)?);
    let mut file = AtomicFile::create(to, name)?;
    let to_path = file.path();
    let (mut line, mut offset) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).at(&path)?;
        if read == 0 {
            return file.finish();
        }
        let mut value: Value = serde_json::from_slice(&line)
            .map_err(|e| damaged(&path, offset, e.to_string(), "a line of JSON"))?;
        offset += read as u64;
        match correct(&mut value, removals) {
            Corrected::Removed => {}
            Corrected::Unchanged => file.write_all(&line).at(&to_path)?,
            Corrected::Changed => writeln!(file, "{value}").at(&to_path)?,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Corrected {
    Unchanged,
    Changed,
    /// It is about a removed document.
    Removed,
}

/// Renumbers every document in a value; stops at a removed one. Documents of other crawls have a field `crawl`.
fn correct(value: &mut Value, removals: &Removals) -> Corrected {
    let mut all = Corrected::Unchanged;
    match value {
        Value::Array(items) => {
            for item in items {
                all = all.max(correct(item, removals));
            }
        }
        Value::Object(fields) => {
            let number = |name: &str| fields.get(name)?.as_u64();
            let place = (number("shard"), number("document"));
            if let (Some(shard), Some(document), false) =
                (place.0, place.1, fields.contains_key("crawl"))
            {
                let whole = |n: u64| narrow(usize::try_from(n).unwrap_or(usize::MAX));
                match removals.renumbered(whole(shard), whole(document)) {
                    None => return Corrected::Removed,
                    Some(new) if u64::from(new) != document => {
                        fields.insert("document".to_string(), new.into());
                        all = Corrected::Changed;
                    }
                    Some(_) => {}
                }
            }
            for (_, inner) in fields.iter_mut() {
                all = all.max(correct(inner, removals));
            }
        }
        _ => {}
    }
    all
}

/// Removes from every array in a value the objects whose `id` is that of a removed document, or one of `others`; returns
/// whether there was one.
pub fn without_ids(value: &mut Value, removals: &Removals, others: &[String]) -> bool {
    let is_gone = |item: &Value| {
        let id = item.get("id").and_then(Value::as_str);
        id.is_some_and(|id| removals.has_id(id) || others.iter().any(|other| other == id))
    };
    match value {
        Value::Array(items) => {
            let before = items.len();
            items.retain(|item| !is_gone(item));
            let mut changed = items.len() < before;
            for item in items {
                changed |= without_ids(item, removals, others);
            }
            changed
        }
        Value::Object(fields) => {
            let mut changed = false;
            for (_, inner) in fields.iter_mut() {
                changed |= without_ids(inner, removals, others);
            }
            changed
        }
        _ => false,
    }
}
