//! Kinds of expressions, the names they may use, and where their values come from.

use std::fmt;

use serde_json::Value as Json;

/// Source of an expression's values.
pub trait Metrics {
    /// A metric by name; `None` if it was not measured.
    fn number(&self, name: &str) -> Option<f64>;
    /// A text by name; `None` if the name is no text.
    fn text(&self, name: &str) -> Option<&str>;
    /// The metadata below a name of [`Scope::fields`].
    fn field(&self, _root: &str) -> Option<&Json> {
        None
    }
}

/// Names that an expression may use besides metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// Names of texts.
    pub texts: &'a [&'a str],
    /// Names of numbers without a dot; empty: every name is one. Others are of any kind, so that the problem of a
    /// misspelt name is the name, not its kind.
    pub numbers: &'a [&'a str],
    /// Names of objects into which paths lead.
    pub fields: &'a [&'a str],
}

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The part that is wrong, with its byte in front where that is known.
    pub found: String,
    /// The forms that are accepted at its place, in words.
    pub wanted: String,
}

impl Wrong {
    /// Of a parser's message, which names both: `byte 6: found the end, wanted a name`.
    pub(crate) fn of_message(message: &str) -> Wrong {
        let (place, rest) = message.split_once("found ").unwrap_or(("", message));
        // a part that was found may have any words
        let (found, wanted) = rest.rsplit_once(", wanted ").unwrap_or((rest, ""));
        Wrong {
            found: format!("{place}{found}"),
            wanted: wanted.to_string(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, wanted {}", self.found, self.wanted)
    }
}

/// Type of an expression, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A text.
    Text,
    /// True or false.
    Truth,
    /// Known only once there is a document: a value of the metadata.
    Any,
}
