//! The error of a tokenizer file.

use crate::error::Error;
use std::path::Path;

/// Names the file and says why it is refused.
pub(super) fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Tokenizer {
        path: path.to_path_buf(),
        why: why.to_string(),
    }
}
