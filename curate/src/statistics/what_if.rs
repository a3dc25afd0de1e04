//! What-if analysis: documents that a filter would keep with other limits, from metrics alone.
//!
//! The limit of one rule decides about the documents that break no other rule: a first pass over the metrics finds
//! their distribution and so the interesting limits, a second one counts the documents that each keeps. Several
//! limits changed together take one pass. Counts are exact for rules whose metrics do not depend on limits, which
//! is all of them. Memory is a few numbers per rule, for any corpus.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::Distribution;
use crate::verdict::{Metric, Side};

/// Documents kept with one limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The limit.
    pub limit: f64,
    /// Documents kept, all other limits as they are.
    pub kept: u64,
}

/// First pass: finds interesting limits.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    rules: BTreeMap<String, Deciding>,
}

#[derive(Clone, Debug, Default)]
struct Deciding {
    limit: f64,
    /// Metrics of documents that break no rule.
    kept: Distribution,
    /// Metrics of documents that this rule alone drops.
    dropped: Distribution,
}

impl Candidates {
    /// Adds a document; `lost`: it was dropped by something without a limit.
    pub fn add(&mut self, metrics: &[Metric], lost: bool) {
        for m in metrics {
            self.rules.entry(m.rule.clone()).or_default().limit = m.limit;
        }
        let Some(decides) = deciding(metrics, lost) else {
            return;
        };
        for m in decides {
            if let Some(rule) = self.rules.get_mut(&m.rule) {
                match m.side.breaks(m.value, m.limit) {
                    true => rule.dropped.add(m.value),
                    false => rule.kept.add(m.value),
                }
            }
        }
    }

    /// For each rule its current limit, and metrics at some quantiles of the documents it keeps and of those that
    /// it alone drops.
    pub fn limits(&self) -> BTreeMap<String, Vec<f64>> {
        let of = |rule: &Deciding| {
            let mut limits = vec![rule.limit];
            let at =
                |spread: &Distribution, percent: u8| spread.quantile(f64::from(percent) / 100.0);
            limits.extend(
                [1, 5, 10, 25, 50, 75, 90, 95, 99]
                    .iter()
                    .filter_map(|p| at(&rule.kept, *p)),
            );
            limits.extend(
                [0, 25, 50, 75, 100]
                    .iter()
                    .filter_map(|p| at(&rule.dropped, *p)),
            );
            limits.sort_by(f64::total_cmp);
            limits.dedup();
            limits
        };
        let rules = self.rules.iter();
        rules.map(|(name, rule)| (name.clone(), of(rule))).collect()
    }
}

/// Second pass: documents kept with each limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    asked: BTreeMap<String, Vec<f64>>,
    rules: BTreeMap<String, Rule>,
    documents: u64,
    kept: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    limit: f64,
    side: Side,
    choices: Vec<Choice>,
}

impl WhatIf {
    /// Counts for these limits of each rule.
    pub fn new(asked: BTreeMap<String, Vec<f64>>) -> WhatIf {
        WhatIf {
            asked,
            ..WhatIf::default()
        }
    }

    /// Adds a document; `lost`: it was dropped by something without a limit.
    pub fn add(&mut self, metrics: &[Metric], lost: bool) {
        self.documents += 1;
        for m in metrics {
            if !self.rules.contains_key(&m.rule) {
                let limits = self.asked.get(&m.rule).map_or(&[][..], Vec::as_slice);
                // it keeps the documents counted before its first metric
                let choice = |limit: &f64| Choice {
                    limit: *limit,
                    kept: self.kept,
                };
                let rule = Rule {
                    limit: m.limit,
                    side: m.side,
                    choices: limits.iter().map(choice).collect(),
                };
                self.rules.insert(m.rule.clone(), rule);
            }
        }
        let Some(decides) = deciding(metrics, lost) else {
            return;
        };
        // this rule alone drops it
        if let [only] = decides
            && only.side.breaks(only.value, only.limit)
        {
            if let Some(rule) = self.rules.get_mut(&only.rule) {
                rule.count(Some(only.value));
            }
            return;
        }
        self.kept += 1;
        for (name, rule) in &mut self.rules {
            let measured = metrics.iter().find(|m| m.rule == *name);
            rule.count(measured.map(|m| m.value));
        }
    }

    /// Documents that were added.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Documents that break no rule.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Rules with the limits that they had.
    pub fn rules(&self) -> impl Iterator<Item = (&str, f64, Side)> {
        self.rules
            .iter()
            .map(|(name, r)| (name.as_str(), r.limit, r.side))
    }

    /// Counts for each of the requested limits of `rule`; empty for a rule that was not measured.
    pub fn choices(&self, rule: &str) -> &[Choice] {
        self.rules.get(rule).map_or(&[], |r| &r.choices)
    }
}

