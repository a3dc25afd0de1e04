//! A file or object found for an input.

use std::path::PathBuf;

/// A file of an input.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// Path below the folder, the pattern's fixed part, or the folder that a list's lines share.
    pub(crate) below: String,
    /// Size in bytes; 0 if it is not known without asking for each.
    pub(crate) bytes: u64,
    /// Version of an object in its store: its ETag, or time of the last change.
    pub(crate) version: Option<String>,
}

impl Found {
    /// The file with its path below `folder`.
    pub(crate) fn below(mut self, folder: &str) -> Found {
        let path = self.path.to_string_lossy();
        let below = path.strip_prefix(folder).unwrap_or(&path);
        self.below = below.trim_start_matches('/').to_string();
        self
    }
}
