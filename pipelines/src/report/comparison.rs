//! Report section that compares the run with another one: settings that differ, figures, outcomes of records, curves of the loss and
//! scores of evaluation tasks.

use super::html::{escape, section, table};
use super::material::Material;
use super::sections::{curve, kept};
use super::svg::{Curve, lines};
use super::tokens::dataset_counts;
use super::values::{is_stage, number};
use crate::machine::{grouped, megabytes};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Settings without an effect on the results.
const PLACES: [&str; 2] = ["name", "out"];

/// The section; empty without another run.
pub(super) fn comparison(m: &Material, other: Option<&Material>) -> String {
    let Some(other) = other else {
        return String::new();
    };
    let lead = format!(
        "This run beside that in {}, from the files of both.",
        other.job.out.display()
    );
    let mut body = part("Settings that differ", settings(m, other));
    body += &part("Figures", figures(m, other));
    body += &part("Outcomes of records that differ", outcomes(m, other));
    body += &losses(m, other);
    let scores = scores(m, other);
    if !scores.is_empty() {
        body += &part("Evaluation tasks", scores);
    }
    section("comparison", "Comparison", &lead, &body)
}

/// A table under a heading.
fn part(title: &str, rows: Vec<Row>) -> String {
    if rows.is_empty() {
        return format!("<h3>{}</h3><p class=quiet>None.</p>", escape(title));
    }
    let cells: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| vec![row.name, row.here, row.there, row.change])
        .collect();
    let head = ["", "this run", "the other run", "change"];
    format!("<h3>{}</h3>{}", escape(title), table(&head, &cells))
}

/// A row of a table.
struct Row {
    name: String,
    here: String,
    there: String,
    /// From the other run to this one.
    change: String,
}

impl Row {
    /// Of texts; a missing one is a dash.
    fn of_texts(name: &str, here: Option<&String>, there: Option<&String>) -> Row {
        let shown = |text: Option<&String>| text.cloned().unwrap_or_else(|| "\u{2013}".into());
        Row {
            name: name.into(),
            here: shown(here),
            there: shown(there),
            change: String::new(),
        }
    }

    /// Of numbers of which at least one is there.
    fn of_numbers(
        name: &str,
        here: Option<f64>,
        there: Option<f64>,
        show: &dyn Fn(f64) -> String,
    ) -> Option<Row> {
        here.or(there)?;
        let shown = |value: Option<f64>| value.map_or_else(|| "\u{2013}".into(), show);
        let change = match (here, there) {
            (Some(here), Some(there)) if here == there => "0".into(),
            (Some(here), Some(there)) if there != 0.0 => {
                format!("{:+.1}%", 100.0 * (here - there) / there.abs())
            }
            _ => String::new(),
        };
        Some(Row {
            name: name.into(),
            here: shown(here),
            there: shown(there),
            change,
        })
    }
}

/// Keys of the resolved jobs with different values, by name; one that only one job has is there, too.
fn settings(m: &Material, other: &Material) -> Vec<Row> {
    let (here, there) = (flat(m), flat(other));
    let names: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|name| !PLACES.contains(&name.as_str()) && here.get(*name) != there.get(*name));
    differ
        .map(|name| Row::of_texts(name, here.get(name), there.get(name)))
        .collect()
}

/// The resolved job by dotted keys; secrets are hidden in it.
fn flat(m: &Material) -> BTreeMap<String, String> {
    let table: toml::Table = m.job.to_toml().parse().unwrap_or_default();
    let mut all = BTreeMap::new();
    leaves(&toml::Value::Table(table), String::new(), &mut all);
    all
}

fn leaves(value: &toml::Value, at: String, all: &mut BTreeMap<String, String>) {
    let below = |key: &str| match at.as_str() {
        "" => key.to_owned(),
        at => format!("{at}.{key}"),
    };
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(k, v)| leaves(v, below(k), all)),
        // of tables; a list of plain values is one setting
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
            let numbered = list.iter().enumerate();
            numbered.for_each(|(i, v)| leaves(v, below(&i.to_string()), all));
        }
        plain => {
            all.insert(at, plain.to_string());
        }
    }
}

