//! A first look at a file of somebody else's: its format, and the fields of its first records.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{At, Error, Result};
use crate::read::{Batch, Format, Input, Keys, Reader, column_names, detect};
use crate::text::json;

/// Records that are looked at.
const RECORDS: usize = 200;
/// Longest record.
const MOST_BYTES: usize = 64 << 20;

/// A file at first sight.
#[derive(Clone, Debug, PartialEq)]
pub struct FileLook {
    /// Its format, or the kind of a file that no format reads.
    pub format: std::result::Result<Format, String>,
    /// Fields of its first records, in the alphabet's order; none of a format without fields.
    pub fields: Vec<FieldLook>,
}

/// A field of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLook {
    /// Its name.
    pub name: String,
    /// Records in which it is a string, or a list of strings.
    pub texts: usize,
    /// Bytes of these strings.
    pub bytes: usize,
}

/// Looks at a file. The bytes decide the format; of separated values, whose bytes are any text's, the name (`.csv`, `.tsv`).
///
/// # Errors
/// `Io`; `Damaged` or `Format` for a file that cannot be read as what it seems to be.
pub fn look(path: &Path) -> Result<FileLook> {
    let found = detect(path, &Input::of(Format::Auto)).at(path)?;
    let format = match found {
        Err(kind) => {
            return Ok(FileLook {
                format: Err(kind.to_string()),
                fields: Vec::new(),
            });
        }
        Ok(format) => format,
    };
    let fields = match format {
        Format::Jsonl
        | Format::Dolma
        | Format::Parquet
        | Format::Arrow
        | Format::Csv
        | Format::Tsv => fields(path, format)?,
        Format::Auto
        | Format::Warc
        | Format::Wet
        | Format::Wat
        | Format::Html
        | Format::Wikipedia
        | Format::Epub
        | Format::Docx
        | Format::Odt
        | Format::Pdf
        | Format::Latex
        | Format::Wacz
        | Format::Zim
        | Format::Text => Vec::new(),
    };
    Ok(FileLook {
        format: Ok(format),
        fields,
    })
}

fn fields(path: &Path, format: Format) -> Result<Vec<FieldLook>> {
    let mut input = Input::of(format);
    if matches!(format, Format::Csv | Format::Tsv) {
        // any column may turn out to be the text
        let first = column_names(path, format)?.into_iter().next();
        input.text_key = first.map_or_else(Keys::default, Keys::One);
    }
    let mut reader = Reader::open(path, &input, None, MOST_BYTES)?;
    let mut batch = Batch::default();
    let mut found: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut left = RECORDS;
    while left > 0 && reader.fill(&mut batch)? {
        let why = batch.records.first().and_then(|raw| raw.bad.clone());
        if let Some(found) = why.filter(|_| reader.is_cut()) {
            return Err(Error::Format {
                path: path.to_path_buf(),
                wanted: "a whole Parquet file",
                found,
                start: "a footer at its end",
            });
        }
        for raw in batch.records.iter().filter(|raw| raw.bad.is_none()) {
            if left == 0 {
                break;
            }
            left -= 1;
            if let Ok(record) = json::from_slice::<Map<String, Value>>(batch.bytes(raw)) {
                count("", &record, &mut found);
            }
        }
    }
    let look = |(name, (texts, bytes))| FieldLook { name, texts, bytes };
    Ok(found.into_iter().map(look).collect())
}

/// Counts the fields of an object, and of the objects directly in it (`body.text`).
fn count(prefix: &str, record: &Map<String, Value>, found: &mut BTreeMap<String, (usize, usize)>) {
    for (name, value) in record {
        let name = format!("{prefix}{name}");
        let bytes = match value {
            Value::String(text) => Some(text.len()),
            Value::Array(list) if !list.is_empty() => {
                list.iter().map(|v| v.as_str().map(str::len)).sum()
            }
            Value::Object(inner) if prefix.is_empty() => {
                count(&format!("{name}."), inner, found);
                continue;
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        };
        let field = found.entry(name).or_default();
        if let Some(bytes) = bytes {
            field.0 += 1;
            field.1 += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_fields_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let seen = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            look(&path).unwrap()
        };
        let lines = "{\"id\":1,\"body\":{\"raw\":\"four\"},\"tags\":[\"a\",\"bc\"]}\n{\"id\":2,\"body\":{}}\n";
        let found = seen("x.jsonl", lines);
        assert_eq!(found.format, Ok(Format::Jsonl));
        let fields: Vec<(&str, usize, usize)> = (found.fields.iter())
            .map(|f| (&*f.name, f.texts, f.bytes))
            .collect();
        assert_eq!(fields, [("body.raw", 1, 4), ("id", 0, 0), ("tags", 1, 3)]);
        let table = seen("x.csv", "nr,story\n1,once upon a time\n");
        assert_eq!(table.format, Ok(Format::Csv));
        let story = table.fields.iter().find(|f| f.name == "story").unwrap();
        assert_eq!(story.bytes, "once upon a time".len());
        assert_eq!(
            seen("x.csv.xz", "nr,story\n1,once\n").format,
            Ok(Format::Csv)
        );
        assert_eq!(seen("x.txt", "plain\n").format, Ok(Format::Text));
        assert!(seen("x.png", "\u{89}PNG").format.is_ok());
        assert!(seen("x.bin", "GIF8").format.is_err());
    }
}
