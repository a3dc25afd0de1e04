//! The whole training with the best layout, and what to put into the job.

use super::texts::{short, short_of};
use crate::machine::{duration, grouped};
use crate::report::html::{escape, section, table};
use crate::report::values::{number, text_value};
use serde_json::Value;

/// Time, energy, price, failures and checkpoints.
pub(super) fn training(of: &Value) -> String {
    let training = &of["training"];
    if !training.is_object() {
        return String::new();
    }
    let known = |key: &str, needs: &str, text: &dyn Fn(f64) -> String| {
        training[key]
            .as_f64()
            .map_or_else(|| format!("not known: the cluster has no {needs}"), text)
    };
    let seconds = training["seconds"].as_f64().unwrap_or(f64::NAN);
    let steps = grouped(number(&training["steps"]));
    let steps = match training["ended_by_time_budget"].as_bool() {
        Some(true) => format!("{steps}, until train.time_budget ends it"),
        Some(false) | None => steps,
    };
    let rows = [
        ("steps", steps),
        (
            "tokens",
            format!("{:.3e}", training["tokens"].as_f64().unwrap_or(f64::NAN)),
        ),
        (
            "time",
            format!(
                "{} ({} days)",
                duration(seconds),
                short_of(seconds / 86_400.0)
            ),
        ),
        (
            "energy",
            known("kwh", "watts", &|kwh| {
                format!("{} MWh", short_of(kwh / 1e3))
            }),
        ),
        ("price", known("price", "price_per_hour", &short_of)),
        (
            "expected failures",
            known("failures", "failures_per_year", &short_of),
        ),
        (
            "checkpoint",
            format!("{} GB", short(&training["checkpoint_gb"])),
        ),
        (
            "checkpoint every",
            known(
                "checkpoint_interval_s",
                &text_value(&training["checkpoint_interval_lacks"]),
                &duration,
            ),
        ),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    section(
        "training",
        "Training",
        "The training of the job with the best layout, without interruptions. Checkpoints at that interval lose least time to failures (Young 1974).",
        &table(&["of the whole training", "figure"], &rows),
    )
}

/// The tables of the job.
pub(super) fn job(of: &Value) -> String {
    let Some(toml) = of["toml"].as_str() else {
        return String::new();
    };
    let body = format!("<pre class=copy>{}</pre>", escape(toml));
    section(
        "job",
        "Job",
        "The best layout that Millrace holds as keys of the job file; a click selects all of it.",
        &body,
    )
}
