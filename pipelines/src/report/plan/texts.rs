//! Numbers and layouts of a plan as texts.

use crate::machine::grouped;
use crate::report::values::{number, text_value};
use serde_json::Value;

/// Four digits that count: `34.50`, `0.001234`, `12,345`; a dash where the number is not known.
pub(super) fn short(v: &Value) -> String {
    v.as_f64().map_or_else(|| "-".into(), short_of)
}

/// The same of a number.
pub(super) fn short_of(v: f64) -> String {
    let magnitude = v.abs();
    if !v.is_finite() {
        return "-".into();
    }
    if v == 0.0 {
        return "0".into();
    }
    if magnitude >= 1000.0 {
        let sign = if v < 0.0 { "-" } else { "" };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "above 0; beyond 2^64 the largest integer"
        )]
        let whole = magnitude.round() as u64;
        return format!("{sign}{}", grouped(whole));
    }
    let decimals = [100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-4, 1e-5]
        .iter()
        .take_while(|limit| magnitude < **limit)
        .count();
    format!("{v:.*}", decimals + 1)
}

/// A time with its unit: seconds, or milliseconds below one.
pub(super) fn time(seconds: f64) -> String {
    match seconds < 1.0 {
        true => format!("{} ms", short_of(1e3 * seconds)),
        false => format!("{} s", short_of(seconds)),
    }
}

/// A change against 1: `+12.3%`.
pub(super) fn change(v: &Value) -> String {
    v.as_f64()
        .map_or_else(|| "-".into(), |change| format!("{:+.1}%", 100.0 * change))
}

/// A share of 1: `45.6%`.
pub(super) fn share(v: &Value) -> String {
    v.as_f64()
        .map_or_else(|| "-".into(), |share| format!("{:.1}%", 100.0 * share))
}

/// Heads of `layout_cells`.
pub(super) const LAYOUT: [&str; 11] = [
    "tp",
    "cp",
    "pp",
    "virtual stages",
    "dp",
    "ep",
    "micro-batch",
    "ZeRO",
    "sequence",
    "recompute",
    "precision",
];

/// A layout's settings as cells of a row.
pub(super) fn layout_cells(of: &Value) -> Vec<String> {
    let count = |key: &str| number(&of[key]).to_string();
    let is_sequence = of["sequence"].as_bool().unwrap_or(false);
    vec![
        count("tp"),
        count("cp"),
        count("pp"),
        count("virtual_stages"),
        count("dp"),
        count("ep"),
        count("micro_batch"),
        count("zero"),
        if is_sequence { "yes" } else { "no" }.into(),
        recompute(of),
        text_value(&of["precision"]),
    ]
}

/// Recomputation, with the number of layers of each stage if it is not all of them.
fn recompute(of: &Value) -> String {
    let kind = text_value(&of["recompute"]);
    match of["recompute_layers"].as_u64() {
        Some(layers) => format!("{kind} of {layers} layers"),
        None => kind,
    }
}

/// A layout in one line: the axes, the settings that are not as without parallelism, and the precision.
pub(super) fn layout_line(of: &Value) -> String {
    let mut words = Vec::new();
    for key in ["tp", "cp", "pp", "dp"] {
        words.push(format!("{key} {}", number(&of[key])));
    }
    for (key, name, least) in [
        ("virtual_stages", "virtual stages", 2),
        ("ep", "ep", 2),
        ("micro_batch", "micro-batch", 1),
        ("zero", "ZeRO", 1),
    ] {
        let value = number(&of[key]);
        if value >= least {
            words.push(format!("{name} {value}"));
        }
    }
    if of["sequence"].as_bool().unwrap_or(false) {
        words.push("sequence parallel".into());
    }
    match of["recompute"].as_str() {
        None | Some("none") => {}
        Some(_) => words.push(format!("recompute {}", recompute(of))),
    }
    words.extend(of["precision"].as_str().map(str::to_owned));
    words.join(", ")
}

/// The items of a list; none of another value.
pub(super) fn items(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_layout_in_one_line_has_one_setting_between_commas() {
        let of = json!({
            "tp": 2, "cp": 1, "pp": 4, "dp": 1, "virtual_stages": 1, "ep": 1, "micro_batch": 1, "zero": 0, "sequence": false,
            "recompute": "full", "recompute_layers": 3, "precision": "bf16",
        });
        let wanted = "tp 2, cp 1, pp 4, dp 1, micro-batch 1, recompute full of 3 layers, bf16";
        assert_eq!(layout_line(&of), wanted);
    }

    #[test]
    fn numbers_have_four_digits_that_count() {
        for (number, text) in [
            (34.497, "34.50"),
            (0.001_234_4, "0.001234"),
            (163.04, "163.0"),
            (12_345.4, "12,345"),
            (-0.5, "-0.5000"),
            (0.0, "0"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(short_of(number), text);
        }
    }
}
