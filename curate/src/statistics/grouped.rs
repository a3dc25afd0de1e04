//! Metrics by the groups of `group` steps, mergeable, for a bounded number of values.
//!
//! A value is held with the distributions of its metrics. When there are too many values, those with the fewest documents
//! are counted together, and what they had is in `(others)` from then on. A value that comes again starts anew, so
//! its documents can be too few by the sum of the largest counts that were given up, which is reported; nothing is lost,
//! as `(others)` has them. With few values all numbers are exact, in any order of merging.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::state::State;

/// Values held per group and state; at twice as many some are given up.
const HELD: usize = 512;

/// Metrics of the documents with one value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupMetrics {
    /// Documents.
    pub documents: u64,
    /// Distributions by name of the metric.
    pub figures: BTreeMap<String, Distribution>,
}

impl GroupMetrics {
    pub(super) fn add<'n>(&mut self, metrics: impl Iterator<Item = (&'n str, f64)>) {
        self.documents += 1;
        for (name, value) in metrics {
            match self.figures.get_mut(name) {
                Some(figure) => figure.add(value),
                None => self.figures.entry(name.to_string()).or_default().add(value),
            }
        }
    }

    pub(super) fn merge(&mut self, other: &GroupMetrics) {
        self.documents += other.documents;
        for (name, figure) in &other.figures {
            self.figures.entry(name.clone()).or_default().merge(figure);
        }
    }
}

/// The values of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupValues {
    values: BTreeMap<String, GroupMetrics>,
    others: GroupMetrics,
    /// Documents by which the count of a value can be too small.
    error: u64,
}

impl GroupValues {
    pub(super) fn value(&mut self, value: &str) -> &mut GroupMetrics {
        self.reduce(2 * HELD - 1);
        self.values.entry(value.to_string()).or_default()
    }

    pub(super) fn merge(&mut self, other: &GroupValues) {
        self.error += other.error;
        self.others.merge(&other.others);
        for (value, metrics) in &other.values {
            self.values.entry(value.clone()).or_default().merge(metrics);
        }
        self.reduce(2 * HELD);
    }

    /// The values with the most documents, at most 512, largest first, ties by name.
    pub fn top(&self) -> Vec<(&str, &GroupMetrics)> {
        let values = self.values.iter().map(|(value, m)| (value.as_str(), m));
        let mut all: Vec<_> = values.collect();
        all.sort_by(|a, b| b.1.documents.cmp(&a.1.documents).then(a.0.cmp(b.0)));
        all.truncate(HELD);
        all
    }

    /// The documents that [`GroupValues::top`] does not have.
    pub fn others(&self) -> GroupMetrics {
        let mut others = self.others.clone();
        let shown: Vec<&str> = self.top().into_iter().map(|(value, _)| value).collect();
        if shown.len() < self.values.len() {
            let mut shown = shown;
            shown.sort_unstable();
            for (value, metrics) in &self.values {
                if shown.binary_search(&value.as_str()).is_err() {
                    others.merge(metrics);
                }
            }
        }
        others
    }

    /// Documents by which the count of a value can be too small; 0: all are exact.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Gives up values once there are more than `most`.
    fn reduce(&mut self, most: usize) {
        if self.values.len() <= most {
            return;
        }
        let kept = self.top();
        let least = kept
            .last()
            .map(|(value, m)| (m.documents, (*value).to_string()));
        let Some((documents, last)) = least else {
            return;
        };
        // behind the last one that is kept, in the order of `top`
        let is_kept = |value: &String, m: &GroupMetrics| {
            m.documents > documents || (m.documents == documents && *value <= last)
        };
        let mut largest = 0;
        for (value, metrics) in std::mem::take(&mut self.values) {
            if is_kept(&value, &metrics) {
                self.values.insert(value, metrics);
            } else {
                largest = largest.max(metrics.documents);
                self.others.merge(&metrics);
            }
        }
        self.error += largest;
    }
}

/// The groups by name and state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Groups(BTreeMap<(String, State), GroupValues>);

impl Groups {
    pub(super) fn of(&mut self, by: &str, state: State) -> &mut GroupValues {
        self.0.entry((by.to_string(), state)).or_default()
    }

    pub(super) fn merge(&mut self, other: &Groups) {
        for ((by, state), values) in &other.0 {
            self.of(by, *state).merge(values);
        }
    }

    /// Name of the group, state, and its values, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, State, &GroupValues)> {
        self.0
            .iter()
            .map(|((by, state), values)| (by.as_str(), *state, values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(groups: &mut Groups, value: &str, x: f64) {
        let metrics = groups.of("g", State::Kept).value(value);
        metrics.add([("x", x)].into_iter());
    }

    #[test]
    fn few_values_are_exact_in_any_order_of_merging() {
        let mut whole = Groups::default();
        let mut parts = [Groups::default(), Groups::default(), Groups::default()];
        for i in 0..5000u32 {
            let (value, x) = (format!("v{}", i * i % 97), f64::from(i));
            add(&mut whole, &value, x);
            add(&mut parts[i as usize % 3], &value, x);
        }
        for order in [[0, 1, 2], [2, 1, 0]] {
            let mut sum = Groups::default();
            order.into_iter().for_each(|i| sum.merge(&parts[i]));
            assert!(sum == whole, "{order:?}");
        }
        let values = whole.of("g", State::Kept);
        assert_eq!((values.error(), values.others().documents), (0, 0));
        let count = (0..5000).filter(|i| i * i % 97 == 1).count() as u64;
        let top = values.top();
        let one = top.iter().find(|(value, _)| *value == "v1").unwrap().1;
        assert_eq!((one.documents, one.figures["x"].count()), (count, count));
        assert!(top.is_sorted_by(|a, b| a.1.documents >= b.1.documents));
    }

    #[test]
    fn rare_values_among_too_many_are_counted_together_and_no_document_is_lost() {
        let mut groups = Groups::default();
        let n = 20_000u32;
        for i in 0..n {
            match i % 4 {
                0 => add(&mut groups, &format!("often{}", i % 12), 1.0),
                _ => add(&mut groups, &format!("rare{i}"), 2.0),
            }
        }
        let mut twice = groups.clone();
        twice.merge(&groups);
        for (groups, times) in [(&mut groups, 1), (&mut twice, 2)] {
            let values = groups.of("g", State::Kept);
            let top = values.top();
            assert_eq!(top.len(), HELD);
            for (value, metrics) in &top[..3] {
                let of: u32 = value.strip_prefix("often").unwrap().parse().unwrap();
                let wanted = (0..n).filter(|i| i % 4 == 0 && i % 12 == of).count() as u64 * times;
                let found = metrics.documents;
                assert!(
                    found <= wanted && found + values.error() >= wanted,
                    "{value}"
                );
            }
            let shown: u64 = top.iter().map(|(_, m)| m.documents).sum();
            let others = values.others();
            assert_eq!(shown + others.documents, u64::from(n) * times);
            assert_eq!(others.figures["x"].count(), others.documents);
            assert!(values.error() > 0 && values.values.len() <= 2 * HELD);
        }
    }
}
