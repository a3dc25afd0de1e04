//! Rows of MNLI, QQP and RACE as labelled texts for a classification head, and the results of one.
//!
//! Source: Megatron-LM core_v0.7.0 `tasks/data_utils.py`, `tasks/glue/`, `tasks/race/data.py` (facts): white space becomes
//! one blank and " . " becomes ". "; MNLI's classes are contradiction, entailment, neutral; a question of RACE is joined
//! with each answer, or the answer replaces every `_` in it, and comes before the article. Rows of QQP without six
//! columns or without a text are left out, as there.

use super::definition::Definition;
use super::documents::{Document, Parts, Table, Target};
use super::error::{Result, TaskError};
use super::metrics::{Item, Metric, argmax};
use super::python_text::{self, is_space};
use super::results::{Results, Settings};
use super::rows::{self, Row};
use super::score::{Answered, NO_FILTER, Scored};
use super::templates::{Templates, value_of};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::eval::Likelihood;

/// MNLI's classes in Megatron's order by their number in GLUE (entailment, neutral, contradiction).
const MNLI: [usize; 3] = [1, 2, 0];

/// Answers of a question of RACE.
const CHOICES: usize = 4;

/// A text to classify, or the choices of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// Number of its row, from 0.
    pub(crate) row: usize,
    /// First text of each choice.
    pub(crate) firsts: Vec<String>,
    /// Second text of all choices; questions about one text share it. Empty where a text stands alone.
    pub(crate) second: Arc<str>,
    /// Number of the class, or of the right choice.
    pub(crate) label: usize,
    /// The right score of a regression, which has no label.
    pub(crate) number: f32,
}

/// A file of questions.
pub(crate) struct Questions {
    pub(crate) path: PathBuf,
    pub(crate) all: Vec<Question>,
    /// Rows without a text or with too few columns.
    pub(crate) left_out: usize,
}

/// White space as one blank, and full stops at the end of their word.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_space = false;
    for c in text.chars() {
        match (is_space(c), after_space) {
            (true, true) => {}
            (true, false) => out.push(' '),
            (false, _) => out.push(c),
        }
        after_space = is_space(c);
    }
    for _ in 0..3 {
        out = out.replace(" . ", ". ");
    }
    out
}

/// The questions of a file (of race also of a folder) of `mnli`, `qqp` or `race`.
///
/// # Errors
/// `File`; `Column` with file, row and column; `Template`.
pub(crate) fn read_questions(task: &str, path: &Path) -> Result<Questions> {
    let definition = Definition::find(task)?;
    let templates = Templates::new(&definition)?;
    let may_skip = task == "qqp";
    let table = Table::without_rows(&definition, &templates, path);
    let mut found = Questions {
        path: path.to_path_buf(),
        all: Vec::new(),
        left_out: 0,
    };
    let rows = match may_skip {
        true => rows::read_ragged(path)?,
        false => rows::read(path)?.into_iter().map(Some).collect(),
    };
    for (number, row) in rows.into_iter().enumerate() {
        let Some(mut row) = row else {
            found.left_out += 1;
            continue;
        };
        table.convert(number, &mut row)?;
        table.check(number, &row)?;
        let reader = Reader {
            table: &table,
            number,
            row: &row,
        };
        match task {
            "race" => reader.race(&mut found.all)?,
            _ => {
                let texts = match task {
                    "mnli" => ["premise", "hypothesis"],
                    _ => ["question1", "question2"],
                };
                let question = reader.pair(texts, task == "mnli")?;
                let is_empty = question.firsts[0].is_empty() || question.second.is_empty();
                match is_empty {
                    true if may_skip => found.left_out += 1,
                    true => {
                        let empty = usize::from(!question.firsts[0].is_empty());
                        return Err(reader.wrong(texts[empty], "no text", "a text"));
                    }
                    false => found.all.push(question),
                }
            }
        }
    }
    match found.all.is_empty() {
        true => Err(TaskError::File {
            path: path.to_path_buf(),
            why: "found no question".into(),
        }),
        false => Ok(found),
    }
}

/// One row of a file.
struct Reader<'a> {
    table: &'a Table<'a>,
    number: usize,
    row: &'a Row,
}

