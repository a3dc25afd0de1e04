//! The fields of a document, as its record gives them.

use serde_json::Value;

use crate::verdict::Reason;

/// What a record says of its document.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fields {
    pub(crate) text: String,
    /// The record's own id.
    pub(crate) id: Option<String>,
    pub(crate) url: Option<String>,
    /// `meta.pile_set_name` of The Pile.
    pub(crate) subset: Option<String>,
    pub(crate) meta: Option<Value>,
}

/// Why a record is no document.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It cannot be understood.
    Bad(String),
    /// It is sound, but none that is wanted.
    Drop(Box<Fields>, Reason),
}
