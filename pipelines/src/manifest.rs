//! `manifest.json`: the finished stages with their inputs' fingerprint, counts, output files and checksums.
//!
//! A stage is skipped only if its fingerprint (settings and everything it reads) is unchanged and every file it
//! wrote still has its size and checksum: a record is verified before it is trusted. Each shard of a curation has a
//! record file, `records/curate/NNNNN.json`, so that processes on many machines can record concurrently and the
//! manifest does not grow with the corpus.
//!
//! With a store (`[store]`) the job's folder is local to a machine. Files are uploaded before the record that names
//! them, records are replaced with compare-and-swap, and the store's records decide which stages are done. A curation of the whole
//! job removes the records and files of shards that the job no longer has there, too.

use crate::machine::{checksum, checksum_bytes, peak_rss_bytes, publish, write_atomically};
use anyhow::{Context, Result, bail};
use curate::store::{ObjectFolder, Put};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that a stage wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Output {
    /// Relative to the job's folder.
    pub path: PathBuf,
    /// Size.
    pub bytes: u64,
    /// XXH3-128, hex.
    pub xxh3: String,
    /// Time of the last change when the checksum was taken, nanoseconds since 1970; none in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<u64>,
}

impl Output {
    /// Whether the file at `path` has this size and checksum.
    fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|m| m.len() == self.bytes)
            && checksum(path).is_ok_and(|c| c == self.xxh3)
    }

    /// Like [`Output::is_at`], without reading a file that has not been changed since its checksum was taken.
    fn is_untouched_at(&self, path: &Path) -> bool {
        let untouched = std::fs::metadata(path).is_ok_and(|m| m.len() == self.bytes)
            && self.modified_ns.is_some()
            && modified_ns(path) == self.modified_ns;
        untouched || self.is_at(path)
    }
}

fn modified_ns(path: &Path) -> Option<u64> {
    let modified = std::fs::metadata(path).and_then(|m| m.modified()).ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// A finished stage, or a finished part of one (`curate/00003`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Fingerprint of settings and inputs.
    pub fingerprint: String,
    /// Files.
    pub outputs: Vec<Output>,
    /// Counts of the stage.
    pub counts: serde_json::Value,
    /// Wall clock.
    pub seconds: f64,
    /// Largest resident set of the process when the stage ended, bytes.
    pub peak_rss_bytes: u64,
}

/// Stages that are parts: their records are files of their own.
const PARTS: &str = "curate/";
/// Files that no later stage reads: they stay in the store.
const LAST: &str = "dropped";

/// The manifest and its records. Shared by the tasks of one process; records of parts also by processes.
pub(crate) struct Manifest {
    out: PathBuf,
    records: Mutex<BTreeMap<String, Record>>,
    shared: Option<Shared>,
    /// Files whose checksum this process has computed: what is decided before the first stage is not read again by the stages.
    verified: Mutex<BTreeMap<PathBuf, Verified>>,
}

/// A file as it was when its checksum was computed.
#[derive(PartialEq)]
struct Verified {
    bytes: u64,
    modified_ns: u64,
    xxh3: String,
}

/// The store that a job's files are shared through. Only what is recorded there counts as done.
struct Shared {
    folder: ObjectFolder,
    /// Version (ETag) of `manifest.json` as last read or written; None: it did not exist.
    version: Mutex<Option<String>>,
    /// Records of parts that have been read from there.
    seen: Mutex<BTreeMap<String, Record>>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_text(records: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(records).context("a record")? + "\n")
}

/// The object's name of a file of the job.
fn name_of(path: &Path) -> String {
    let parts = path.components().map(|c| c.as_os_str().to_string_lossy());
    parts.collect::<Vec<_>>().join("/")
}

