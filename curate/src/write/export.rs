//! Writer of exported documents: one fixed schema, whatever the documents have.
//!
//! Every row has `id`, `text`, `url`, `source`, `subset`, `language` and `metadata` in this order. Absent values are null, and
//! `metadata` is JSON text in both formats, so that readers that infer a schema from the first rows infer the same one
//! from every file.

use std::path::Path;

use serde::Serialize;

use super::parquet::ParquetLines;
use super::{JsonLines, OutputFile};
use crate::document::CleanDocument;
use crate::error::Result;
use crate::text::json;

/// Format of exported documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// JSON lines under zstd.
    JsonlZst,
    /// Parquet.
    Parquet,
}

impl ExportFormat {
    /// Ending of its files' names, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            ExportFormat::JsonlZst => "jsonl.zst",
            ExportFormat::Parquet => "parquet",
        }
    }
}

/// A row of JSON lines: no field is left out.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    text: &'a str,
    url: Option<&'a str>,
    source: &'a str,
    subset: Option<&'a str>,
    language: Option<&'a str>,
    metadata: Option<String>,
}

enum Rows {
    Lines(JsonLines),
    Parquet(Box<ParquetLines>),
}

/// A file of exported documents being written: it appears whole or not at all.
pub struct ExportWriter {
    rows: Rows,
}

impl ExportWriter {
    /// Starts `root/name`, creating folders as needed.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(root: &Path, name: &str, format: ExportFormat) -> Result<ExportWriter> {
        let rows = match format {
            ExportFormat::JsonlZst => Rows::Lines(JsonLines::create(root, name)?),
            ExportFormat::Parquet => {
                Rows::Parquet(Box::new(ParquetLines::create_export(root, name)?))
            }
        };
        Ok(ExportWriter { rows })
    }

    /// Appends a document.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&mut self, document: CleanDocument) -> Result<()> {
        match &mut self.rows {
            Rows::Lines(lines) => lines.write(&Row {
                id: &document.id,
                text: &document.text,
                url: document.url.as_deref(),
                source: &document.source,
                subset: document.subset.as_deref(),
                language: Some(&*document.language).filter(|l| !l.is_empty()),
                metadata: document.meta.as_ref().map(json::to_string),
            }),
            Rows::Parquet(rows) => rows.write(document),
        }
    }

    /// Makes the file visible.
    ///
    /// # Errors
    /// `Io`.
    pub fn finish(self) -> Result<OutputFile> {
        match self.rows {
            Rows::Lines(lines) => lines.finish(),
            Rows::Parquet(rows) => rows.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    const COLUMNS: [&str; 7] = [
        "id", "text", "url", "source", "subset", "language", "metadata",
    ];

    fn documents() -> [CleanDocument; 2] {
        let bare = CleanDocument {
            id: "a/1".into(),
            text: "one\ntwo".into(),
            source: "a".into(),
            ..CleanDocument::default()
        };
        let full = CleanDocument {
            url: Some("https://x.org/".into()),
            subset: Some("s".into()),
            language: "en".into(),
            meta: Some(json!({"k": [1, "é"]})),
            ..bare.clone()
        };
        [bare, full]
    }

    fn written(format: ExportFormat) -> (tempfile::TempDir, OutputFile) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = ExportWriter::create(dir.path(), "data/x", format).unwrap();
        for document in documents() {
            writer.write(document).unwrap();
        }
        let file = writer.finish().unwrap();
        (dir, file)
    }

    #[test]
    fn a_line_has_every_field_in_the_order_of_the_schema_and_null_for_what_is_absent() {
        let (dir, file) = written(ExportFormat::JsonlZst);
        let bytes = std::fs::read(dir.path().join(&file.path)).unwrap();
        let text = String::from_utf8(zstd::decode_all(&*bytes).unwrap()).unwrap();
        assert_eq!(
            text,
            "{\"id\":\"a/1\",\"text\":\"one\\ntwo\",\"url\":null,\"source\":\"a\",\"subset\":null,\"language\":null,\"metadata\":null}\n\
             {\"id\":\"a/1\",\"text\":\"one\\ntwo\",\"url\":\"https://x.org/\",\"source\":\"a\",\"subset\":\"s\",\"language\":\"en\",\
             \"metadata\":\"{\\\"k\\\":[1,\\\"é\\\"]}\"}\n"
        );
    }

    #[test]
    fn parquet_has_the_same_rows_in_the_same_columns() {
        let (dir, file) = written(ExportFormat::Parquet);
        let file = std::fs::File::open(dir.path().join(&file.path)).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).collect();
        assert_eq!(names, COLUMNS);
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().flatten().collect();
        let text = |row: usize, column: usize| {
            let (_, field) = rows[row].get_column_iter().nth(column).unwrap();
            match field {
                Field::Str(text) => Some(text.clone()),
                Field::Null => None,
                other => panic!("{other:?}"),
            }
        };
        let nulls: Vec<bool> = (0..7).map(|c| text(0, c).is_none()).collect();
        assert_eq!(nulls, [false, false, true, false, true, true, true]);
        let full: Vec<String> = (0..7).map(|c| text(1, c).unwrap()).collect();
        assert_eq!(
            full,
            [
                "a/1",
                "one\ntwo",
                "https://x.org/",
                "a",
                "s",
                "en",
                "{\"k\":[1,\"é\"]}"
            ]
        );
    }
}
