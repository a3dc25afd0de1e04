//! The list of a crawl's files: what an address stands for, fixed when a job first asks, and kept in the job's folder.
//!
//! A run that goes on, and every task of a cluster, works on the same files, whatever the servers say by then. The kept list is
//! JSON, named by the hash of its address.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{At, Result, damaged};
use crate::write::AtomicFile;

/// Files that an address stands for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct List {
    /// The address, without passwords.
    pub(super) address: String,
    /// Paths of the files below the base, with their parts if only those are wanted.
    pub(super) files: Vec<String>,
    /// Captures of the domains in those parts.
    pub(super) captures: u64,
    /// Captures that are no pages, by the folder that has them.
    pub(super) left_out: BTreeMap<String, u64>,
}

impl List {
    /// File of an address's list in a folder.
    pub(super) fn file(folder: &Path, address: &str) -> PathBuf {
        folder.join(format!("{:016x}.json", xxh3_64(address.as_bytes())))
    }

    /// The kept list of an address; None if there is none yet.
    ///
    /// # Errors
    /// `Io`; `Damaged` for a file that is not this address's list.
    pub(super) fn kept(folder: &Path, address: &str) -> Result<Option<List>> {
        let file = List::file(folder, address);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).at(&file),
        };
        let wanted = format!("the list of {address}; without the file it is asked for anew");
        let list: List = serde_json::from_str(&text)
            .map_err(|e| damaged(&file, 0, e.to_string(), wanted.as_str()))?;
        if list.address != address {
            return Err(damaged(&file, 0, list.address, wanted));
        }
        Ok(Some(list))
    }

    /// Writes the list into a folder.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn keep(&self, folder: &Path) -> Result<()> {
        let path = List::file(folder, &self.address);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        let text = text.at(&path)? + "\n";
        let mut file = AtomicFile::create(folder, &name)?;
        file.write_all(text.as_bytes()).at(&path)?;
        file.finish()?;
        Ok(())
    }
}
