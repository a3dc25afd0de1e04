//! Jinja templates of a task over the columns of a row, with Python's text rules as filters.
//!
//! An unknown name in a template is an error, as is a filter that does not fit its value. Filters beside Jinja's: `strip`,
//! `lstrip`, `rstrip` and `capitalize` as Python's methods, `index(value)` (number of a list's first equal element),
//! `literal` (a string of Python's into its value), `lower_first`, `last_word` and `before_last_word` (cut at white
//! space), `endswith(text)`, `wikitext` and `hellaswag` (`detokenize.rs`), `problems(options, answers)` (RACE's questions
//! with their options and answers), and the functions `bbq_choices` and `bbq_targets` (`bbq.rs`).

use super::bbq;
use super::definition::Definition;
use super::detokenize;
use super::error::{Result, TaskError};
use super::python_text as python;
use super::rows::Row;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::collections::{BTreeMap, HashSet};

/// The templates and expressions of one task.
pub(super) struct Templates {
    environment: Environment<'static>,
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.to_string())
}

fn index(list: Value, wanted: Value) -> Result<usize, Error> {
    let found = list.try_iter()?.position(|value| value == wanted);
    found.ok_or_else(|| failed(format!("{wanted} is not in {list}")))
}

/// RACE's lists of questions, options and answers as one list.
fn problems(
    questions: Vec<Value>,
    options: Vec<Value>,
    answers: Vec<Value>,
) -> Result<Value, Error> {
    let count = questions.len();
    if [options.len(), answers.len()] != [count; 2] {
        return Err(failed(format!(
            "found {count} questions, {} lists of options and {} answers, want as many of each",
            options.len(),
            answers.len()
        )));
    }
    let all = questions.into_iter().zip(options).zip(answers);
    let one = |((question, options), answer): ((Value, Value), Value)| {
        BTreeMap::from([
            ("question", question),
            ("options", options),
            ("answer", answer),
        ])
    };
    Ok(Value::from_serialize(all.map(one).collect::<Vec<_>>()))
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_lowercase().collect::<String>());
    first.unwrap_or_default() + chars.as_str()
}

/// Position of the last run of characters that are not white space.
fn last_word_at(text: &str) -> usize {
    let text = text.trim_end_matches(python::is_space);
    text.rfind(python::is_space).map_or(0, |at| {
        at + text[at..].chars().next().map_or(1, char::len_utf8)
    })
}

