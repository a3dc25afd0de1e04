//! Positional file reads (`pread`) instead of memory maps.
//!
//! If another program truncates a mapped file, the next access behind its new end kills the process with SIGBUS.
//! `pread` reports an error instead, and every read is checked against the size at opening.

use crate::error::{At, Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that [`StoredFile::stream`] reads at a time.
const STREAMED_AT_ONCE: usize = 1 << 20;

/// An open file and the size that it had then.
pub(crate) struct StoredFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl StoredFile {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(path: &Path) -> Result<StoredFile> {
        let file = File::open(path).at(path)?;
        let len = file.metadata().at(path)?.len();
        Ok(StoredFile {
            path: path.to_path_buf(),
            file,
            len,
        })
    }

    /// Bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Format` if the file ends before, because it has been cut since it was opened; `Io`.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(out, offset) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                let now = self.file.metadata().at(&self.path)?.len();
                Err(Error::Format {
                    path: self.path.clone(),
                    offset: now.min(offset.saturating_add(out.len() as u64)),
                    field: "file size",
                    found: format!("{now} bytes"),
                    wanted: format!("the {} bytes that it had when it was opened", self.len),
                })
            }
            done => done.at(&self.path),
        }
    }

    /// Calls `take` with the bytes of `range`, in order, a piece at a time; pieces but the last are multiples of 8 bytes.
    ///
    /// # Errors
    /// As [`StoredFile::read_at`], and those of `take`.
    pub(crate) fn stream(
        &self,
        range: std::ops::Range<u64>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut from = range.start;
        let left =
            |from: u64| usize::try_from(range.end.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut piece = vec![0; STREAMED_AT_ONCE.min(left(from))];
        while from < range.end {
            let n = piece.len().min(left(from));
            self.read_at(from, &mut piece[..n])?;
            take(&piece[..n])?;
            from += n as u64;
        }
        Ok(())
    }
}
