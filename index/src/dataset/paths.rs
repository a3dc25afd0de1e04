//! Names of a dataset's files.

use std::path::{Path, PathBuf};

/// `PREFIX.bin`.
pub(crate) fn bin_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".bin")
}

/// `PREFIX.idx`.
pub(crate) fn idx_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".idx")
}

/// Prefixes may hold dots, so `Path::with_extension` would eat part of them.
pub(crate) fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
