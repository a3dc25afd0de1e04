//! Report section on evaluation tasks during training (`train.eval_tasks`): a curve and the newest figure of each metric.

use super::html::{section, table};
use super::material::Material;
use super::svg::{Curve, lines};

/// The figures of a metric of a task, by ascending step.
struct Figures {
    task: String,
    metric: String,
    points: Vec<(f64, f64)>,
    /// Standard error of the last.
    error: Option<f64>,
}

/// The section; empty if no task was evaluated.
pub(super) fn tasks(m: &Material) -> String {
    let mut all: Vec<Figures> = Vec::new();
    for (step, results) in &m.tasks {
        let of = results["results"].as_object();
        for (task, metrics) in of.into_iter().flatten() {
            for (name, value) in metrics.as_object().into_iter().flatten() {
                let (Some(value), false) = (value.as_f64(), name.contains("_stderr")) else {
                    continue;
                };
                let Some((metric, filter)) = name.split_once(',') else {
                    continue;
                };
                let error = metrics[&format!("{metric}_stderr,{filter}")].as_f64();
                let shown = match filter {
                    "none" => metric.to_owned(),
                    _ => format!("{metric} ({filter})"),
                };
                let is_it = |one: &&mut Figures| one.task == *task && one.metric == shown;
                match all.iter_mut().find(is_it) {
                    Some(one) => {
                        one.points.push((*step as f64, value));
                        one.error = error;
                    }
                    None => all.push(Figures {
                        task: task.clone(),
                        metric: shown,
                        points: vec![(*step as f64, value)],
                        error,
                    }),
                }
            }
        }
    }
    if all.is_empty() {
        return String::new();
    }
    all.sort_by(|a, b| (&a.task, &a.metric).cmp(&(&b.task, &b.metric)));
    let figure = |value: f64| format!("{value:.4}");
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let first = one.points.first().map_or_else(String::new, |p| figure(p.1));
            let last = one.points.last().map_or_else(String::new, |p| figure(p.1));
            let error = one
                .error
                .map_or_else(|| "N/A".into(), |e| format!("± {e:.4}"));
            vec![one.task.clone(), one.metric.clone(), first, last, error]
        })
        .collect();
    let mut body = table(
        &["task", "metric", "first", "last", "standard error"],
        &rows,
    );
    let drawn = all
        .into_iter()
        .filter(|one| one.metric == "acc" && one.points.len() > 1);
    let curves: Vec<Curve> = drawn
        .zip(["--a", "--b", "--c", "--d", "--e"])
        .map(|(one, colour)| Curve {
            name: one.task,
            colour,
            points: one.points,
            dots: false,
        })
        .collect();
    if !curves.is_empty() {
        body += &lines("Accuracy by step", "step", &curves, None);
    }
    let lead =
        "Scores of checkpoints, with the definitions and standard errors of lm-evaluation-harness.";
    section("tasks", "Evaluation tasks", lead, &body)
}
