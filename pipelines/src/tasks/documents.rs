//! From rows to requests: the text of each question with its examples, and what follows it.
//!
//! Source: lm-evaluation-harness 0.4.13 `api/task.py` (`fewshot_context`, `build_qa_turn`, `construct_requests`): the
//! description, then examples (question, delimiter, answer, delimiter of examples), then the question; the delimiter before
//! an answer is part of the answer.

use super::definition::{Column, Definition};
use super::error::{Result, TaskError};
use super::rows::{self, Published, Row};
use super::shape::Shape;
use super::templates::{Templates, message, value_of};
use minijinja::Value;
use minijinja::value::ValueKind;
use std::path::{Path, PathBuf};

/// The right answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// Number of the choice, or of any of several.
    Choices(Vec<usize>),
    /// Texts, of which any is right.
    Texts(Vec<String>),
    /// Everything is in the answer.
    Answer,
}

/// Texts of one row, without examples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parts {
    /// One, or one for each choice.
    pub prompts: Vec<String>,
    pub choices: Vec<String>,
    /// The text whose likelihood is measured, if it is no choice.
    pub answer: String,
    /// The text that its words and bytes are counted in.
    pub original: String,
    pub target: Target,
}

/// A question for the model: what is asked of it, and what for.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// Number of the row among those kept.
    pub number: usize,
    /// Contexts and their continuations; a whole text has no context, a prompt for text no continuation.
    pub requests: Vec<(String, String)>,
    pub parts: Parts,
}

/// The rows of a file with the templates that read them.
pub(super) struct Table<'a> {
    pub definition: &'a Definition,
    pub templates: &'a Templates,
    pub path: &'a Path,
    /// Kept rows with their numbers in the file, from 0.
    pub rows: Vec<(usize, Row)>,
}

