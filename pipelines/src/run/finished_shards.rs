//! The shards of the finished curation, which later verbs read, and the files of shards that an earlier form of the job had.
//!
//! A job that lost an input has fewer shards than its folder. The record of `curate` says how many there are and which: it holds a
//! checksum of the fingerprints of their records. A shard without such a record counts for nothing, and the curation of the whole
//! job removes it.

use crate::machine::checksum_bytes;
use crate::manifest::{Manifest, SHARDS, shards_of};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Count of the record of `curate`: the checksum of its shards' fingerprints. Records of earlier versions lack it.
const PRINTS: &str = "shards_xxh3";

/// Name of a shard's stage.
pub(super) fn stage_of(shard: usize) -> String {
    format!("curate/{shard:05}")
}

/// Puts the shards with these fingerprints in the counts of the record of `curate`.
pub(super) fn put(counts: &mut Value, prints: &[String]) {
    counts[SHARDS] = prints.len().into();
    counts[PRINTS] = checksum_of(prints).into();
}

/// Moves them from the counts of a record to those that take its place.
pub(super) fn keep(before: &mut Value, counts: &mut Value) {
    for key in [SHARDS, PRINTS] {
        let value = before[key].take();
        if !value.is_null() {
            counts[key] = value;
        }
    }
}

fn checksum_of(prints: &[String]) -> String {
    checksum_bytes(json!(prints).to_string().as_bytes())
}

/// Number of shards of the finished curation; none if it is not finished, or shards have been curated or removed since.
///
/// # Errors
/// If the store cannot be reached.
pub(crate) fn finished_shards(manifest: &Manifest) -> Result<Option<usize>> {
    let Some(whole) = manifest.get("curate")? else {
        return Ok(None);
    };
    let count = shards_of(&whole.counts);
    let (mut prints, mut documents) = (Vec::new(), 0);
    while count.is_none_or(|count| prints.len() < count) {
        let Some(record) = manifest.get(&stage_of(prints.len()))? else {
            break;
        };
        documents += record.counts["records"].as_u64().unwrap_or(0);
        prints.push(record.fingerprint);
    }
    let is_whole = match whole.counts[PRINTS].as_str() {
        Some(sum) => checksum_of(&prints) == sum,
        None => whole.counts["records"].as_u64() == Some(documents),
    };
    Ok(is_whole.then_some(prints.len()))
}

/// Folder of the shards' records.
const RECORDS: &str = "records/curate";
/// Folders with files of every shard.
const OUTPUTS: [&str; 8] = [
    "clean",
    "dropped",
    "errors",
    "figures",
    "samples",
    "statistics",
    "keep",
    "embeddings",
];

/// Files of shards that the job does not have any more.
#[derive(Default)]
pub(super) struct StaleShards {
    numbers: BTreeSet<usize>,
    records: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
}

impl StaleShards {
    /// Those in the folder of a job of `shards` shards. Objects in a store are not looked for, as nothing is removed there.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub(super) fn find(out: &Path, shards: usize) -> Result<StaleShards> {
        let mut found = StaleShards::default();
        let mut numbers = BTreeSet::new();
        found.records = files_from(&out.join(RECORDS), shards, &mut numbers)?;
        for folder in OUTPUTS {
            found
                .outputs
                .extend(files_from(&out.join(folder), shards, &mut numbers)?);
        }
        found.numbers = numbers;
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Number of the shards.
    pub(super) fn numbers(&self) -> usize {
        self.numbers.len()
    }

    /// The files but for records.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &Path> {
        self.outputs.iter().map(PathBuf::as_path)
    }

    /// Removes them: the records first, so that files without a record are all that a kill can leave. The record of `curate` must
    /// have been withdrawn.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub(super) fn remove(&self) -> Result<()> {
        for path in self.records.iter().chain(&self.outputs) {
            std::fs::remove_file(path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        match self.numbers.len() {
            0 => {}
            1 => log!(
                "curate: note: a shard that the job no longer has was removed, with its record"
            ),
            n => log!(
                "curate: note: {n} shards that the job no longer has were removed, with their records"
            ),
        }
        Ok(())
    }
}

/// Files `NNNNN.*` of a folder with a number from `least` on; none if there is no folder.
fn files_from(folder: &Path, least: usize, numbers: &mut BTreeSet<usize>) -> Result<Vec<PathBuf>> {
    let listing = || format!("cannot list {}", folder.display());
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(listing)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(listing)?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(number_of) else {
            continue;
        };
        if number >= least && entry.file_type().with_context(listing)?.is_file() {
            numbers.insert(number);
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The number of the shard that a file is of, if its name is that of such a file.
fn number_of(name: &str) -> Option<usize> {
    let (digits, _) = name.split_once('.')?;
    let number = digits.parse().ok()?;
    (format!("{number:05}") == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(out: &Path, documents: &[u64]) -> Manifest {
        let manifest = Manifest::open(out, None).unwrap();
        for (shard, records) in documents.iter().enumerate() {
            let counts = json!({"records": records});
            let print = format!("print {shard}");
            manifest
                .record(&stage_of(shard), &print, &[], counts, 0.0)
                .unwrap();
        }
        manifest
    }

    #[test]
    fn the_record_of_curate_stands_for_its_own_shards_alone() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = recorded(dir.path(), &[60, 40, 40]);
        assert_eq!(finished_shards(&manifest).unwrap(), None);
        let finish = |prints: &[&str], records: u64| {
            let mut counts = json!({"records": records});
            let prints: Vec<String> = prints.iter().map(ToString::to_string).collect();
            put(&mut counts, &prints);
            manifest.record("curate", "all", &[], counts, 0.0).unwrap();
        };
        finish(&["print 0", "print 1"], 100);
        assert_eq!(finished_shards(&manifest).unwrap(), Some(2));
        // the second shard was made of another file since
        finish(&["print 0", "print of b"], 100);
        assert_eq!(finished_shards(&manifest).unwrap(), None);
        finish(&["print 0", "print 1", "print 2", "print 3"], 180);
        assert_eq!(finished_shards(&manifest).unwrap(), None);
    }

    #[test]
    fn of_a_record_of_an_earlier_version_the_documents_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = recorded(dir.path(), &[60, 40]);
        let finish = |records: u64| {
            let counts = json!({"records": records});
            manifest.record("curate", "all", &[], counts, 0.0).unwrap();
        };
        finish(100);
        assert_eq!(finished_shards(&manifest).unwrap(), Some(2));
        finish(60);
        assert_eq!(finished_shards(&manifest).unwrap(), None);
    }

    #[test]
    fn only_files_of_shards_that_are_gone_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let gone = [
            "records/curate/00002.json",
            "records/curate/100000.journal",
            "clean/00002.jsonl.zst",
            "clean/00002.sig",
            "keep/00003.edits",
        ];
        let stays = [
            "records/curate/00001.json",
            "clean/00001.sig",
            "keep/clusters.jsonl",
            "keep/2.keep",
            "tokens/00002.bin",
            "errors/mine-00002.jsonl",
        ];
        for name in gone.iter().chain(&stays) {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = StaleShards::find(dir.path(), 2).unwrap();
        assert_eq!(found.numbers, BTreeSet::from([2, 3, 100_000]));
        found.remove().unwrap();
        assert!(gone.iter().all(|name| !dir.path().join(name).exists()));
        assert!(stays.iter().all(|name| dir.path().join(name).exists()));
        assert!(StaleShards::find(dir.path(), 2).unwrap().is_empty());
    }
}