impl Manifest {
    /// Reads `out/manifest.json`, or that of the store; an absent or unreadable one counts as empty, so all stages
    /// run again.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn open(out: &Path, store: Option<ObjectFolder>) -> Result<Manifest> {
        let (text, shared) = match store {
            None => {
                let text = std::fs::read(out.join(NAME)).unwrap_or_default();
                (text, None)
            }
            Some(folder) => {
                let (text, version) = folder.read(NAME)?.unwrap_or_default();
                let shared = Shared {
                    folder,
                    version: Mutex::new(version),
                    seen: Mutex::default(),
                };
                (text, Some(shared))
            }
        };
        Ok(Manifest {
            out: out.to_path_buf(),
            records: Mutex::new(serde_json::from_slice(&text).unwrap_or_default()),
            shared,
            verified: Mutex::default(),
        })
    }

    /// The record of `stage`, if there is one.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn get(&self, stage: &str) -> Result<Option<Record>> {
        if !stage.starts_with(PARTS) {
            return Ok(held(&self.records).get(stage).cloned());
        }
        let Some(shared) = &self.shared else {
            let text = std::fs::read(self.out.join(part(stage))).unwrap_or_default();
            return Ok(serde_json::from_slice(&text).ok());
        };
        if let Some(record) = held(&shared.seen).get(stage) {
            return Ok(Some(record.clone()));
        }
        let text = shared.folder.read(&part(stage))?.unwrap_or_default().0;
        let record: Option<Record> = serde_json::from_slice(&text).ok();
        if let Some(record) = &record {
            held(&shared.seen).insert(stage.to_string(), record.clone());
        }
        Ok(record)
    }

    /// All records but those of parts.
    pub(crate) fn records(&self) -> BTreeMap<String, Record> {
        held(&self.records).clone()
    }

    /// Records as their file has them.
    pub(crate) fn text_of(records: &impl Serialize) -> Result<String> {
        to_text(records)
    }

    /// The record of `stage` if it may be skipped. Output files that only the store has are downloaded.
    ///
    /// # Errors
    /// If the store cannot be reached, or a file not be written.
    pub(crate) fn done(&self, stage: &str, fingerprint: &str) -> Result<Option<Record>> {
        let is_needed = |name: &Path| !name.starts_with(LAST);
        self.checked(stage, fingerprint, is_needed, |output, path| {
            self.is_whole(output, path)
        })
    }

    /// Like [`Manifest::done`]; nothing is downloaded.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn found(&self, stage: &str, fingerprint: &str) -> Result<Option<Record>> {
        self.checked(
            stage,
            fingerprint,
            |_| false,
            |output, path| self.is_whole(output, path),
        )
    }

    /// Like [`Output::is_at`], without reading a file twice that has not been changed since this process read it.
    fn is_whole(&self, output: &Output, path: &Path) -> bool {
        let now = modified_ns(path).map(|modified_ns| Verified {
            bytes: output.bytes,
            modified_ns,
            xxh3: output.xxh3.clone(),
        });
        if now.is_some() && held(&self.verified).get(path) == now.as_ref() {
            return std::fs::metadata(path).is_ok_and(|m| m.len() == output.bytes);
        }
        let is_whole = output.is_at(path);
        if let (true, Some(now)) = (is_whole, now) {
            held(&self.verified).insert(path.to_path_buf(), now);
        }
        is_whole
    }

    /// Like [`Manifest::done`], but files that have not been changed since they were recorded are not read: for stages that
    /// only begin to read terabytes of them.
    ///
    /// # Errors
    /// As [`Manifest::done`].
    pub(crate) fn is_untouched(&self, stage: &str, fingerprint: &str) -> Result<bool> {
        let is_needed = |name: &Path| !name.starts_with(LAST);
        let found = self.checked(stage, fingerprint, is_needed, Output::is_untouched_at);
        Ok(found?.is_some())
    }

    /// Whether `stage` may be skipped; nothing is downloaded.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn is_done(&self, stage: &str, fingerprint: &str) -> Result<bool> {
        Ok(self.found(stage, fingerprint)?.is_some())
    }

    fn checked(
        &self,
        stage: &str,
        fingerprint: &str,
        is_needed: impl Fn(&Path) -> bool,
        is_whole: impl Fn(&Output, &Path) -> bool,
    ) -> Result<Option<Record>> {
        let Some(record) = self.get(stage)?.filter(|r| r.fingerprint == fingerprint) else {
            return Ok(None);
        };
        // a record from a store was written by another machine: it is trusted only if its files are in the job's
        // folder
        let is_ours = |output: &Output| {
            output.path.is_relative() && curate::store::is_inside(&name_of(&output.path))
        };
        if !record.outputs.iter().all(is_ours) {
            log!("{stage}: its record names files outside of the job's folder");
            return Ok(None);
        }
        for output in &record.outputs {
            let is_there = is_whole(output, &self.out.join(&output.path))
                || match &self.shared {
                    None => false,
                    Some(shared) if is_needed(&output.path) => {
                        self.bring_output(&shared.folder, output)?
                    }
                    Some(shared) => {
                        shared.folder.size(&name_of(&output.path))? == Some(output.bytes)
                    }
                };
            if !is_there {
                return Ok(None);
            }
        }
        Ok(Some(record))
    }

    /// Downloads a recorded file; false if the object there is not the recorded one.
    fn bring_output(&self, folder: &ObjectFolder, output: &Output) -> Result<bool> {
        let name = name_of(&output.path);
        let path = self.out.join(&output.path);
        if !fetch(folder, &name, &path)? {
            log!("{} is recorded but missing", folder.url(&name));
            return Ok(false);
        }
        let is_whole = output.is_at(&path);
        if !is_whole {
            log!(
                "{} does not have the checksum of its record",
                folder.url(&name)
            );
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        Ok(is_whole)
    }

    /// Whether the store has this file of the job; false without a store.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn is_in_store(&self, name: &str) -> Result<bool> {
        match &self.shared {
            Some(shared) => Ok(shared.folder.size(name)?.is_some()),
            None => Ok(false),
        }
    }

    /// Downloads a file of the job if there is a store and it has the file, replacing the local one.
    ///
    /// # Errors
    /// If the store cannot be reached, or the file not be written.
    pub(crate) fn bring(&self, name: &str) -> Result<()> {
        if let Some(shared) = &self.shared {
            fetch(&shared.folder, name, &self.out.join(name))?;
        }
        Ok(())
    }

    /// Downloads all files of a folder of the job, if there is a store.
    ///
    /// # Errors
    /// As [`Manifest::bring`].
    pub(crate) fn bring_folder(&self, name: &str) -> Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        for (name, _) in shared.folder.list(name)? {
            self.bring(&name)?;
        }
        Ok(())
    }

    /// Uploads a file of the job to the store, if there is one.
    ///
    /// # Errors
    /// If the upload fails.
    pub(crate) fn share(&self, name: &str) -> Result<()> {
        match &self.shared {
            Some(shared) => Ok(shared.folder.put(name, &self.out.join(name))?),
            None => Ok(()),
        }
    }

    /// Names and sizes in bytes of the store's objects below a folder of the job; none without a store.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn objects(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        match &self.shared {
            Some(shared) => Ok(shared.folder.list(folder)?),
            None => Ok(Vec::new()),
        }
    }

    /// Removes a file of the job from the store, if there is one and it has the file. The local file stays.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses.
    pub(crate) fn remove_object(&self, name: &str) -> Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        shared.folder.remove(name)?;
        if let Some(stage) = stage_of_part(name) {
            held(&shared.seen).remove(stage);
        }
        Ok(())
    }

    /// URL of a file of the job, if the job has a store.
    pub(crate) fn url(&self, name: &str) -> Option<String> {
        Some(self.shared.as_ref()?.folder.url(name))
    }

    /// Records a finished stage: computes the checksums of its files and writes the manifest. With a store the
    /// files are uploaded first, so that every recorded file exists.
    pub(crate) fn record(
        &self,
        stage: &str,
        fingerprint: &str,
        files: &[PathBuf],
        counts: serde_json::Value,
        seconds: f64,
    ) -> Result<Record> {
        let mut outputs = Vec::with_capacity(files.len());
        for path in files {
            let at = self.out.join(path);
            let bytes = std::fs::metadata(&at)
                .with_context(|| format!("stage {stage} did not write {}", at.display()))?
                .len();
            outputs.push(Output {
                path: path.clone(),
                bytes,
                // taken before the checksum: a change while it is computed is detected as a change
                modified_ns: modified_ns(&at),
                xxh3: checksum(&at)?,
            });
            self.share(&name_of(path))?;
        }
        let record = Record {
            fingerprint: fingerprint.to_string(),
            outputs,
            counts,
            seconds,
            peak_rss_bytes: peak_rss_bytes(),
        };
        if stage.starts_with(PARTS) {
            let text = to_text(&record)?;
            if let Some(shared) = &self.shared {
                shared.publish_part(&part(stage), text.as_bytes(), &record)?;
                held(&shared.seen).insert(stage.to_string(), record.clone());
            }
            write_atomically(&self.out.join(part(stage)), text.as_bytes())?;
            return Ok(record);
        }
        let mut records = held(&self.records);
        records.insert(stage.to_string(), record.clone());
        self.write(&records)?;
        Ok(record)
    }

    fn write(&self, records: &BTreeMap<String, Record>) -> Result<()> {
        let text = to_text(records)?;
        if let Some(shared) = &self.shared {
            shared.publish_manifest(text.as_bytes())?;
        }
        write_atomically(&self.out.join(NAME), text.as_bytes())
    }

    /// Removes the record of `stage`, so that a failure halfway cannot leave a record of older files.
    pub(crate) fn forget(&self, stage: &str) {
        held(&self.records).remove(stage);
    }

    /// Like [`Manifest::forget`], in the file as well: before files that the record stands for are removed or replaced.
    ///
    /// # Errors
    /// If the manifest cannot be written.
    pub(crate) fn withdraw(&self, stage: &str) -> Result<()> {
        let mut records = held(&self.records);
        if records.remove(stage).is_none() {
            return Ok(());
        }
        self.write(&records)
    }
}

