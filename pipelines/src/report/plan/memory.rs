//! Memory of a rank of each pipeline stage, by purpose.

use super::texts::{items, short, short_of};
use crate::report::html::{section, table};
use crate::report::stack::{Key, Part, Stack, stacks};
use crate::report::values::number;
use serde_json::Value;

/// Purposes by their key, and the colour of each.
const PURPOSES: [Key; 4] = [
    Key {
        name: "weights",
        colour: "--a",
    },
    Key {
        name: "gradients",
        colour: "--b",
    },
    Key {
        name: "optimizer",
        colour: "--c",
    },
    Key {
        name: "activations",
        colour: "--e",
    },
];

/// Bytes that Millrace holds beside them.
const OTHER: Key = Key {
    name: "other",
    colour: "--d",
};

/// Bars and a table of the stages.
pub(super) fn memory(of: &Value) -> String {
    let stages = items(&of["memory_by_stage"]);
    if stages.is_empty() {
        return String::new();
    }
    let limit = of["device_memory_gb"].as_f64().unwrap_or(f64::NAN);
    let mut own = PURPOSES.to_vec();
    own.push(OTHER);
    let has_own = stages.iter().all(|stage| stage["millrace"].is_object());
    let shares = of["ranks_share_memory"].as_bool().unwrap_or(false);
    let mut body = String::new();
    if !shares {
        body += "<h3>In mixed precision</h3>";
        let bars: Vec<Stack> = stages
            .iter()
            .map(|stage| stack(stage, stage, &PURPOSES))
            .collect();
        body += &stacks(&bars, &PURPOSES, limit);
    }
    if has_own {
        body += "<h3>As Millrace holds it</h3>";
        let bars: Vec<Stack> = stages
            .iter()
            .map(|stage| stack(stage, &stage["millrace"], &own))
            .collect();
        body += &stacks(&bars, &own, limit);
    }
    let row = |stage: &Value| {
        let mut cells = vec![
            number(&stage["stage"]).to_string(),
            number(&stage["layers"]).to_string(),
            short(&stage["micro_batches_in_flight"]),
        ];
        cells.extend(PURPOSES.map(|purpose| short(&stage[purpose.name])));
        cells.push(short(&stage["total"]));
        if has_own {
            cells.push(short(&stage["millrace"]["total"]));
        }
        cells
    };
    let mut head = vec!["stage", "layers", "micro-batches in flight"];
    head.extend(PURPOSES.map(|purpose| purpose.name));
    head.push("GB");
    if has_own {
        head.push("Millrace GB");
    }
    body += "<details><summary>Gigabytes of each stage</summary>";
    body += &table(&head, &stages.iter().map(row).collect::<Vec<_>>());
    body += "</details>";
    let whose = match shares {
        true => "All ranks of a node share the memory at the line",
        false => "The line is the memory of a device",
    };
    let lead = format!(
        "A rank of each pipeline stage with the best layout. {whose}, {} GB. Scratch of the running layer is not counted.",
        short_of(limit)
    );
    section("memory", "Memory", &lead, &body)
}

/// The bar of a stage, of the gigabytes in `of`.
fn stack(stage: &Value, of: &Value, purposes: &[Key]) -> Stack {
    let parts = purposes.iter().map(|purpose| Part {
        value: of[purpose.name].as_f64().unwrap_or(0.0),
        colour: purpose.colour,
    });
    Stack {
        name: format!("stage {}", number(&stage["stage"])),
        parts: parts.collect(),
        label: format!("{} GB", short(&of["total"])),
    }
}
