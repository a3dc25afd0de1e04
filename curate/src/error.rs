//! The error type of this crate.
//!
//! Bad *data* is never an `Error`: it is quarantined and counted. An `Error` means the stage cannot continue: an
//! input that cannot be read or is of another kind, an output that cannot be written, a damaged file of ours, an
//! invalid config.

use std::io;
use std::path::{Path, PathBuf};

use crate::secrets::shown;

/// Why a curation stage stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a read or a write.
    #[error("{path}: {source}", path = shown(path))]
    Io {
        /// The file or folder concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file written by an earlier stage does not have the bytes it should have.
    #[error("{path}: at byte {offset}: found {found}, expected {expected}", path = shown(path))]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Byte offset of the first wrong byte, as far as known.
        offset: u64,
        /// Content found.
        found: String,
        /// Content expected.
        expected: String,
    },
    /// An input is a file of another kind than the job says.
    #[error("{path}: not {wanted}: {found}, wanted {start}", path = shown(path))]
    Format {
        /// The file.
        path: PathBuf,
        /// The kind that was wanted, with its article.
        wanted: &'static str,
        /// The fault, with the first bytes where they show it.
        found: String,
        /// Expected start of files of that kind.
        start: &'static str,
    },
    /// More records of the stage cannot be read than the config allows.
    #[error("more records are bad than max_bad_records = {most} allows; the first: {first}")]
    TooManyBad {
        /// The limit.
        most: u64,
        /// Path, offset and reason of one of them.
        first: String,
    },
    /// An input named in the config does not exist.
    #[error("input {path}: {why}", path = shown(path))]
    Input {
        /// Path as written in the config.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A model of a step could not run.
    #[error("{step}: {why}")]
    Model {
        /// Name of the step, with that of its model.
        step: String,
        /// The model's error.
        why: String,
    },
    /// The config contradicts itself.
    #[error("{key}: found {found}, wanted {wanted}")]
    Config {
        /// Key path inside the table.
        key: String,
        /// The value given.
        found: String,
        /// Accepted values.
        wanted: String,
    },
}

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names the file an I/O error belongs to.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            path: path.to_path_buf(),
            source,
        })
    }
}

/// A damaged file of ours.
pub(crate) fn damaged(
    path: &Path,
    offset: u64,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::Damaged {
        path: path.to_path_buf(),
        offset,
        found: found.into(),
        expected: expected.into(),
    }
}
