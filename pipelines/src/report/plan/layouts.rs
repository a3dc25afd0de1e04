//! Headline figures, the ranked layouts, and the parts of the fastest step.

use super::texts::{LAYOUT, items, layout_cells, layout_line, share, short, time};
use crate::machine::grouped;
use crate::report::html::{escape, section, table, tile};
use crate::report::svg::{Bar, bars};
use crate::report::values::{number, text_value};
use serde_json::Value;

/// Headline figures.
pub(super) fn tiles(of: &Value) -> String {
    let mut out = String::from("<div class=tiles>");
    let parameters = of["parameters"].as_f64().unwrap_or(0.0);
    let count = match parameters < 1e8 {
        true => format!("{:.2}M", parameters / 1e6),
        false => format!("{:.2}B", parameters / 1e9),
    };
    out += &tile(&count, "parameters");
    let tokens = number(&of["global_batch"]) * number(&of["seq_length"]);
    out += &tile(&grouped(tokens), "tokens per step");
    let best = &of["best"];
    if best.is_object() {
        out += &tile(
            &time(best["step_s"].as_f64().unwrap_or(f64::NAN)),
            "per step",
        );
        let rate = short(&best["tokens_per_s_per_device"]);
        out += &tile(&rate, "tokens/s per device");
        out += &tile(&share(&best["mfu"]), "of the matrix rate (MFU)");
    }
    out += &tile(
        &grouped(number(&of["layouts_that_fit"])),
        "layouts that fit",
    );
    out + "</div>"
}

/// The ranked layouts; without one that fits, the nearest.
pub(super) fn layouts(of: &Value) -> String {
    let rows = items(&of["layouts"]);
    let mut body = String::new();
    if rows.is_empty() {
        body += "<p>No layout of this model fits.</p>";
        let counts: Vec<String> = items(&of["devices_that_fit"])
            .iter()
            .map(|count| grouped(number(count)))
            .collect();
        if !counts.is_empty() {
            body += &format!("<p>On {} devices one does.</p>", counts.join(" or "));
        }
        let nearest = &of["nearest"];
        if nearest.is_object() {
            body += &format!(
                "<p>The nearest, {}, needs {} GB of {} GB.</p>",
                escape(&layout_line(&nearest["layout"])),
                short(&nearest["memory_gb"]),
                short(&of["device_memory_gb"]),
            );
        }
    } else {
        let mut head = LAYOUT.to_vec();
        head.extend([
            "step s",
            "tokens/s per device",
            "TFLOP/s per device",
            "MFU",
            "GB",
            "Millrace GB",
        ]);
        let row = |row: &Value| {
            let mut cells = layout_cells(&row["layout"]);
            cells.extend([
                short(&row["step_s"]),
                short(&row["tokens_per_s_per_device"]),
                short(&row["model_tflops_per_device"]),
                share(&row["mfu"]),
                short(&row["memory_gb"]["total"]),
                held(&row["memory_gb"]),
            ]);
            cells
        };
        body += &table(&head, &rows.iter().map(row).collect::<Vec<_>>());
        body += &best_in_words(of);
    }
    for assumption in items(&of["assumed"]) {
        let text = escape(&text_value(assumption));
        body += &format!("<p class=quiet>Assumed: {text}</p>");
    }
    let lead = format!(
        "The fastest of {} layouts that fit, by the predicted time of a step; {} do not. MFU: the model's FLOP without recomputation, half of the scores counted, over the devices' matrix rate. GB: the fullest rank in mixed precision; Millrace GB: what Millrace's own training holds, with weights and gradients in f32.",
        grouped(number(&of["layouts_that_fit"])),
        grouped(number(&of["layouts_that_do_not"])),
    );
    section("layouts", "Layouts", &lead, &body)
}

/// Gigabytes that Millrace holds, with a word where they do not fit.
fn held(memory: &Value) -> String {
    let bytes = short(&memory["millrace"]);
    match memory["millrace_holds"].as_bool() {
        Some(false) => format!("{bytes}, no"),
        Some(true) | None => bytes,
    }
}

/// Which layout the rest of the page is about, where it is not the first one.
fn best_in_words(of: &Value) -> String {
    let memory = short(&of["device_memory_gb"]);
    if of["best"].is_object() {
        return match number(&of["place_of_best"]) {
            0 | 1 => String::new(),
            place => format!(
                "<p>The first {} need more than the {memory} GB of a device as Millrace holds them. What follows is of {}, the fastest that it holds.</p>",
                grouped(place - 1),
                escape(&layout_line(&of["best"]["layout"])),
            ),
        };
    }
    let nearest = &of["nearest_held"];
    match nearest.is_object() {
        true => format!(
            "<p>Millrace holds none of them in the {memory} GB of a device: the nearest, {}, needs {} GB.</p>",
            escape(&layout_line(&nearest["layout"])),
            short(&nearest["memory_gb"]["millrace"]),
        ),
        false => "<p>Millrace trains none of them.</p>".into(),
    }
}

/// The parts of the best layout's step.
pub(super) fn step(of: &Value) -> String {
    let best = &of["best"];
    if !best.is_object() {
        return String::new();
    }
    let whole = best["step_s"].as_f64().unwrap_or(f64::NAN);
    let mut parts = Vec::new();
    for (key, name, colour) in [
        ("computation", "computation", "--a"),
        ("collectives", "collectives of tp, cp and ep", "--b"),
        ("bubble", "pipeline's fill and drain", "--quiet"),
        ("reduction", "reduction of gradients", "--d"),
        ("optimizer", "optimizer", "--c"),
    ] {
        let seconds = best["seconds"][key].as_f64().unwrap_or(0.0);
        parts.push(Bar {
            name: format!("{name}, {}", time(seconds)),
            value: seconds,
            label: format!("{:.1}%", 100.0 * seconds / whole),
            colour,
        });
    }
    let lead = format!(
        "Parts of the {} s of a step with the best layout; the part of a reduction that the backward pass hides is left out.",
        short(&best["step_s"])
    );
    section("step", "Step", &lead, &bars(&parts))
}
