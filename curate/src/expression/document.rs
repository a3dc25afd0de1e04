//! A document as expressions see it.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::eval;
use super::kinds::{Kind, Metrics, Scope, Wrong};
use super::node::Path;
use super::parsed::Expression;
use crate::contract::{Draft, Opening, Problem};
use crate::error::Result;
use crate::text::near::or_nearest;
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
/// The document's language, which is empty before a step finds it.
const LANGUAGE: &str = "language";
/// The confidence of the language, and the metric that has it.
const CONFIDENCE: (&str, &str) = ("language_confidence", "language.min_confidence");

/// Every name of a number without a dot.
const BARE_NUMBERS: [&str; 4] = [NUMBERS[0], NUMBERS[1], NUMBERS[2], CONFIDENCE.0];

/// Every name of the document itself.
pub(crate) fn own_names() -> impl Iterator<Item = &'static str> {
    NUMBERS.into_iter().chain(TEXTS)
}

const SCOPE: Scope<'static> = Scope {
    texts: &TEXTS,
    numbers: &BARE_NUMBERS,
    fields: &FIELDS,
};

/// Parses an expression over a document; the steps before it are not known yet.
///
/// # Errors
/// The byte of the error, found and wanted.
pub(crate) fn check(source: &str, wanted: Kind) -> std::result::Result<Expression, Wrong> {
    Expression::parse(source, wanted, SCOPE).map_err(|why| Wrong::of_message(&why))
}

/// Reports an expression at a key that cannot be parsed.
pub(crate) fn report(problem: Problem<'_>, key: &str, source: &str, kind: Kind) {
    if let Err(wrong) = check(source, kind) {
        problem(key, wrong.found, &wrong.wanted);
    }
}

/// Every name in an expression that is neither the document's own nor one of `metrics`, those of the steps before it.
pub(crate) fn unknown(expression: &Expression, metrics: &[String]) -> Vec<Wrong> {
    let has_language = metrics.iter().any(|metric| metric == CONFIDENCE.1);
    let of_language = [LANGUAGE, CONFIDENCE.0];
    let mut known: BTreeSet<&str> = metrics.iter().map(String::as_str).collect();
    for name in own_names().filter(|name| *name != LANGUAGE) {
        known.insert(name);
    }
    for name in of_language.iter().filter(|_| has_language) {
        known.insert(name);
    }
    let unknown = expression.names().filter(|name| !known.contains(name));
    let wrong = unknown.map(|name| {
        if of_language.contains(&name) {
            return Wrong {
                found: format!("{name:?}"),
                wanted: "a step `language` before this one, which finds it".to_string(),
            };
        }
        // a slip in the name of the object that a path leads into
        let paths: Vec<String> = match name.split_once('.') {
            Some((_, rest)) => FIELDS.map(|root| format!("{root}.{rest}")).into(),
            None => Vec::new(),
        };
        let near = or_nearest(name, known.iter().copied().chain(paths.iter().map(String::as_str)));
        let names: Vec<&str> = known.iter().copied().collect();
        Wrong {
            found: format!("{name:?}{near}"),
            wanted: format!(
                "a value of the metadata (meta.NAME, attributes.NAME), or a metric of an earlier step: {}",
                names.join(" ")
            ),
        }
    });
    wrong.collect()
}

/// An expression over a document and the metrics of the steps before `at`.
///
/// # Errors
/// `Config` for one that is wrong, or that names an unknown metric.
pub(crate) fn open(at: &Opening<'_>, key: &str, source: &str, wanted: Kind) -> Result<Expression> {
    let error = |wrong: Wrong| at.wrong(key, wrong.found, wrong.wanted);
    let expression = check(source, wanted).map_err(error)?;
    let metrics: Vec<String> = at.before.iter().flat_map(|step| step.metrics()).collect();
    match unknown(&expression, &metrics).into_iter().next() {
        Some(wrong) => Err(error(wrong)),
        None => Ok(expression),
    }
}

/// A value of the metadata that an expression names.
#[derive(Clone, Debug)]
pub(crate) struct MetaPath(Path);

impl MetaPath {
    /// Those of an expression; none of one that cannot be parsed.
    pub(crate) fn all(source: &str) -> Vec<MetaPath> {
        let expression = check(source, Kind::Any);
        let paths = expression.iter().flat_map(|expression| expression.paths());
        paths.map(|path| MetaPath(path.clone())).collect()
    }

    /// The path as it is written.
    pub(crate) fn name(&self) -> &str {
        &self.0.source
    }

    /// Whether a document has a value there; null is none.
    pub(crate) fn is_in(&self, draft: &Draft) -> bool {
        eval::found(&self.0, &DocumentMetrics::of(draft, &[]), None).is_some()
    }
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
