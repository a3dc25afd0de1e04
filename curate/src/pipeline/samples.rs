//! Texts of the documents that reports show, as far as they are longer than the excerpts in the records.
//!
//! `samples/NNNNN.jsonl.zst` has those of a shard, `samples.jsonl` those of all shards' documents that the sum of the reports
//! shows: lines with the fields of [`Sample`], `text` (its first 20,000 characters) and `chars` (of the whole text).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{At, Result, damaged};
use crate::pipeline::report::{Sample, ShardReport, ShownText};
use crate::write::{AtomicFile, JsonLines, OutputFile, shard_file};

/// A document to show, with its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleText {
    /// The document as reports have it.
    #[serde(flatten)]
    pub sample: Sample,
    /// The first 20,000 characters of its text.
    pub text: String,
    /// Characters of the whole text.
    pub chars: u64,
}

fn file_of(shard: usize) -> String {
    shard_file("samples", shard, "jsonl.zst")
}

/// Writes the texts that a shard's report holds to its file, and takes them out of it.
pub(crate) fn write(report: &mut ShardReport, out: &Path, shard: usize) -> Result<OutputFile> {
    let mut file = JsonLines::create(out, &file_of(shard))?;
    let (kept, dropped) = (&mut report.kept_samples, &mut report.dropped_samples);
    for sample in kept.iter_mut().chain(dropped) {
        let Some(ShownText { start, chars }) = sample.shown.take() else {
            continue;
        };
        if start.len() > sample.excerpt.len() {
            file.write(&SampleText {
                sample: sample.clone(),
                text: start,
                chars,
            })?;
        }
    }
    file.finish()
}

/// Identity of a document among those that are shown.
type Key = (String, u64, String);

fn key_of(sample: &Sample) -> Key {
    (sample.rule.clone(), sample.hash, sample.id.clone())
}

/// Writes `samples.jsonl` below `out`: the texts of the documents that the sum of the shards' reports shows, in its order.
/// `reports` are those of all shards, the first one first. Shards of earlier versions have no texts.
///
/// # Errors
/// `Io`; `Damaged` for a line that is no document to show.
pub fn merge_samples(out: &Path, reports: &[ShardReport], sum: &ShardReport) -> Result<OutputFile> {
    let shown = || sum.kept_samples.iter().chain(&sum.dropped_samples);
    let wanted: BTreeMap<Key, &Sample> = shown().map(|s| (key_of(s), s)).collect();
    let mut found: BTreeMap<Key, SampleText> = BTreeMap::new();
    for (shard, report) in reports.iter().enumerate() {
        let own = report.kept_samples.iter().chain(&report.dropped_samples);
        let path = out.join(file_of(shard));
        if !own.map(key_of).any(|key| wanted.contains_key(&key)) || !path.exists() {
            continue;
        }
        for line in read(&path)? {
            let key = key_of(&line.sample);
            let Some(sample) = wanted.get(&key) else {
                continue;
            };
            // of documents with one id and one beginning the one that the sum shows
            let rank = |of: &SampleText| (of.sample != **sample, of.text.clone());
            if found.get(&key).is_none_or(|old| rank(&line) < rank(old)) {
                found.insert(key, line);
            }
        }
    }
    let mut file = AtomicFile::create(out, "samples.jsonl")?;
    let path = file.path();
    for sample in shown() {
        if let Some(line) = found.get(&key_of(sample)) {
            let text = serde_json::to_string(line)
                .map_err(std::io::Error::from)
                .at(&path)?;
            writeln!(file, "{text}").at(&path)?;
        }
    }
    file.finish()
}

/// The texts of a shard.
fn read(path: &Path) -> Result<Vec<SampleText>> {
    let file = std::fs::File::open(path).at(path)?;
    let decoder = zstd::stream::read::Decoder::new(file).at(path)?;
    let (mut lines, mut offset) = (Vec::new(), 0);
    for line in BufReader::new(decoder).lines() {
        let line = line.at(path)?;
        let wrong =
            |e: serde_json::Error| damaged(path, offset, e.to_string(), "a document to show");
        lines.push(serde_json::from_str(&line).map_err(wrong)?);
        offset += line.len() as u64 + 1;
    }
    Ok(lines)
}
