//! Result of a conditional put.

/// Result of a conditional put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object was written, in this version.
    Done(Option<String>),
    /// Another version than the expected one exists; nothing was changed.
    Other,
}
