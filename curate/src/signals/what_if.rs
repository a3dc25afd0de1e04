//! What a filter would keep with another limit, told from figures alone.
//!
//! A limit of one rule decides about the documents that break no other rule; their figures, sorted, answer for every limit.
//! Exact for rules whose figures do not hang on limits, which is all of them: limits decide, they do not measure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::verdict::{Measure, Side};

/// Figures of the documents of a corpus, rule by rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    rules: BTreeMap<String, Rule>,
    documents: u64,
    kept: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    limit: f64,
    side: Side,
    /// Figures of the documents that no other rule drops.
    decides: Vec<f64>,
    /// Documents that no other rule drops and that this one did not measure: it keeps them.
    unmeasured: u64,
}

/// What one limit keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The limit.
    pub limit: f64,
    /// Documents kept, all other limits as they are.
    pub kept: u64,
}

impl WhatIf {
    /// Adds a document; `lost` if something without a limit dropped it.
    pub fn add(&mut self, measures: &[Measure], lost: bool) {
        self.documents += 1;
        for m in measures {
            self.rules.entry(m.rule.clone()).or_insert_with(|| Rule {
                limit: m.limit,
                side: m.side,
                decides: Vec::new(),
                // those that were kept before this rule was heard of
                unmeasured: self.kept,
            });
        }
        let mut broken = measures.iter().filter(|m| m.side.breaks(m.value, m.limit));
        let (first, second) = (broken.next(), broken.next());
        if lost || second.is_some() {
            return;
        }
        match first {
            // this rule alone drops it
            Some(only) => {
                if let Some(rule) = self.rules.get_mut(&only.rule) {
                    rule.decides.push(only.value);
                }
            }
            None => {
                self.kept += 1;
                for (name, rule) in &mut self.rules {
                    match measures.iter().find(|m| m.rule == *name) {
                        Some(m) => rule.decides.push(m.value),
                        None => rule.unmeasured += 1,
                    }
                }
            }
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

    /// What `rule` keeps with each of `limits`; nothing for a rule that was not measured.
    pub fn choices(&self, rule: &str, limits: &[f64]) -> Vec<Choice> {
        let Some(rule) = self.rules.get(rule) else {
            return Vec::new();
        };
        let kept = |limit: f64| {
            let passes = rule
                .decides
                .iter()
                .filter(|v| !rule.side.breaks(**v, limit));
            rule.unmeasured + passes.count() as u64
        };
        let choice = |limit: &f64| Choice {
            limit: *limit,
            kept: kept(*limit),
        };
        limits.iter().map(choice).collect()
    }

    /// Limits worth a look: the figures at these shares of the documents that the rule decides about, and its own limit.
    pub fn candidates(&self, rule: &str) -> Vec<f64> {
        let Some(rule) = self.rules.get(rule) else {
            return Vec::new();
        };
        let mut sorted: Vec<f64> = rule
            .decides
            .iter()
            .copied()
            .filter(|v| v.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let mut limits = vec![rule.limit];
        for percent in [1, 5, 10, 25, 50, 75, 90, 95, 99] {
            let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
            limits.extend(sorted.get(at));
        }
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(rule: &str, value: f64, limit: f64, side: Side) -> Measure {
        Measure {
            rule: rule.into(),
            value,
            limit,
            side,
        }
    }

    #[test]
    fn any_limit_keeps_what_filtering_again_would_keep() {
        // 400 documents with two rules; one in 17 lacks the second figure, one in 23 is lost anyway
        let document = |i: u64, least: f64, most: f64| {
            let mut measures = vec![measure("a", (i * 37 % 101) as f64, least, Side::AtLeast)];
            if !i.is_multiple_of(17) {
                measures.push(measure("b", (i * 53 % 97) as f64, most, Side::AtMost));
            }
            (measures, i.is_multiple_of(23))
        };
        let kept = |least: f64, most: f64| {
            (0..400)
                .map(|i| document(i, least, most))
                .filter(|(m, lost)| !lost && !m.iter().any(|m| m.side.breaks(m.value, m.limit)))
                .count() as u64
        };
        let mut what_if = WhatIf::default();
        for i in 0..400 {
            let (measures, lost) = document(i, 40.0, 60.0);
            what_if.add(&measures, lost);
        }
        assert_eq!(
            (what_if.documents(), what_if.kept()),
            (400, kept(40.0, 60.0))
        );
        for limit in 0..100 {
            let limit = f64::from(limit);
            assert_eq!(
                what_if.choices("a", &[limit])[0].kept,
                kept(limit, 60.0),
                "a {limit}"
            );
            assert_eq!(
                what_if.choices("b", &[limit])[0].kept,
                kept(40.0, limit),
                "b {limit}"
            );
        }
        let candidates = what_if.candidates("a");
        assert!(candidates.len() > 5 && candidates.is_sorted() && candidates.contains(&40.0));
        assert!(what_if.choices("c", &[1.0]).is_empty());
    }
}
