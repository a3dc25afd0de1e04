//! Kinds of expressions, the names they may use, and where their values come from.

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
    /// Names of objects into which paths lead.
    pub fields: &'a [&'a str],
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
