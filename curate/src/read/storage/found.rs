//! A file or an object that an input names.

use std::path::PathBuf;

/// A file of an input.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// Path below the folder, the pattern's fixed part, or the folder that a list's lines share.
    pub(crate) below: String,
    /// Size in bytes; 0 if it is not known without asking for each.
    pub(crate) bytes: u64,
    /// What a store says of an object's state: its ETag, or when it was changed.
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
