//! Error type of this crate: every variant names the location (path, offset, field), the value found and the value
//! wanted.

use std::path::{Path, PathBuf};

/// Errors between text and samples.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file violates its format.
    #[error("{path}: {field} at byte {offset}: found {found}, wanted {wanted}", path = path.display())]
    Format {
        /// File.
        path: PathBuf,
        /// Byte offset of the field.
        offset: u64,
        /// The field.
        field: &'static str,
        /// The value found.
        found: String,
        /// The value wanted.
        wanted: String,
    },
    /// A tokenizer file cannot be used.
    #[error("tokenizer {path}: {why}", path = path.display())]
    Tokenizer {
        /// File (or `<trained>` for one that never had a file).
        path: PathBuf,
        /// The library's words.
        why: String,
    },
    /// A token id does not fit the dataset's token width.
    #[error("token id {id} in document {document} does not fit {dtype} (vocabulary {vocab})")]
    Width {
        /// The id.
        id: u32,
        /// Document number in this dataset.
        document: u64,
        /// Name of the width.
        dtype: &'static str,
        /// Vocabulary size that chose the width.
        vocab: usize,
    },
    /// Datasets that cannot become one, or a dataset that does not belong to a tokenizer.
    #[error("{path}: {field}: found {found}, wanted {wanted}", path = path.display())]
    Mismatch {
        /// File or prefix.
        path: PathBuf,
        /// The field that disagrees.
        field: &'static str,
        /// The value found.
        found: String,
        /// The value of the other files.
        wanted: String,
    },
    /// The documents to tokenize could not be read.
    #[error("document {document}: {source}")]
    Document {
        /// Number of the document in the stream.
        document: u64,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A split string that yields no ratios.
    #[error("split {split:?}: found {found}, wanted {wanted}")]
    Split {
        /// As written.
        split: String,
        /// The problem.
        found: String,
        /// Accepted values.
        wanted: &'static str,
    },
    /// Samples are requested from a split without tokens.
    #[error(
        "dataset {dataset}: split {split} holds {documents} documents and {tokens} tokens, but {samples} samples of {seq_length} tokens were requested"
    )]
    EmptySplit {
        /// Path prefix.
        dataset: String,
        /// `train`, `valid` or `test`.
        split: &'static str,
        /// Documents that fell in the split.
        documents: u64,
        /// Their tokens.
        tokens: u64,
        /// Samples requested.
        samples: u64,
        /// Tokens per sample.
        seq_length: u64,
    },
    /// The system has no room for an array.
    #[error("{what}: no room for {bytes} bytes: {why}")]
    Memory {
        /// The array.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The system's words.
        why: String,
    },
    /// A sample past the end.
    #[error("{what} {index} of {len}")]
    Range {
        /// The indexed collection.
        what: &'static str,
        /// The index.
        index: u64,
        /// Its length.
        len: u64,
    },
    /// More than one thing is wrong.
    #[error("{} problems: {}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
    /// A blend that cannot be made.
    #[error("blend: {field}: found {found}, wanted {wanted}")]
    Blend {
        /// The setting.
        field: &'static str,
        /// The value given.
        found: String,
        /// Accepted values.
        wanted: String,
    },
}

impl Error {
    /// Nothing, the one problem, or all of them.
    pub(crate) fn join(mut problems: Vec<Error>) -> Result<()> {
        match problems.len() {
            0 => Ok(()),
            1 => problems.pop().map_or(Ok(()), Err),
            _ => Err(Error::Several(problems)),
        }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds the path to an IO error; there is no `From<io::Error>` on purpose.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            path: path.to_path_buf(),
            source,
        })
    }
}