/// Figures of the stages that have run in one of the two.
fn figures(m: &Material, other: &Material) -> Vec<Row> {
    let count = |name: &str, of: &dyn Fn(&Material) -> Option<f64>| {
        Row::of_numbers(name, of(m), of(other), &|value| grouped(whole(value)))
    };
    let fine = |name: &str, of: &dyn Fn(&Material) -> Option<f64>| {
        Row::of_numbers(name, of(m), of(other), &|value| format!("{value:.4}"))
    };
    let curated = |key: &'static str| move |m: &Material| m.counts("curate")[key].as_f64();
    let mut rows = vec![
        count("records read", &curated("records")),
        count("quarantined", &curated("quarantined")),
        count("documents kept", &|m| {
            m.counts("curate").is_object().then(|| kept(m) as f64)
        }),
        count("tokens", &|m| {
            let tokens: u64 = dataset_counts(m)
                .iter()
                .map(|d| number(&d.1["tokens"]))
                .sum();
            (tokens > 0).then_some(tokens as f64)
        }),
        count("parameters", &|m| m.counts("train")["parameters"].as_f64()),
        count("steps", &|m| curve(m, "loss").last().map(|point| point.0)),
        fine("training loss of the last step", &|m| {
            curve(m, "loss").last().map(|point| point.1)
        }),
        fine("last validation loss", &|m| {
            curve(m, "valid_loss").last().map(|point| point.1)
        }),
        fine("validation loss of the evaluation", &|m| {
            m.eval["valid_loss"].as_f64()
        }),
        fine("test loss of the evaluation", &|m| {
            m.eval["test_loss"].as_f64()
        }),
        count("tokens per second, median of the steps", &|m| {
            median(curve(m, "tokens_per_s"))
        }),
    ];
    let stages: BTreeSet<&String> = [m, other]
        .iter()
        .flat_map(|m| m.manifest.as_object().into_iter().flatten())
        .map(|(stage, _)| stage)
        .filter(|stage| is_stage(stage))
        .collect();
    for stage in stages {
        let seconds = |m: &Material| m.manifest[stage]["seconds"].as_f64();
        rows.push(Row::of_numbers(
            &format!("seconds of {stage}"),
            seconds(m),
            seconds(other),
            &|value| format!("{value:.1}"),
        ));
    }
    let memory = |m: &Material| {
        let records = m.manifest.as_object().into_iter().flatten();
        let peaks = records.filter_map(|(_, record)| record["peak_rss_bytes"].as_f64());
        peaks.reduce(f64::max)
    };
    rows.push(Row::of_numbers(
        "peak memory",
        memory(m),
        memory(other),
        &|value| megabytes(whole(value)),
    ));
    rows.into_iter().flatten().collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "counts were whole numbers, and of a median the fraction is not shown"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

fn median(points: Vec<(f64, f64)>) -> Option<f64> {
    let mut values: Vec<f64> = points.into_iter().map(|point| point.1).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Records by the rule that dropped them, where the numbers differ.
fn outcomes(m: &Material, other: &Material) -> Vec<Row> {
    let of = |m: &Material| -> BTreeMap<String, u64> {
        let dropped = m.counts("curate")["dropped"]
            .as_object()
            .into_iter()
            .flatten();
        let mut all: BTreeMap<String, u64> =
            dropped.map(|(rule, n)| (rule.clone(), number(n))).collect();
        for (key, outcome) in [("exact", "duplicate.exact"), ("fuzzy", "duplicate.near")] {
            let removed = number(&m.counts("dedup")[key]);
            if removed > 0 {
                all.insert(outcome.into(), removed);
            }
        }
        all
    };
    let (here, there) = (of(m), of(other));
    let rules: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let counted = |all: &BTreeMap<String, u64>, rule: &String| all.get(rule).copied().unwrap_or(0);
    let rows = rules.into_iter().filter_map(|rule| {
        let (here, there) = (counted(&here, rule), counted(&there, rule));
        let row = Row::of_numbers(rule, Some(here as f64), Some(there as f64), &|value| {
            grouped(whole(value))
        });
        row.filter(|_| here != there)
    });
    rows.collect()
}

/// Curves of the loss over each other.
fn losses(m: &Material, other: &Material) -> String {
    let curves = [
        ("training loss", m, "--a", "loss"),
        ("training loss of the other run", other, "--d", "loss"),
        ("validation loss", m, "--b", "valid_loss"),
        (
            "validation loss of the other run",
            other,
            "--e",
            "valid_loss",
        ),
    ]
    .map(|(name, of, colour, key)| Curve {
        name: name.into(),
        colour,
        points: curve(of, key),
        dots: key == "valid_loss",
    });
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return String::new();
    }
    let drawn: Vec<Curve> = curves
        .into_iter()
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let title = "Loss of both runs by step, nats per token";
    format!("<h3>Loss</h3>{}", lines(title, "step", &drawn, None))
}

/// The newest scores of both runs, by task and metric.
fn scores(m: &Material, other: &Material) -> Vec<Row> {
    let of = |m: &Material| -> BTreeMap<String, f64> {
        let newest = m.tasks.last().map_or(&Value::Null, |(_, results)| results);
        let tasks = newest["results"].as_object().into_iter().flatten();
        let mut all = BTreeMap::new();
        for (task, metrics) in tasks {
            for (name, value) in metrics.as_object().into_iter().flatten() {
                let value = value.as_f64().filter(|_| !name.contains("_stderr"));
                if let (Some(value), Some((metric, filter))) = (value, name.split_once(',')) {
                    let shown = match filter {
                        "none" => format!("{task} {metric}"),
                        _ => format!("{task} {metric} ({filter})"),
                    };
                    all.insert(shown, value);
                }
            }
        }
        all
    };
    let (here, there) = (of(m), of(other));
    let names: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let rows = names.into_iter().filter_map(|name| {
        let (here, there) = (here.get(name).copied(), there.get(name).copied());
        Row::of_numbers(name, here, there, &|value| format!("{value:.4}"))
    });
    rows.collect()
}
