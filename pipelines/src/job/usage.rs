//! A wrong use of a verb: exit code 2, as for a wrong job.

use curate::text::near::or_nearest;
use std::fmt;

/// The message says what is wrong and what to type instead.
#[derive(Debug)]
pub(crate) struct WrongUse(String);

impl WrongUse {
    /// With this message.
    pub(crate) fn new(message: impl Into<String>) -> WrongUse {
        WrongUse(message.into())
    }

    /// A name that is not among those of its kind, with the nearest that are.
    pub(crate) fn unknown<'a>(
        name: &str,
        kind: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> WrongUse {
        WrongUse(format!("{name:?} is no {kind}{}", or_nearest(name, known)))
    }
}

impl fmt::Display for WrongUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}

/// A job that would replace results that others depend on, or that does not fit its checkpoints: exit code 2, as for a wrong job. The
/// message says what is found, and which setting allows it if there is one.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Refused {
    /// With this message.
    pub(crate) fn new(message: impl Into<String>) -> Refused {
        Refused(message.into())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
