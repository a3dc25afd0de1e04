//! Parquet files: rows of some row groups, as JSON objects.
//!
//! The `parquet` crate reads rows without arrow. Rows are made of pages as they are decompressed, a
//! few rows at a time, so that memory follows pages, not row groups. A row is handed on as a JSON
//! object of its columns (fields.rs makes a document of it); a column `metadata` or `meta` that holds
//! JSON text is that JSON. A row group that cannot be read on is one bad record, its place that of
//! the group; reading goes on with the next group.
//!
//! A part of a file owns the row groups that start in it.

mod chunks;

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::place::Options;
use super::{Batch, place};
use chunks::Chunks;

/// Rows that are taken from the columns at once: a row may hold megabytes.
const ROWS: usize = 32;

/// A row group that is read.
struct Group {
    /// Number in the file.
    number: usize,
    /// Row number of its first row.
    first: u64,
    rows: u64,
    /// File offset of its first page.
    offset: u64,
    bytes: u64,
}

/// Reads rows.
pub(crate) struct ParquetReader {
    chunks: Chunks,
    projection: Type,
    groups: Vec<Group>,
    /// The group being read and the rows taken from it.
    group: usize,
    row: u64,
    rows: Option<RowIter<'static>>,
    record: Vec<u8>,
    max: usize,
    empty: bool,
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// What `read` returns; a panic of the library is an error like any other.
fn guarded<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("the file contradicts itself".to_string()),
    }
}

impl ParquetReader {
    pub(super) fn open(
        path: &Path,
        options: &Options,
        part: Option<&Range<u64>>,
        max: usize,
    ) -> io::Result<ParquetReader> {
        let chunks = Chunks::open(place::open(path, options)?)?;
        let of = chunks.clone();
        let (metadata, projection) = guarded(move || {
            let reader = SerializedFileReader::new(of)?;
            let projection = wanted(reader.metadata().file_metadata().schema())?;
            Ok((reader.metadata().clone(), projection))
        })
        .map_err(|e| other(format!("no Parquet file: {e}")))?;
        let mut groups = Vec::new();
        let mut first = 0u64;
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let offset = start_of(group);
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            if part.is_none_or(|p| p.contains(&offset)) {
                groups.push(Group {
                    number,
                    first,
                    rows,
                    offset,
                    bytes: u64::try_from(group.compressed_size()).unwrap_or(0),
                });
            }
            first = first.saturating_add(rows);
        }
        Ok(ParquetReader {
            chunks,
            projection,
            groups,
            group: 0,
            row: 0,
            rows: None,
            record: Vec::new(),
            max,
            empty: first == 0 && part.is_none(),
        })
    }

    pub(super) fn fill(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut self.empty) {
            batch.push_bad(0, 0, "the file holds no rows".to_string());
        }
        while !batch.is_full() {
            let Some(group) = self.groups.get(self.group) else {
                break;
            };
            let (offset, number) = (group.offset, group.first + self.row);
            if self.row >= group.rows {
                batch.consumed += group.bytes;
                (self.group, self.row, self.rows) = (self.group + 1, 0, None);
                continue;
            }
            match self.next_row() {
                Ok(()) if self.record.len() <= self.max => {
                    batch.push(offset, number, &self.record, None);
                }
                Ok(()) => {
                    let why = format!("row longer than {} bytes", self.max);
                    batch.push_bad(offset, number, why);
                }
                Err(why) => {
                    let group = &self.groups[self.group];
                    let left = group.rows - self.row;
                    let why = format!("row group {}: {why}; {left} rows are lost", group.number);
                    batch.push_bad(offset, number, why);
                    batch.consumed += group.bytes;
                    (self.group, self.row, self.rows) = (self.group + 1, 0, None);
                    continue;
                }
            }
            self.row += 1;
        }
    }

    /// Puts the next row of the current group into `record`.
    fn next_row(&mut self) -> Result<(), String> {
        let mut rows = match self.rows.take() {
            Some(rows) => rows,
            None => self.open_group()?,
        };
        let (row, rows) = guarded(move || {
            let row = rows.next().transpose()?;
            Ok((row, rows))
        })?;
        let row = row.ok_or("fewer rows than it says")?;
        self.rows = Some(rows);
        self.record.clear();
        self.record.push(b'{');
        for (name, field) in row.into_columns() {
            if self.record.len() > 1 {
                self.record.push(b',');
            }
            write_json(&mut self.record, &name)?;
            self.record.push(b':');
            write_field(&mut self.record, &name, &field)?;
        }
        self.record.push(b'}');
        Ok(())
    }

    /// An iterator over the rows of the current group alone.
    fn open_group(&mut self) -> Result<RowIter<'static>, String> {
        let wanted = self.groups[self.group].number;
        let chunks = self.chunks.clone();
        let projection = self.projection.clone();
        guarded(move || {
            let mut number = 0;
            let options = ReadOptionsBuilder::new()
                .with_predicate(Box::new(move |_, _| {
                    number += 1;
                    number - 1 == wanted
                }))
                .build();
            let reader = SerializedFileReader::new_with_options(chunks, options)?;
            let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection))?;
            Ok(rows.with_batch_size(ROWS))
        })
    }
}

/// Offset of a group's first page.
fn start_of(group: &RowGroupMetaData) -> u64 {
    let starts = group.columns().iter().map(|column| {
        let data = column.data_page_offset();
        // a dictionary stands before the data; 0 is written by some for "none"
        let dictionary = column.dictionary_page_offset().filter(|o| *o > 0);
        dictionary.map_or(data, |d| d.min(data))
    });
    u64::try_from(starts.min().unwrap_or(0)).unwrap_or(0)
}

/// All columns but bare repeated ones, which the library's rows cannot hold (arrow-rs issue 2394).
fn wanted(schema: &Type) -> parquet::errors::Result<Type> {
    let fields = schema.get_fields().iter().filter(|field| {
        let info = field.get_basic_info();
        !info.has_repetition() || info.repetition() != Repetition::REPEATED
    });
    let fields: Vec<Arc<Type>> = fields.cloned().collect();
    Type::group_type_builder(schema.name())
        .with_fields(fields)
        .build()
}

fn write_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) -> Result<(), String> {
    serde_json::to_writer(out, value).map_err(|e| e.to_string())
}

/// A column's value as JSON.
fn write_field(out: &mut Vec<u8>, name: &str, field: &Field) -> Result<(), String> {
    let text = match field {
        Field::Str(text) => Some(text.as_str()),
        // written without saying that it is text, as older writers do
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok(),
        _ => None,
    };
    match text {
        Some(text) if matches!(name, "metadata" | "meta") && text.starts_with('{') => {
            match serde_json::from_str::<serde::de::IgnoredAny>(text) {
                Ok(_) => out.extend_from_slice(text.as_bytes()),
                Err(_) => write_json(out, text)?,
            }
            Ok(())
        }
        Some(text) => write_json(out, text),
        None => write_json(out, &field.to_json_value()),
    }
}
