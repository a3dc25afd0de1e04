//! Places of keys in the text of a job file: line and column, with the line marked, as compilers show them.

use super::problem::Problem;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Characters of a line that are shown, so that a long one does not fill the screen.
const WIDTH: usize = 100;
/// Of them those before a place that is further to the right.
const BEFORE: usize = 40;
/// Marks of a line that goes on.
const CUT: &str = " ...";
const CUT_BEFORE: &str = "... ";

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Counted from 1.
    pub line: usize,
    /// Characters before it on the line, plus 1.
    pub column: usize,
    /// The line, or the part of a long one around the place.
    text: String,
    /// Characters of `text` before the place.
    indent: usize,
    /// Characters of it that are marked; at least 1.
    width: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let (before, marks) = (" ".repeat(self.indent), "^".repeat(self.width));
        write!(
            f,
            "\n  {number} | {}\n  {margin} | {before}{marks}",
            self.text
        )
    }
}

/// Where a key path, dotted with `[0]` for elements of arrays, is in the text; of a key that is not there, the last table before it.
/// A value is marked where it stands beside its key, a table by its name, and a key that `is_unknown` by the key.
fn of(text: &str, path: &str, is_unknown: bool) -> Option<Place> {
    let root = DeTable::parse(text).ok()?;
    let (mut table, mut list) = (Some(root.get_ref()), None);
    let mut found: Option<Range<usize>> = None;
    let steps = steps(path);
    for (at, step) in steps.iter().enumerate() {
        let is_last = at + 1 == steps.len();
        let inner: &Spanned<DeValue<'_>> = match step {
            Step::Key(name) => {
                let Some((key, inner)) = table.and_then(|table| table.get_key_value(*name)) else {
                    break;
                };
                let is_beside = is_last && !is_unknown && !is_table(inner.get_ref());
                found = Some(if is_beside { inner.span() } else { key.span() });
                inner
            }
            Step::Number(number) => {
                let element = list.and_then(|list: &DeArray<'_>| list.get(*number));
                let Some(inner) = element else { break };
                found = Some(inner.span());
                inner
            }
        };
        table = inner.get_ref().as_table();
        list = inner.get_ref().as_array();
    }
    found.map(|range| place(text, range))
}

/// Whether a value is a table, or has tables as elements: it may stand far from its key.
fn is_table(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(list) => list.iter().any(|one| one.get_ref().is_table()),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => false,
    }
}

/// Where each problem is in the text of its file.
pub(crate) fn places(text: &str, problems: &[Problem]) -> Vec<Option<Place>> {
    let of = |problem: &Problem| {
        let is_unknown = problem.found.starts_with("unknown key");
        of(text, &problem.key, is_unknown)
    };
    problems.iter().map(of).collect()
}

enum Step<'a> {
    Key(&'a str),
    Number(usize),
}

/// `curate`, `inputs`, 0, `path` of `curate.inputs[0].path`.
fn steps(path: &str) -> Vec<Step<'_>> {
    let mut found = Vec::new();
    for part in path.split('.') {
        let mut pieces = part.split('[');
        found.extend(pieces.next().filter(|name| !name.is_empty()).map(Step::Key));
        for piece in pieces {
            let number = piece.strip_suffix(']').and_then(|text| text.parse().ok());
            found.extend(number.map(Step::Number));
        }
    }
    found
}

/// The first line of a range of bytes.
fn place(text: &str, range: Range<usize>) -> Place {
    let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[range.start..]
        .find('\n')
        .map_or(text.len(), |at| range.start + at);
    let line = text[..start].matches('\n').count() + 1;
    // a tab is as wide as the blank below it
    let shown = |text: &str| text.trim_end_matches('\r').replace('\t', " ");
    let column = text[start..range.start].chars().count() + 1;
    let marked = text[range.start..range.end.min(end)].trim_end();
    let whole = shown(&text[start..end]);
    let far = column + marked.chars().count();
    let width = marked.chars().count().max(1);
    let (before, width) = match far > WIDTH {
        false => (0, width),
        // the beginning of a long line, and of what is marked the part on it
        true if column < WIDTH => (0, WIDTH - column),
        true => (column - 1 - BEFORE, width.min(WIDTH - BEFORE)),
    };
    let mut text: String = whole.chars().skip(before).take(WIDTH).collect();
    if before + WIDTH < whole.chars().count() {
        text.push_str(CUT);
    }
    let mut indent = column - 1 - before;
    if before > 0 {
        text.insert_str(0, CUT_BEFORE);
        indent += CUT_BEFORE.len();
    }
    Place {
        line,
        column,
        text,
        indent,
        width,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"a\"\n[train]\nsteps = \"many\" # so many\n[[curate.inputs]]\npath = 5\n[[curate.inputs]]\n\
                        path = \"b\"\nlong = [1,\n 2]\n";

    fn shown(path: &str, is_unknown: bool) -> Option<String> {
        of(TEXT, path, is_unknown).map(|place| format!("{}:{}{place}", place.line, place.column))
    }

    #[test]
    fn values_tables_keys_and_elements_are_marked() {
        for (path, is_unknown, wanted) in [
            (
                "train.steps",
                false,
                "3:9\n  3 | steps = \"many\" # so many\n    |         ^^^^^^",
            ),
            (
                "train.steps",
                true,
                "3:1\n  3 | steps = \"many\" # so many\n    | ^^^^^",
            ),
            ("train", false, "2:2\n  2 | [train]\n    |  ^^^^^"),
            // absent: the table that lacks it
            ("train.lr", false, "2:2\n  2 | [train]\n    |  ^^^^^"),
            (
                "curate.inputs[0].path",
                false,
                "5:8\n  5 | path = 5\n    |        ^",
            ),
            (
                "curate.inputs[1].path",
                false,
                "7:8\n  7 | path = \"b\"\n    |        ^^^",
            ),
            (
                "curate.inputs[1].long[1]",
                false,
                "9:2\n  9 |  2]\n    |  ^",
            ),
            (
                "curate.inputs[1].long",
                false,
                "8:8\n  8 | long = [1,\n    |        ^^^",
            ),
        ] {
            assert_eq!(shown(path, is_unknown).as_deref(), Some(wanted), "{path}");
        }
        assert_eq!(shown("blend.seq_length", false), None);
        assert_eq!(of("no = toml = file", "no", false), None);
    }

    #[test]
    fn long_lines_and_letters_of_several_bytes_keep_their_columns() {
        let place = of("näme = \"ß\"\tx = 1", "a", false);
        assert_eq!(place, None, "no TOML");
        let place = of("'ä' = { b = \"ß\" }\n", "ä.b", false).unwrap();
        assert_eq!((place.line, place.column, place.width), (1, 13, 3));
        let text = format!("a = [\"{}\", 5]\n", "x".repeat(300));
        let place = of(&text, "a[1]", false).unwrap();
        // `a = ["`, 300 letters, `", `
        assert_eq!((place.column, place.width), (310, 1));
        let shown = format!("... {}\", 5]", "x".repeat(37));
        assert_eq!(place.text, shown);
        let marked = format!("\n  1 | {shown}\n    | {}^", " ".repeat(44));
        assert_eq!(place.to_string(), marked);
        let place = of(&text, "a", false).unwrap();
        assert_eq!((place.column, place.width), (5, 95));
        assert!(place.text.ends_with(" ..."));
    }
}
