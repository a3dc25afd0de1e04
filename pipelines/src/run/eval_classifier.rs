//! `eval PATH --task mnli|qqp|race --data FILE` of a model with a classification head.

use super::labelled::{Form, LabelledSet, first_length, read};
use crate::generation::Located;
use crate::job::{ClassifyTable, ClassifyTask};
use crate::tasks::{Question, Results, add_classified};
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
    let head = plan.model.classify;
    let named = ClassifyTask::named(task.name);
    let Some(named) = named.filter(|named| head == Some(named.head())) else {
        let found = head.map_or_else(String::new, |head| {
            format!("{} classes and {} choices", head.classes, head.choices)
        });
        bail!(
            "--task {}: the model has a classification head of {found}, want a task that it answers: mnli has 3 classes, qqp 2, race 4 choices",
            task.name
        );
    };
    let limit = first_length(named, ClassifyTable::default().question_length);
    let is_masked = plan.model.family == train::config::Family::Bert;
    let form = Form::of(is_masked, &subject.tokenizer, plan.seq_length, limit)?;
    let mut questions = read(named, task.data)?;
    let original = questions.all.len();
    questions.all.truncate(task.limit.unwrap_or(original));
    let all: Vec<&Question> = questions.all.iter().collect();
    let set = LabelledSet::encode(&all, &subject.tokenizer, form)?;
    let scores = classifier.scores(&set)?;
    add_classified(
        task.name,
        (&questions, &scores),
        task.resamples,
        results,
        records,
    )?;
    Ok(())
}