/// Count of the record of `curate`: the number of its shards. Records of earlier versions lack it.
pub(crate) const SHARDS: &str = "shards";

/// The number of shards by the counts of the record of `curate`; none of an earlier version's record.
pub(crate) fn shards_of(counts: &serde_json::Value) -> Option<usize> {
    usize::try_from(counts[SHARDS].as_u64()?).ok()
}

/// File of the records.
pub(crate) const NAME: &str = "manifest.json";

/// File of the record of a part.
pub(crate) fn part(stage: &str) -> String {
    format!("records/{stage}.json")
}

/// The stage whose record a file with this name is.
fn stage_of_part(name: &str) -> Option<&str> {
    name.strip_prefix("records/")?.strip_suffix(".json")
}

/// Downloads an object into a file that appears whole; false if there is no such object.
///
/// # Errors
/// If the store cannot be reached, or the file not be written.
pub(crate) fn fetch(folder: &ObjectFolder, name: &str, path: &Path) -> Result<bool> {
    let mut trouble = None;
    let written = publish(path, |file| match folder.fetch(name, file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(std::io::ErrorKind::NotFound.into()),
        Err(e) => {
            trouble = Some(e);
            Err(std::io::ErrorKind::Other.into())
        }
    });
    match (trouble, written) {
        (Some(e), _) => Err(e.into()),
        (None, Ok(())) => Ok(true),
        (None, Err(e)) => {
            let cause = e.downcast_ref::<std::io::Error>().map(|e| e.kind());
            let is_absent = cause == Some(std::io::ErrorKind::NotFound);
            if is_absent { Ok(false) } else { Err(e) }
        }
    }
}

