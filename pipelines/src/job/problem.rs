//! A problem of a job file: a key whose value cannot be used.

/// One thing wrong with a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key path, dotted, arrays as `[0]`.
    pub key: String,
    /// The value found.
    pub found: String,
    /// The value expected.
    pub wanted: String,
}
