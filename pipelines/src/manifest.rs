//! `manifest.json`: which stages are done, from what, with which counts and checksums.
//!
//! A stage is skipped only if its fingerprint (its settings and everything it reads) is unchanged and every file it
//! wrote still has its size and checksum: a record is verified before it is trusted. Shards of a curation have a file each,
//! `records/curate/NNNNN.json`, so that processes on many machines can record theirs side by side, and so that the manifest
//! does not grow with the corpus.

use crate::machine::{checksum, checksum_bytes, peak_rss_bytes, write_atomically};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file that a stage wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Output {
    /// Relative to the job's folder.
    pub path: PathBuf,
    /// Size.
    pub bytes: u64,
    /// XXH3-128, hex.
    pub xxh3: String,
}

/// A finished stage, or a finished part of one (`curate/00003`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Of settings and inputs.
    pub fingerprint: String,
    /// Files.
    pub outputs: Vec<Output>,
    /// What the stage counted.
    pub counts: serde_json::Value,
    /// Wall clock.
    pub seconds: f64,
    /// Largest resident set of the process when the stage ended, bytes.
    pub peak_rss_bytes: u64,
}

/// Stages that are parts: their records are files of their own.
const PARTS: &str = "curate/";

/// The file and its records. Shared by tasks of one process; records of parts also by processes.
pub(crate) struct Manifest {
    out: PathBuf,
    records: Mutex<BTreeMap<String, Record>>,
}

impl Manifest {
    /// Reads `out/manifest.json`; an absent or unreadable one is empty, so its stages run again.
    pub(crate) fn open(out: &Path) -> Manifest {
        let text = std::fs::read_to_string(out.join("manifest.json")).unwrap_or_default();
        let records = serde_json::from_str(&text).unwrap_or_default();
        Manifest {
            out: out.to_path_buf(),
            records: Mutex::new(records),
        }
    }

    /// The record of `stage`, if there is one.
    pub(crate) fn get(&self, stage: &str) -> Option<Record> {
        if stage.starts_with(PARTS) {
            let text = std::fs::read_to_string(self.part(stage)).ok()?;
            return serde_json::from_str(&text).ok();
        }
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(stage)
            .cloned()
    }

    /// The record of `stage` if it may be skipped.
    pub(crate) fn done(&self, stage: &str, fingerprint: &str) -> Option<Record> {
        let record = self.get(stage).filter(|r| r.fingerprint == fingerprint)?;
        let intact = record.outputs.iter().all(|o| {
            let path = self.out.join(&o.path);
            std::fs::metadata(&path).is_ok_and(|m| m.len() == o.bytes)
                && checksum(&path).is_ok_and(|c| c == o.xxh3)
        });
        intact.then_some(record)
    }

    /// Records a finished stage: checksums its files and writes the manifest.
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
                xxh3: checksum(&at)?,
            });
        }
        let record = Record {
            fingerprint: fingerprint.to_string(),
            outputs,
            counts,
            seconds,
            peak_rss_bytes: peak_rss_bytes(),
        };
        if stage.starts_with(PARTS) {
            let mut text = serde_json::to_string_pretty(&record).context("a record")?;
            text.push('\n');
            write_atomically(&self.part(stage), text.as_bytes())?;
            return Ok(record);
        }
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.insert(stage.to_string(), record.clone());
        let mut text = serde_json::to_string_pretty(&*records).context("manifest")?;
        text.push('\n');
        write_atomically(&self.out.join("manifest.json"), text.as_bytes())?;
        Ok(record)
    }

    fn part(&self, stage: &str) -> PathBuf {
        self.out.join("records").join(format!("{stage}.json"))
    }

    /// Forgets `stage`, so that a failure halfway cannot leave the record of older files.
    pub(crate) fn forget(&self, stage: &str) {
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(stage);
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

    #[test]
    fn a_record_is_trusted_only_while_its_files_are_intact() {
        let dir = tempfile::tempdir().unwrap();
        let m = Manifest::open(dir.path());
        std::fs::write(dir.path().join("a"), b"hello").unwrap();
        m.record("s", "f", &["a".into()], serde_json::json!({}), 0.0)
            .unwrap();
        assert!(Manifest::open(dir.path()).done("s", "f").is_some());
        assert!(m.done("s", "other settings").is_none());
        std::fs::write(dir.path().join("a"), b"hellO").unwrap();
        assert!(m.done("s", "f").is_none(), "same size, other bytes");
        std::fs::remove_file(dir.path().join("a")).unwrap();
        assert!(m.done("s", "f").is_none());
    }

    #[test]
    fn parts_recorded_by_several_processes_are_seen_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Manifest::open(dir.path()), Manifest::open(dir.path()));
        std::fs::write(dir.path().join("x"), b"x").unwrap();
        for (m, stage) in [(&a, "curate/00000"), (&b, "curate/00001")] {
            m.record(stage, "f", &["x".into()], serde_json::json!({}), 0.0)
                .unwrap();
        }
        for stage in ["curate/00000", "curate/00001"] {
            assert!(a.done(stage, "f").is_some() && b.done(stage, "f").is_some());
        }
        std::fs::write(dir.path().join("records/curate/00000.json"), b"{").unwrap();
        assert!(a.done("curate/00000", "f").is_none());
    }

    #[test]
    fn a_damaged_manifest_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("manifest.json"), b"{\"s\": {").unwrap();
        assert!(Manifest::open(dir.path()).get("s").is_none());
    }
}