/// Retries of a compare-and-swap on a record that others keep writing.
const TRIES: usize = 8;

impl Shared {
    /// Uploads the record of a part. A task of another process may have done the same part: then both have written
    /// the same bytes, and either record will do. A record of other settings is replaced.
    fn publish_part(&self, name: &str, text: &[u8], record: &Record) -> Result<()> {
        let mut expected: Option<String> = None;
        for _ in 0..TRIES {
            if let Put::Done(_) = self.folder.put_if(name, text, expected.as_deref())? {
                return Ok(());
            }
            let (found, version) = self.folder.read(name)?.unwrap_or_default();
            let same =
                |r: &Record| r.fingerprint == record.fingerprint && r.outputs == record.outputs;
            if serde_json::from_slice(&found).is_ok_and(|r| same(&r)) {
                return Ok(());
            }
            expected = version;
        }
        bail!(
            "{} is being written by other processes all the time",
            self.folder.url(name)
        )
    }

    fn publish_manifest(&self, text: &[u8]) -> Result<()> {
        let mut version = held(&self.version);
        match self.folder.put_if(NAME, text, version.as_deref())? {
            Put::Done(now) => *version = now,
            Put::Other => {
                let (found, now) = self.folder.read(NAME)?.unwrap_or_default();
                // a retried request finds the record that its first try wrote
                if found != text {
                    let url = self.folder.url(NAME);
                    bail!(
                        "{url}: another process has replaced it in the meantime; run one at a time"
                    )
                }
                *version = now;
            }
        }
        Ok(())
    }
}

/// Fingerprint of anything that serialises: settings, input identities, upstream fingerprints.
pub(crate) fn fingerprint(parts: &serde_json::Value) -> String {
    let text = format!("{} {parts}", env!("CARGO_PKG_VERSION"));
    checksum_bytes(text.as_bytes())
}

