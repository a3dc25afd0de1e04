//! Report section on evaluation sets: how many documents contain each, the outcome for these, and examples.

use super::html::{excerpt, folded, table};
use super::material::Material;
use super::values::{number, text_value};
use crate::machine::grouped;
use serde_json::Value;

/// The section; empty if the job has no evaluation sets, or has not searched for them yet.
pub(super) fn evaluation(m: &Material) -> String {
    let found = &m.decontamination;
    let Some(tasks) = found["tasks"].as_object() else {
        return String::new();
    };
    let row = |keys: &[&str], of: &Value| -> Vec<String> {
        keys.iter().map(|key| grouped(number(&of[*key]))).collect()
    };
    let outcomes = [
        "documents",
        "met",
        "dropped",
        "trimmed",
        "split",
        "pieces",
        "removed",
        "too_many_pieces",
        "bytes",
    ];
    let names = [
        "documents",
        "with evaluation texts",
        "dropped",
        "trimmed",
        "split",
        "pieces of these",
        "nothing left",
        "too many pieces",
        "bytes cut",
    ];
    let counts = ["texts", "ngrams", "frequent", "documents", "hits"];
    let of_tasks: Vec<Vec<String>> = tasks
        .iter()
        .map(|(task, hits)| [vec![task.clone()], row(&counts, hits)].concat())
        .collect();
    let mut body = table(&names, &[row(&outcomes, found)])
        + "<h3>By evaluation set</h3>"
        + &table(
            &[
                "set",
                "texts",
                "n-grams",
                "too frequent",
                "documents with one",
                "matches cut",
            ],
            &of_tasks,
        );
    let examples = m.job.report.as_ref().map_or(8, |r| r.examples);
    let shown = found["examples"].as_array().into_iter().flatten();
    for example in shown.take(examples) {
        let field = |key: &str| text_value(&example[key]);
        let (id, task) = (field("id"), field("task"));
        let caption = format!(
            "{}: {id} holds {:?} of {task}",
            field("outcome"),
            field("ngram")
        );
        body += &excerpt("dropped", &caption, &field("excerpt"));
    }
    let lead = "An n-gram that several sets have counts for the first of them. N-grams in many documents are common language and are not searched for.";
    folded("evaluation", "Evaluation sets", lead, &body)
}
