//! The funnel: records left after each step, and the rules that dropped the others.

use super::html::{fold, section, table};
use super::material::Material;
use super::outcomes::{LATER, dropped_by_step};
use super::sections::{kept, ranked};
use super::sources;
use super::svg::{Bar, bars};
use super::values::{number, percent};
use crate::machine::grouped;

/// Every record in exactly one row, so that the rows add up to the records read.
pub(super) fn funnel(m: &Material) -> String {
    let c = m.counts("curate");
    if !c.is_object() {
        return String::new();
    }
    let records = number(&c["records"]);
    let dropped = ranked(&c["dropped"]);
    let mut left = records;
    let mut stages: Vec<(String, u64)> = vec![("read".into(), left)];
    left -= number(&c["quarantined"]);
    stages.push(("readable".into(), left));
    let rules = dropped.iter().map(|(rule, n)| (rule.as_str(), *n));
    for (step, n) in dropped_by_step(&m.job, rules) {
        left = left.saturating_sub(n);
        stages.push((format!("after {step}"), left));
    }
    let dedup = m.counts("dedup");
    if dedup.is_object() {
        left = left.saturating_sub(number(&dedup["exact"]));
        stages.push(("after exact dedup".into(), left));
        left = left.saturating_sub(number(&dedup["fuzzy"]));
        stages.push(("after near dedup (kept)".into(), left));
        for (key, name, _) in LATER {
            if number(&dedup[key]) > 0 {
                left = left.saturating_sub(number(&dedup[key]));
                stages.push((format!("after {name} (kept)"), left));
            }
        }
    }
    let rows: Vec<Bar> = stages
        .iter()
        .map(|(name, n)| Bar {
            name: name.clone(),
            value: *n as f64,
            label: format!("{} ({})", grouped(*n), percent(*n, records)),
            colour: "--a",
        })
        .collect();
    let mut reasons: Vec<Vec<String>> = Vec::new();
    let mut add = |rule: String, n: u64| reasons.push(vec![rule, grouped(n), percent(n, records)]);
    add("kept".into(), kept(m));
    dropped.iter().for_each(|(rule, n)| add(rule.clone(), *n));
    if dedup.is_object() {
        add("duplicate.exact".into(), number(&dedup["exact"]));
        add("duplicate.near".into(), number(&dedup["fuzzy"]));
        let later = LATER.iter().filter(|(key, ..)| number(&dedup[key]) > 0);
        later.for_each(|(key, _, outcome)| add(outcome.to_string(), number(&dedup[key])));
    }
    add("quarantined".into(), number(&c["quarantined"]));
    let sum = kept(m)
        + dropped.iter().map(|d| d.1).sum::<u64>()
        + number(&c["quarantined"])
        + number(&dedup["exact"])
        + number(&dedup["fuzzy"])
        + LATER
            .iter()
            .map(|(key, ..)| number(&dedup[key]))
            .sum::<u64>();
    reasons.push(vec!["sum".into(), grouped(sum), percent(sum, records)]);
    let verdict = if sum == records {
        "equal to"
    } else {
        "NOT equal to"
    };
    let body = bars(&rows)
        + &fold(
            "Where every record went, by rule",
            &table(&["outcome", "records", "share"], &reasons),
        )
        + &format!(
            "<p class=quiet>The sum is {verdict} the {} records read.</p>",
            grouped(records)
        )
        + &sources::by_source(m);
    section(
        "funnel",
        "Funnel",
        "How many records were left after each step, and the rule that took each of the others.",
        &body,
    )
}
