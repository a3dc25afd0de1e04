//! Records of takedowns, `takedown/NNNNN.json` with the removed documents in `takedown/NNNNN.jsonl`. They have no clock, so
//! that a run that was killed leaves the bytes of a calm one.

use anyhow::{Context as _, Result};
use curate::takedown::FoundBy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Folder of the records, below the job's.
pub(super) const FOLDER: &str = "takedown";

/// The last answer, below the job's folder.
pub(super) const REPORT: &str = "takedown/report.json";

/// One takedown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub list: List,
    /// Removed documents.
    pub documents: u64,
    /// Lines of `dropped/` that were removed, with their excerpts.
    pub dropped_lines: u64,
    /// Documents that stay removed as duplicates of removed documents until deduplication runs again.
    pub duplicates_of_removed: u64,
    /// The shards of which something was removed.
    pub shards: Vec<Shard>,
    /// Lines of the list that name no document of this corpus.
    pub entries_without_documents: Vec<u32>,
    /// The token datasets of the job that exist.
    pub datasets: Vec<DatasetThen>,
    /// Identity of the corpus before and after.
    pub before: String,
    pub after: String,
}

/// The list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct List {
    /// File name.
    pub name: String,
    pub xxh3: String,
    pub entries: u64,
}

/// A shard of which something was removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Shard {
    pub shard: usize,
    /// Documents before.
    pub documents: u64,
    pub removed: u64,
    pub dropped_lines: u64,
}

/// A dataset at the time of a takedown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DatasetThen {
    pub name: String,
    /// Identity of its tokens and index.
    pub identity: String,
    /// Documents.
    pub documents: u64,
    /// Why the numbers of the removed documents in it are not known; without it they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Removed documents that are in it, as far as known.
    pub removed: u64,
}

/// A removed document: a line of `takedown/NNNNN.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub shard: usize,
    /// Number in the shard before this takedown.
    pub document: u32,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Line of the list that names it, and the property that was found.
    pub line: u32,
    pub by: FoundBy,
    /// Numbers of its documents in the datasets that contain it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub datasets: BTreeMap<String, Vec<u64>>,
}

/// Name of a record's file without its ending, below the job's folder.
pub(super) fn name_of(number: usize) -> String {
    format!("{FOLDER}/{number:05}")
}

/// The takedowns of a job's folder, the first one first.
pub(super) fn records(out: &Path) -> Result<Vec<(usize, Record)>> {
    let mut records = Vec::new();
    for number in 1.. {
        let path = out.join(name_of(number) + ".json");
        if !path.exists() {
            break;
        }
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let record = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no record of a takedown", path.display()))?;
        records.push((number, record));
    }
    Ok(records)
}

/// Passes the removed documents of a takedown to `each`.
pub(super) fn each_line(
    out: &Path,
    number: usize,
    each: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<()> {
    let path: PathBuf = out.join(name_of(number) + ".jsonl");
    let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
    for (i, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| path.display().to_string())?;
        let line = serde_json::from_str(&line)
            .with_context(|| format!("{}, line {}", path.display(), i + 1))?;
        each(line)?;
    }
    Ok(())
}

/// Numbers of the documents of a dataset that all takedowns of it removed, sorted. `identity` is the dataset's now: a
/// takedown of other tokens says nothing about these.
pub(super) fn removed_from(
    out: &Path,
    records: &[(usize, Record)],
    name: &str,
    identity: &str,
) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for (number, record) in records {
        let mut datasets = record.datasets.iter();
        if !datasets.any(|d| d.name == name && d.identity == identity) {
            continue;
        }
        each_line(out, *number, &mut |line| {
            numbers.extend(line.datasets.get(name).into_iter().flatten());
            Ok(())
        })?;
    }
    numbers.sort_unstable();
    Ok(numbers)
}
