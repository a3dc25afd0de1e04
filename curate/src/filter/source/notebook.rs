//! Jupyter notebooks to text: a script, Markdown, or StarCoder's pairs of text and code.
//!
//! Notebooks of nbformat 4, and of nbformat 3 with its worksheets. `script` is jupytext's percent format (1.19, without
//! metadata and with magic commands as they are), `markdown` its Markdown; `structured` is StarCoder's layout (Li et al.
//! 2023, arXiv:2305.06161, section 3.3): neighbouring cells of one kind are merged, and of merged code the last output
//! counts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::file;
use super::languages;
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::json;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Layout of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotebookForm {
    /// Code with text cells as comments.
    #[default]
    Script,
    /// Text with code cells as fenced blocks.
    Markdown,
    /// `<jupyter_start><jupyter_text>`, `<jupyter_code>` and `<jupyter_output>`, as StarCoder was trained.
    Structured,
}

/// Turns Jupyter notebooks into text; other documents pass as they are. A document is a notebook if its file is named
/// `.ipynb`, or if it is a JSON object with `cells` or `worksheets`, and `nbformat`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Notebook {
    /// Layout.
    pub form: NotebookForm,
    /// With `markdown`: outputs of code cells as fenced blocks. `structured` always has them.
    pub outputs: bool,
    /// Field of `meta` with the file's path. Default: `path`, `file_path`, `max_stars_repo_path`, `filename` or
    /// `file_name`, else the path of the address.
    pub path_key: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Code,
    Raw,
}

struct Cell {
    kind: Kind,
    source: String,
    output: String,
}

/// A text that is a string or a list of strings.
fn joined(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

impl Cell {
    fn of(value: &Value) -> Cell {
        let kind = match value.get("cell_type").and_then(Value::as_str) {
            Some("code") => Kind::Code,
            Some("raw") => Kind::Raw,
            _ => Kind::Text,
        };
        let mut source = joined(value.get("source").or_else(|| value.get("input")));
        if value.get("cell_type").and_then(Value::as_str) == Some("heading") {
            let level = value.get("level").and_then(Value::as_u64).unwrap_or(1);
            let marks = "#".repeat(usize::try_from(level.min(6)).unwrap_or(1));
            source = format!("{marks} {source}");
        }
        let outputs = value.get("outputs").and_then(Value::as_array);
        let outputs = outputs.into_iter().flatten().map(output);
        Cell {
            kind,
            source,
            output: outputs.collect(),
        }
    }
}

/// The text of an output.
fn output(value: &Value) -> String {
    let kind = value.get("output_type").and_then(Value::as_str);
    if matches!(kind, Some("error" | "pyerr")) {
        let part = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        return format!("{}: {}\n", part("ename"), part("evalue"));
    }
    let data = value.get("data").and_then(|data| data.get("text/plain"));
    let mut text = joined(data.or_else(|| value.get("text")));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The cells of a notebook and its language.
fn cells(object: &Map<String, Value>) -> (Vec<Cell>, String) {
    let list = |value: &Value| value.get("cells").and_then(Value::as_array).cloned();
    let sheets = object.get("worksheets").and_then(Value::as_array);
    let cells = match object.get("cells").and_then(Value::as_array) {
        Some(cells) => cells.clone(),
        None => sheets
            .into_iter()
            .flatten()
            .filter_map(list)
            .flatten()
            .collect(),
    };
    let meta = |path: [&str; 2]| object.get("metadata")?.get(path[0])?.get(path[1])?.as_str();
    let language = meta(["language_info", "name"])
        .or_else(|| meta(["kernelspec", "language"]))
        .unwrap_or("python");
    (cells.iter().map(Cell::of).collect(), language.to_string())
}

/// Start of a comment in a script of the language.
fn comment(language: &str) -> &'static str {
    match language {
        "javascript" | "typescript" | "java" | "scala" | "c++" | "rust" | "go" | "csharp"
        | "c#" | "kotlin" | "groovy" | "fsharp" | "f#" | "swift" => "//",
        "matlab" | "octave" => "%",
        "clojure" | "scheme" => ";;",
        "haskell" | "lua" | "sql" => "--",
        _ => "#",
    }
}

impl Notebook {
    /// Writes a notebook to `out`; the error says why it cannot be read.
    pub fn convert(&self, notebook: &str, out: &mut String) -> std::result::Result<(), String> {
        let value = json::from_slice(notebook.as_bytes()).map_err(|e| e.to_string())?;
        self.write(&value, out);
        Ok(())
    }

    fn write(&self, object: &Map<String, Value>, out: &mut String) {
        let (cells, language) = cells(object);
        out.clear();
        match self.form {
            NotebookForm::Script => script(&cells, &language, out),
            NotebookForm::Markdown => self.markdown(&cells, &language, out),
            NotebookForm::Structured => structured(&cells, out),
        }
    }

    fn markdown(&self, cells: &[Cell], language: &str, out: &mut String) {
        for cell in cells {
            if !out.is_empty() {
                out.push('\n');
            }
            match cell.kind {
                Kind::Code => fenced(&cell.source, language, out),
                Kind::Text | Kind::Raw => {
                    out.push_str(&cell.source);
                    out.push('\n');
                }
            }
            if self.outputs && !cell.output.is_empty() {
                out.push('\n');
                fenced(cell.output.trim_end_matches('\n'), "output", out);
            }
        }
    }
}

/// A fenced block; the fence is longer than any inside.
fn fenced(source: &str, language: &str, out: &mut String) {
    let longest = source
        .lines()
        .map(|l| l.trim_start().bytes().take_while(|b| *b == b'`').count());
    let fence = "`".repeat((longest.max().unwrap_or(0) + 1).max(3));
    out.push_str(&fence);
    out.push_str(language);
    out.push('\n');
    out.push_str(source);
    out.push('\n');
    out.push_str(&fence);
    out.push('\n');
}

fn script(cells: &[Cell], language: &str, out: &mut String) {
    let comment = comment(language);
    for (number, cell) in cells.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let kind = match cell.kind {
            Kind::Code => "",
            Kind::Text => " [markdown]",
            Kind::Raw => " [raw]",
        };
        out.push_str(comment);
        out.push_str(" %%");
        out.push_str(kind);
        out.push('\n');
        if cell.source.is_empty() {
            continue;
        }
        for line in cell.source.split('\n') {
            if cell.kind != Kind::Code {
                out.push_str(comment);
                out.push_str(if line.is_empty() { "" } else { " " });
            }
            out.push_str(line);
            out.push('\n');
        }
    }
}