impl<'a> Table<'a> {
    /// Reads a file; checks the columns of every row.
    ///
    /// # Errors
    /// `File`, `Column` with row and column, `Template`.
    pub(super) fn read(
        definition: &'a Definition,
        templates: &'a Templates,
        path: &'a Path,
    ) -> Result<Table<'a>> {
        let mut table = Table::without_rows(definition, templates, path);
        let published = Published {
            csv: &definition.csv,
            labels_beside: definition.labels_beside.as_deref(),
        };
        let rows = rows::read_published(path, published)?;
        for (number, mut row) in rows.into_iter().enumerate() {
            table.convert(number, &mut row)?;
            table.check(number, &row)?;
            let is_kept = match &definition.keep {
                None => true,
                Some(keep) => table
                    .value(number, "keep", keep, &value_of(&row))?
                    .is_true(),
            };
            if is_kept {
                table.rows.push((number, row));
            }
        }
        if table.rows.is_empty() {
            return Err(TaskError::File {
                path: path.to_path_buf(),
                why: "the task leaves out every row".into(),
            });
        }
        Ok(table)
    }

    /// Nothing of a file yet.
    pub(super) fn without_rows(
        definition: &'a Definition,
        templates: &'a Templates,
        path: &'a Path,
    ) -> Table<'a> {
        Table {
            definition,
            templates,
            path,
            rows: Vec::new(),
        }
    }

    /// The file of a row: of a folder's rows the one in it.
    pub(super) fn file_of(&self, row: &Row) -> PathBuf {
        match row.get(rows::FILE).and_then(|name| name.as_str()) {
            Some(name) if self.path.is_dir() => self.path.join(name),
            _ => self.path.to_path_buf(),
        }
    }

    /// Sets the columns of a row that is in another form.
    pub(super) fn convert(&self, number: usize, row: &mut Row) -> Result<()> {
        let value = value_of(row);
        for form in &self.definition.forms {
            if !self.value(number, "forms", &form.when, &value)?.is_true() {
                continue;
            }
            for (column, expression) in &form.set {
                let found = self.value(number, "forms", expression, &value)?;
                let json = serde_json::to_value(&found);
                let json = json.map_err(|e| self.failed(number, "forms", e.to_string()))?;
                row.insert(column.clone(), json);
            }
            break;
        }
        Ok(())
    }

    /// Checks the columns of a row.
    pub(super) fn check(&self, number: usize, row: &Row) -> Result<()> {
        for (name, column) in &self.definition.columns {
            let mut path = name.split('.');
            let mut value = path.next().and_then(|name| row.get(name));
            for name in path {
                value = value.and_then(|value| value.get(name));
            }
            let is_text = |value: &serde_json::Value| value.is_string();
            let fits = match (column, value) {
                (_, None) => false,
                (Column::Any, Some(_)) => true,
                (Column::String, Some(value)) => is_text(value),
                (Column::Strings, Some(value)) => value
                    .as_array()
                    .is_some_and(|list| list.iter().all(is_text)),
                (Column::Integer, Some(value)) => {
                    let text = value.as_str();
                    value.is_boolean()
                        || value.is_i64()
                        || text.is_some_and(|text| text.parse::<i64>().is_ok())
                }
            };
            if !fits {
                let found = match value {
                    Some(value) => rows::kind(value).to_owned(),
                    None => {
                        let names: Vec<&str> = row.keys().map(String::as_str).collect();
                        format!("no such column among {}", names.join(", "))
                    }
                };
                let wanted = match column {
                    Column::String => "a string",
                    Column::Strings => "a list of strings",
                    Column::Integer => "an integer",
                    Column::Any => "a value",
                };
                return Err(TaskError::Column {
                    path: self.file_of(row),
                    row: number + 1,
                    column: name.clone(),
                    found,
                    wanted: wanted.into(),
                });
            }
        }
        Ok(())
    }

    /// The rows of a task that has its own: every combination of its columns' values, the last column first.
    pub(super) fn of_product(definition: &'a Definition, templates: &'a Templates) -> Table<'a> {
        let mut rows = vec![Row::new()];
        for (column, values) in &definition.product {
            let with = |row: &Row, value: &String| {
                let mut row = row.clone();
                row.insert(column.clone(), value.as_str().into());
                row
            };
            let each = |row: &Row| -> Vec<Row> { values.iter().map(|v| with(row, v)).collect() };
            rows = rows.iter().flat_map(each).collect();
        }
        Table {
            definition,
            templates,
            path: Path::new(&definition.name),
            rows: rows.into_iter().enumerate().collect(),
        }
    }

    /// Rows that are in no file.
    pub(super) fn of_rows(
        definition: &'a Definition,
        templates: &'a Templates,
        rows: Vec<Row>,
    ) -> Table<'a> {
        Table {
            definition,
            templates,
            path: Path::new(&definition.name),
            rows: rows.into_iter().enumerate().collect(),
        }
    }

    /// The value of each cut of each row, for `Results::add`.
    ///
    /// # Errors
    /// `Template` with the row.
    pub(super) fn cuts(&self) -> Result<Vec<Vec<String>>> {
        let of = |cut: &String| -> Result<Vec<String>> {
            let value = |(number, row): &(usize, Row)| {
                let value = self.value(*number, "cuts", cut, &value_of(row))?;
                Ok(value.to_string())
            };
            self.rows.iter().map(value).collect()
        };
        self.definition.cuts.iter().map(of).collect()
    }

    fn failed(&self, number: usize, key: &'static str, why: String) -> TaskError {
        TaskError::Template {
            path: self.path.to_path_buf(),
            row: number + 1,
            key,
            why,
        }
    }

    /// The value of an expression over a row. Those of `forms` may be undefined, as rows differ.
    pub(super) fn value(
        &self,
        number: usize,
        key: &'static str,
        text: &str,
        row: &Value,
    ) -> Result<Value> {
        match self.templates.value(text, row) {
            Ok(value) if value.is_undefined() && key != "forms" => {
                Err(self.failed(number, key, self.templates.without_value(text, row)))
            }
            Ok(value) => Ok(value),
            Err(why) => Err(self.failed(number, key, why)),
        }
    }

    fn text(&self, number: usize, key: &'static str, row: &Value) -> Result<String> {
        let text = self.templates.text(key, row);
        text.map_err(|why| self.failed(number, key, why))
    }

    /// The strings of an expression whose value is a list.
    fn texts(
        &self,
        number: usize,
        key: &'static str,
        text: &str,
        row: &Value,
    ) -> Result<Vec<String>> {
        let value = self.value(number, key, text, row)?;
        let list = value.try_iter();
        let list = list.map_err(|e| self.failed(number, key, message(&e)))?;
        let text = |item: Value| match item.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.failed(number, key, format!("found {item}, want strings"))),
        };
        let texts = list.map(text).collect::<Result<Vec<String>>>()?;
        match texts.is_empty() {
            true => Err(self.failed(number, key, "an empty list".into())),
            false => Ok(texts),
        }
    }

    /// The text in front of all examples of a row.
    pub(super) fn description(&self, at: usize) -> Result<String> {
        let (number, row) = &self.rows[at];
        self.text(*number, "description", &value_of(row))
    }

    /// The texts of a kept row.
    ///
    /// # Errors
    /// `Template` with row and key.
    pub(super) fn parts(&self, at: usize) -> Result<Parts> {
        let (number, row) = &self.rows[at];
        let (number, row) = (*number, value_of(row));
        let definition = self.definition;
        let prompts = match &definition.contexts {
            Some(contexts) => self.texts(number, "contexts", contexts, &row)?,
            None => vec![self.text(number, "prompt", &row)?],
        };
        let choices = match &definition.choices {
            Some(choices) => self.texts(number, "choices", choices, &row)?,
            None => Vec::new(),
        };
        let answer = match &definition.answer {
            Some(_) => self.text(number, "answer", &row)?,
            None => String::new(),
        };
        let original = match &definition.original {
            Some(_) => self.text(number, "original", &row)?,
            None => answer.clone(),
        };
        let target = match &definition.target {
            None => Target::Answer,
            Some(target) => {
                let value = self.value(number, "target", target, &row)?;
                let count = choices.len().max(prompts.len());
                let target = match definition.shape {
                    Shape::MultipleChoice => chosen(&value, &choices, count),
                    _ => texts_of(&value),
                };
                target.map_err(|why| self.failed(number, "target", why))?
            }
        };
        Ok(Parts {
            prompts,
            choices,
            answer,
            original,
            target,
        })
    }

    /// Requests of a kept row after `examples`, the text in front of it.
    pub(super) fn document(&self, at: usize, examples: &str, parts: Parts) -> Document {
        let definition = self.definition;
        let delimiter = &definition.delimiter;
        let context = |prompt: &String| format!("{examples}{prompt}");
        let first = parts.prompts.first().map(context).unwrap_or_default();
        let requests = match definition.shape {
            Shape::MultipleChoice if definition.contexts.is_some() => parts
                .prompts
                .iter()
                .map(|prompt| (context(prompt), format!("{delimiter}{}", parts.answer)))
                .collect(),
            Shape::MultipleChoice => parts
                .choices
                .iter()
                .map(|choice| (first.clone(), format!("{delimiter}{choice}")))
                .collect(),
            Shape::Continuation => vec![(first, parts.answer.clone())],
            Shape::Rolling => vec![(String::new(), parts.answer.clone())],
            Shape::Generation => vec![(first, String::new())],
        };
        Document {
            number: at,
            requests,
            parts,
        }
    }
}

