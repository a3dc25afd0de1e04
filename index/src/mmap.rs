//! Read-only maps of dataset files: the one file of this crate with `unsafe`.
#![expect(unsafe_code, reason = "memmap2's constructor is unsafe by nature")]

use crate::error::{At, Result};
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// Bytes of a file, mapped; an empty file is an empty slice (the system refuses empty maps).
pub(crate) struct Map(Option<memmap2::Mmap>);

impl Map {
    /// Maps the whole file read-only.
    pub(crate) fn open(path: &Path) -> Result<Map> {
        let file = File::open(path).at(path)?;
        if file.metadata().at(path)?.len() == 0 {
            return Ok(Map(None));
        }
        // SAFETY: dataset files are written once under a temporary name and renamed; nothing in Millrace changes
        // a file after that. A foreign program that truncates a mapped file kills the process, as with any map.
        let map = unsafe { memmap2::Mmap::map(&file) }.at(path)?;
        Ok(Map(Some(map)))
    }
}

impl Deref for Map {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}
