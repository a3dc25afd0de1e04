//! What a filter says about a document.
//!
//! A filter leaves at the first broken rule with `?`; the rule's name, the measured value and the
//! limit travel together into the dropped-documents file and the counters.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

/// A measured value or a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// A count or a ratio.
    Number(f64),
    /// A name: a language, a content type, an n-gram.
    Text(String),
}

impl From<f64> for Figure {
    fn from(v: f64) -> Self {
        Figure::Number(v)
    }
}

impl From<usize> for Figure {
    fn from(v: usize) -> Self {
        // Counts of words or bytes in one record stay far below 2^53.
        Figure::Number(v as f64)
    }
}

impl From<&str> for Figure {
    fn from(v: &str) -> Self {
        Figure::Text(v.to_string())
    }
}

impl From<String> for Figure {
    fn from(v: String) -> Self {
        Figure::Text(v)
    }
}

/// The first broken rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// `filter.rule`, stable: reports and tests rely on it.
    pub rule: String,
    /// What was measured.
    pub value: Figure,
    /// The limit it broke.
    pub limit: Figure,
}

/// Keep (`Continue`) or drop with a reason (`Break`).
pub type Verdict = ControlFlow<Reason>;

/// The document passed.
pub const KEEP: Verdict = ControlFlow::Continue(());

/// Drop with value and limit.
pub(crate) fn broken(rule: &str, value: impl Into<Figure>, limit: impl Into<Figure>) -> Reason {
    Reason {
        rule: rule.to_string(),
        value: value.into(),
        limit: limit.into(),
    }
}

/// Drop of a text without a character, where a filter would divide by its length.
pub(crate) fn empty(rule: &str) -> Reason {
    broken(rule, 0.0, 1.0)
}

/// Breaks with `rule` when `value > limit`.
pub(crate) fn at_most(rule: &str, value: f64, limit: f64) -> Verdict {
    if value > limit {
        Verdict::Break(broken(rule, value, limit))
    } else {
        KEEP
    }
}

/// Breaks with `rule` when `value < limit`.
pub(crate) fn at_least(rule: &str, value: f64, limit: f64) -> Verdict {
    if value < limit {
        Verdict::Break(broken(rule, value, limit))
    } else {
        KEEP
    }
}
