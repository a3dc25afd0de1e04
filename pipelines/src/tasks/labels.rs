//! The task `labels`: texts of one's own, each with a class or a number, for a classification head.
//!
//! Results: for classes the accuracy, and precision, recall and F1 of each class with the mean of the F1s over the classes that
//! are right or predicted at least once, as scikit-learn's `f1_score(average="macro")`. For numbers the mean squared error and
//! Pearson's correlation; if all right numbers are whole, also accuracy and F1 of the scores rounded into their range, as the
//! FineWeb-Edu classifier is measured (Penedo et al. 2024, arXiv:2406.17557, sec. 4).

use super::error::{Result, TaskError};
use super::labelled::{Question, Questions};
use super::metrics::{Item, Metric, argmax, mean};
use super::results::Results;
use super::rows::{self, Row};
use super::standard_error::standard_error;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

pub(crate) const NAME: &str = "labels";
/// Rows to ask for, in words.
pub(super) const DATA: &str =
    "your own rows with a text and a class or a number, for a model with a classification head";

/// The refusal of a language model.
pub(super) fn without_head() -> TaskError {
    TaskError::Definition {
        name: NAME.into(),
        why: "found a language model, want one with a classification head, as a job with [classify] trains it".into(),
    }
}

/// Columns of labelled texts, and the meaning of the labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns<'a> {
    pub(crate) text: &'a str,
    pub(crate) label: &'a str,
    /// Names of the classes by number. Empty: labels are numbers.
    pub(crate) classes: &'a [String],
}

impl Columns<'_> {
    /// The text and label of a row, or column, found and wanted of the first problem.
    fn question(&self, row: &Row, at: usize) -> std::result::Result<Question, [String; 3]> {
        let wrong = |column: &str, found: String, wanted: &str| {
            [column.to_owned(), found, wanted.to_owned()]
        };
        let missing = |column: &str| wrong(column, columns_of(row), "this column");
        let text = value_at(row, self.text).ok_or_else(|| missing(self.text))?;
        let Some(text) = text.as_str().filter(|text| !text.trim().is_empty()) else {
            return Err(wrong(self.text, shown(text), "a text"));
        };
        let value = value_at(row, self.label).ok_or_else(|| missing(self.label))?;
        let mut question = Question {
            row: at,
            firsts: vec![text.to_owned()],
            second: Arc::from(""),
            label: 0,
            number: 0.0,
        };
        if self.classes.is_empty() {
            let number = value
                .as_f64()
                .or_else(|| value.as_str()?.trim().parse().ok());
            let number = number.map(narrow).filter(|number| number.is_finite());
            let wanted = "a number (name the classes in classify.classes if labels are names)";
            question.number = number.ok_or_else(|| wrong(self.label, shown(value), wanted))?;
            return Ok(question);
        }
        let name = match value {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        let class = self.classes.iter().position(|class| *class == name);
        let wanted = format!("one of {}", self.classes.join(", "));
        question.label = class.ok_or_else(|| wrong(self.label, shown(value), &wanted))?;
        Ok(question)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the head's scores are f32")]
fn narrow(number: f64) -> f32 {
    number as f32
}

/// The value of a column, or at a path of names with dots between.
fn value_at<'a>(row: &'a Row, key: &str) -> Option<&'a Value> {
    if let Some(value) = row.get(key) {
        return Some(value);
    }
    let mut names = key.split('.');
    let mut value = row.get(names.next()?)?;
    for name in names {
        value = value.get(name)?;
    }
    Some(value)
}

fn columns_of(row: &Row) -> String {
    let names: Vec<&str> = row.keys().map(String::as_str).collect();
    format!("columns {}", names.join(", "))
}

/// A value, short enough for a message.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The labelled texts of a file.
///
/// # Errors
/// `File`; `Column` with file, row and column.
pub(crate) fn read_labels(columns: Columns<'_>, path: &Path) -> Result<Questions> {
    let (mut all, mut at, mut problem) = (Vec::new(), 0, None);
    // texts of one file share their second text, the empty one
    let none: Arc<str> = Arc::from("");
    rows::each_row(path, &mut |row| {
        if problem.is_some() {
            return;
        }
        let found = match row {
            Ok(row) => columns.question(&row, at),
            Err(why) => Err(["(the row)".into(), why, "an object".into()]),
        };
        match found {
            Ok(question) => all.push(Question {
                second: none.clone(),
                ..question
            }),
            Err(why) => problem = Some((at, why)),
        }
        at += 1;
    })?;
    if let Some((at, [column, found, wanted])) = problem {
        return Err(TaskError::Column {
            path: path.to_path_buf(),
            row: at + 1,
            column,
            found,
            wanted,
        });
    }
    match all.is_empty() {
        true => Err(TaskError::File {
            path: path.to_path_buf(),
            why: "the file holds no rows".into(),
        }),
        false => Ok(Questions {
            path: path.to_path_buf(),
            all,
            left_out: 0,
        }),
    }
}