impl Definition {
    /// An example: question and right answer.
    pub(super) fn example(&self, parts: &Parts) -> String {
        let first = match &parts.target {
            Target::Choices(numbers) => numbers.first().copied().unwrap_or(0),
            _ => 0,
        };
        let (prompt, answer) = match (&self.contexts, &parts.target) {
            (Some(_), _) => (parts.prompts.get(first), Some(&parts.answer)),
            (None, Target::Choices(_)) => (parts.prompts.first(), parts.choices.get(first)),
            (None, Target::Texts(texts)) => (parts.prompts.first(), texts.first()),
            (None, Target::Answer) => (parts.prompts.first(), Some(&parts.answer)),
        };
        let (prompt, answer) = (
            prompt.map_or("", String::as_str),
            answer.map_or("", String::as_str),
        );
        format!("{prompt}{}{answer}{}", self.delimiter, self.shot_delimiter)
    }
}

/// The choice that a value names by number or text, or several.
fn chosen(value: &Value, choices: &[String], count: usize) -> Result<Target, String> {
    if value.kind() == ValueKind::Seq {
        let items = value.try_iter().map_err(|e| e.to_string())?;
        let numbers = items.filter_map(|item| usize::try_from(item).ok());
        return Ok(Target::Choices(numbers.collect()));
    }
    let number = match (value.as_str(), value.kind()) {
        (Some(text), _) => {
            let at = choices.iter().position(|choice| choice == text);
            at.or_else(|| text.parse().ok())
        }
        (None, ValueKind::Bool) => Some(usize::from(value.is_true())),
        _ => usize::try_from(value.clone()).ok(),
    };
    match number.filter(|number| *number < count) {
        Some(number) => Ok(Target::Choices(vec![number])),
        None => Err(format!("{value} is none of the {count} choices")),
    }
}

/// One text or several.
fn texts_of(value: &Value) -> Result<Target, String> {
    if let Some(text) = value.as_str() {
        return Ok(Target::Texts(vec![text.to_owned()]));
    }
    if value.kind() != ValueKind::Seq {
        return Ok(Target::Texts(vec![value.to_string()]));
    }
    let items = value.try_iter().map_err(|e| e.to_string())?;
    let texts = items.map(|item| match item.as_str() {
        Some(text) => text.to_owned(),
        None => item.to_string(),
    });
    Ok(Target::Texts(texts.collect()))
}
