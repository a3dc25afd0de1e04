//! Rows of a data file: JSON Lines, JSON (a list of objects), CSV, TSV, Parquet, Arrow, or a text file as one row; plain or
//! compressed (zstd, gzip, bzip2, xz, lz4). The name decides, without `.zst`, `.gz`, `.bz2`, `.xz`, `.lz4` at its end.
//!
//! CSV has quotes as in RFC 4180; TSV has none, as GLUE publishes it. Their columns are named by the first line, and
//! their values are strings. A text file's row has the columns `text` and `page`, both its whole text, unless its lines
//! are JSON objects, as RACE's are. All columns of the first row exist in every row. JSON may be an object with the list
//! under `Data`, as TriviaQA's is. A folder holds such text files, or CSV files, as RACE's and MMLU's do.

use super::error::{Result, TaskError};
use curate::read::{Format, Input, each_record};
use serde_json::{Map, Value};
use std::path::Path;

/// Columns of a row by name.
pub(super) type Row = Map<String, Value>;

/// Column with the name of a row's file below a folder.
pub(super) const FILE: &str = "file";

/// Largest row or file that is read at once, in bytes: catches a corpus given by mistake.
const MOST_BYTES: usize = 1 << 30;

const COMPRESSED: [&str; 5] = ["zst", "gz", "bz2", "xz", "lz4"];

/// What a task knows of its files as their authors published them.
#[derive(Clone, Copy)]
pub(super) struct Published<'a> {
    /// Columns of CSV files whose first line does not name them.
    pub csv: &'a [String],
    /// Column whose values are in a file beside.
    pub labels_beside: Option<&'a str>,
}

/// All rows of a file or a folder as their authors published them.
pub(super) fn read_published(path: &Path, published: Published<'_>) -> Result<Vec<Row>> {
    let mut rows = read_with(path, published.csv)?;
    let missing = published.labels_beside;
    let Some(column) = missing.filter(|column| !rows.iter().any(|row| row.contains_key(*column)))
    else {
        return Ok(rows);
    };
    let stem = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = stem.split('.').next().unwrap_or_default();
    let beside = path.with_file_name(format!("{stem}-labels.lst"));
    if !beside.is_file() {
        return Ok(rows); // the column is reported as missing
    }
    let text = String::from_utf8(whole(&beside)?).map_err(|e| wrong(&beside, e))?;
    let labels: Vec<&str> = text.lines().map(str::trim).collect();
    if labels.len() != rows.len() {
        let why = format!(
            "found {} lines, want {}: one a row",
            labels.len(),
            rows.len()
        );
        return Err(wrong(&beside, why));
    }
    for (row, label) in rows.iter_mut().zip(labels) {
        row.insert(column.to_owned(), label.into());
    }
    Ok(rows)
}

/// All rows of a file, in order, or of the files below a folder, in the order of their names.
pub(super) fn read(path: &Path) -> Result<Vec<Row>> {
    read_with(path, &[])
}

/// Calls `each` with every row of a file, in order, or the reason why it is none. JSON Lines, Parquet and Arrow are never held as
/// a whole.
///
/// # Errors
/// A file that cannot be read or is of an unknown kind.
pub(crate) fn each_row(
    path: &Path,
    each: &mut dyn FnMut(std::result::Result<Row, String>),
) -> Result<()> {
    let format = match ending(path).as_str() {
        "jsonl" | "ndjson" => Format::Jsonl,
        "parquet" => Format::Parquet,
        "arrow" | "feather" => Format::Arrow,
        _ => {
            read(path)?.into_iter().for_each(|row| each(Ok(row)));
            return Ok(());
        }
    };
    let read = each_record(path, &input(format), None, MOST_BYTES, &mut |record| {
        if let Some(why) = record.bad {
            each(Err(why.to_owned()));
        } else if !record.block.trim_ascii().is_empty() {
            each(serde_json::from_slice(record.block).map_err(|e| e.to_string()));
        }
    });
    read.map_err(|e| wrong(path, e))
}