/// Adds the results of a head whose scores of each text are given, and a line for each text to `records`. `classes`: their
/// names; none of a regression.
pub(crate) fn add_labels(
    classes: &[String],
    (questions, scores): (&Questions, &[Vec<f32>]),
    results: &mut Results,
    records: &mut Vec<u8>,
) {
    let each = || questions.all.iter().zip(scores).enumerate();
    let mut result = json!({"sample_len": questions.all.len()});
    if classes.is_empty() {
        let pairs: Vec<[f64; 2]> = each()
            .map(|(_, (question, scores))| [f64::from(question.number), f64::from(scores[0])])
            .collect();
        add_numbers(&pairs, &mut result);
    } else {
        let pairs: Vec<[usize; 2]> = each()
            .map(|(_, (question, scores))| [question.label, predicted(scores)])
            .collect();
        add_classes(&pairs, classes, &mut result);
    }
    for (number, (question, scores)) in each() {
        let mut record =
            json!({"task": NAME, "doc_id": number, "row": question.row + 1, "scores": scores});
        if classes.is_empty() {
            let error = f64::from(scores[0]) - f64::from(question.number);
            (record["target"], record["mse,none"]) = (json!(question.number), json!(error * error));
        } else {
            let class = predicted(scores);
            (record["target"], record["predicted"]) =
                (json!(classes[question.label]), json!(classes[class]));
            record["acc,none"] = json!(f64::from(u8::from(class == question.label)));
        }
        records.extend_from_slice(format!("{record}\n").as_bytes());
    }
    results.insert(NAME, result);
}

fn predicted(scores: &[f32]) -> usize {
    argmax(scores.iter().map(|score| f64::from(*score)))
}

/// Accuracy with its standard error, and precision, recall and F1 of each class. `pairs`: right and predicted class.
fn add_classes(pairs: &[[usize; 2]], names: &[String], result: &mut Value) {
    let right =
        |[gold, predicted]: &[usize; 2]| Item::Number(f64::from(u8::from(gold == predicted)));
    let right: Vec<Item> = pairs.iter().map(right).collect();
    put_mean("acc", &right, result);
    let mut all = Vec::new();
    for (class, name) in names.iter().enumerate() {
        let count = |is: &dyn Fn(&[usize; 2]) -> bool| pairs.iter().filter(|pair| is(pair)).count();
        let both = count(&|pair| *pair == [class; 2]);
        let (gold, predicted) = (
            count(&|pair| pair[0] == class),
            count(&|pair| pair[1] == class),
        );
        if gold + predicted == 0 {
            continue;
        }
        let share = |of: usize| both as f64 / of.max(1) as f64;
        let f1 = 2.0 * both as f64 / (gold + predicted) as f64;
        result[format!("precision_{name},none")] = json!(share(predicted));
        result[format!("recall_{name},none")] = json!(share(gold));
        result[format!("f1_{name},none")] = json!(f1);
        all.push(f1);
    }
    result["f1_macro,none"] = json!(mean(&all));
}

/// Whole numbers from a least one as classes; the caller has bounded them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers from 0 to 100"
)]
fn class_of(number: f64, least: f64) -> usize {
    (number - least) as usize
}

/// Squared error and correlation of right numbers and scores.
fn add_numbers(pairs: &[[f64; 2]], result: &mut Value) {
    let errors = pairs
        .iter()
        .map(|[right, score]| Item::Number((score - right).powi(2)));
    put_mean("mse", &errors.collect::<Vec<_>>(), result);
    let of = |which: usize| pairs.iter().map(|pair| pair[which]).collect::<Vec<f64>>();
    let means = [mean(&of(0)), mean(&of(1))];
    let product = |a: usize, b: usize| {
        let products = pairs
            .iter()
            .map(|pair| (pair[a] - means[a]) * (pair[b] - means[b]));
        products.sum::<f64>()
    };
    let spread = (product(0, 0) * product(1, 1)).sqrt();
    // numbers that are all the same have no correlation
    result["pearson,none"] = match spread > 0.0 {
        true => json!(product(0, 1) / spread),
        false => Value::Null,
    };
    let least = of(0).into_iter().fold(f64::INFINITY, f64::min);
    let most = of(0).into_iter().fold(f64::NEG_INFINITY, f64::max);
    if pairs.iter().any(|[right, _]| right.fract() != 0.0) || most - least > 100.0 {
        return;
    }
    let names: Vec<String> = (0..=class_of(most, least))
        .map(|step| (least + step as f64).to_string())
        .collect();
    let class = |number: f64| class_of(number.clamp(least, most).round_ties_even(), least);
    let pairs: Vec<[usize; 2]> = pairs.iter().map(|pair| pair.map(class)).collect();
    add_classes(&pairs, &names, result);
}

