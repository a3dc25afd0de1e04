//! A document as expressions see it.

use std::cell::OnceCell;

use serde_json::Value as Json;

use super::kinds::{Kind, Metrics, Scope};
use super::parsed::Expression;
use crate::contract::{Draft, Opening};
use crate::error::{Error, Result};
use crate::text::{address, chars};
use crate::verdict::Metric;

/// Numbers of the document itself.
const NUMBERS: [&str; 3] = ["chars", "bytes", "lines"];
/// Texts of the document itself.
const TEXTS: [&str; 8] = [
    "id", "url", "host", "suffix", "source", "subset", "language", "text",
];
/// Objects of the document.
const FIELDS: [&str; 2] = ["meta", "attributes"];
/// The confidence of the language, and the metric that has it.
const CONFIDENCE: (&str, &str) = ("language_confidence", "language.min_confidence");

/// Every name of the document itself.
pub(crate) fn own_names() -> impl Iterator<Item = &'static str> {
    NUMBERS.into_iter().chain(TEXTS)
}

const SCOPE: Scope<'static> = Scope {
    texts: &TEXTS,
    fields: &FIELDS,
};

/// Parses an expression over a document; the steps before it are not known yet.
///
/// # Errors
/// The byte of the error, found and wanted.
pub(crate) fn check(source: &str, wanted: Kind) -> std::result::Result<Expression, String> {
    Expression::parse(source, wanted, SCOPE)
}

/// An expression over a document and the metrics of the steps before `at`.
///
/// # Errors
/// `Config` for one that is wrong, or that names an unknown metric.
pub(crate) fn open(at: &Opening<'_>, key: &str, source: &str, wanted: Kind) -> Result<Expression> {
    let what = match wanted {
        Kind::Truth => "a condition",
        Kind::Number => "a number",
        Kind::Text => "a text",
        Kind::Any => "an expression",
    };
    let wrong = |found: String, wanted: String| -> Error { at.wrong(key, found, wanted) };
    let expression = check(source, wanted).map_err(|why| wrong(why, what.to_string()))?;
    let mut known: Vec<String> = own_names().map(str::to_string).collect();
    known.extend(at.before.iter().flat_map(|step| step.metrics()));
    let has_confidence = known.iter().any(|k| k == CONFIDENCE.1);
    if has_confidence {
        known.push(CONFIDENCE.0.to_string());
    }
    if let Some(name) = expression.names().find(|n| !known.iter().any(|k| k == n)) {
        known.sort();
        known.dedup();
        let wanted = match name == CONFIDENCE.0 {
            true => "a step `language` before this one, which measures it".to_string(),
            false => format!(
                "a value of the metadata (meta.NAME, attributes.NAME), or a metric of an earlier step: {}",
                known.join(" ")
            ),
        };
        return Err(wrong(format!("{name:?}"), wanted));
    }
    Ok(expression)
}

/// A document and what was measured of it.
pub(crate) struct DocumentMetrics<'a> {
    pub(crate) draft: &'a Draft,
    metrics: &'a [Metric],
    /// Of the address, once it is asked for.
    host: OnceCell<String>,
}

impl<'a> DocumentMetrics<'a> {
    pub(crate) fn of(draft: &'a Draft, metrics: &'a [Metric]) -> DocumentMetrics<'a> {
        DocumentMetrics {
            draft,
            metrics,
            host: OnceCell::new(),
        }
    }

    /// Host of the document's address; empty without one.
    fn host(&self) -> &str {
        let url = self.draft.url.as_deref();
        self.host
            .get_or_init(|| url.and_then(address::host).unwrap_or_default())
    }
}

impl Metrics for DocumentMetrics<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        let text = &self.draft.text;
        let name = match name == CONFIDENCE.0 {
            true => CONFIDENCE.1,
            false => name,
        };
        match name {
            "chars" => Some(chars(text) as f64),
            "bytes" => Some(text.len() as f64),
            "lines" => Some(memchr::memchr_iter(b'\n', text.as_bytes()).count() as f64 + 1.0),
            // of a step that occurs twice the last metrics count
            _ => self
                .metrics
                .iter()
                .rev()
                .find(|m| m.rule == name)
                .map(|m| m.value),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match name {
            "id" => Some(&self.draft.id),
            "source" => Some(&self.draft.source),
            "text" => Some(&self.draft.text),
            "language" => Some(&self.draft.language),
            "host" => Some(self.host()),
            "suffix" => Some(address::suffix(self.host())),
            "url" => Some(self.draft.url.as_deref().unwrap_or_default()),
            "subset" => Some(self.draft.subset.as_deref().unwrap_or_default()),
            _ => None,
        }
    }

    fn field(&self, root: &str) -> Option<&Json> {
        let meta = self.draft.meta.as_ref()?;
        match root {
            "attributes" => meta.get("attributes"),
            _ => Some(meta),
        }
    }
}
