//! Rows of a data file: JSON Lines, JSON (a list of objects), CSV, TSV, Parquet, or a text file as one row; plain or
//! compressed (zstd, gzip, bzip2, xz, lz4). The name decides, without `.zst`, `.gz`, `.bz2`, `.xz`, `.lz4` at its end.
//!
//! CSV has quotes as in RFC 4180; TSV has none, as GLUE publishes it. Their columns are named by the first line, and
//! their values are strings. A text file's row has the columns `text` and `page`, both its whole text. All columns of
//! the first row exist in every row.

use super::error::{Result, TaskError};
use curate::read::{Format, Input, each_record};
use serde_json::{Map, Value};
use std::path::Path;

/// Columns of a row by name.
pub(super) type Row = Map<String, Value>;

/// Largest row or file that is read at once, in bytes: catches a corpus given by mistake.
const MOST_BYTES: usize = 1 << 30;

const COMPRESSED: [&str; 5] = ["zst", "gz", "bz2", "xz", "lz4"];

/// All rows of a file, in order.
pub(super) fn read(path: &Path) -> Result<Vec<Row>> {
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
    let rows = match ending {
        "jsonl" | "ndjson" => objects(path, Format::Jsonl)?,
        "parquet" => objects(path, Format::Parquet)?,
        "json" => json(path, &whole(path)?)?,
        "csv" => table(path, &whole(path)?, b',', true)?,
        "tsv" => table(path, &whole(path)?, b'\t', false)?,
        "txt" | "tokens" => text(path, whole(path)?)?,
        _ => {
            let why = "found a name without a known ending, want .jsonl, .json, .csv, .tsv, .parquet or .txt, perhaps with .zst or .gz";
            return Err(wrong(path, why));
        }
    };
    match rows.is_empty() {
        true => Err(wrong(path, "the file holds no rows")),
        false => Ok(rows),
    }
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
    let rows: Vec<Value> = serde_json::from_slice(bytes).map_err(|e| wrong(path, e))?;
    let row = |(i, row)| match row {
        Value::Object(row) => Ok(row),
        other => Err(wrong(
            path,
            format!("row {}: found {}, want an object", i + 1, kind(&other)),
        )),
    };
    rows.into_iter().enumerate().map(row).collect()
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
        let cells = headers.iter().zip(record.iter());
        let cell = |(name, cell): (&str, &str)| (name.to_owned(), Value::from(cell));
        rows.push(cells.map(cell).collect());
    }
    Ok(rows)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<Vec<Row>> {
    let text = String::from_utf8(bytes).map_err(|e| wrong(path, e))?;
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