/// Neighbouring cells of one kind, merged.
fn merged(cells: &[Cell]) -> Vec<Cell> {
    let mut merged: Vec<Cell> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.source.trim().is_empty()) {
        let kind = match cell.kind {
            Kind::Code => Kind::Code,
            Kind::Text | Kind::Raw => Kind::Text,
        };
        match merged.last_mut().filter(|last| last.kind == kind) {
            Some(last) => {
                last.source.push('\n');
                last.source.push_str(&cell.source);
                last.output.clone_from(&cell.output);
            }
            None => merged.push(Cell {
                kind,
                source: cell.source.clone(),
                output: cell.output.clone(),
            }),
        }
    }
    merged
}

fn structured(cells: &[Cell], out: &mut String) {
    out.push_str("<jupyter_start>");
    for cell in merged(cells) {
        match cell.kind {
            Kind::Text | Kind::Raw => {
                out.push_str("<jupyter_text>");
                out.push_str(&cell.source);
            }
            Kind::Code => {
                out.push_str("<jupyter_code>");
                out.push_str(&cell.source);
                out.push_str("<jupyter_output>");
                let output = cell.output.trim_end_matches('\n');
                out.push_str(if output.is_empty() {
                    "<empty_output>"
                } else {
                    output
                });
            }
        }
    }
}