/// A mean with its standard error.
fn put_mean(name: &str, items: &[Item], result: &mut Value) {
    let error = standard_error(Metric::Acc, items, 1);
    result[format!("{name},none")] = json!(Metric::Acc.aggregate(items));
    result[format!("{name}_stderr,none")] = error.map_or(json!("N/A"), Value::from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(columns: Columns<'_>, text: &str) -> Result<Questions> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, text).unwrap();
        read_labels(columns, &path)
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn labels_are_names_or_whole_numbers_of_classes_or_numbers() {
        let classes = names(&["bad", "2"]);
        let columns = Columns {
            text: "body",
            label: "meta.quality",
            classes: &classes,
        };
        let rows = "{\"body\": \"a\", \"meta\": {\"quality\": 2}}\n{\"body\": \"b\", \"meta\": {\"quality\": \"bad\"}}\n";
        let found = read(columns, rows).unwrap().all;
        assert_eq!((found[0].label, found[1].label), (1, 0));
        let numbers = Columns {
            text: "body",
            label: "n",
            classes: &[],
        };
        let rows = "{\"body\": \"a\", \"n\": 2.5}\n{\"body\": \"b\", \"n\": \"-1\"}\n";
        let found = read(numbers, rows).unwrap().all;
        assert_eq!((found[0].number, found[1].number), (2.5, -1.0));
    }

    #[test]
    fn a_bad_row_is_named_with_its_column() {
        let classes = names(&["bad", "good"]);
        let columns = Columns {
            text: "text",
            label: "label",
            classes: &classes,
        };
        let good = "{\"text\": \"a\", \"label\": \"good\"}\n";
        for (row, parts) in [
            (
                r#"{"text": "a", "label": "god"}"#,
                ["`label`", "\"god\"", "one of bad, good"],
            ),
            (
                r#"{"text": " ", "label": "bad"}"#,
                ["`text`", "\" \"", "a text"],
            ),
            (
                r#"{"body": "a", "label": "bad"}"#,
                ["`text`", "columns body, label", "this column"],
            ),
            ("{\"text\"", ["(the row)", "", "an object"]),
        ] {
            let error = read(columns, &format!("{good}{row}\n"))
                .err()
                .unwrap()
                .to_string();
            for part in parts.iter().chain(&["rows.jsonl: row 2"]) {
                assert!(error.contains(part), "{error} wants {part}");
            }
        }
        let numbers = Columns {
            classes: &[],
            ..columns
        };
        let error = read(numbers, good).err().unwrap().to_string();
        assert!(error.contains("classify.classes"), "{error}");
    }

    // sklearn.metrics: f1_score([0,0,1,1,1], [0,1,1,1,0], average="macro") = (1/2 + 2/3) / 2
    #[test]
    fn classes_are_measured_as_scikit_learn_does() {
        let mut result = json!({});
        let pairs = [[0, 0], [0, 1], [1, 1], [1, 1], [1, 0]];
        add_classes(&pairs, &names(&["a", "b", "never"]), &mut result);
        let near = |key: &str, wanted: f64| {
            let found = result[key].as_f64().unwrap();
            assert!((found - wanted).abs() < 1e-12, "{key} {found}");
        };
        near("acc,none", 0.6);
        near("f1_a,none", 0.5);
        near("precision_b,none", 2.0 / 3.0);
        near("recall_b,none", 2.0 / 3.0);
        near("f1_macro,none", (0.5 + 2.0 / 3.0) / 2.0);
        assert!(result.get("f1_never,none").is_none());
    }

    #[test]
    fn numbers_have_an_error_a_correlation_and_rounded_classes() {
        let mut result = json!({});
        add_numbers(&[[0.0, 0.2], [1.0, 0.4], [2.0, 5.0]], &mut result);
        let near = |key: &str, wanted: f64| {
            let found = result[key].as_f64().unwrap();
            assert!((found - wanted).abs() < 1e-9, "{key} {found}");
        };
        near("mse,none", (0.04 + 0.36 + 9.0) / 3.0);
        // numpy.corrcoef([0, 1, 2], [0.2, 0.4, 5.0])[0, 1]
        near("pearson,none", 0.883_851_509_052_425_5);
        near("acc,none", 2.0 / 3.0);
        let mut result = json!({});
        add_numbers(&[[0.5, 0.5], [0.5, 0.6]], &mut result);
        assert!(result["pearson,none"].is_null() && result.get("acc,none").is_none());
    }
}
