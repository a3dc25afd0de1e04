//! Evaluation tasks: from a data file to a model's scores, with the definitions, few-shot order, metrics and standard
//! errors of lm-evaluation-harness 0.4.13 on one rank.
//!
//! A definition (`definition`) says what a row's prompt and answers are; `rows` reads the file, `documents` and `fewshot`
//! make the requests, `model` turns texts into tokens, `score` asks the model and gives each metric its share, `results`
//! aggregates. `labelled` and `labels` read rows for classification heads. A new task is one file in `definitions/` and one line in `built_in.rs`.

mod adjectives;
mod asked;
mod bbq;
mod built_in;
mod definition;
mod detokenize;
mod documents;
mod error;
mod fewshot;
mod hans;
mod labelled;
mod labels;
mod metrics;
mod model;
mod python_text;
mod results;
mod rows;
mod score;
mod shape;
mod standard_error;
mod study;
mod templates;
#[cfg(test)]
mod tests;

pub(crate) use adjectives::{NAME as ADJECTIVES, Prompt, results as adjective_results};
pub(crate) use asked::{Asked, Given};
pub(crate) use error::TaskError;
pub(crate) use labelled::{Question, Questions, add_classified, read_questions};
pub(crate) use labels::{Columns as LabelColumns, NAME as LABELS, add_labels, read_labels};
pub(crate) use model::TextModel;
pub(crate) use results::{Results, Score};
pub(crate) use rows::each_row;

use anyhow::Result;
use built_in::BUILT_IN;
use definition::{Definition, Generated, Study};
use documents::{Document, Table};
use fewshot::{Shots, TooFew};
use results::Settings;
use rows::Row;
use serde_json::Value;
use std::path::Path;
use study::{Design, Pool};
use templates::Templates;

/// A task to evaluate.
pub(crate) struct Request<'a> {
    /// Name of a built-in task, or the path of a definition.
    pub(crate) task: &'a str,
    /// None for a task that has its own rows.
    pub(crate) data: Option<&'a Path>,
    /// Rows for examples; None: those of `data`.
    pub(crate) shots_data: Option<&'a Path>,
    /// Examples in front of each question; None: the task's own number.
    pub(crate) shots: Option<usize>,
    /// Evaluate only the first ones (of each part of a group).
    pub(crate) limit: Option<usize>,
    /// Resamples of bootstrap errors; 0: no standard errors.
    pub(crate) resamples: usize,
}

/// Names of the built-in tasks with the data that each needs.
pub(crate) fn built_in() -> Result<Vec<[String; 2]>, TaskError> {
    let describe = |(name, text): &(&str, &str)| {
        let definition = Definition::parse(name, text)?;
        Ok([definition.name, definition.data])
    };
    let mut all: Vec<[String; 2]> = BUILT_IN.iter().map(describe).collect::<Result<_, _>>()?;
    all.push([adjectives::NAME, adjectives::DATA].map(str::to_owned));
    all.push([labels::NAME, labels::DATA].map(str::to_owned));
    all.sort();
    Ok(all)
}

/// Whether a task needs a file of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// It has rows of its own and takes no file.
    Nothing,
    /// It has rows of its own in place of a file.
    MayTake,
    /// Where its rows come from.
    File(String),
}

/// A task that exists and is sound.
pub(crate) struct Checked {
    /// Its results are under this name.
    pub(crate) name: String,
    pub(crate) needs: Needs,
    /// Whether it has examples if no number of them is asked for.
    pub(crate) has_shots: bool,
}

