//! The answer of `plan --run`: predicted beside measured times and memory, the winner, and a ranking of all layouts with measured
//! times and corrected predictions.

use super::plan_trials::Trials;
use crate::plan::{Asked, Layout, Planned, Trial, by_time, correction, kendall_tau, winner};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Layouts of the joint ranking that are shown.
const SHOWN: usize = 10;

/// A layout of the joint ranking.
struct Ranked<'a> {
    layout: &'a Layout,
    /// Seconds of a step: measured, or predicted times the correction.
    seconds: f64,
    is_measured: bool,
}

/// All layouts by time, those that failed left out: measured ones by their measurement, others by the corrected prediction.
fn ranking<'a>(trials: &'a Trials, planned: &'a [Planned]) -> Vec<Ranked<'a>> {
    let factor = correction(&trials.rows).unwrap_or(1.0);
    let of_place = |place: usize| {
        let at = trials.places.iter().position(|of| *of == place);
        at.map(|at| &trials.rows[at])
    };
    let mut ranked: Vec<Ranked<'_>> = (planned.iter().enumerate())
        .filter_map(|(place, of)| match of_place(place) {
            Some(trial) => Some(Ranked {
                layout: &of.layout,
                seconds: trial.measured_s()?,
                is_measured: true,
            }),
            None => Some(Ranked {
                layout: &of.layout,
                seconds: factor * of.time.total,
                is_measured: false,
            }),
        })
        .collect();
    ranked.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    ranked
}

/// The rows, the correction, the winner and the joint ranking.
pub(super) fn to_json(trials: &Trials, planned: &[Planned], asked: &Asked<'_>) -> Value {
    let row = |trial: &Trial| {
        let found = trial.outcome.as_ref().ok();
        json!({
            "layout": trial.layout.to_json(), "predicted_s": trial.predicted_s, "measured_s": trial.measured_s(),
            "ratio": trial.ratio(), "predicted_bytes": trial.predicted_bytes, "measured_bytes": found.map(|found| found.bytes),
            "steps": found.map(|found| found.steps), "failed": trial.outcome.as_ref().err(),
        })
    };
    let ranked: Vec<Value> = ranking(trials, planned)
        .iter()
        .map(|of| json!({"layout": of.layout.to_json(), "step_s": of.seconds, "measured": of.is_measured}))
        .collect();
    let best = winner(&trials.rows);
    json!({
        "folder": trials.folder, "rows": trials.rows.iter().map(row).collect::<Vec<_>>(),
        "by_time": by_time(&trials.rows), "correction": correction(&trials.rows), "kendall_tau": kendall_tau(&trials.rows),
        "ranking": ranked, "interrupted": trials.interrupted.is_some(),
        "winner": best.map(|best| best.layout.to_json()), "toml": best.map(|best| toml(&best.layout, asked)),
    })
}

/// The same for people.
pub(super) fn to_text(trials: &Trials, planned: &[Planned], asked: &Asked<'_>) -> String {
    let mut text = String::new();
    if asked.cluster.cores.is_none() {
        text += &format!(
            "\nthe predicted times are of {}, the measured ones of this machine: `millrace doctor --measure FILE` writes the cluster file of this machine\n",
            asked.cluster.name
        );
    }
    write(&mut text, trials, planned).unwrap_or_else(|_| unreachable!("a string takes all text"));
    if let Some(best) = winner(&trials.rows) {
        text.push('\n');
        text.push_str(&toml(&best.layout, asked));
    }
    text
}

fn toml(layout: &Layout, asked: &Asked<'_>) -> String {
    layout.to_toml(&asked.shape, asked.cluster.devices_per_node)
}

fn write(text: &mut String, trials: &Trials, planned: &[Planned]) -> std::fmt::Result {
    let rows = &trials.rows;
    let order = by_time(rows);
    writeln!(
        text,
        "\n{} layouts were run on this machine, {} failed; the fastest first ({})",
        rows.len(),
        rows.len() - order.len(),
        trials.folder.display(),
    )?;
    writeln!(
        text,
        "{}  predicted s  measured s  ratio  predicted MB  measured MB",
        Layout::HEADS
    )?;
    for at in &order {
        let (trial, found) = (&rows[*at], rows[*at].outcome.as_ref());
        writeln!(
            text,
            "{} {:>12.4} {:>11.4} {:>6.2} {:>13.1} {:>12.1}",
            trial.layout.columns(),
            trial.predicted_s,
            trial.measured_s().unwrap_or(f64::NAN),
            trial.ratio().unwrap_or(f64::NAN),
            trial.predicted_bytes as f64 / 1e6,
            found.map_or(f64::NAN, |found| found.bytes as f64 / 1e6),
        )?;
    }
    for trial in rows {
        if let Err(reason) = &trial.outcome {
            writeln!(
                text,
                "{}{:>13.4}  failed: {reason}",
                trial.layout.columns(),
                trial.predicted_s
            )?;
        }
    }
    let Some(factor) = correction(rows) else {
        return writeln!(text, "no layout has a measured time");
    };
    write!(text, "measured over predicted, the median: {factor:.3}")?;
    match kendall_tau(rows) {
        Some(tau) => writeln!(text, "; Kendall's tau of the two orders: {tau:.3}")?,
        None => writeln!(text)?,
    }
    let ranked = ranking(trials, planned);
    if ranked.len() > order.len() {
        writeln!(
            text,
            "\nall layouts, by measured times, or predicted ones times {factor:.3}:"
        )?;
        for of in ranked.iter().take(SHOWN) {
            let origin = if of.is_measured {
                "measured"
            } else {
                "predicted"
            };
            writeln!(text, "{}{:>13.4} {origin}", of.layout.columns(), of.seconds)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Measured, Shape};
    use std::path::PathBuf;
    use train::config::Precision;

    /// A measured time that is a hundred thousand times the predicted one, on a cluster that this machine is not.
    #[test]
    fn columns_stay_apart_at_any_ratio_and_another_cluster_is_named() {
        let cluster = crate::plan::Cluster::load("dgx-h100").unwrap();
        let layout = Layout::one(8);
        let asked = Asked {
            shape: Shape::gpt(2, 64, 4),
            cluster: &cluster,
            precision: Precision::Bf16,
            others: &[],
            searches_precision: false,
            devices: 1,
            may_be_fewer: false,
            global_batch: 8,
        };
        let trials = Trials {
            rows: vec![Trial {
                layout,
                predicted_s: 1e-3,
                predicted_bytes: 123_456_789_012,
                outcome: Ok(Measured {
                    step_s: 123_456.5,
                    bytes: 987_654_321_098,
                    steps: 3,
                }),
            }],
            places: vec![0],
            folder: PathBuf::from("runs"),
            interrupted: None,
        };
        let text = to_text(&trials, &[], &asked);
        assert!(
            text.contains("the predicted times are of dgx-h100"),
            "{text}"
        );
        let row = text
            .lines()
            .find(|line| line.contains("987654.3"))
            .unwrap_or_default();
        let words = row.split_whitespace().collect::<Vec<_>>();
        assert_eq!(words.len(), 12 + 5, "{text}");
    }
}