/// Identity of an input file: its name, size and time of change. Reading terabytes to hash them would double the work,
/// and a touched file only costs a rerun.
pub(crate) fn identity(path: &Path) -> serde_json::Value {
    let stat = std::fs::metadata(path).ok();
    let modified = stat.as_ref().and_then(|m| m.modified().ok());
    let nanos = modified.and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    serde_json::json!({
        "path": path,
        "bytes": stat.map(|m| m.len()),
        "modified_ns": nanos.map(|n| n.as_nanos().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(out: &Path) -> Manifest {
        Manifest::open(out, None).unwrap()
    }

    #[test]
    fn a_record_of_files_outside_of_the_folder_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        std::fs::create_dir(&out).unwrap();
        std::fs::write(dir.path().join("a"), b"hello").unwrap();
        let m = opened(&out);
        for path in [PathBuf::from("../a"), dir.path().join("a")] {
            let counts = serde_json::json!({});
            m.record("s", "f", std::slice::from_ref(&path), counts, 0.0)
                .unwrap();
            assert!(m.done("s", "f").unwrap().is_none(), "{}", path.display());
        }
    }

    #[test]
    fn a_record_is_trusted_only_while_its_files_are_intact() {
        let dir = tempfile::tempdir().unwrap();
        let m = opened(dir.path());
        std::fs::write(dir.path().join("a"), b"hello").unwrap();
        m.record("s", "f", &["a".into()], serde_json::json!({}), 0.0)
            .unwrap();
        assert!(opened(dir.path()).done("s", "f").unwrap().is_some());
        assert!(m.done("s", "other settings").unwrap().is_none());
        std::fs::write(dir.path().join("a"), b"hellO").unwrap();
        assert!(
            m.done("s", "f").unwrap().is_none(),
            "same size, other bytes"
        );
        std::fs::remove_file(dir.path().join("a")).unwrap();
        assert!(m.done("s", "f").unwrap().is_none());
    }

    #[test]
    fn a_file_is_read_again_once_its_time_of_change_differs() {
        let dir = tempfile::tempdir().unwrap();
        let m = opened(dir.path());
        let path = dir.path().join("a");
        std::fs::write(&path, b"hello").unwrap();
        m.record("s", "f", &["a".into()], serde_json::json!({}), 0.0)
            .unwrap();
        let whole = || opened(dir.path()).is_untouched("s", "f").unwrap();
        assert!(whole());
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let touch = |at| {
            let file = std::fs::OpenOptions::new().write(true).open(&path);
            file.unwrap().set_modified(at).unwrap();
        };
        std::fs::write(&path, b"hellO").unwrap();
        touch(modified + std::time::Duration::from_secs(1));
        assert!(!whole(), "other bytes");
        // a copy of the same bytes has another mtime: its checksum is computed
        std::fs::write(&path, b"hello").unwrap();
        touch(modified + std::time::Duration::from_secs(2));
        assert!(whole());
        std::fs::write(&path, b"hell").unwrap();
        touch(modified);
        assert!(!whole(), "another size");
    }

    #[test]
    fn a_file_that_this_process_has_verified_is_read_again_once_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let m = opened(dir.path());
        let path = dir.path().join("a");
        std::fs::write(&path, b"hello").unwrap();
        m.record("s", "f", &["a".into()], serde_json::json!({}), 0.0)
            .unwrap();
        let is_done = || m.done("s", "f").unwrap().is_some();
        assert!(is_done() && is_done());
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, b"hellO").unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(modified + std::time::Duration::from_secs(1))
            .unwrap();
        assert!(!is_done(), "other bytes");
        std::fs::write(&path, b"hell").unwrap();
        file.set_modified(modified).unwrap();
        assert!(!is_done(), "another size");
    }

    #[test]
    fn parts_recorded_by_several_processes_are_seen_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (opened(dir.path()), opened(dir.path()));
        std::fs::write(dir.path().join("x"), b"x").unwrap();
        for (m, stage) in [(&a, "curate/00000"), (&b, "curate/00001")] {
            m.record(stage, "f", &["x".into()], serde_json::json!({}), 0.0)
                .unwrap();
        }
        for stage in ["curate/00000", "curate/00001"] {
            assert!(a.done(stage, "f").unwrap().is_some() && b.done(stage, "f").unwrap().is_some());
        }
        std::fs::write(dir.path().join("records/curate/00000.json"), b"{").unwrap();
        assert!(a.done("curate/00000", "f").unwrap().is_none());
    }

    #[test]
    fn a_damaged_manifest_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("manifest.json"), b"{\"s\": {").unwrap();
        assert!(opened(dir.path()).get("s").unwrap().is_none());
    }
}
