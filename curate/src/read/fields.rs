//! Fields of a document, as parsed from its record.

use serde_json::Value;

use crate::contract::Sought;
use crate::verdict::Reason;

/// Fields of a record.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fields {
    pub(crate) text: String,
    /// The record's own id.
    pub(crate) id: Option<String>,
    pub(crate) url: Option<String>,
    /// `meta.pile_set_name` of The Pile.
    pub(crate) subset: Option<String>,
    pub(crate) meta: Option<Value>,
    /// Fields that the input's settings name, in the order of [`crate::read::Input::named_fields`].
    pub(crate) named: Sought,
}

/// Why a record is no document.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The record cannot be parsed.
    Bad(String),
    /// The record is valid, but not a wanted one.
    Drop(Box<Fields>, Reason),
}
