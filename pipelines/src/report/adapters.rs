//! Section of the adapters that were trained together: their losses.

use super::html::{folded, table};
use super::material::Material;
use super::svg::{Curve, lines};
use serde_json::Value;

/// Colours of the curves, again and again.
const COLOURS: [&str; 5] = ["--a", "--b", "--c", "--d", "--e"];

/// Last losses of each adapter, and its curves.
pub(super) fn adapters(m: &Material) -> String {
    if m.adapters.iter().all(|(_, metrics)| metrics.is_empty()) {
        return String::new();
    }
    let last = |metrics: &[Value], key: &str| metrics.iter().rev().find_map(|l| l[key].as_f64());
    let shown = |loss: Option<f64>| loss.map_or("-".to_owned(), |loss| format!("{loss:.4}"));
    let rows: Vec<Vec<String>> = (m.adapters.iter())
        .map(|(name, metrics)| {
            let steps = metrics.iter().rev().find_map(|line| line["step"].as_u64());
            vec![
                name.clone(),
                steps.unwrap_or(0).to_string(),
                shown(last(metrics, "loss")),
                shown(last(metrics, "valid_loss")),
                format!("adapters/{name}/report.html"),
            ]
        })
        .collect();
    let mut body = table(
        &[
            "adapter",
            "steps",
            "training loss",
            "validation loss",
            "report",
        ],
        &rows,
    );
    for (title, key, dots) in [
        ("Training loss by step, nats per token", "loss", false),
        (
            "Validation loss by step, nats per token",
            "valid_loss",
            true,
        ),
    ] {
        let curves: Vec<Curve> = (m.adapters.iter().zip(COLOURS.iter().cycle()))
            .map(|((name, metrics), colour)| Curve {
                name: name.clone(),
                colour,
                points: points(metrics, key),
                dots,
            })
            .collect();
        if curves.iter().any(|curve| !curve.points.is_empty()) {
            body += &lines(title, "step", &curves, None);
        }
    }
    let lead = "Trained together over one base; each has the bits that it has alone.";
    folded("adapters", "Adapters", lead, &body)
}

/// A figure of the training and of its first validation set by step.
fn points(metrics: &[Value], key: &str) -> Vec<(f64, f64)> {
    let own = metrics.iter().filter(|line| line.get("set").is_none());
    own.filter_map(|line| Some((line["step"].as_f64()?, line[key].as_f64()?)))
        .collect()
}
