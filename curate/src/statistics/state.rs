//! Result of the filters, by which statistics part documents.

use serde::{Deserialize, Serialize};

/// Result of the filters for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is in `clean/`; the text is measured as it is there.
    Kept,
    /// A rule dropped it, with the text as it was then.
    Dropped,
}
