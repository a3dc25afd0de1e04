//! The contract of a form of exported metrics.

use crate::journal::Line;
use std::io;

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    /// Seconds since 1970, reckoned.
    pub(super) unix: f64,
    /// Seconds of training.
    pub(super) seconds: f64,
}

/// Writes lines in one form.
pub(super) trait Form {
    /// Adds a line of a step or a validation.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn line(&mut self, line: &Line, at: Moment) -> io::Result<()>;

    /// Writes what was held back.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn finish(&mut self) -> io::Result<()>;
}
