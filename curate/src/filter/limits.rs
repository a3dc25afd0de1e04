//! Rule tables: a recipe published as a list of metrics with limits is written, and overridden, as a table.
//!
//! A rule has a name, a side and the published limit. A job file changes single limits: `limits = { max_urls = 0.3,
//! max_numbers = false }`, where `false` switches a rule off.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::verdict::{Judge, KEEP, Side, Verdict};

/// One rule of a recipe.
#[derive(Debug)]
pub(super) struct Rule {
    /// `recipe.rule`, stable.
    pub(super) name: &'static str,
    pub(super) side: Side,
    /// As published.
    pub(super) limit: f64,
}

impl Rule {
    /// The limit is the most that is allowed.
    pub(super) const fn at_most(name: &'static str, limit: f64) -> Rule {
        Rule {
            name,
            side: Side::AtMost,
            limit,
        }
    }

    /// The limit is the least that is allowed.
    pub(super) const fn at_least(name: &'static str, limit: f64) -> Rule {
        Rule {
            name,
            side: Side::AtLeast,
            limit,
        }
    }

    /// The whole name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The name without the recipe's.
    fn short(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, s)| s)
    }
}

/// A job file's override of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Limit {
    /// Another limit than the published one.
    Number(f64),
    /// `false`: the rule is off.
    Is(bool),
}

/// Limits that differ from the published ones, by the rule's name without the recipe's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Limits(pub BTreeMap<String, Limit>);

impl Limits {
    /// Reports names that no rule has, and values that are neither a number nor `false`.
    pub(super) fn check(&self, rules: &[Rule], problem: Problem<'_>) {
        for (name, limit) in &self.0 {
            let key = format!("limits.{name}");
            if !rules.iter().any(|r| r.short() == name) {
                let known: Vec<&str> = rules.iter().map(Rule::short).collect();
                problem(
                    &key,
                    format!("{name:?}"),
                    &format!("one of {}", known.join(" ")),
                );
            }
            let found = match limit {
                Limit::Is(false) => continue,
                Limit::Number(n) if n.is_finite() => continue,
                Limit::Number(n) => n.to_string(),
                Limit::Is(true) => "true".to_string(),
            };
            problem(&key, found, "a number, or false to switch the rule off");
        }
    }

    /// Compares a value with the rule's limit, `published` if it is another than the rule's.
    fn compare(&self, rule: &Rule, published: f64, value: f64, judge: &mut Judge) -> Verdict {
        let mut limit = published;
        if !self.0.is_empty() {
            match self.0.get(rule.short()) {
                Some(Limit::Is(_)) => return KEEP,
                Some(Limit::Number(other)) => limit = *other,
                None => {}
            }
        }
        judge.compare(rule.name, value, limit, rule.side)
    }
}

/// Cursor over a table of rules for one document.
pub(super) struct Rules<'a> {
    /// Rules not checked yet.
    rest: &'a [Rule],
    limits: &'a Limits,
    judge: &'a mut Judge,
}

impl<'a> Rules<'a> {
    /// The rules of a recipe, its limits changed by a job.
    pub(super) fn new(rules: &'a [Rule], limits: &'a Limits, judge: &'a mut Judge) -> Rules<'a> {
        Rules {
            rest: rules,
            limits,
            judge,
        }
    }

    /// Compares a value with the limit of the rule `name`, given without the recipe's name.
    ///
    /// # Panics
    /// If the table has no such rule after the one checked before: values must come in the order of the table.
    pub(super) fn check(&mut self, name: &str, value: f64) -> Verdict {
        let rule = self.rule(name);
        self.limits.compare(rule, rule.limit, value, self.judge)
    }

    /// The same for a rule whose published limit depends on the document.
    ///
    /// # Panics
    /// As [`Rules::check`].
    pub(super) fn check_with(&mut self, name: &str, published: f64, value: f64) -> Verdict {
        let rule = self.rule(name);
        self.limits.compare(rule, published, value, self.judge)
    }

    fn rule(&mut self, name: &str) -> &'a Rule {
        let is_named = |rule: &Rule| {
            let recipe = rule.name.strip_suffix(name);
            recipe.is_some_and(|recipe| recipe.ends_with('.'))
        };
        let at = self.rest.iter().position(is_named);
        let at = at.expect("values come in the order of the table of rules");
        let rule = &self.rest[at];
        self.rest = &self.rest[at + 1..];
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Rule; 2] = [
        Rule::at_least("r.min_words", 50.0),
        Rule::at_most("r.max_urls", 0.2),
    ];

    fn limits(json: &str) -> Limits {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_limit_can_be_changed_and_a_rule_switched_off() {
        let holds = |limits: &Limits, value| {
            limits
                .compare(&RULES[0], RULES[0].limit, value, &mut Judge::strict())
                .is_continue()
        };
        assert!(!holds(&limits("{}"), 49.0) && holds(&limits("{}"), 50.0));
        assert!(holds(&limits(r#"{"min_words": 40}"#), 49.0));
        assert!(holds(&limits(r#"{"min_words": false}"#), 0.0));
    }

    #[test]
    fn values_find_their_rules_by_name_in_the_order_of_the_table() {
        let (limits, mut judge) = (Limits::default(), Judge::measuring());
        let mut rules = Rules::new(&RULES, &limits, &mut judge);
        assert!(rules.check("min_words", 60.0).is_continue());
        assert!(rules.check("max_urls", 0.1).is_continue());
        let found: Vec<_> = judge
            .metrics()
            .iter()
            .map(|m| (&*m.rule, m.value))
            .collect();
        assert_eq!(found, [("r.min_words", 60.0), ("r.max_urls", 0.1)]);
        // a rule may be passed over
        let mut judge = Judge::strict();
        let verdict = Rules::new(&RULES, &limits, &mut judge).check("max_urls", 0.3);
        assert!(verdict.is_break());
    }

    #[test]
    #[should_panic(expected = "in the order of the table")]
    fn a_rule_that_the_table_does_not_have_is_refused() {
        let (limits, mut judge) = (Limits::default(), Judge::strict());
        drop(Rules::new(&RULES, &limits, &mut judge).check("words", 60.0));
    }

    #[test]
    fn unknown_names_and_wrong_values_are_all_told() {
        let mut found = Vec::new();
        let wrong = limits(r#"{"min_word": 3, "max_urls": true}"#);
        wrong.check(&RULES, &mut |k, f, w| found.push(format!("{k}: {f}: {w}")));
        assert_eq!(
            found,
            [
                "limits.max_urls: true: a number, or false to switch the rule off",
                "limits.min_word: \"min_word\": one of min_words max_urls"
            ]
        );
    }
}
