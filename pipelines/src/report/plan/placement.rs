//! Placement: the nodes that groups of each axis touch, and a map of nodes and devices.

use super::texts::items;
use crate::machine::grouped;
use crate::report::html::{escape, section, table};
use crate::report::values::{number, text_value};
use serde_json::Value;
use std::fmt::Write;

/// Nodes that are drawn.
const MOST_NODES: usize = 64;
/// Colours of pipeline stages, in turn.
const COLOURS: [&str; 5] = ["--a", "--b", "--c", "--d", "--e"];

/// The axes and the map.
pub(super) fn placement(of: &Value) -> String {
    let placement = &of["placement"];
    if !placement.is_object() {
        return String::new();
    }
    let axis = |of: &Value| {
        let nodes = number(&of["nodes_of_a_group"]);
        vec![
            text_value(&of["axis"]),
            grouped(number(&of["size"])),
            grouped(nodes),
            match of["connected_by"].as_str() {
                Some(connection) => escape(connection),
                None => "-".into(),
            },
        ]
    };
    let mut body = table(
        &["axis", "ranks", "nodes of a group", "connected by"],
        &items(&placement["axes"])
            .iter()
            .map(axis)
            .collect::<Vec<_>>(),
    );
    let level = |of: &Value| {
        let crossing = items(&of["crossed_by"]).iter().map(text_value);
        vec![
            text_value(&of["name"]),
            grouped(number(&of["nodes"])),
            grouped(number(&of["groups"])),
            format!("{}:1", text_value(&of["oversubscription"])),
            match crossing.len() {
                0 => "none".into(),
                _ => crossing.collect::<Vec<_>>().join(", "),
            },
        ]
    };
    let levels = items(&placement["levels"]);
    if !levels.is_empty() {
        body += "<h3>Levels of the network</h3>";
        body += &table(
            &[
                "level",
                "nodes of a group",
                "groups",
                "oversubscription",
                "axes whose groups leave it",
            ],
            &levels.iter().map(level).collect::<Vec<_>>(),
        );
    }
    let (nodes, all) = (items(&placement["map"]), number(&placement["nodes"]));
    let drawn = &nodes[..nodes.len().min(MOST_NODES)];
    if !drawn.is_empty() {
        body += "<h3>Nodes and devices</h3>";
        body += &map(drawn, placement);
    }
    let others = all.saturating_sub(drawn.len() as u64);
    if others > 0 {
        let replica = match nodes.len() == drawn.len() {
            true => "have only ranks of other data-parallel replicas, in the same order",
            false => "continue in the same order",
        };
        let _ = write!(
            body,
            "<p class=quiet>{} of {} nodes; the others {replica}.</p>",
            drawn.len(),
            grouped(all)
        );
    }
    let order = text_value(&placement["order"]);
    let lead = format!(
        "Ranks are numbered along the axes in the order {order}, the first one fastest. A colour is a pipeline stage; the first data-parallel replica is bold."
    );
    section("placement", "Placement", &lead, &body)
}

/// A row of cells for each node.
fn map(nodes: &[Value], placement: &Value) -> String {
    let sizes = items(&placement["axes"]);
    let is_shown = |axis: &str| {
        let own = sizes.iter().find(|of| of["axis"] == *axis);
        own.is_some_and(|of| number(&of["size"]) > 1)
    };
    let axes: Vec<&str> = ["tp", "cp", "ep", "dp", "pp"]
        .into_iter()
        .filter(|axis| is_shown(axis))
        .collect();
    let devices = nodes.iter().map(|of| items(&of["devices"]).len()).max();
    let mut s = String::from(
        "<div class=scroll tabindex=0 role=group aria-label=\"Table: ranks of each node\"><table class=map><thead><tr><th scope=col>node</th>",
    );
    for device in 0..devices.unwrap_or(0) {
        let _ = write!(s, "<th scope=col>device {device}</th>");
    }
    s.push_str("</tr></thead><tbody>");
    for node in nodes {
        let _ = write!(s, "<tr><th scope=row>{}</th>", number(&node["node"]));
        for device in items(&node["devices"]) {
            let words: Vec<String> = axes
                .iter()
                .map(|axis| format!("{axis}&nbsp;{}", number(&device[*axis])))
                .collect();
            let words = match words.is_empty() {
                true => format!("rank {}", number(&device["rank"])),
                false => words.join(" "),
            };
            let stage = usize::try_from(number(&device["pp"])).unwrap_or(0);
            let class = match number(&device["dp"]) {
                0 => " class=own",
                _ => "",
            };
            let _ = write!(
                s,
                "<td{class} style=\"border-left-color:var({})\">{words}</td>",
                escape(COLOURS[stage % COLOURS.len()])
            );
        }
        s.push_str("</tr>");
    }
    s + "</tbody></table></div>"
}