impl Templates {
    /// Parses all templates of a definition.
    ///
    /// # Errors
    /// `Definition` with the key.
    pub(super) fn new(definition: &Definition) -> Result<Templates> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_keep_trailing_newline(true);
        environment.add_filter("strip", |text: &str| python::strip(text).to_owned());
        environment.add_filter("lstrip", |text: &str| {
            text.trim_start_matches(python::is_space).to_owned()
        });
        environment.add_filter("rstrip", |text: &str| {
            text.trim_end_matches(python::is_space).to_owned()
        });
        environment.add_filter("capitalize", |text: &str| python::capitalize(text));
        environment.add_filter("index", index);
        environment.add_filter("literal", |text: Value| match text.as_str() {
            Some(text) => python::literal(text)
                .map(Value::from_serialize)
                .map_err(failed),
            None => Ok(text),
        });
        environment.add_filter("lower_first", lower_first);
        environment.add_filter("last_word", |text: &str| {
            python::strip(&text[last_word_at(text)..]).to_owned()
        });
        environment.add_filter("before_last_word", |text: &str| {
            text[..last_word_at(text)].to_owned()
        });
        environment.add_filter("endswith", |text: &str, end: &str| text.ends_with(end));
        environment.add_filter("problems", problems);
        environment.add_filter("wikitext", detokenize::wikitext);
        environment.add_filter("hellaswag", detokenize::hellaswag);
        environment.add_function("bbq_choices", |answers: Vec<String>| {
            bbq::choices(&answers).map_err(failed)
        });
        environment.add_function("bbq_targets", |answers: Vec<String>, label: usize| {
            bbq::targets(&answers, label).map_err(failed)
        });
        let wrong = |key: &str, e: &Error| TaskError::Definition {
            name: definition.name.clone(),
            why: format!("{key}: {e}"),
        };
        for (key, text) in [
            ("description", Some(&definition.description)),
            ("prompt", Some(&definition.prompt)),
            ("answer", definition.answer.as_ref()),
            ("original", definition.original.as_ref()),
        ] {
            let text = text.cloned().unwrap_or_default();
            let added = environment.add_template_owned(key, text);
            added.map_err(|e| wrong(key, &e))?;
        }
        for (key, text) in definition.expressions() {
            let parsed = environment.compile_expression(text);
            parsed.map_err(|e| wrong(key, &e))?;
        }
        Ok(Templates { environment })
    }

    /// The text of a template; `row` as a value.
    ///
    /// # Errors
    /// The engine's message, with the names that the row lacks.
    pub(super) fn text(&self, key: &'static str, row: &Value) -> Result<String, String> {
        let template = self.environment.get_template(key);
        let template = template.map_err(|e| message(&e))?;
        let names = || template.undeclared_variables(true);
        let found = template.render(row);
        found.map_err(|e| self.explained(&e, names, row))
    }

    /// The value of an expression, which may be undefined.
    ///
    /// # Errors
    /// As `text`.
    pub(super) fn value(&self, expression: &str, row: &Value) -> Result<Value, String> {
        let compiled = self.environment.compile_expression(expression);
        let compiled = compiled.map_err(|e| message(&e))?;
        let names = || compiled.undeclared_variables(true);
        let found = compiled.eval(row);
        found.map_err(|e| self.explained(&e, names, row))
    }

    /// The message of an error; of an undefined value with those among the `names` in use that the row lacks.
    fn explained(
        &self,
        error: &Error,
        names: impl FnOnce() -> HashSet<String>,
        row: &Value,
    ) -> String {
        match error.kind() == ErrorKind::UndefinedError {
            true => message(error) + &self.absent(names(), row),
            false => message(error),
        }
    }

    /// Why an expression without a value has none.
    pub(super) fn without_value(&self, expression: &str, row: &Value) -> String {
        let compiled = self.environment.compile_expression(expression);
        let names = compiled.map(|compiled| compiled.undeclared_variables(true));
        format!(
            "undefined value{}",
            self.absent(names.unwrap_or_default(), row)
        )
    }

    /// `: found no NAME among COLUMNS` of names that a row lacks; empty if it has all. A dot leads into an object.
    fn absent(&self, names: HashSet<String>, row: &Value) -> String {
        let is_absent = |name: &String| {
            let mut value = row.clone();
            for part in name.split('.') {
                // an attribute of anything else is a method
                if value.kind() != ValueKind::Map {
                    return false;
                }
                match value.get_attr(part) {
                    Ok(found) if !found.is_undefined() => value = found,
                    Ok(_) | Err(_) => return true,
                }
            }
            false
        };
        let is_function = |name: &String| {
            let mut globals = self.environment.globals();
            globals.any(|(global, _)| global == name)
        };
        let absent = names.into_iter().filter(|name| !is_function(name));
        let mut absent: Vec<String> = absent.filter(is_absent).collect();
        absent.sort();
        let columns = row.try_iter().into_iter().flatten();
        let columns: Vec<String> = columns.map(|column| column.to_string()).collect();
        match absent.is_empty() {
            true => String::new(),
            false => format!(
                ": found no {} among {}",
                absent.join(", "),
                columns.join(", ")
            ),
        }
    }
}

/// A row as templates see it.
pub(super) fn value_of(row: &Row) -> Value {
    Value::from_serialize(row)
}

/// The message of a template's error with its cause.
pub(super) fn message(error: &Error) -> String {
    let mut text = error.detail().unwrap_or_default().to_owned();
    if text.is_empty() {
        text = error.to_string();
    }
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl Definition {
    /// Expressions by key.
    fn expressions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let given = [
            ("keep", &self.keep),
            ("contexts", &self.contexts),
            ("choices", &self.choices),
            ("target", &self.target),
        ];
        let forms = self.forms.iter().flat_map(|form| {
            let all = std::iter::once(&form.when).chain(form.set.values());
            all.map(|text| ("forms", text.as_str()))
        });
        let given = given
            .into_iter()
            .filter_map(|(key, text)| Some((key, text.as_deref()?)));
        let cuts = self.cuts.iter().map(|text| ("cuts", text.as_str()));
        given.chain(forms).chain(cuts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_end_at_white_space() {
        for (text, at) in [("a b c", 4), ("a\u{a0}b \n", 3), ("word", 0), ("", 0)] {
            assert_eq!(last_word_at(text), at, "{text:?}");
        }
        assert_eq!(lower_first("The Cat"), "the Cat");
        assert_eq!(lower_first(""), "");
    }
}