/// Checks that a task exists and is sound, before a model is opened.
pub(crate) fn check(task: &str) -> Result<Checked, TaskError> {
    let without_shots = |name: &str, needs| Checked {
        name: name.to_owned(),
        needs,
        has_shots: false,
    };
    if task == adjectives::NAME {
        return Ok(without_shots(task, Needs::Nothing));
    }
    if task == labels::NAME {
        return Ok(without_shots(task, Needs::File(labels::DATA.into())));
    }
    let definition = Definition::find(task)?;
    check_name(task, &definition.name)?;
    Templates::new(&definition)?;
    let needs = match (definition.product.is_empty(), definition.generated) {
        (false, _) => Needs::Nothing,
        (true, Some(_)) => Needs::MayTake,
        (true, None) => Needs::File(definition.data),
    };
    Ok(Checked {
        name: definition.name,
        needs,
        has_shots: definition.shots > 0 || definition.study.is_some(),
    })
}

/// Checks the `name` of an own task, of which `task` is the file.
fn check_name(task: &str, name: &str) -> Result<(), TaskError> {
    let is_built_in = BUILT_IN.iter().any(|(known, _)| *known == name)
        || [adjectives::NAME, labels::NAME].contains(&name);
    let wanted = match name.trim() {
        "" => "a name, under which results are listed",
        _ if is_built_in && name != task => "another name than a built-in task's",
        _ => return Ok(()),
    };
    Err(TaskError::Definition {
        name: task.into(),
        why: format!("name: found {name:?}, want {wanted}"),
    })
}

/// Pairs of each subcase of generated questions, and of generated examples.
const PAIRS: [usize; 2] = [1000, 100];

/// Seeds of generated questions, and of generated examples.
const SEEDS: [u64; 2] = [1, 2];

/// Rows that the program makes: questions or examples.
fn generated(generated: Generated, is_example: bool) -> Vec<Row> {
    let at = usize::from(is_example);
    match generated {
        Generated::Hans => hans::rows(SEEDS[at], PAIRS[at]),
    }
}

/// Evaluates a task; adds its results, and a line for each document to `records`.
///
/// # Errors
/// A `TaskError`; errors of the model.
pub(crate) fn evaluate(
    request: &Request<'_>,
    model: &TextModel<'_>,
    results: &mut Results,
    records: &mut Vec<u8>,
) -> Result<()> {
    if request.task == labels::NAME {
        return Err(labels::without_head().into());
    }
    let definition = Definition::find(request.task)?;
    let templates = Templates::new(&definition)?;
    let of_program = |is_example| {
        let rows = definition.generated.map(|kind| generated(kind, is_example));
        rows.map(|rows| Table::of_rows(&definition, &templates, rows))
    };
    let table = match (request.data, of_program(false)) {
        (Some(path), _) => read(&definition, &templates, path)?,
        (None, Some(table)) => table,
        (None, None) => Table::of_product(&definition, &templates),
    };
    let shots = request.shots.unwrap_or(definition.shots);
    let has_shots = shots > 0 || definition.study.is_some();
    let examples = match (request.shots_data, request.data) {
        (Some(path), _) if has_shots => Some(read(&definition, &templates, path)?),
        (None, None) if has_shots => of_program(true),
        _ => None,
    };
    if let Some(Study { shots }) = &definition.study {
        let pool = Pool::of(examples.as_ref().unwrap_or(&table))?;
        let shots = request.shots.map_or_else(|| shots.clone(), |one| vec![one]);
        return evaluate_study(request, model, (&table, &pool), &shots, (results, records));
    }
    if shots > 0 && examples.is_none() && !definition.shots_data.is_empty() {
        let why = format!(
            "{shots} examples need a file of their own (--shots-data): {}",
            definition.shots_data
        );
        let name = definition.name.clone();
        return Err(TaskError::Definition { name, why }.into());
    }
    let documents = documents(
        &table,
        examples.as_ref().unwrap_or(&table),
        shots,
        request.limit,
    )?;
    let settings = Settings {
        resamples: request.resamples,
        shots,
    };
    answer((model, &table), documents, settings, (results, records))
}

