//! Atomic file writes: temporary name, sync, rename, sync of the folder.

use crate::error::{At, Error, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// A bare file name has the empty parent, which is the current folder.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// A temporary file `.millrace-*.tmp`, which a later run's cleanup recognizes, with the mode that the umask gives
/// new files.
pub(crate) fn temporary_in(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".millrace-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Sync, rename, sync the folder: after a crash the name holds either the old file or all of this one.
pub(crate) fn persist(file: NamedTempFile, path: &Path) -> Result<()> {
    file.as_file().sync_all().at(path)?;
    file.persist(path).map_err(|e| Error::Io {
        path: path.to_path_buf(),
        source: e.error,
    })?;
    let folder = folder_of(path);
    File::open(folder).and_then(|f| f.sync_all()).at(folder)
}

/// Writes a small file the same way.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = folder_of(path);
    let mut file = temporary_in(folder).at(folder)?;
    file.write_all(bytes).at(path)?;
    persist(file, path)
}