/// Like `read`; `columns` are those of CSV files whose first line does not name them.
fn read_with(path: &Path, columns: &[String]) -> Result<Vec<Row>> {
    if path.is_dir() {
        return folder(path, columns);
    }
    let ending = ending(path);
    let rows = match ending.as_str() {
        "jsonl" | "ndjson" => objects(path, Format::Jsonl)?,
        "parquet" => objects(path, Format::Parquet)?,
        "arrow" | "feather" => objects(path, Format::Arrow)?,
        "json" => json(path, &whole(path)?)?,
        "csv" => csv(path, &whole(path)?, columns)?,
        "tsv" => table(path, &whole(path)?, b'\t', false)?,
        "txt" | "tokens" => text(path, whole(path)?)?,
        _ => {
            let why = "found a name without a known ending, want .jsonl, .json, .csv, .tsv, .parquet, .arrow or .txt, perhaps with .zst or .gz";
            return Err(wrong(path, why));
        }
    };
    match rows.is_empty() {
        true => Err(wrong(path, "the file holds no rows")),
        false => Ok(rows),
    }
}

/// Like `read`; `None` for rows of a TSV whose number of columns is not the first line's.
pub(super) fn read_ragged(path: &Path) -> Result<Vec<Option<Row>>> {
    if path.is_dir() || ending(path) != "tsv" {
        return Ok(read(path)?.into_iter().map(Some).collect());
    }
    let bytes = whole(path)?;
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(b'\t')
        .quoting(false)
        .flexible(true)
        .from_reader(bytes.as_slice());
    let headers = reader.headers().map_err(|e| wrong(path, e))?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| wrong(path, e))?;
        let is_whole = record.len() == headers.len();
        rows.push(is_whole.then(|| row_of(&headers, &record)));
    }
    Ok(rows)
}

/// The rows of the text files (JSON objects, one a line) and CSV files below a folder.
fn folder(path: &Path, columns: &[String]) -> Result<Vec<Row>> {
    let mut files = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| wrong(&folder, e))?;
        for entry in entries {
            let path = entry.map_err(|e| wrong(&folder, e))?.path();
            match path.is_dir() {
                true => folders.push(path),
                false if ["txt", "csv"].contains(&&*ending(&path)) => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    let mut rows = Vec::new();
    for file in &files {
        let name = file.strip_prefix(path).unwrap_or(file).to_string_lossy();
        let rows_of_file = match &*ending(file) {
            "csv" => csv(file, &whole(file)?, columns)?,
            _ => objects(file, Format::Jsonl)?,
        };
        for mut row in rows_of_file {
            row.insert(FILE.into(), name.as_ref().into());
            rows.push(row);
        }
    }
    match rows.is_empty() {
        true => Err(wrong(path, "found no .txt or .csv file with rows in it")),
        false => Ok(rows),
    }
}

/// The ending of a name that tells the format.
fn ending(path: &Path) -> String {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let mut kind = name.rsplit('.');
    let mut ending = kind.next().unwrap_or_default();
    if COMPRESSED.contains(&ending) {
        ending = kind.next().unwrap_or_default();
    }
    ending.to_owned()
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> TaskError {
    TaskError::File {
        path: path.to_path_buf(),
        why: why.to_string(),
    }
}

fn input(format: Format) -> Input {
    Input {
        format,
        ..Input::default()
    }
}

fn objects(path: &Path, format: Format) -> Result<Vec<Row>> {
    let (mut rows, mut bad) = (Vec::new(), None);
    let read = each_record(path, &input(format), None, MOST_BYTES, &mut |record| {
        if bad.is_some() {
            return;
        }
        let row = rows.len() + 1;
        if let Some(why) = record.bad {
            bad = Some(format!("row {row}: {why}"));
        } else if !record.block.trim_ascii().is_empty() {
            match serde_json::from_slice(record.block) {
                Ok(found) => rows.push(found),
                Err(e) => bad = Some(format!("row {row}: {e}")),
            }
        }
    });
    read.map_err(|e| wrong(path, e))?;
    match bad {
        Some(why) => Err(wrong(path, why)),
        None => Ok(rows),
    }
}

/// The decompressed bytes of a file.
fn whole(path: &Path) -> Result<Vec<u8>> {
    let (mut bytes, mut bad) = (Vec::new(), None);
    let read = each_record(
        path,
        &input(Format::Text),
        None,
        MOST_BYTES,
        &mut |record| {
            bytes.extend_from_slice(record.block);
            bad = bad.take().or_else(|| record.bad.map(str::to_owned));
        },
    );
    read.map_err(|e| wrong(path, e))?;
    match bad {
        Some(why) => Err(wrong(path, why)),
        None => Ok(bytes),
    }
}

fn json(path: &Path, bytes: &[u8]) -> Result<Vec<Row>> {
    let mut whole: Value = serde_json::from_slice(bytes).map_err(|e| wrong(path, e))?;
    let rows = match whole.get_mut("Data") {
        Some(data) => data.take(),
        None => whole,
    };
    let Value::Array(rows) = rows else {
        let why = format!("found {}, want a list of objects", kind(&rows));
        return Err(wrong(path, why));
    };
    let row = |(i, row)| match row {
        Value::Object(row) => Ok(row),
        other => Err(wrong(
            path,
            format!("row {}: found {}, want an object", i + 1, kind(&other)),
        )),
    };
    rows.into_iter().enumerate().map(row).collect()
}

/// Rows of a CSV file; if its first line does not name the first of `columns`, all lines are rows of these.
fn csv(path: &Path, bytes: &[u8], columns: &[String]) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(bytes);
    let mut records = reader.records();
    let first = records.next().transpose().map_err(|e| wrong(path, e))?;
    // an answer may be called as a column is: B
    let is_header = |first: &csv::StringRecord| {
        first
            .iter()
            .any(|name| Some(name) == columns.first().map(String::as_str))
    };
    let is_headless = first
        .as_ref()
        .is_some_and(|first| first.len() == columns.len() && !is_header(first));
    if !is_headless {
        return table(path, bytes, b',', true);
    }
    let headers = csv::StringRecord::from(columns.to_vec());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut rows = Vec::new();
    for record in first.into_iter().map(Ok).chain(records) {
        let mut row = row_of(&headers, &record.map_err(|e| wrong(path, e))?);
        row.insert(FILE.into(), name.as_ref().into());
        rows.push(row);
    }
    Ok(rows)
}

fn table(path: &Path, bytes: &[u8], delimiter: u8, quotes: bool) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .quoting(quotes)
        .from_reader(bytes);
    let headers = reader.headers().map_err(|e| wrong(path, e))?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| wrong(path, e))?;
        rows.push(row_of(&headers, &record));
    }
    Ok(rows)
}