impl Reader<'_> {
    fn wrong(&self, column: &str, found: impl ToString, wanted: impl ToString) -> TaskError {
        TaskError::Column {
            path: self.table.file_of(self.row),
            row: self.number + 1,
            column: column.into(),
            found: found.to_string(),
            wanted: wanted.to_string(),
        }
    }

    fn text(&self, column: &str) -> &str {
        let value = self.row.get(column).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    /// Two texts and a class.
    fn pair(&self, texts: [&str; 2], is_mnli: bool) -> Result<Question> {
        let labels = if is_mnli { MNLI.len() } else { 2 };
        let value = &self.row["label"];
        let number = match value {
            Value::Bool(label) => Some(u64::from(*label)),
            Value::String(label) => label.parse().ok(),
            other => other.as_u64(),
        };
        let number = number.and_then(|number| usize::try_from(number).ok());
        let Some(label) = number.filter(|label| *label < labels) else {
            let wanted = format!("a class from 0 to {}", labels - 1);
            return Err(self.wrong("label", value, wanted));
        };
        let [first, second] = texts.map(|column| clean(python_text::strip(self.text(column))));
        Ok(Question {
            row: self.number,
            firsts: vec![first],
            second: second.into(),
            label: if is_mnli { MNLI[label] } else { label },
            number: 0.0,
        })
    }

    /// The questions about an article.
    fn race(&self, all: &mut Vec<Question>) -> Result<()> {
        let value = value_of(self.row);
        let problems = self
            .table
            .value(self.number, "problems", "problems | literal", &value)?;
        let problems = serde_json::to_value(&problems).unwrap_or_default();
        let Some(problems) = problems.as_array() else {
            return Err(self.wrong("problems", rows::kind(&problems), "a list"));
        };
        let article: Arc<str> = clean(self.text("article")).into();
        for (at, problem) in problems.iter().enumerate() {
            let column = |name: &str| format!("problems[{at}].{name}");
            let text = |name: &str| {
                let found = problem.get(name).and_then(Value::as_str);
                found.ok_or_else(|| self.wrong(&column(name), "no text", "a text"))
            };
            let (question, answer) = (text("question")?, text("answer")?);
            let label = ["A", "B", "C", "D"].iter().position(|name| *name == answer);
            let Some(label) = label else {
                return Err(self.wrong(&column("answer"), format!("{answer:?}"), "A, B, C or D"));
            };
            let options = problem.get("options").and_then(Value::as_array);
            let options = options.map_or(&[][..], Vec::as_slice);
            let options: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
            if options.len() != CHOICES {
                let found = format!("{} texts", options.len());
                return Err(self.wrong(&column("options"), found, "4 texts"));
            }
            let first = |option: &&str| match question.contains('_') {
                true => clean(&question.replace('_', option)),
                false => clean(&format!("{question} {option}")),
            };
            all.push(Question {
                row: self.number,
                firsts: options.iter().map(first).collect(),
                second: article.clone(),
                label,
                number: 0.0,
            });
        }
        Ok(())
    }
}

