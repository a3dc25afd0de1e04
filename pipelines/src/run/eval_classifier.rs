//! `eval PATH --task labels|mnli|qqp|race --data FILE` of a model with a classification head.

use super::labelled::{Form, LabelledSet, read};
use crate::generation::Located;
use crate::job::{ClassifyTable, ClassifyTask};
use crate::tasks::{LABELS, Question, Results, add_classified, add_labels};
use anyhow::{Result, bail};
use std::path::Path;
use train::eval::Classifier;

/// A task to evaluate.
pub(super) struct ClassifiedTask<'a> {
    pub name: &'a str,
    pub data: &'a Path,
    /// Evaluate only the first questions.
    pub limit: Option<usize>,
    pub resamples: usize,
    /// Columns of text and label, for the task labels.
    pub table: &'a ClassifyTable,
}

/// Scores the questions of a file; adds the results, and a line for each question to `records`.
///
/// # Errors
/// A task that the head was not made for; files or rows that do not fit.
pub(super) fn evaluate(
    (classifier, subject): (&Classifier, &Located),
    task: &ClassifiedTask<'_>,
    results: &mut Results,
    records: &mut Vec<u8>,
) -> Result<()> {
    let plan = classifier.plan();
    let Some(head) = &plan.model.classify else {
        bail!("the model has no classification head");
    };
    let named = ClassifyTask::named(task.name);
    let Some(named) = named.filter(|named| named.fits(head)) else {
        bail!(
            "--task {}: the model has a classification head of {} classes and {} choices, want a task that it answers: \
             mnli has 3 classes, qqp 2, race 4 choices, labels no choices",
            task.name,
            head.classes,
            head.choices
        );
    };
    let order = order_of_classes(named, &head.names)?;
    let mut table = task.table.clone();
    table.task = named;
    table.classes = match (head.is_regression(), head.names.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => (0..head.classes).map(|class| class.to_string()).collect(),
        (false, false) => head.names.clone(),
    };
    let is_masked = plan.model.family == train::config::Family::Bert;
    let lengths = [plan.seq_length, ClassifyTable::default().question_length];
    let form = Form::of(is_masked, &subject.tokenizer, named, lengths)?;
    let mut questions = read(&table, task.data)?;
    let original = questions.all.len();
    questions.all.truncate(task.limit.unwrap_or(original));
    let all: Vec<&Question> = questions.all.iter().collect();
    let set = LabelledSet::encode(&all, &subject.tokenizer, form)?;
    let mut scores = classifier.scores(&set)?;
    if task.name == LABELS {
        add_labels(&table.classes, (&questions, &scores), results, records);
        return Ok(());
    }
    if let Some(order) = order {
        for row in &mut scores {
            *row = order.iter().map(|&class| row[class]).collect();
        }
    }
    add_classified(
        task.name,
        (&questions, &scores),
        task.resamples,
        results,
        records,
    )?;
    Ok(())
}

/// The model's class of each of the task's, where the model names its classes: other programs train with other orders.
///
/// # Errors
/// Names that are not the task's.
fn order_of_classes(task: ClassifyTask, names: &[String]) -> Result<Option<Vec<usize>>> {
    let wanted = task.class_names();
    if wanted.is_empty() || names.is_empty() {
        return Ok(None);
    }
    let plain = |name: &str| name.to_lowercase().replace([' ', '-'], "_");
    let place = |class: &&str| names.iter().position(|name| plain(name) == **class);
    let order: Option<Vec<usize>> = wanted.iter().map(place).collect();
    let Some(order) = order else {
        bail!(
            "--task {}: found the classes {} in the model, want {} in any order (`id2label` of config.json), or classes without names",
            task.name(),
            names.join(", "),
            wanted.join(", ")
        );
    };
    Ok(Some(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(task: ClassifyTask, names: &[&str]) -> Result<Option<Vec<usize>>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        order_of_classes(task, &names)
    }

    #[test]
    fn classes_are_found_by_their_names_in_any_order_and_spelling() {
        let glue = ["entailment", "neutral", "contradiction"];
        assert_eq!(
            order(ClassifyTask::Mnli, &glue).unwrap(),
            Some(vec![2, 0, 1])
        );
        let upper = ["CONTRADICTION", "ENTAILMENT", "NEUTRAL"];
        assert_eq!(
            order(ClassifyTask::Mnli, &upper).unwrap(),
            Some(vec![0, 1, 2])
        );
        let spaced = ["Duplicate", "Not duplicate"];
        assert_eq!(order(ClassifyTask::Qqp, &spaced).unwrap(), Some(vec![1, 0]));
        assert_eq!(order(ClassifyTask::Mnli, &[]).unwrap(), None);
        let error = order(ClassifyTask::Qqp, &["no", "yes"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("found the classes no, yes"), "{error}");
    }
}
