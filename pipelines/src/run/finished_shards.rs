//! The shards of the finished curation, which later verbs read, and the files and objects of shards that an earlier form of the job
//! had.
//!
//! A job that lost an input has fewer shards than its folder. The record of `curate` says how many there are and which: it holds a
//! checksum of the fingerprints of their records. A shard without such a record counts for nothing, and the curation of the whole
//! job removes it.

use crate::machine::checksum_bytes;
use crate::manifest::{Manifest, SHARDS, shards_of};
use anyhow::{Context as _, Result};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
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

/// Files of shards that the job does not have any more, and objects of its store.
#[derive(Default)]
pub(super) struct StaleShards {
    numbers: BTreeSet<usize>,
    records: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
    /// Names of the records in the store.
    record_objects: Vec<String>,
    /// Names of the other objects, and their sizes in bytes.
    output_objects: Vec<(String, u64)>,
}

impl StaleShards {
    /// Those in the folder `out` of a job of `shards` shards, and in its store. `objects` lists the names and sizes of all objects
    /// below a folder of the job; it is called once for each folder that has files of shards.
    ///
    /// # Errors
    /// If a folder cannot be listed; those of `objects`.
    pub(super) fn find(
        out: &Path,
        shards: usize,
        objects: impl Fn(&str) -> Result<Vec<(String, u64)>>,
    ) -> Result<StaleShards> {
        let mut found = StaleShards::default();
        let mut numbers = BTreeSet::new();
        let objects_from = |folder: &str, numbers: &mut BTreeSet<usize>| -> Result<Vec<_>> {
            let mut stale = objects(folder)?;
            stale.retain(|(name, _)| {
                let number = number_in(folder, name).filter(|number| *number >= shards);
                numbers.extend(number);
                number.is_some()
            });
            Ok(stale)
        };
        found.records = files_from(&out.join(RECORDS), shards, &mut numbers)?;
        let records = objects_from(RECORDS, &mut numbers)?.into_iter();
        found.record_objects = records.map(|(name, _)| name).collect();
        for folder in OUTPUTS {
            found
                .outputs
                .extend(files_from(&out.join(folder), shards, &mut numbers)?);
            found
                .output_objects
                .extend(objects_from(folder, &mut numbers)?);
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

    /// Names and sizes in bytes of the store's objects but for records.
    pub(super) fn output_objects(&self) -> impl Iterator<Item = (&str, u64)> {
        let objects = self.output_objects.iter();
        objects.map(|(name, bytes)| (name.as_str(), *bytes))
    }

    /// Removes them, the store's objects by `remove_object`, several at once. The record of `curate` must have been withdrawn.
    ///
    /// Records go first: those in the store, which alone say what is done in a job with one, and the local ones, by which a folder
    /// goes on without its store. Only then go the files that they name, there and here. Whenever a kill comes, neither the store
    /// nor the folder has a record whose files are gone; and as both are listed by the numbers in names, not by records, the next
    /// run finds and removes the rest. Another machine finds that of the store.
    ///
    /// # Errors
    /// If a file or an object cannot be removed.
    pub(super) fn remove(
        &self,
        remove_object: impl Fn(&str) -> Result<()> + Sync + Send,
    ) -> Result<()> {
        let records = self.record_objects.par_iter();
        records.try_for_each(|name| remove_object(name))?;
        remove_files(&self.records)?;
        let outputs = self.output_objects.par_iter();
        outputs.try_for_each(|(name, _)| remove_object(name))?;
        remove_files(&self.outputs)?;
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

fn remove_files(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
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

/// The number of the shard that an object is of, if it is directly in the folder and its name is that of such a file.
fn number_in(folder: &str, object: &str) -> Option<usize> {
    let name = object.strip_prefix(folder)?.strip_prefix('/')?;
    number_of(name).filter(|_| !name.contains('/'))
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
    use anyhow::bail;
    use std::sync::Mutex;

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
        let none = |_: &str| Ok(Vec::new());
        let found = StaleShards::find(dir.path(), 2, none).unwrap();
        assert_eq!(found.numbers, BTreeSet::from([2, 3, 100_000]));
        found.remove(|_| unreachable!("no store")).unwrap();
        assert!(gone.iter().all(|name| !dir.path().join(name).exists()));
        assert!(stays.iter().all(|name| dir.path().join(name).exists()));
        assert!(StaleShards::find(dir.path(), 2, none).unwrap().is_empty());
    }

    /// Names of the files below a folder, with slashes.
    fn names_in(out: &Path, folders: &[&str]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for folder in folders {
            for entry in std::fs::read_dir(out.join(folder)).into_iter().flatten() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                found.insert(format!("{folder}/{name}"));
            }
        }
        found
    }

    /// The store is a set of names; its removals fail from the first, the second and so on, as those of a process that is killed do.
    #[test]
    fn a_kill_between_removals_leaves_files_without_a_record_and_the_next_run_finds_them() {
        let folders = ["records/curate", "clean", "statistics"];
        let names: BTreeSet<String> = (0..4)
            .flat_map(|shard| {
                let files = [
                    ("records/curate", "json"),
                    ("clean", "jsonl.zst"),
                    ("clean", "sig"),
                    ("statistics", "jsonl.zst"),
                ];
                files.map(|(folder, ending)| format!("{folder}/{shard:05}.{ending}"))
            })
            .collect();
        let other = ["clean/deeper/00003.sig", "clean/2.sig", "cleaner/00003.sig"];
        let is_kept = |name: &&String| name.contains("/00000.") || name.contains("/00001.");
        let kept: BTreeSet<String> = names.iter().filter(is_kept).cloned().collect();
        let is_record = |name: &&String| name.starts_with(RECORDS);
        let shard_of = |name: &str| name.rsplit('/').next().unwrap()[..5].to_owned();
        let of = |left: &BTreeSet<String>, shard: &str| {
            let own = left.intersection(&names);
            own.filter(|name| shard_of(name) == shard).count()
        };
        // one thread, so that the removals before the one that fails are the same ones every time
        let one = rayon::ThreadPoolBuilder::new().num_threads(1);
        let one = one.build().unwrap();
        for fails_at in 0..=8 {
            let dir = tempfile::tempdir().unwrap();
            let out = dir.path();
            for name in &names {
                std::fs::create_dir_all(out.join(name).parent().unwrap()).unwrap();
                std::fs::write(out.join(name), "").unwrap();
            }
            let all = names.iter().cloned().chain(other.map(str::to_owned));
            let store = Mutex::new(all.collect::<BTreeSet<String>>());
            let left = Mutex::new(fails_at);
            let objects = |folder: &str| {
                let store = store.lock().unwrap();
                let own = store
                    .iter()
                    .filter(|name| name.starts_with(&format!("{folder}/")));
                Ok(own.map(|name| (name.clone(), 7)).collect())
            };
            let remove = |name: &str| {
                let mut left = left.lock().unwrap();
                *left = match *left {
                    0 => bail!("killed"),
                    left => left - 1,
                };
                assert!(store.lock().unwrap().remove(name), "{name}");
                Ok(())
            };
            let found = StaleShards::find(out, 2, objects).unwrap();
            assert_eq!((found.numbers(), found.output_objects().count()), (2, 6));
            let done = one.install(|| found.remove(remove));
            assert_eq!(done.is_ok(), fails_at == 8);
            let here = names_in(out, &folders);
            for names in [&here, &*store.lock().unwrap()] {
                for record in names.iter().filter(is_record) {
                    let files = of(names, &shard_of(record));
                    assert_eq!(files, 4, "{record} has lost a file: {names:?}");
                }
            }
            *left.lock().unwrap() = 8;
            let found = StaleShards::find(out, 2, objects).unwrap();
            assert_eq!(found.is_empty(), fails_at == 8);
            found.remove(remove).unwrap();
            assert_eq!(names_in(out, &folders), kept);
            let mut store = store.into_inner().unwrap();
            for name in other {
                assert!(store.remove(name), "{name}");
            }
            assert_eq!(store, kept);
        }
    }
}
