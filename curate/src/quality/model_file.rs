//! Output file of a model training.

use std::path::{Path, PathBuf};

use crate::error::{At, Result};
use crate::write::AtomicFile;

/// A model file being written: temporary files are in the same folder.
pub(super) struct ModelFile {
    folder: PathBuf,
    name: String,
}

impl ModelFile {
    /// Makes the folder of `out`.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn at(out: &Path) -> Result<ModelFile> {
        let folder = match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(folder).at(folder)?;
        Ok(ModelFile {
            folder: folder.to_path_buf(),
            name: out
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        })
    }

    /// For temporary files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the file, which appears when it is finished.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn create(&self) -> Result<AtomicFile> {
        AtomicFile::create(&self.folder, &self.name)
    }
}
