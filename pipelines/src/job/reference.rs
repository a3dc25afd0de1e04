//! The key reference, `pipelines/docs/keys.md`, as data. It is made from the doc comments of the settings, and a test holds it to
//! the sources and the program, so it is the one place that explanations come from.

use std::sync::OnceLock;

const TEXT: &str = include_str!("../../docs/keys.md");

/// A table of a job file.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// As a job file has it: `[train]`, `[[curate.inputs]]`; empty for the top level.
    pub(crate) heading: String,
    /// `curate.inputs`.
    pub(crate) path: String,
    pub(crate) meaning: String,
    pub(crate) keys: Vec<Key>,
}

/// A key of a table.
#[derive(Debug, Default)]
pub(crate) struct Key {
    /// `curate.inputs.path`.
    pub(crate) path: String,
    pub(crate) kind: String,
    /// As the reference has it: TOML, `none`, `required`, or `its keys'`.
    pub(crate) default: String,
    pub(crate) meaning: String,
    /// Accepted words with their meanings.
    pub(crate) words: Vec<(String, String)>,
    /// Names that the keys of the table may have.
    pub(crate) names: Vec<String>,
    /// Paths of the tables that its value may be.
    pub(crate) tables: Vec<String>,
}

/// All tables, in the order of the reference.
pub(crate) fn tables() -> &'static [Table] {
    static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
    TABLES.get_or_init(|| parse(TEXT))
}

/// All keys.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    tables().iter().flat_map(|table| &table.keys)
}

/// Place of a table in the reference.
pub(crate) fn source(table: &Table) -> String {
    let anchor: String = match table.heading.as_str() {
        "" => "top-level".to_string(),
        heading => heading
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
            .collect(),
    };
    format!("pipelines/docs/keys.md#{anchor}")
}

/// `curate.inputs` of `[[curate.inputs]]`.
fn path_of(heading: &str) -> String {
    heading.trim_matches(['`', '[', ']']).to_string()
}

fn parse(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            let heading = match title {
                "Top level" => String::new(),
                title => title.trim_matches('`').to_string(),
            };
            tables.push(Table {
                path: path_of(&heading),
                heading,
                ..Table::default()
            });
            continue;
        }
        let Some(table) = tables.last_mut() else {
            continue;
        };
        if let Some(cells) = line.strip_prefix("| `") {
            table.keys.extend(key(&table.path, cells));
        } else if !line.starts_with('|') && !line.is_empty() && table.keys.is_empty() {
            if !table.meaning.is_empty() {
                table.meaning.push(' ');
            }
            table.meaning.push_str(&unescaped(line));
        }
    }
    tables
}

fn unescaped(cell: &str) -> String {
    cell.replace("\\|", "|")
}

/// A row without its first bar and quote.
fn key(table: &str, row: &str) -> Option<Key> {
    let mut cells = row.trim_end().trim_end_matches('|').splitn(4, " | ");
    let name = cells.next()?.strip_suffix('`')?;
    let (kind, default) = (cells.next()?.to_string(), unescaped(cells.next()?));
    let (meaning, tables) = without_links(cells.next()?.trim());
    let mut parts = meaning.split("<br>");
    let mut meaning = unescaped(parts.next()?.trim());
    let word = |part: &str| {
        let (word, meaning) = part.strip_prefix("`\"")?.split_once("\"`: ")?;
        Some((word.to_string(), unescaped(meaning.trim())))
    };
    let words = parts.filter_map(word).collect();
    let mut names = Vec::new();
    if let Some((before, listed)) = meaning.split_once(" Names: ") {
        names = listed
            .trim_end_matches('.')
            .split(", ")
            .map(|name| name.trim_matches('`').to_string())
            .collect();
        meaning = before.to_string();
    }
    let path = match table {
        "" => name.to_string(),
        table => format!("{table}.{name}"),
    };
    Some(Key {
        path,
        kind,
        default: default.trim_matches('`').to_string(),
        meaning,
        words,
        names,
        tables,
    })
}

/// A text without its links to tables, and the paths of these.
fn without_links(text: &str) -> (String, Vec<String>) {
    let mut rest = text;
    let (mut plain, mut found) = (String::new(), Vec::new());
    while let Some((before, after)) = rest.split_once("[`[") {
        let Some((heading, after)) = after.split_once("`](") else {
            break;
        };
        let Some((_, after)) = after.split_once(')') else {
            break;
        };
        plain.push_str(before.trim_end());
        found.push(path_of(heading));
        rest = after;
    }
    plain.push_str(rest);
    (plain, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_reference_is_read() {
        let rows = TEXT.lines().filter(|l| l.starts_with("| `")).count();
        assert_eq!(keys().count(), rows);
        let headings = TEXT.lines().filter(|l| l.starts_with("##")).count();
        assert_eq!(tables().len(), headings);
        for key in keys() {
            assert!(!key.kind.is_empty() && !key.default.is_empty(), "{key:?}");
            assert!(!key.meaning.is_empty(), "{key:?}");
            assert!(!key.meaning.contains("](#"), "{key:?}");
            if key.kind == "word" && key.default.starts_with('"') {
                let default = key.default.trim_matches('"');
                let is_known = |(word, _): &(String, String)| word == default;
                assert!(key.words.iter().any(is_known), "{key:?}");
            }
        }
    }

    #[test]
    fn a_row_has_its_parts() {
        let row =
            "a` | word | `\"x\\|y\"` | Which one. [`[[b.c]]`](#bc)<br>`\"x|y\"`: The first. |";
        let key = key("t", row).unwrap();
        assert_eq!(
            (&*key.path, &*key.kind, &*key.default),
            ("t.a", "word", "\"x|y\"")
        );
        assert_eq!(key.meaning, "Which one.");
        assert_eq!(key.words, [("x|y".to_string(), "The first.".to_string())]);
        assert_eq!(key.tables, ["b.c"]);
    }
}
