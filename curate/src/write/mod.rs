//! Atomic file writing: files are either complete or absent.
//!
//! A file is written to a temporary name in its folder, flushed to disk, renamed, and the folder is flushed; a kill
//! at any instant leaves the old file or the new one. Temporary names are `.millrace-NAME.*.tmp`, a new one each
//! time, so that two processes that write the same file do not interfere; the job removes those that killed
//! processes left.

mod clean;
mod digest;
mod export;
mod lines;
mod parquet;

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::error::{At, Result};

pub use clean::OutputFormat;
pub(crate) use clean::{CleanWriter, clean_file};
pub(crate) use digest::{check_digest, verify, word};
pub use export::{ExportFormat, ExportWriter};
pub(crate) use lines::JsonLines;

/// A finished output file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Path relative to the job's output folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// XXH3-128 of the bytes, 32 hexadecimal digits.
    pub xxh3: String,
}

/// XXH3-128 of a file's bytes as [`OutputFile`] has it, and the size.
pub fn checksum(path: &Path) -> Result<(u64, String)> {
    use std::io::Read;
    let mut file = File::open(path).at(path)?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = file.read(&mut buffer).at(path)?;
        if n == 0 {
            return Ok((bytes, format!("{:032x}", hash.digest128())));
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
    }
}

/// A file being written; dropped unfinished, it leaves only its temporary name.
pub(crate) struct AtomicFile {
    file: BufWriter<File>,
    hash: Xxh3,
    bytes: u64,
    root: PathBuf,
    name: String,
    temporary: PathBuf,
}

impl AtomicFile {
    /// Starts `root/name`, creating folders as needed.
    pub(crate) fn create(root: &Path, name: &str) -> Result<AtomicFile> {
        let path = root.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).at(folder)?;
        }
        let temporary = temporary(&path);
        let file = BufWriter::with_capacity(1 << 18, File::create(&temporary).at(&temporary)?);
        Ok(AtomicFile {
            file,
            hash: Xxh3::new(),
            bytes: 0,
            root: root.to_path_buf(),
            name: name.to_string(),
            temporary,
        })
    }

    /// Checksum of the bytes written so far.
    pub(crate) fn digest(&self) -> u128 {
        self.hash.digest128()
    }

    /// The final path.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// Makes the file visible under its name.
    pub(crate) fn finish(self) -> Result<OutputFile> {
        let path = self.path();
        let temporary = self.temporary;
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .at(&temporary)?;
        file.sync_all().at(&temporary)?;
        drop(file);
        fs::rename(&temporary, &path).at(&path)?;
        if let Some(folder) = path.parent() {
            File::open(folder).and_then(|f| f.sync_all()).at(folder)?;
        }
        Ok(OutputFile {
            path: self.name,
            bytes: self.bytes,
            xxh3: format!("{:032x}", self.hash.digest128()),
        })
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write_all(buf)?;
        self.hash.update(buf);
        self.bytes += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// `folder/.millrace-name.RANDOM.tmp` for `folder/name`.
fn temporary(path: &Path) -> PathBuf {
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let random = RandomState::new().build_hasher().finish();
    path.with_file_name(format!(".millrace-{name}.{random:016x}.tmp"))
}

/// Name of a shard's file.
pub(crate) fn shard_file(folder: &str, shard: usize, extension: &str) -> String {
    format!("{folder}/{shard:05}.{extension}")
}