impl Rule {
    /// Counts a document that no other rule drops; an unmeasured one is kept.
    fn count(&mut self, value: Option<f64>) {
        for choice in &mut self.choices {
            let breaks = value.is_some_and(|v| self.side.breaks(v, choice.limit));
            choice.kept += u64::from(!breaks);
        }
    }
}

/// The metrics whose limits decide about a document: all if it breaks no rule, the one if it breaks one.
fn deciding(metrics: &[Metric], lost: bool) -> Option<&[Metric]> {
    let mut broken = (0..metrics.len()).filter(|i| {
        let m = &metrics[*i];
        m.side.breaks(m.value, m.limit)
    });
    match (lost, broken.next(), broken.next()) {
        (false, None, _) => Some(metrics),
        (false, Some(i), None) => Some(&metrics[i..=i]),
        _ => None,
    }
}

/// The funnel with several limits changed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refilter {
    changes: BTreeMap<String, f64>,
    known: BTreeMap<String, f64>,
    /// Documents that were added.
    pub documents: u64,
    /// Documents that break no rule.
    pub kept: u64,
    /// The others, by the first rule they break.
    pub dropped: BTreeMap<String, u64>,
    /// Dropped by something that has no limit.
    pub lost: u64,
}

impl Refilter {
    /// New limits by rule.
    pub fn new(changes: BTreeMap<String, f64>) -> Refilter {
        Refilter {
            changes,
            ..Refilter::default()
        }
    }

    /// Adds a document; `lost`: it was dropped by something without a limit.
    pub fn add(&mut self, metrics: &[Metric], lost: bool) {
        self.documents += 1;
        for m in metrics {
            if !self.known.contains_key(&m.rule) {
                self.known.insert(m.rule.clone(), m.limit);
            }
        }
        let breaks = |m: &&Metric| {
            let limit = self.changes.get(&m.rule).copied().unwrap_or(m.limit);
            m.side.breaks(m.value, limit)
        };
        match metrics.iter().find(breaks) {
            Some(m) => *self.dropped.entry(m.rule.clone()).or_default() += 1,
            None if lost => self.lost += 1,
            None => self.kept += 1,
        }
    }

    /// Every rule that was seen, with the limit it had.
    pub fn known(&self) -> &BTreeMap<String, f64> {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(rule: &str, value: f64, limit: f64, side: Side) -> Metric {
        Metric {
            rule: rule.into(),
            value,
            limit,
            side,
        }
    }

    #[test]
    fn any_limit_keeps_what_filtering_again_would_keep() {
        // 400 documents with two rules; one in 17 lacks the second metric, one in 23 is lost anyway
        let document = |i: u64, least: f64, most: f64| {
            let mut metrics = vec![measure("a", (i * 37 % 101) as f64, least, Side::AtLeast)];
            if !i.is_multiple_of(17) {
                metrics.push(measure("b", (i * 53 % 97) as f64, most, Side::AtMost));
            }
            (metrics, i.is_multiple_of(23))
        };
        let kept = |least: f64, most: f64| {
            (0..400)
                .map(|i| document(i, least, most))
                .filter(|(m, lost)| !lost && !m.iter().any(|m| m.side.breaks(m.value, m.limit)))
                .count() as u64
        };
        let limits = || (0..100).map(f64::from).collect::<Vec<_>>();
        let mut what_if = WhatIf::new(["a", "b"].map(|r| (r.into(), limits())).into());
        let mut candidates = Candidates::default();
        for i in 0..400 {
            let (metrics, lost) = document(i, 40.0, 60.0);
            what_if.add(&metrics, lost);
            candidates.add(&metrics, lost);
        }
        assert_eq!(
            (what_if.documents(), what_if.kept()),
            (400, kept(40.0, 60.0))
        );
        for (i, limit) in limits().into_iter().enumerate() {
            let found = ["a", "b"].map(|r| what_if.choices(r)[i].kept);
            assert_eq!(found, [kept(limit, 60.0), kept(40.0, limit)], "{limit}");
        }
        let limits = &candidates.limits()["a"];
        assert!(limits.len() > 5 && limits.is_sorted() && limits.contains(&40.0));
        assert!(what_if.choices("c").is_empty());
        for (least, most) in [(40.0, 60.0), (10.0, 90.0), (0.0, 0.0)] {
            let mut again =
                Refilter::new([("a".to_string(), least), ("b".to_string(), most)].into());
            (0..400).for_each(|i| {
                let (metrics, lost) = document(i, 40.0, 60.0);
                again.add(&metrics, lost);
            });
            assert_eq!(again.kept, kept(least, most));
            let dropped: u64 = again.dropped.values().sum();
            assert_eq!(again.kept + again.lost + dropped, 400);
        }
    }
}
