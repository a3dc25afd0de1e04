//! A parsed expression and its value for a document.

use super::eval::{self, Value};
use super::kinds::{Kind, Metrics, Scope};
use super::node::Path;
use super::parse::{self, Parsed};

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression(Parsed);

impl Expression {
    /// Parses an expression that must have a kind; `Any` accepts all.
    ///
    /// # Errors
    /// The byte of the error, found and wanted.
    pub fn parse(source: &str, wanted: Kind, scope: Scope<'_>) -> Result<Expression, String> {
        parse::parse(source, wanted, scope).map(Expression)
    }

    /// Names of metrics and texts in the expression, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names.iter().map(String::as_str)
    }

    /// Ways into the metadata that it names, each once.
    pub(super) fn paths(&self) -> Vec<&Path> {
        let mut found = Vec::new();
        self.0.root.paths(&mut found);
        found
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether the document meets the condition.
    pub fn holds(&self, metrics: &dyn Metrics) -> bool {
        matches!(self.value(metrics), Value::Truth(true))
    }

    /// Its value for a document.
    pub fn value<'a>(&'a self, metrics: &'a dyn Metrics) -> Value<'a> {
        eval::value(&self.0.root, metrics, None)
    }

    /// The value without a document, of an expression that names nothing.
    pub fn constant(&self) -> Option<f64> {
        if !self.0.names.is_empty() || !self.0.paths.is_empty() {
            return None;
        }
        match self.value(&Nothing) {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Every value that it names, as `name=value`, for people.
    pub fn shown(&self, metrics: &dyn Metrics) -> String {
        let names = self.0.names.iter().map(|name| match metrics.text(name) {
            Some(text) => format!("{name}={}", crate::text::excerpt(text, SHOWN_CHARS)),
            None => match metrics.number(name) {
                Some(number) => format!("{name}={number}"),
                None => format!("{name}=?"),
            },
        });
        let paths = self.paths().into_iter().map(|path| {
            let name = &path.source;
            match eval::found(path, metrics, None) {
                Some(json) => {
                    let json = crate::text::json::to_string(json);
                    format!("{name}={}", crate::text::excerpt(&json, SHOWN_CHARS))
                }
                None => format!("{name}=?"),
            }
        });
        names.chain(paths).collect::<Vec<_>>().join(" ")
    }
}

/// Characters of a value shown to people.
const SHOWN_CHARS: usize = 80;

/// No document.
struct Nothing;

impl Metrics for Nothing {
    fn number(&self, _: &str) -> Option<f64> {
        None
    }
    fn text(&self, _: &str) -> Option<&str> {
        None
    }
}
