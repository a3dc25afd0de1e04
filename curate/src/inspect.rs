//! Describes any file this crate reads or writes, for people and for `inspect --json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::Format;
use crate::dedup::{KeepList, SignatureReader};
use crate::error::{At, Result};
use crate::read::{Batch, Reader, parse_record};

/// What a file is and what it holds.
///
/// # Errors
/// A file that cannot be opened, or one of ours that is damaged.
pub fn inspect(path: &Path) -> Result<Value> {
    let mut head = [0u8; 8];
    let mut file = File::open(path).at(path)?;
    let bytes = file.metadata().at(path)?.len();
    let mut filled = 0;
    while filled < head.len() {
        match file.read(&mut head[filled..]).at(path)? {
            0 => break,
            n => filled += n,
        }
    }
    let mut value = match &head {
        b"MLRSIGN1" => signatures(path)?,
        b"MLRKEEP1" => keep(path)?,
        _ => records(path)?,
    };
    value["path"] = json!(path.display().to_string());
    value["bytes"] = json!(bytes);
    Ok(value)
}

fn signatures(path: &Path) -> Result<Value> {
    let mut reader = SignatureReader::open(path)?;
    let mut signature = crate::dedup::Signature::default();
    let (mut with, mut chars) = (0u64, 0u64);
    while reader.read(&mut signature)? {
        with += u64::from(!signature.minima.is_empty());
        chars += signature.chars;
    }
    let shape = reader.shape();
    Ok(
        json!({"kind": "signatures", "documents": reader.count(), "with_minhash": with,
        "chars": chars, "buckets": shape.buckets, "hashes": shape.hashes, "ngram": shape.ngram,
        "seed": shape.seed}),
    )
}

fn keep(path: &Path) -> Result<Value> {
    let list = KeepList::read(path)?;
    let count = |flag: u8| list.flags.iter().filter(|&&f| f == flag).count();
    Ok(
        json!({"kind": "keep list", "documents": list.len(), "kept": count(0), "exact": count(1),
        "fuzzy": count(2)}),
    )
}

/// WARC by its first bytes, lines otherwise.
fn records(path: &Path) -> Result<Value> {
    let mut batch = Batch::default();
    let mut first = Reader::open(path, Format::Jsonl, 1 << 30).at(path)?;
    first.fill(&mut batch);
    let is_warc = batch
        .records
        .first()
        .is_some_and(|raw| batch.bytes(raw).starts_with(b"WARC/"));
    drop(first);
    let format = if is_warc { Format::Warc } else { Format::Jsonl };
    let mut reader = Reader::open(path, format, 1 << 30).at(path)?;
    let (mut count, mut bad, mut json_lines, mut text) = (0u64, 0u64, 0u64, 0u64);
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut problems = Vec::new();
    while reader.fill(&mut batch) {
        for raw in &batch.records {
            count += 1;
            if let Some(why) = &raw.bad {
                bad += 1;
                if problems.len() < 10 {
                    problems.push(json!({"offset": raw.offset, "record": raw.number, "why": why}));
                }
                continue;
            }
            let bytes = batch.bytes(raw);
            if is_warc {
                let kind = parse_record(bytes).map(|r| r.kind).unwrap_or_default();
                *kinds.entry(kind).or_default() += 1;
            } else if let Ok(Value::Object(map)) = serde_json::from_slice::<Value>(bytes) {
                json_lines += 1;
                text += map
                    .get("text")
                    .and_then(Value::as_str)
                    .map_or(0, |t| t.len() as u64);
                for key in map.keys() {
                    *kinds.entry(key.clone()).or_default() += 1;
                }
            }
        }
    }
    Ok(if is_warc {
        json!({"kind": "warc", "records": count, "bad": bad, "types": kinds, "problems": problems})
    } else if json_lines > 0 {
        json!({"kind": "json lines", "records": count, "bad": bad + (count - bad - json_lines),
            "text_bytes": text, "fields": kinds, "problems": problems})
    } else {
        json!({"kind": "text", "lines": count, "bad": bad, "problems": problems})
    })
}
