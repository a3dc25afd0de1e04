//! The page of a server's plan: `plan --serve --html`.

use super::texts::{items, short, short_of};
use super::{Part, page};
use crate::machine::grouped;
use crate::report::html::{escape, section, table, tile};
use crate::report::stack::{self, Key, Stack, stacks};
use crate::report::svg::{Curve, lines};
use crate::report::values::{number, text_value};
use serde_json::Value;

/// Purposes of a server's memory by their key.
const PURPOSES: [Key; 3] = [
    Key {
        name: "weights",
        colour: "--a",
    },
    Key {
        name: "cache",
        colour: "--e",
    },
    Key {
        name: "scratch",
        colour: "--d",
    },
];
/// Colours of degrees of tensor and expert parallelism, in turn.
const COLOURS: [&str; 5] = ["--a", "--b", "--c", "--d", "--e"];

/// The page of the figures that `plan --serve --json` prints.
pub(crate) fn serving_page(figures: &Value, date: &str) -> String {
    let part = |id, name, body| Part { id, name, body };
    let parts = [
        part("ways", "Ways to serve", ways(figures)),
        part("front", "Speed", front(figures)),
        part("memory", "Memory", memory(figures)),
        part("rejected", "Rejected", rejected(figures)),
    ];
    let subtitle = format!(
        "Plan of a server on {}, {date}",
        text_value(&figures["cluster"])
    );
    page(figures, &subtitle, &tiles(figures), &parts)
}

fn milliseconds(v: &Value) -> String {
    v.as_f64()
        .map_or_else(|| "-".into(), |seconds| short_of(1e3 * seconds))
}

/// A way in few words.
fn name(of: &Value) -> String {
    let requests = number(&of["requests"]);
    let ep = match number(&of["ep"]) {
        0 | 1 => String::new(),
        ep => format!(", ep {ep}"),
    };
    format!(
        "tp {}{ep}, {}, {} request{}",
        number(&of["tp"]),
        text_value(&of["weights"]),
        grouped(requests),
        if requests == 1 { "" } else { "s" }
    )
}

/// Whether prompts are encoded and nothing is answered token by token.
fn is_encoder(of: &Value) -> bool {
    of["served"] == "encoder"
}

fn tiles(of: &Value) -> String {
    let mut out = String::from("<div class=tiles>");
    let parameters = of["parameters"].as_f64().unwrap_or(0.0) / 1e9;
    out += &tile(&format!("{parameters:.2}B"), "parameters");
    out += &tile(&grouped(number(&of["input"])), "tokens of a prompt");
    if !is_encoder(of) {
        out += &tile(&grouped(number(&of["output"])), "tokens of an answer");
    }
    let best = &of["best"];
    if best.is_object() {
        let rate = short(&best["tokens_per_s_per_device"]);
        out += &tile(&rate, "tokens/s per device");
        let first = format!("{} ms", milliseconds(&best["ttft_s"]));
        if is_encoder(of) {
            out += &tile(&first, "to the answer");
        } else {
            out += &tile(&first, "to the first token");
            let between = format!("{} ms", milliseconds(&best["tpot_s"]));
            out += &tile(&between, "between tokens");
        }
    }
    out + "</div>"
}