/// Adds the results of a classification head, whose scores of each question are given, and a line for each question to
/// `records`. `resamples`: of bootstrap errors.
///
/// # Errors
/// `Unknown`, `Definition`.
pub(crate) fn add_classified(
    task: &str,
    (questions, scores): (&Questions, &[Vec<f32>]),
    resamples: usize,
    results: &mut Results,
    records: &mut Vec<u8>,
) -> Result<()> {
    let mut definition = Definition::find(task)?;
    definition
        .metrics
        .retain(|metric| *metric != Metric::AccNorm);
    // nothing is asked in words
    (definition.prompt, definition.choices, definition.target) = (String::new(), None, None);
    definition.description = "a classification head, as Megatron-LM's tasks/".into();
    let templates = Templates::new(&definition)?;
    let table = Table::without_rows(&definition, &templates, &questions.path);
    let each = questions.all.iter().zip(scores).enumerate();
    let answered: Vec<Answered> = each
        .map(|(number, (question, scores))| {
            let predicted = argmax(scores.iter().map(|score| f64::from(*score)));
            let is_right = f64::from(u8::from(predicted == question.label));
            let record = json!({
                "task": task, "doc_id": number, "row": question.row + 1, "scores": scores,
                "target": question.label, "predicted": predicted, "acc,none": is_right,
            });
            records.extend_from_slice(format!("{record}\n").as_bytes());
            let item = |metric: Metric| match metric {
                Metric::F1 => Item::Classes {
                    gold: question.label,
                    predicted,
                },
                _ => Item::Number(is_right),
            };
            let scored = definition.metrics.iter().map(|&metric| Scored {
                metric,
                filter: NO_FILTER.into(),
                item: item(metric),
            });
            Answered {
                document: Document {
                    number,
                    requests: Vec::new(),
                    parts: Parts {
                        prompts: Vec::new(),
                        choices: Vec::new(),
                        answer: String::new(),
                        original: String::new(),
                        target: Target::Choices(vec![question.label]),
                    },
                },
                likelihoods: Vec::<Likelihood>::new(),
                response: None,
                found: Vec::new(),
                scores: scored.collect(),
            }
        })
        .collect();
    let settings = Settings {
        resamples,
        shots: 0,
    };
    results.add((&table, &[]), &answered, questions.all.len(), settings);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(task: &str, name: &str, text: &str) -> Result<Questions> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        read_questions(task, &path)
    }

    // re.sub(r"\s+", " ", text) and three times text.replace(" . ", ". ") in Python
    #[test]
    fn texts_are_cleaned_as_megatron_cleans_them() {
        assert_eq!(clean("a\n\nb \t c . d . . e ."), "a b c. d.. e .");
        assert_eq!(clean("  x\u{a0}\u{2003}y "), " x y ");
    }

    #[test]
    fn mnli_is_read_by_megatrons_columns_and_labels() {
        let header = (0..8)
            .map(|n| format!("c{n}"))
            .collect::<Vec<_>>()
            .join("\t");
        let cells = "x\t".repeat(8);
        let text = format!(
            "{header}\tsentence1\tsentence2\tlabel1\tgold_label\n\
             {cells} A man  sleeps .\tHe rests\tneutral\tentailment\n\
             {cells}One\tTwo\tneutral\tneutral\n{cells}One\tTwo\tneutral\tcontradiction\n"
        );
        let found = read("mnli", "train.tsv", &text).unwrap().all;
        let labels: Vec<usize> = found.iter().map(|question| question.label).collect();
        assert_eq!(labels, [1, 2, 0]);
        assert_eq!(found[0].firsts, ["A man sleeps ."]);
        assert_eq!(&*found[0].second, "He rests");
        let rows = "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 0}\n\
                    {\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": -1}\n";
        let error = read("mnli", "x.jsonl", rows).err().unwrap().to_string();
        for part in ["x.jsonl: row 2", "column `label`", "found -1", "0 to 2"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn rows_of_qqp_without_a_text_or_a_column_are_left_out() {
        let text = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n\
                    1\t1\t2\tWhat ?\tWhy?\t1\n2\t1\t2\t\tWhy?\t0\n3\t1\t2\tWhat\n4\t1\t2\tA\tB\t0\n";
        let found = read("qqp", "dev.tsv", text).unwrap();
        assert_eq!((found.all.len(), found.left_out), (2, 2));
        assert_eq!((found.all[0].label, found.all[1].label), (1, 0));
        let bad = text.replace("\t0\n", "\tmaybe\n");
        let error = read("qqp", "dev.tsv", &bad).err().unwrap().to_string();
        assert!(
            error.contains("row 2") && error.contains("`label`"),
            "{error}"
        );
    }

    #[test]
    fn a_question_of_race_has_four_texts_before_its_article() {
        let raw = r#"{"answers": ["B", "D"], "options": [["a", "b", "c", "d"], ["w", "x", "y", "z"]],
            "questions": ["Who is _ ?", "Where?"], "article": "Once\n upon . a time", "id": "high1.txt"}"#;
        let found = read("race", "1.txt", &raw.replace('\n', " ")).unwrap().all;
        assert_eq!(found[0].firsts[1], "Who is b ?");
        assert_eq!(found[1].firsts[3], "Where? z");
        assert_eq!((found[0].label, found[1].label), (1, 3));
        assert!(Arc::ptr_eq(&found[0].second, &found[1].second));
        assert_eq!(&*found[0].second, "Once upon. a time");
        let bad = raw.replace('\n', " ").replace("\"D\"]", "\"E\"]");
        let error = read("race", "1.txt", &bad).err().unwrap().to_string();
        assert!(
            error.contains("problems[1].answer") && error.contains("\"E\""),
            "{error}"
        );
    }
}
