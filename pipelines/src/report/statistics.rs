//! Report section on document statistics: figures of kept and dropped documents, by source, language and the groups of
//! `group` steps, hosts and suffixes (`curate.statistics = true`).

use super::html::{escape, folded, table};
use super::material::Material;
use super::svg::{Bar, bars, columns, tick};
use super::values::{number, percent, text_value};
use crate::machine::grouped;
use serde_json::Value;

/// Figures that have a chart.
const CHARTS: [(&str, &str); 6] = [
    ("length", "Characters per document"),
    ("n_words", "Words per document"),
    ("avg_word_length", "Characters a word"),
    ("avg_line_length", "Characters per line"),
    ("stop_word_ratio", "Share of stop words"),
    (
        "line_char_duplicates",
        "Share of characters in repeated lines",
    ),
];
/// Figures that parts of the corpus are compared by.
const COMPARED: [(&str, &str); 5] = [
    ("length", "characters"),
    ("n_words", "words"),
    ("avg_word_length", "characters a word"),
    ("n_lines", "lines"),
    ("non_alpha_digit_ratio", "other than letters and digits"),
];
/// Rows of a ranking.
const RANKS: usize = 15;

pub(super) fn statistics(m: &Material) -> String {
    let s = &m.statistics;
    let Some(rows) = s["figures"].as_array() else {
        return String::new();
    };
    let mut body = different(s);
    body += "<div class=two>";
    for (figure, title) in CHARTS {
        if let Some(row) = find(rows, "kept", None, None, figure) {
            let bins = histogram(&row["histogram"]);
            body += &format!(
                "<div><h3>{}</h3>{}</div>",
                escape(title),
                columns(title, &bins)
            );
        }
    }
    body += "</div>";
    body += &parts(rows, "source", "By source");
    body += &parts(rows, "language", "By language");
    for group in s["groups"].as_array().into_iter().flatten() {
        body += &by_group(group);
    }
    body += "<div class=two>";
    body += &names(&s["hosts"], "Hosts", "--d");
    body += &names(&s["suffixes"], "Public suffixes", "--e");
    body += "</div>";
    body += &all_figures(rows);
    folded(
        "statistics",
        "Statistics",
        "Figures of every text, kept documents as they are after the filters and before deduplication; dropped ones as they were when a rule dropped them. \
         Percentiles are exact or within 1/128; statistics.json and statistics.parquet have all of them.",
        &body,
    )
}

fn find<'a>(
    rows: &'a [Value],
    state: &str,
    source: Option<&str>,
    language: Option<&str>,
    figure: &str,
) -> Option<&'a Value> {
    rows.iter().find(|r| {
        r["state"] == state
            && r["source"].as_str() == source
            && r["language"].as_str() == language
            && r["figure"] == figure
    })
}

fn different(s: &Value) -> String {
    let section = |name: &str| {
        let d = &s["different"][name];
        let about = if d["exact"] == true { "" } else { "about " };
        format!("{about}{} {name}", grouped(number(&d["count"])))
    };
    format!(
        "<p>Kept documents have {}, {} and {} that differ.</p>",
        section("texts"),
        section("addresses"),
        section("hosts")
    )
}

/// (lower bound, documents) of each bin.
fn histogram(bins: &Value) -> Vec<(String, f64)> {
    let bins = bins.as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |bin: &Value| Some((tick(bin[0].as_f64()?), bin[1].as_f64()?));
    bins.iter().filter_map(of).collect()
}

/// Documents and medians of every source or language, most documents first.
fn parts(rows: &[Value], key: &str, title: &str) -> String {
    let other = if key == "source" {
        "language"
    } else {
        "source"
    };
    let is_part = |r: &&Value| r["state"] == "kept" && r[key].is_string() && r[other].is_null();
    let mut found: Vec<(&str, u64)> = rows
        .iter()
        .filter(is_part)
        .filter(|r| r["figure"] == "length")
        .filter_map(|r| Some((r[key].as_str()?, number(&r["documents"]))))
        .collect();
    found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    if found.is_empty() {
        return String::new();
    }
    let all: u64 = found.iter().map(|f| f.1).sum();
    let mut shown = Vec::new();
    for (name, documents) in found.iter().take(RANKS) {
        let (source, language) = match key {
            "source" => (Some(*name), None),
            _ => (None, Some(*name)),
        };
        let median = |figure: &str| {
            let row = find(rows, "kept", source, language, figure);
            row.map_or(String::new(), |r| short(&r["quantiles"]["p50"]))
        };
        let name = if name.is_empty() {
            "not identified"
        } else {
            name
        };
        let mut row = vec![
            name.to_string(),
            grouped(*documents),
            percent(*documents, all),
        ];
        row.extend(COMPARED.map(|(figure, _)| median(figure)));
        shown.push(row);
    }
    let mut head = vec![key, "documents", "share"];
    head.extend(COMPARED.map(|(_, name)| name));
    let more = match found.len().saturating_sub(RANKS) {
        0 => String::new(),
        n => format!("<p class=quiet>and {n} more.</p>"),
    };
    format!("<h3>{title}, medians</h3>{}{more}", table(&head, &shown))
}

