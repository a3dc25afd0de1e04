//! Report sections on time and memory per stage, and on the job file.

use super::html::{escape, folded, table};
use super::material::Material;
use super::svg::{Bar, bars};
use super::values::{is_stage, number, text_value};
use crate::machine::megabytes;
use serde_json::Value;

/// Bars of seconds by name, longest first.
fn seconds(spent: &Value) -> String {
    let entries = spent.as_object().into_iter().flatten();
    let mut rows: Vec<(&String, f64)> = entries
        .filter_map(|(step, s)| Some((step, s.as_f64()?)))
        .collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = rows.iter().map(|r| r.1).sum();
    let bar = |(step, s): &(&String, f64)| Bar {
        name: step.to_string(),
        value: *s,
        label: format!("{s:.2} ({:.1}%)", 100.0 * s / all.max(f64::MIN_POSITIVE)),
        colour: "--c",
    };
    bars(&rows.iter().map(bar).collect::<Vec<_>>())
}

/// Time and memory of every stage, and the job itself.
pub(super) fn stages(m: &Material) -> String {
    let records = m
        .manifest
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(k, _)| is_stage(k));
    let rows: Vec<Vec<String>> = records
        .map(|(name, r)| {
            vec![
                name.clone(),
                format!("{:.2}", r["seconds"].as_f64().unwrap_or(0.0)),
                megabytes(number(&r["peak_rss_bytes"])),
                text_value(&r["fingerprint"]).chars().take(12).collect(),
            ]
        })
        .collect();
    let spent = &m.counts("curate")["seconds_by_step"];
    let spent = match spent.is_object() {
        true => format!(
            "<h3>Curation, seconds of all threads</h3>{}",
            seconds(spent)
        ),
        false => String::new(),
    };
    let job = format!(
        "<details><summary>The job as it ran</summary><pre>{}</pre></details>",
        escape(&m.job.to_toml())
    );
    let body = table(&["stage", "seconds", "peak memory", "fingerprint"], &rows) + &spent + &job;
    folded(
        "stages",
        "Stages",
        "A stage is run again only if its fingerprint changes or a file it wrote is damaged.",
        &body,
    )
}
