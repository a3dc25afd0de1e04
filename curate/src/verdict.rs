//! Verdicts: a filter's result for a document.
//!
//! A filter leaves at the first broken rule with `?`; the rule's name, the measured value and the
//! limit travel together into the dropped-documents file and the counters.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

/// A measured value or a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetricValue {
    /// A count or a ratio.
    Number(f64),
    /// A name: a language, a content type, an n-gram.
    Text(String),
}

impl From<f64> for MetricValue {
    fn from(v: f64) -> Self {
        MetricValue::Number(v)
    }
}

impl From<usize> for MetricValue {
    fn from(v: usize) -> Self {
        // Counts of words or bytes in one record stay far below 2^53.
        MetricValue::Number(v as f64)
    }
}

impl From<&str> for MetricValue {
    fn from(v: &str) -> Self {
        MetricValue::Text(v.to_string())
    }
}

impl From<String> for MetricValue {
    fn from(v: String) -> Self {
        MetricValue::Text(v)
    }
}

/// The first broken rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// `filter.rule`, stable: reports and tests rely on it.
    pub rule: String,
    /// Measured value.
    pub value: MetricValue,
    /// The limit it broke.
    pub limit: MetricValue,
}

/// Keep (`Continue`) or drop with a reason (`Break`).
pub type Verdict = ControlFlow<Reason>;

/// The document passed.
pub const KEEP: Verdict = ControlFlow::Continue(());

/// Drop with value and limit.
pub(crate) fn broken(
    rule: &str,
    value: impl Into<MetricValue>,
    limit: impl Into<MetricValue>,
) -> Reason {
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

/// The good side of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The limit is the most that is allowed.
    AtMost,
    /// The limit is the least that is allowed.
    AtLeast,
}

impl Side {
    /// Whether a value breaks a limit. NaN breaks none.
    pub fn breaks(self, value: f64, limit: f64) -> bool {
        match self {
            Side::AtMost => value > limit,
            Side::AtLeast => value < limit,
        }
    }
}

/// One rule's metrics for one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// `filter.rule`.
    pub rule: String,
    /// Measured value.
    pub value: f64,
    /// The limit.
    pub limit: f64,
    /// The good side of the limit.
    pub side: Side,
}

/// Compares metrics with limits for the filters. One judge sees one document.
#[derive(Debug, Default)]
pub struct Judge {
    /// Continues after a broken rule, to measure the others as well.
    goes_on: bool,
    /// Keeps the metrics.
    keeps: bool,
    metrics: Vec<Metric>,
    broken: Option<Reason>,
}

impl Judge {
    /// Stops at the first broken rule and keeps no metrics.
    pub fn strict() -> Judge {
        Judge::default()
    }

    /// A judge that stops at the first broken rule and keeps the metrics up to there.
    pub fn keeping() -> Judge {
        Judge {
            keeps: true,
            ..Judge::default()
        }
    }

    /// Measures every rule, even after one is broken, and keeps all metrics.
    pub fn measuring() -> Judge {
        Judge {
            goes_on: true,
            keeps: true,
            ..Judge::default()
        }
    }

    /// Whether a count may stop once its limit is exceeded.
    pub(crate) fn may_stop_counting(&self) -> bool {
        !self.keeps
    }

    /// Metrics in the order of the rules.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The first broken rule that the judge went past.
    pub fn verdict(&mut self) -> Verdict {
        match self.broken.take() {
            Some(reason) => Verdict::Break(reason),
            None => KEEP,
        }
    }

    /// Breaks with `rule` when `value > limit`.
    pub(crate) fn at_most(&mut self, rule: &str, value: f64, limit: f64) -> Verdict {
        self.compare(rule, value, limit, Side::AtMost)
    }

    /// Breaks with `rule` when `value < limit`.
    pub(crate) fn at_least(&mut self, rule: &str, value: f64, limit: f64) -> Verdict {
        self.compare(rule, value, limit, Side::AtLeast)
    }

    /// Breaks with `rule` when `value` is on the wrong side of `limit`.
    pub(crate) fn compare(&mut self, rule: &str, value: f64, limit: f64, side: Side) -> Verdict {
        if self.keeps {
            self.metrics.push(Metric {
                rule: rule.to_string(),
                value,
                limit,
                side,
            });
        }
        if !side.breaks(value, limit) {
            return KEEP;
        }
        let reason = broken(rule, value, limit);
        if !self.goes_on {
            return Verdict::Break(reason);
        }
        self.broken.get_or_insert(reason);
        KEEP
    }
}

/// Breaks with `rule` when `value > limit`.
pub(crate) fn at_most(rule: &str, value: f64, limit: f64) -> Verdict {
    if value > limit {
        Verdict::Break(broken(rule, value, limit))
    } else {
        KEEP
    }
}
