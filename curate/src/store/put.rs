//! What became of a write that must not replace another one.

/// What became of a conditional put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is there, in this version.
    Done(Option<String>),
    /// Another one is there than the one expected; nothing was changed.
    Other,
}