fn row_of(headers: &csv::StringRecord, record: &csv::StringRecord) -> Row {
    let cells = headers.iter().zip(record.iter());
    let cell = |(name, cell): (&str, &str)| (name.to_owned(), Value::from(cell));
    cells.map(cell).collect()
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<Vec<Row>> {
    let text = String::from_utf8(bytes).map_err(|e| wrong(path, e))?;
    if text.trim_start().starts_with('{') {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let rows: Result<Vec<Row>, _> = lines.map(serde_json::from_str).collect();
        if let Ok(rows) = rows {
            return Ok(rows);
        }
    }
    let columns = ["text", "page"].map(|name| (name.to_owned(), Value::from(text.clone())));
    Ok(vec![columns.into_iter().collect()])
}

/// Kind of a value, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(name: &str, text: &str) -> Result<Vec<Row>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let bytes = match name.ends_with(".zst") {
            true => zstd::encode_all(text.as_bytes(), 1).unwrap(),
            false => text.as_bytes().to_vec(),
        };
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    }

    #[test]
    fn every_format_gives_the_same_rows() {
        let wanted = serde_json::json!([{"a": "x \"y\"", "b": "1"}, {"a": "é\nz", "b": "2"}]);
        let json = wanted.to_string();
        let lines: Vec<String> = wanted
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect();
        for (name, text) in [
            ("rows.jsonl", lines.join("\n")),
            ("rows.jsonl.zst", lines.join("\n")),
            ("rows.json", json),
            (
                "rows.csv.zst",
                "a,b\n\"x \"\"y\"\"\",1\n\"é\nz\",2\n".into(),
            ),
        ] {
            let rows = read_text(name, &text).unwrap();
            assert_eq!(
                serde_json::to_value(rows).unwrap(),
                wanted,
                "{name}: {text}"
            );
        }
        let rows = read_text("rows.tsv", "a\tb\n\"x\t'y\n").unwrap();
        assert_eq!(rows[0]["a"], "\"x");
        let rows = read_text("wiki.txt", "one\ntwo\n").unwrap();
        assert_eq!(rows[0]["page"], "one\ntwo\n");
    }

    #[test]
    fn files_that_hold_no_rows_are_named() {
        for (name, text, part) in [
            ("a.jsonl", "", "empty"),
            ("a.jsonl", "{\"a\": 1}\n{\"a\": \n", "row 2"),
            ("a.json", "[1]", "row 1: found a number"),
            ("a.csv", "a,b\n1\n", "1"),
            ("a.bin", "x", "ending"),
            ("a.parquet", "x", "Parquet"),
        ] {
            let error = read_text(name, text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(name), "{error}");
        }
    }
}
