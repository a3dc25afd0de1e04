//! Layouts that Millrace does not train: with the optimizer's state in host memory, and with DualPipe.

use super::texts::{LAYOUT, items, layout_cells, short};
use crate::machine::grouped;
use crate::report::html::{escape, section, table};
use crate::report::values::{number, text_value};
use serde_json::Value;

/// The ranked layouts, if they were looked for.
pub(super) fn offload(of: &Value) -> String {
    let of = &of["offload"];
    if !of.is_object() {
        return String::new();
    }
    let mut head = LAYOUT.to_vec();
    head.extend([
        "step s",
        "GB",
        "GB of a node",
        "gradients down s",
        "update s",
        "weights up s",
    ]);
    let row = |row: &Value| {
        let mut cells = layout_cells(&row["layout"]);
        let seconds = &row["seconds"];
        cells.extend([
            short(&row["step_s"]),
            short(&row["memory_gb"]["total"]),
            short(&row["host_gb"]),
            short(&seconds["gradients_down"]),
            short(&seconds["update"]),
            short(&seconds["weights_up"]),
        ]);
        cells
    };
    let rows: Vec<_> = items(&of["layouts"]).iter().map(row).collect();
    let mut body = String::new();
    if !rows.is_empty() {
        body += &table(&head, &rows);
    }
    for assumption in items(&of["host"]["assumed"]) {
        let text = escape(&text_value(assumption));
        body += &format!("<p class=quiet>Assumed: {text}</p>");
    }
    let lead = format!(
        "An estimate: Millrace does not train so, and no keys of this page are of these layouts. Layouts that would fit if the nodes held the optimizer's state and updated it on their processors (ZeRO-Offload, arXiv:2101.06840): {}.",
        grouped(number(&of["layouts_that_fit"])),
    );
    section("offload", "Optimizer state in host memory", &lead, &body)
}

/// The ranked layouts with DualPipe, if they were asked for.
pub(super) fn dualpipe(of: &Value) -> String {
    let of = &of["dualpipe"];
    if !of.is_object() {
        return String::new();
    }
    let mut head = LAYOUT.to_vec();
    head.extend(["step s", "tokens/s per device", "GB"]);
    let row = |row: &Value| {
        let mut cells = layout_cells(&row["layout"]);
        cells.extend([
            short(&row["step_s"]),
            short(&row["tokens_per_s_per_device"]),
            short(&row["memory_gb"]["total"]),
        ]);
        cells
    };
    let rows: Vec<_> = items(&of["layouts"]).iter().map(row).collect();
    let body = match rows.is_empty() {
        true => String::new(),
        false => table(&head, &rows),
    };
    let lead = format!(
        "An estimate: Millrace does not train so, and no keys of this page are of these layouts. Layouts that would fit with micro-batches from both ends of the pipeline, whose all-to-alls travel behind the computation of another (DualPipe, arXiv:2412.19437): {}.",
        grouped(number(&of["layouts_that_fit"])),
    );
    section("dualpipe", "DualPipe", &lead, &body)
}
