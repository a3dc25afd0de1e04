//! Report section on step time, from the traces of `train.profile`: by kind, phase of the step, op and rank.

use super::html::{escape, folded, table};
use super::material::Material;
use super::svg::{Bar, bars};
use super::trace::{Kind, Profile};
use crate::machine::grouped;
use std::cmp::Reverse;

/// Ops shown as bars; the table lists all.
const MOST_BARS: usize = 15;

/// The section; empty without traces of whole steps.
pub(super) fn profile(m: &Material) -> String {
    let ranks: Vec<&Profile> = m.profiles.iter().filter(|p| !p.steps.is_empty()).collect();
    let mut all = Profile::default();
    ranks.iter().for_each(|rank| all.join(rank));
    let (Some(from), Some(to)) = (all.steps.iter().min(), all.steps.iter().max()) else {
        return String::new();
    };
    let mut body = String::from("<div class=two><div><h3>What the time went to</h3>");
    let mut kinds: Vec<Bar> = Kind::ALL
        .map(|kind| all.bar(kind.name().into(), all.of_kind(kind), kind.colour()))
        .into();
    kinds.push(all.bar("outside of these".into(), all.outside(), "--quiet"));
    body += &bars(&kinds);
    body += "</div><div><h3>Phases of a step</h3>";
    let mut phases: Vec<_> = all.phases.iter().collect();
    phases.sort_by(|a, b| b.1.micros.total_cmp(&a.1.micros));
    let phases = phases.into_iter();
    let phases = phases.map(|(name, spent)| all.bar(name.clone(), spent.micros, "--c"));
    body += &bars(&phases.collect::<Vec<_>>());
    body += "</div></div><h3>Ops, collectives, waits</h3>";
    let mut ops: Vec<_> = all.ops.iter().collect();
    ops.sort_by_key(|((_, name), spent)| (Reverse(order(spent.micros)), name.clone()));
    let largest = ops.iter().take(MOST_BARS);
    let largest =
        largest.map(|((kind, name), spent)| all.bar(name.clone(), spent.micros, kind.colour()));
    body += &bars(&largest.collect::<Vec<_>>());
    let steps = all.steps.len() as f64;
    let rows = ops.iter().map(|((kind, name), spent)| {
        vec![
            name.clone(),
            kind.name().into(),
            format!("{:.1}", spent.calls as f64 / steps),
            all.each(spent.micros),
            all.share(spent.micros),
        ]
    });
    let head = ["name", "kind", "calls per step", "ms per step", "share"];
    body += "<details><summary>All of them</summary>";
    body += &table(&head, &rows.collect::<Vec<_>>());
    body += "</details>";
    if ranks.len() > 1 {
        body += &by_rank(&ranks);
    }
    if all.lost > 0 {
        body += &format!(
            "<p class=quiet>{} older spans were not kept.</p>",
            escape(&grouped(all.lost))
        );
    }
    let count = ranks.len();
    let which = match count {
        1 => format!("Steps {from} to {to}."),
        _ => format!("Steps {from} to {to}, means over {count} ranks."),
    };
    let lead = format!(
        "{which} The time of one op, collective or wait within another counts for the inner one; the traces are in profile/."
    );
    folded("profile", "Step time", &lead, &body)
}

/// Sort key of a time: the bits of a non-negative double sort like its value.
fn order(micros: f64) -> u64 {
    micros.max(0.0).to_bits()
}

fn by_rank(ranks: &[&Profile]) -> String {
    let rows = ranks.iter().enumerate().map(|(rank, one)| {
        let kinds = Kind::ALL.map(|kind| one.share(one.of_kind(kind)));
        let mut row = vec![rank.to_string(), one.each(one.micros)];
        row.extend(kinds);
        row.push(one.share(one.outside()));
        row.push(one.each(one.beside));
        row
    });
    let head = [
        "rank",
        "ms per step",
        "compute",
        "collective",
        "wait",
        "outside",
        "ms reducing gradients concurrently",
    ];
    let table = table(&head, &rows.collect::<Vec<_>>());
    format!("<h3>By rank</h3>{table}")
}