impl StepConfig for Notebook {
    fn name(&self) -> &'static str {
        "notebook"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.outputs && self.form != NotebookForm::Markdown {
            let wanted = "false, or form = \"markdown\"";
            problem("outputs", "true".to_string(), wanted);
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Notebook {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, _: &mut Judge) -> Verdict {
        let is_named =
            file::path(draft, &self.path_key).is_some_and(|p| file::extension(p) == "ipynb");
        let may_be = draft.text.trim_start().starts_with('{')
            && memchr::memmem::find(draft.text.as_bytes(), b"\"nbformat\"").is_some();
        if !is_named && !may_be {
            return KEEP;
        }
        let parsed = json::from_slice(draft.text.as_bytes());
        let has_cells = |o: &Map<String, Value>| {
            ["cells", "worksheets"]
                .iter()
                .any(|k| o.get(*k).is_some_and(Value::is_array))
        };
        let object = match parsed {
            Ok(object) if has_cells(&object) => object,
            _ if !is_named => return KEEP,
            Ok(_) => {
                return Verdict::Break(broken("notebook.broken", "no cells", "a notebook"));
            }
            Err(e) => {
                return Verdict::Break(broken("notebook.broken", e.to_string(), "a notebook"));
            }
        };
        self.write(&object, &mut scratch.rewritten);
        if scratch.rewritten.trim().is_empty() {
            return Verdict::Break(broken("notebook.empty", 0.0, 1.0));
        }
        let (_, language) = cells(&object);
        if let Some(known) = languages::by_name(&language) {
            draft.note("file_language", Value::String(known.name().to_string()));
        }
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn converted(form: &str, notebook: &Value) -> String {
        let config: Notebook = serde_json::from_str(form).unwrap();
        let mut out = String::new();
        config.convert(&notebook.to_string(), &mut out).unwrap();
        out
    }

    #[test]
    fn merged_cells_keep_the_last_output() {
        let notebook = json!({"nbformat": 4, "cells": [
            {"cell_type": "markdown", "source": ["# A\n", "b"]}, {"cell_type": "markdown", "source": "c"},
            {"cell_type": "code", "source": "x = 1\nx", "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["1"]}}]},
            {"cell_type": "code", "source": "y", "outputs": [{"output_type": "stream", "text": "two\n"},
                {"output_type": "error", "ename": "E", "evalue": "v"}]},
            {"cell_type": "markdown", "source": "d"}, {"cell_type": "code", "source": "z", "outputs": []}]});
        assert_eq!(
            converted(r#"{"form": "structured"}"#, &notebook),
            "<jupyter_start><jupyter_text># A\nb\nc<jupyter_code>x = 1\nx\ny<jupyter_output>two\nE: v\
            <jupyter_text>d<jupyter_code>z<jupyter_output><empty_output>"
        );
    }

    #[test]
    fn worksheets_and_headings_of_format_3_are_read() {
        let notebook = json!({"nbformat": 3, "worksheets": [{"cells": [
            {"cell_type": "heading", "level": 2, "source": "A"}, {"cell_type": "code", "input": ["x\n", "y"], "outputs": []}]}]});
        assert_eq!(
            converted(r#"{"form": "markdown"}"#, &notebook),
            "## A\n\n```python\nx\ny\n```\n"
        );
    }

    #[test]
    fn only_notebooks_change_and_broken_ones_are_dropped() {
        let step = Notebook::default();
        let run = |path: &str, text: &str| {
            let mut draft = Draft {
                text: text.to_string(),
                meta: Some(json!({"path": path})),
                ..Draft::default()
            };
            let verdict = step.apply(
                &mut draft,
                &mut StepScratch::default(),
                &mut Judge::strict(),
            );
            verdict.break_value().map_or(draft.text, |r| r.rule)
        };
        assert_eq!(run("a.py", "x"), "x");
        assert_eq!(run("a.json", r#"{"nbformat": 1}"#), r#"{"nbformat": 1}"#);
        assert_eq!(run("a.ipynb", "{"), "notebook.broken");
        assert_eq!(run("a.ipynb", "{}"), "notebook.broken");
        assert_eq!(run("a.ipynb", r#"{"cells": []}"#), "notebook.empty");
        let code = r#"{"nbformat": 4, "cells": [{"cell_type": "code", "source": "x"}]}"#;
        assert_eq!(run("", code), "# %%\nx\n");
    }
}
