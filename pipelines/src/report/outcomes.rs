//! Outcomes of records: the steps that dropped them, and the removals after exact and near duplicates.

use crate::job::Job;
use std::collections::BTreeMap;

/// Removals of the dedup stage after exact and near duplicates: key of the count, step, outcome.
pub(super) const LATER: [(&str, &str, &str); 5] = [
    ("earlier", "earlier crawls", "duplicate.earlier"),
    ("url", "address dedup", "duplicate.url"),
    ("semantic", "semantic dedup", "duplicate.semantic"),
    ("hollow", "cutting repeats", "duplicate.hollow"),
    (
        "contaminated",
        "cutting evaluation texts",
        "decontaminate.cut",
    ),
];

/// Steps with the records that each dropped, in the order in which the job runs them, from counts by rule. The name of a rule begins
/// with that of its step.
pub(crate) fn dropped_by_step<'a>(
    job: &Job,
    rules: impl IntoIterator<Item = (&'a str, u64)>,
) -> Vec<(String, u64)> {
    let steps = job.curate.iter().flat_map(|c| &c.step);
    let order: Vec<&str> = std::iter::once("read")
        .chain(steps.map(|step| step.name()))
        .chain(["decontaminate"])
        .collect();
    let mut sums: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for (rule, n) in rules {
        let step = rule.split('.').next().unwrap_or(rule);
        let place = order.iter().position(|name| *name == step);
        *sums
            .entry((place.unwrap_or(order.len()), step))
            .or_default() += n;
    }
    let named = |((_, step), n): ((usize, &str), u64)| (step.to_owned(), n);
    sums.into_iter().map(named).collect()
}