/// Asks the model; adds the results, and a line for each document to `records`.
fn answer(
    (model, table): (&TextModel<'_>, &Table<'_>),
    documents: Vec<Document>,
    settings: Settings,
    (results, records): (&mut Results, &mut Vec<u8>),
) -> Result<()> {
    let cuts = table.cuts()?;
    let answered = score::answer(model, table, documents)?;
    let name = &table.definition.name;
    for one in &answered {
        let row = table.rows[one.document.number].0;
        records.extend_from_slice(format!("{}\n", one.record(name, row)).as_bytes());
    }
    results.add((table, &cuts), &answered, table.rows.len(), settings);
    Ok(())
}

/// Evaluates a task under every design of its examples.
fn evaluate_study(
    request: &Request<'_>,
    model: &TextModel<'_>,
    (table, pool): (&Table<'_>, &Pool<'_>),
    shots: &[usize],
    (results, records): (&mut Results, &mut Vec<u8>),
) -> Result<()> {
    for design in Design::all(shots) {
        let documents = study::documents(table, pool, design, request.limit)?;
        let mut definition = table.definition.clone();
        definition.name = design.name(&definition.name);
        let named = Table {
            definition: &definition,
            templates: table.templates,
            path: table.path,
            rows: table.rows.clone(),
        };
        let settings = Settings {
            resamples: request.resamples,
            shots: design.shots,
        };
        answer((model, &named), documents, settings, (results, records))?;
    }
    Ok(())
}

/// The rows of a file; an absent one is named with where its data comes from.
fn read<'a>(
    definition: &'a Definition,
    templates: &'a Templates,
    path: &'a Path,
) -> Result<Table<'a>, TaskError> {
    if path.exists() {
        return Table::read(definition, templates, path);
    }
    Err(TaskError::File {
        path: path.to_path_buf(),
        why: format!(
            "no such file; task {} wants {}",
            definition.name, definition.data
        ),
    })
}

/// The documents of a task, each with its examples.
fn documents(
    table: &Table<'_>,
    examples: &Table<'_>,
    shots: usize,
    limit: Option<usize>,
) -> Result<Vec<Document>, TaskError> {
    let definition = table.definition;
    // each part of a group is a task of its own
    let by = definition.parts.as_ref().filter(|parts| parts.is_group);
    let part = |row: &Row| -> Value {
        by.and_then(|parts| row.get(&parts.by))
            .cloned()
            .unwrap_or(Value::Null)
    };
    struct Progress<'a> {
        part: Value,
        pool: Vec<(usize, &'a Row)>,
        shots: Shots,
        done: usize,
    }
    let mut parts: Vec<Progress<'_>> = Vec::new();
    let mut documents = Vec::new();
    for (at, (number, row)) in table.rows.iter().enumerate() {
        let own = part(row);
        let known = parts.iter().position(|progress| progress.part == own);
        let index = known.unwrap_or_else(|| {
            let all = examples.rows.iter().enumerate();
            let of_part = all.filter(|(_, (_, row))| part(row) == own);
            parts.push(Progress {
                pool: of_part.map(|(at, (_, row))| (at, row)).collect(),
                part: own,
                shots: Shots::new(
                    definition.sampler,
                    shots,
                    definition.leaves_out_the_question,
                ),
                done: 0,
            });
            parts.len() - 1
        });
        let progress = &mut parts[index];
        if limit.is_some_and(|limit| progress.done >= limit) {
            continue;
        }
        progress.done += 1;
        let drawn = progress.shots.draw(row, &progress.pool);
        let drawn = drawn.map_err(|TooFew { found, wanted }| TaskError::Column {
            path: examples.path.to_path_buf(),
            row: number + 1,
            column: "examples".into(),
            found,
            wanted,
        })?;
        let mut text = table.description(at)?;
        for example in drawn {
            text.push_str(&definition.example(&examples.parts(example)?));
        }
        documents.push(table.document(at, &text, table.parts(at)?));
    }
    Ok(documents)
}
