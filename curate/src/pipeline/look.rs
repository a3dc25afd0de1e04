//! A first look at a file of somebody else's: its format, and the fields of its first records.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::likeness::is_like_text;
use crate::error::{At, Error, Result};
use crate::read::{Batch, Format, Input, Keys, Reader, delimiter_of, detect};
use crate::text::json;

/// Records that are looked at.
const RECORDS: u64 = 200;
/// Longest record.
const MOST_BYTES: usize = 64 << 20;

/// A file at first sight.
#[derive(Clone, Debug, PartialEq)]
pub struct FileLook {
    /// Its format, or the kind of a file that no format reads.
    pub format: std::result::Result<Format, String>,
    /// Fields of its first records, in the alphabet's order; none of a format without fields.
    pub fields: Vec<FieldLook>,
    /// The character between the fields of CSV; None of other formats.
    pub delimiter: Option<char>,
    /// Records that were looked at, bad ones included; 0 of a format without fields.
    pub records: usize,
    /// Of them those that cannot be read, such as a part behind which the file is damaged.
    pub bad: usize,
    /// Why the first of these cannot be read.
    pub why: Option<String>,
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
    /// Records in which it reads like text: words, not an address, a number, a date, an identifier or a hash.
    pub readable: usize,
}

impl FieldLook {
    /// Whether most of its strings read like text.
    pub fn is_readable(&self) -> bool {
        2 * self.readable > self.texts
    }
}

/// Looks at a file. The bytes decide the format; of separated values, whose bytes are any text's, the name (`.csv`, `.tsv`), and
/// the character between the fields is the one that divides the first rows alike.
///
/// # Errors
/// `Io`; `Damaged` or `Format` for a file that cannot be read as what it seems to be.
pub fn look(path: &Path) -> Result<FileLook> {
    let found = detect(path, &Input::of(Format::Auto)).at(path)?;
    let mut look = FileLook {
        format: found.map_err(str::to_string),
        fields: Vec::new(),
        delimiter: None,
        records: 0,
        bad: 0,
        why: None,
    };
    let Ok(format) = look.format else {
        return Ok(look);
    };
    match format {
        Format::Csv | Format::Tsv => {
            let (delimiter, first) = delimiter_of(path)?;
            let is_tab = delimiter == '\t';
            let format = if is_tab { Format::Tsv } else { Format::Csv };
            look.format = Ok(format);
            look.delimiter = (!is_tab).then_some(delimiter);
            let mut input = Input::of(format);
            // any column may turn out to be the text
            input.text_key = first.map_or_else(Keys::default, Keys::One);
            input.delimiter = delimiter.to_string();
            look.add_fields(path, &input)?;
        }
        Format::Jsonl | Format::Dolma | Format::Parquet | Format::Arrow => {
            look.add_fields(path, &Input::of(format))?;
        }
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
        | Format::Text => {}
    }
    Ok(look)
}

impl FileLook {
    /// Looks at the first records.
    fn add_fields(&mut self, path: &Path, input: &Input) -> Result<()> {
        let mut reader = Reader::open(path, input, None, MOST_BYTES)?;
        reader.limit_to(RECORDS);
        let mut batch = Batch::default();
        let mut found: BTreeMap<String, FieldLook> = BTreeMap::new();
        while reader.fill(&mut batch)? {
            let why = batch.records.first().and_then(|raw| raw.bad.clone());
            if let Some(found) = why.filter(|_| reader.is_cut()) {
                return Err(Error::Format {
                    path: path.to_path_buf(),
                    wanted: "a whole Parquet file",
                    found,
                    start: "a footer at its end",
                });
            }
            for raw in &batch.records {
                self.records += 1;
                let record = match &raw.bad {
                    Some(why) => Err(why.clone()),
                    None => {
                        let parsed = json::from_slice::<Map<String, Value>>(batch.bytes(raw));
                        parsed.map_err(|e| format!("broken JSON: {e}"))
                    }
                };
                match record {
                    Ok(record) => count("", &record, &mut found),
                    Err(why) => {
                        self.bad += 1;
                        self.why.get_or_insert(why);
                    }
                }
            }
        }
        self.fields = found.into_values().collect();
        Ok(())
    }
}

/// Counts the fields of an object, and of the objects directly in it (`body.text`).
fn count(prefix: &str, record: &Map<String, Value>, found: &mut BTreeMap<String, FieldLook>) {
    for (name, value) in record {
        let name = format!("{prefix}{name}");
        let texts: Option<Vec<&str>> = match value {
            Value::String(text) => Some(vec![text]),
            Value::Array(list) if !list.is_empty() => list.iter().map(Value::as_str).collect(),
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
        let field = found.entry(name).or_insert_with_key(|name| FieldLook {
            name: name.clone(),
            texts: 0,
            bytes: 0,
            readable: 0,
        });
        if let Some(texts) = texts {
            field.texts += 1;
            field.bytes += texts.iter().map(|text| text.len()).sum::<usize>();
            field.readable += usize::from(texts.into_iter().any(is_like_text));
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
