//! Report section on other filter limits, from the recorded figures of every document (`curate.figures = true`).

use super::html::{folded, table};
use super::material::Material;
use super::values::percent;
use crate::machine::grouped;
use curate::verdict::Side;

/// A table for every rule: limits, and the documents that the filters keep with them.
pub(super) fn what_if(m: &Material) -> String {
    let mut rules: Vec<(u64, String)> = Vec::new();
    let known = match &m.what_if {
        Ok(known) => known,
        Err(why) => {
            let why = super::html::escape(why);
            let body = format!("<p class=quiet>The figures cannot be read: {why}</p>");
            return folded("limits", "Other limits", "", &body);
        }
    };
    let documents = known.documents();
    for (rule, limit, side) in known.rules() {
        let choices = known.choices(rule);
        if choices.len() < 2 {
            continue;
        }
        let shown = |x: f64| {
            format!("{:.6}", x)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_string()
        };
        let rows: Vec<Vec<String>> = choices
            .iter()
            .map(|c| {
                let own = if c.limit == limit { "as it is" } else { "" };
                vec![
                    shown(c.limit),
                    grouped(c.kept),
                    percent(c.kept, documents),
                    own.to_string(),
                ]
            })
            .collect();
        let what = match side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
        };
        // the documents that this rule alone drops
        let most = choices.iter().map(|c| c.kept).max().unwrap_or(0);
        let alone = most.saturating_sub(known.kept());
        let folded = format!(
            "<details><summary>{} <span class=quiet>{what} {}; without it {} more</span></summary>{}</details>",
            super::html::escape(rule),
            shown(limit),
            grouped(alone),
            table(&["limit", "kept", "share", ""], &rows)
        );
        rules.push((alone, folded));
    }
    if rules.is_empty() {
        return String::new();
    }
    // the rules that decide about the most documents first
    rules.sort_by_key(|(alone, _)| std::cmp::Reverse(*alone));
    let body: String = rules.into_iter().map(|(_, folded)| folded).collect();
    folded(
        "limits",
        "Other limits",
        "What the filters would keep if one limit were another and all others stayed, before deduplication; the rules first that alone drop the most. millrace report JOB --limit RULE=NUMBER answers for several together.",
        &body,
    )
}
