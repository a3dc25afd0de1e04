//! Layouts that were run: measured beside predicted times.

use super::texts::{LAYOUT, items, layout_cells, short, short_of};
use crate::report::html::{escape, section, table};
use crate::report::values::text_value;
use serde_json::Value;

/// Rows of the runs, in the order of their times; those that failed with their reason.
pub(super) fn trials(of: &Value) -> String {
    let run = &of["run"];
    if !run.is_object() {
        return String::new();
    }
    let rows = items(&run["rows"]);
    let order = items(&run["by_time"]).iter();
    let in_order = order.filter_map(|at| rows.get(usize::try_from(at.as_u64()?).ok()?));
    let failed = rows.iter().filter(|row| row["measured_s"].is_null());
    let megabytes = |bytes: &Value| match bytes.as_f64() {
        Some(bytes) => short_of(bytes / 1e6),
        None => "-".into(),
    };
    let row = |row: &Value| {
        let mut cells = layout_cells(&row["layout"]);
        cells.extend([
            short(&row["predicted_s"]),
            match row["failed"].as_str() {
                Some(reason) => format!("failed: {reason}"),
                None => short(&row["measured_s"]),
            },
            short(&row["ratio"]),
            megabytes(&row["predicted_bytes"]),
            megabytes(&row["measured_bytes"]),
        ]);
        cells
    };
    let mut head = LAYOUT.to_vec();
    head.extend([
        "predicted s",
        "measured s",
        "ratio",
        "predicted MB",
        "measured MB",
    ]);
    let all: Vec<Vec<String>> = in_order.chain(failed).map(row).collect();
    let mut body = table(&head, &all);
    if let Some(toml) = run["toml"].as_str() {
        body += "<h3>The fastest as it was measured</h3>";
        body += &format!("<pre class=copy>{}</pre>", escape(toml));
    }
    let lead = format!(
        "Layouts that were run on this machine in {}, the fastest first; megabytes of all ranks together. Measured over predicted times, the median: {}; Kendall's tau of the two orders: {}.",
        text_value(&run["folder"]),
        short(&run["correction"]),
        short(&run["kendall_tau"]),
    );
    section("measured", "Measured", &lead, &body)
}