/// Documents and medians of the values of a `group` step, in the file's order: most documents first, all others last.
fn by_group(group: &Value) -> String {
    let rows = group["figures"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if group["state"] != "kept" || rows.is_empty() {
        return String::new();
    }
    let lengths: Vec<&Value> = rows.iter().filter(|r| r["figure"] == "length").collect();
    let all: u64 = lengths.iter().map(|r| number(&r["documents"])).sum();
    let mut shown = Vec::new();
    for row in lengths.iter().take(RANKS) {
        let value = &row["group"];
        let documents = number(&row["documents"]);
        let median = |figure: &str| {
            let row = rows
                .iter()
                .find(|r| r["group"] == *value && r["figure"] == figure);
            row.map_or(String::new(), |r| short(&r["quantiles"]["p50"]))
        };
        let mut row = vec![
            text_value(value),
            grouped(documents),
            percent(documents, all),
        ];
        row.extend(COMPARED.map(|(figure, _)| median(figure)));
        shown.push(row);
    }
    let by = text_value(&group["by"]);
    let mut head = vec![by.as_str(), "documents", "share"];
    head.extend(COMPARED.map(|(_, name)| name));
    let more = match lengths.len().saturating_sub(RANKS) {
        0 => String::new(),
        n => format!("<p class=quiet>and {n} more.</p>"),
    };
    let error = match number(&group["most_too_small_by"]) {
        0 => String::new(),
        n => format!(
            "<p class=quiet>Of many values some were counted with the others: a value may have up to {} documents more.</p>",
            grouped(n)
        ),
    };
    format!(
        "<h3>By {}, medians</h3>{}{more}{error}",
        escape(&by),
        table(&head, &shown)
    )
}

fn names(v: &Value, title: &str, colour: &'static str) -> String {
    let first = v["first"].as_array().map(Vec::as_slice).unwrap_or_default();
    if first.is_empty() {
        return String::new();
    }
    let all = number(&v["documents"]);
    let rows: Vec<Bar> = first
        .iter()
        .take(RANKS)
        .map(|n| Bar {
            name: text_value(&n["name"]),
            value: number(&n["documents"]) as f64,
            label: format!(
                "{} ({})",
                grouped(number(&n["documents"])),
                percent(number(&n["documents"]), all)
            ),
            colour,
        })
        .collect();
    format!("<div><h3>{title}</h3>{}</div>", bars(&rows))
}

/// Every figure of kept and dropped documents, folded away.
fn all_figures(rows: &[Value]) -> String {
    let whole = rows
        .iter()
        .filter(|r| r["state"] == "kept" && r["source"].is_null() && r["language"].is_null());
    let shown: Vec<Vec<String>> = whole
        .map(|r| {
            let figure = text_value(&r["figure"]);
            let dropped = find(rows, "dropped", None, None, &figure);
            let at = |name: &str| short(&r["quantiles"][name]);
            vec![
                figure,
                short(&r["mean"]),
                at("p05"),
                at("p50"),
                at("p95"),
                dropped.map_or(String::new(), |d| short(&d["quantiles"]["p50"])),
            ]
        })
        .collect();
    format!(
        "<details><summary>All figures</summary>{}</details>",
        table(
            &["figure", "mean", "5%", "median", "95%", "median of dropped"],
            &shown
        )
    )
}

/// Four digits, without zeros at the end.
fn short(v: &Value) -> String {
    let v = v.as_f64().unwrap_or(0.0);
    if v.fract() == 0.0 && v.abs() < 1e15 {
        return match v < 0.0 {
            true => format!("{v}"),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and below 2^53"
            )]
            false => grouped(v as u64),
        };
    }
    let digits = if v.abs() >= 100.0 {
        0
    } else if v.abs() >= 1.0 {
        2
    } else {
        4
    };
    let text = format!("{v:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}
