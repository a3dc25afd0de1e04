//! Writer of clean documents as Parquet: `id`, `text`, `url`, `source`, `subset`, `language`, `metadata`.
//!
//! All columns are strings; `metadata` is JSON text. zstd, plain and dictionary encoding as the
//! library chooses, format version 1 data pages, which pyarrow, DuckDB, Spark and datasets read. Row
//! groups are closed by bytes of text, so that memory is bounded and the same documents give the same
//! file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::{AtomicFile, OutputFile};
use crate::document::CleanDocument;
use crate::error::{At, Result, damaged};
use crate::text::json;

const SCHEMA: &str = "message document {
    required binary id (UTF8);
    required binary text (UTF8);
    optional binary url (UTF8);
    required binary source (UTF8);
    optional binary subset (UTF8);
    required binary language (UTF8);
    optional binary metadata (UTF8);
}";
/// The same for exports, where a language that no step has found is null.
const EXPORT_SCHEMA: &str = "message document {
    required binary id (UTF8);
    required binary text (UTF8);
    optional binary url (UTF8);
    required binary source (UTF8);
    optional binary subset (UTF8);
    optional binary language (UTF8);
    optional binary metadata (UTF8);
}";
const COLUMNS: usize = 7;
/// Bytes of values after which a row group is closed.
const GROUP_BYTES: usize = 32 << 20;
const ZSTD_LEVEL: i32 = 3;

/// A Parquet file being written.
pub(super) struct ParquetLines {
    writer: SerializedFileWriter<AtomicFile>,
    path: PathBuf,
    /// Values by column, absent ones None.
    columns: [Vec<Option<ByteArray>>; COLUMNS],
    bytes: usize,
    line: Vec<u8>,
    /// An empty language is null.
    has_null_languages: bool,
}

/// Converts an error of the library.
fn at_path<T>(result: parquet::errors::Result<T>, path: &Path) -> Result<T> {
    result
        .map_err(|e| match e {
            ParquetError::External(e) => std::io::Error::other(e),
            e => std::io::Error::other(e.to_string()),
        })
        .at(path)
}

impl ParquetLines {
    /// Starts a clean shard.
    pub(super) fn create(root: &Path, name: &str) -> Result<ParquetLines> {
        ParquetLines::create_with(root, name, SCHEMA)
    }

    /// Starts a file of an export.
    pub(super) fn create_export(root: &Path, name: &str) -> Result<ParquetLines> {
        let made = ParquetLines::create_with(root, name, EXPORT_SCHEMA)?;
        Ok(ParquetLines {
            has_null_languages: true,
            ..made
        })
    }

    fn create_with(root: &Path, name: &str, schema: &str) -> Result<ParquetLines> {
        let file = AtomicFile::create(root, name)?;
        let path = file.path();
        let schema = Arc::new(at_path(parse_message_type(schema), &path)?);
        let level = at_path(ZstdLevel::try_new(ZSTD_LEVEL), &path)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by("millrace".to_string())
            .build();
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties));
        Ok(ParquetLines {
            writer: at_path(writer, &path)?,
            path,
            columns: Default::default(),
            bytes: 0,
            line: Vec::new(),
            has_null_languages: false,
        })
    }

    /// Appends a document: its JSON line.
    pub(super) fn write_line(&mut self, line: &[u8]) -> Result<()> {
        self.line.clear();
        self.line.extend_from_slice(line);
        let document: CleanDocument = simd_json::serde::from_slice(&mut self.line)
            .or_else(|_| json::from_slice(line))
            .map_err(|e| damaged(&self.path, 0, e.to_string(), "a clean document"))?;
        self.push(document, line.len())
    }

    /// Appends a document.
    pub(super) fn write(&mut self, document: CleanDocument) -> Result<()> {
        let bytes = document.text.len() + document.id.len();
        self.push(document, bytes)
    }

    fn push(&mut self, document: CleanDocument, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        let has_language = !(self.has_null_languages && document.language.is_empty());
        let values = [
            Some(document.id),
            Some(document.text),
            document.url,
            Some(document.source),
            document.subset,
            has_language.then_some(document.language),
            document.meta.as_ref().map(json::to_string),
        ];
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value.map(|v| ByteArray::from(v.into_bytes())));
        }
        if self.bytes >= GROUP_BYTES {
            self.close_group()?;
        }
        Ok(())
    }

    fn close_group(&mut self) -> Result<()> {
        if self.columns[0].is_empty() {
            return Ok(());
        }
        let (writer, columns) = (&mut self.writer, &mut self.columns);
        let mut write = || {
            let mut group = writer.next_row_group()?;
            for column in columns.iter_mut() {
                // a required column has no levels; the library ignores those it gets
                let levels: Vec<i16> = column.iter().map(|v| i16::from(v.is_some())).collect();
                let values: Vec<ByteArray> = column.drain(..).flatten().collect();
                let Some(mut out) = group.next_column()? else {
                    break;
                };
                out.typed::<ByteArrayType>()
                    .write_batch(&values, Some(&levels), None)?;
                out.close()?;
            }
            group.close().map(|_| ())
        };
        let written = write();
        self.bytes = 0;
        at_path(written, &self.path)
    }

    pub(super) fn finish(mut self) -> Result<OutputFile> {
        self.close_group()?;
        at_path(self.writer.into_inner(), &self.path)?.finish()
    }
}
