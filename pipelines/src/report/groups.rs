//! Documents by the groups of `group` steps.

use super::html::{escape, folded, table};
use super::material::Material;
use super::values::{number, percent};
use crate::machine::grouped;
use serde_json::Value;
use std::collections::BTreeMap;

/// Values shown of a group, those with the most documents.
const VALUES: usize = 30;

/// A group's counts.
struct Row {
    value: String,
    documents: u64,
    kept: u64,
    words: u64,
    /// The rule that dropped the most, and how many.
    worst: Option<(String, u64)>,
}

/// A table for each `group` step; empty without any.
pub(super) fn groups(m: &Material) -> String {
    let c = m.counts("curate");
    let mut body = String::new();
    for (name, values) in c["groups"].as_object().into_iter().flatten() {
        let mut rows: Vec<Row> = values
            .as_object()
            .into_iter()
            .flatten()
            .map(|(value, counts)| row(value, counts))
            .collect();
        rows.sort_by(|a, b| (b.documents, &a.value).cmp(&(a.documents, &b.value)));
        let all: u64 = rows.iter().map(|row| row.documents).sum();
        let shown = rows.iter().take(VALUES).map(|row| {
            let worst = row.worst.as_ref();
            vec![
                row.value.clone(),
                grouped(row.documents),
                percent(row.documents, all),
                grouped(row.kept),
                percent(row.kept, row.documents),
                grouped(row.words),
                worst.map_or(String::new(), |(rule, n)| {
                    format!("{rule} ({})", grouped(*n))
                }),
            ]
        });
        let head = [
            "value",
            "documents",
            "share",
            "kept",
            "of these",
            "words kept",
            "most drops by",
        ];
        body += &format!("<h3>{}</h3>", escape(name));
        body += &table(&head, &shown.collect::<Vec<_>>());
        if rows.len() > VALUES {
            let rest: u64 = rows[VALUES..].iter().map(|row| row.documents).sum();
            body += &format!(
                "<p class=quiet>{} more values, {} documents.</p>",
                rows.len() - VALUES,
                grouped(rest)
            );
        }
    }
    if body.is_empty() {
        return body;
    }
    folded(
        "groups",
        "Groups",
        "Documents by the value of an expression: those that reached the step `group`, and what later steps kept of them.",
        &body,
    )
}

fn row(value: &str, counts: &Value) -> Row {
    let dropped = counts["dropped"].as_object().into_iter().flatten();
    let dropped: BTreeMap<&String, u64> = dropped.map(|(rule, n)| (rule, number(n))).collect();
    let kept = number(&counts["kept"]);
    // of equal counts the first name
    let worst = dropped.iter().rev().max_by_key(|(_, n)| **n);
    Row {
        value: value.to_string(),
        documents: kept + dropped.values().sum::<u64>(),
        kept,
        words: number(&counts["words"]),
        worst: worst.map(|(rule, n)| ((*rule).clone(), *n)),
    }
}