/// The ways that nothing beats.
fn ways(of: &Value) -> String {
    let front = items(&of["front"]);
    let row = |of: &Value| {
        vec![
            number(&of["tp"]).to_string(),
            number(&of["ep"]).to_string(),
            text_value(&of["weights"]),
            grouped(number(&of["requests"])),
            milliseconds(&of["ttft_s"]),
            milliseconds(&of["tpot_s"]),
            short(&of["tokens_per_s_per_device"]),
            short(&of["memory_gb"]["total"]),
            match of["meets"].as_bool() {
                Some(false) => "no",
                Some(true) | None => "yes",
            }
            .into(),
        ]
    };
    let head = [
        "tp",
        "ep",
        "weights",
        "requests in flight",
        "TTFT ms",
        "TPOT ms",
        "tokens/s per device",
        "GB",
        "fast enough",
    ];
    let mut body = match of["best"].is_object() {
        true => format!("<p>Best: {}.</p>", escape(&name(&of["best"]))),
        false if front.is_empty() => "<p>This model does not fit.</p>".into(),
        false => "<p>Nothing is as fast as asked.</p>".into(),
    };
    if !front.is_empty() {
        body += &table(&head, &front.iter().map(row).collect::<Vec<_>>());
    }
    for assumption in items(&of["assumed"]) {
        let text = escape(&text_value(assumption));
        body += &format!("<p class=quiet>Assumed: {text}</p>");
    }
    let lead = format!(
        "No other way is as good in the time to the first token (TTFT), the time between tokens (TPOT) and tokens per second of a device; {} ways fit. The best makes most tokens per second of a device among those that are fast enough.",
        grouped(items(&of["all"]).len() as u64)
    );
    section("ways", "Ways to serve", &lead, &body)
}

/// Tokens per second of a device over those of a request.
fn front(of: &Value) -> String {
    let front = items(&of["front"]);
    if front.len() < 2 || is_encoder(of) {
        return String::new();
    }
    let axes = |of: &Value| [number(&of["tp"]), number(&of["ep"])];
    let mut degrees: Vec<[u64; 2]> = front.iter().map(axes).collect();
    degrees.sort_unstable();
    degrees.dedup();
    let curve = |(at, degree): (usize, &[u64; 2])| Curve {
        name: match degree {
            [tp, 0 | 1] => format!("tp {tp}"),
            [tp, ep] => format!("tp {tp}, ep {ep}"),
        },
        colour: COLOURS[at % COLOURS.len()],
        points: (front.iter())
            .filter(|of| axes(of) == *degree)
            .filter_map(|of| {
                let own = 1.0 / of["tpot_s"].as_f64()?;
                Some((own, of["tokens_per_s_per_device"].as_f64()?))
            })
            .collect(),
        dots: true,
    };
    let curves: Vec<Curve> = degrees.iter().enumerate().map(curve).collect();
    let chart = lines(
        "Tokens per second of a device over tokens per second of a request",
        "tokens/s of a request",
        &curves,
        None,
    );
    section(
        "front",
        "Speed",
        "Tokens per second of a device over those that one request sees: more requests in flight use a device better and are slower each.",
        &chart,
    )
}

/// Memory of the ways that nothing beats.
fn memory(of: &Value) -> String {
    let front = items(&of["front"]);
    if front.is_empty() {
        return String::new();
    }
    let bar = |of: &Value| {
        let parts = PURPOSES.map(|purpose| stack::Part {
            value: of["memory_gb"][purpose.name].as_f64().unwrap_or(0.0),
            colour: purpose.colour,
        });
        Stack {
            name: name(of),
            parts: parts.into(),
            label: format!("{} GB", short(&of["memory_gb"]["total"])),
        }
    };
    let limit = of["device_memory_gb"].as_f64().unwrap_or(f64::NAN);
    let bars: Vec<Stack> = front.iter().map(bar).collect();
    let lead = format!(
        "Of a device, beside the {} GB that it has; a server fills 0.9 of them at most.",
        short_of(limit)
    );
    section("memory", "Memory", &lead, &stacks(&bars, &PURPOSES, limit))
}

/// Ways that do not fit with one request.
fn rejected(of: &Value) -> String {
    let unfit = items(&of["do_not_fit"]);
    if unfit.is_empty() {
        return String::new();
    }
    let row = |of: &Value| {
        vec![
            number(&of["tp"]).to_string(),
            number(&of["ep"]).to_string(),
            text_value(&of["weights"]),
            short(&of["memory_gb"]),
        ]
    };
    section(
        "rejected",
        "Rejected",
        "Ways that do not fit with a single request.",
        &table(
            &["tp", "ep", "weights", "GB"],
            &unfit.iter().map(row).collect::<Vec<_>>(),
        ),
    )
}
