//! Rejected layouts by reason.

use super::texts::{items, layout_line, short};
use crate::machine::grouped;
use crate::report::html::{section, table};
use crate::report::values::{number, text_value};
use serde_json::Value;

/// Each reason with its count and an example.
pub(super) fn rejected(of: &Value) -> String {
    let reasons = items(&of["rejected_by_reason"]);
    if reasons.is_empty() {
        return String::new();
    }
    let row = |of: &Value| {
        let example = &of["example"];
        let needs = match example["memory_gb"].is_null() {
            true => String::new(),
            false => format!(", needs {} GB", short(&example["memory_gb"])),
        };
        vec![
            grouped(number(&of["count"])),
            text_value(&of["reason"]),
            layout_line(&example["layout"]),
            text_value(&example["reason"]) + &needs,
        ]
    };
    section(
        "rejected",
        "Rejected",
        "Layouts of the search that cannot run, by the first rule that they break. The example of memory is the one that lacks least.",
        &table(
            &["layouts", "reason", "for example", "because"],
            &reasons.iter().map(row).collect::<Vec<_>>(),
        ),
    )
}
