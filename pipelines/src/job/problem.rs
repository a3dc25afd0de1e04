//! A key of a job file that cannot be taken.

/// One thing wrong with a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key path, dotted, arrays as `[0]`.
    pub key: String,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub wanted: String,
}
