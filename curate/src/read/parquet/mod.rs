//! Reader for Parquet files: rows of some row groups, as JSON objects.
//!
//! The `parquet` crate reads rows without arrow. Rows are assembled from pages as they are decompressed, a few rows
//! at a time, so that memory is bounded by pages, not row groups. A row is passed on as a JSON object of its
//! columns (fields.rs converts it to a document); a column `metadata` or `meta` that holds JSON text is that JSON.
//! A row group that cannot be read further is one bad record with the group's position; reading continues with the
//! next group. A page that declares more than records can hold is refused before it is read (pages.rs).
//!
//! A part of a file owns the row groups that start in it.

mod chunks;
mod pages;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::Batch;
use super::columns::{special, write_json, write_text};
use super::format::{Mismatch, starts_with};
use super::storage::{self, Options};
use crate::panics::caught;
use chunks::Chunks;
use pages::{Pages, start_of_column};

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
    /// Why there are no rows at all, until it is reported.
    empty: Option<&'static str>,
}

/// First bytes of a file, and its last.
const MAGIC: &[u8] = b"PAR1";

/// Result of `read`; a panic of the library becomes an error like any other.
fn guarded<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, String> {
    match caught(read) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(e.to_string()),
        Err(panic) => Err(format!("the file contradicts itself: {panic}")),
    }
}

impl ParquetReader {
    pub(super) fn open(
        path: &Path,
        options: &Options,
        part: Option<&Range<u64>>,
        max: usize,
    ) -> io::Result<Result<ParquetReader, Mismatch>> {
        let chunks = Chunks::open(storage::open(path, options)?)?;
        let no_file = |found: String| Mismatch {
            wanted: "a Parquet file",
            found,
            start: "\"PAR1\", and a footer at its end",
        };
        let head = chunks.read_at(0, 4 * MAGIC.len())?;
        if head.is_empty() && part.is_none() {
            return Ok(Ok(ParquetReader {
                projection: Type::group_type_builder("empty")
                    .build()
                    .map_err(io::Error::other)?,
                chunks,
                groups: Vec::new(),
                group: 0,
                row: 0,
                rows: None,
                record: Vec::new(),
                max,
                empty: Some("the file is empty"),
            }));
        }
        if !head.starts_with(MAGIC) {
            return Ok(Err(no_file(starts_with(&head))));
        }
        let of = chunks.clone();
        let opened = guarded(move || {
            let reader = SerializedFileReader::new(of)?;
            let projection = wanted(reader.metadata().file_metadata().schema())?;
            Ok((reader.metadata().clone(), projection))
        });
        if let Some(e) = chunks.refused() {
            return Err(e);
        }
        let (metadata, projection) = match opened {
            Ok(opened) => opened,
            Err(why) => return Ok(Err(no_file(why))),
        };
        let chunks = chunks.with_pages(Pages::of(&metadata, max));
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
        let is_empty = first == 0 && part.is_none();
        Ok(Ok(ParquetReader {
            chunks,
            projection,
            groups,
            group: 0,
            row: 0,
            rows: None,
            record: Vec::new(),
            max,
            empty: is_empty.then_some("the file holds no rows"),
        }))
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        if let Some(why) = self.empty.take() {
            batch.push_bad(0, 0, why.to_string());
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
                    if let Some(e) = self.chunks.refused() {
                        return Err(e);
                    }
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
        Ok(())
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
        if row
            .get_column_iter()
            .map(|(_, field)| length(field))
            .sum::<usize>()
            > self.max
        {
            // as long as it is without being written
            self.record.resize(self.max + 1, b' ');
            return Ok(());
        }
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
    let starts = group.columns().iter().map(start_of_column);
    starts.min().unwrap_or(0)
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

/// Bytes of a text.
fn length(field: &Field) -> usize {
    match field {
        Field::Str(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// A column's value as JSON.
fn write_field(out: &mut Vec<u8>, name: &str, field: &Field) -> Result<(), String> {
    let special = match field {
        Field::Double(number) => special(*number),
        Field::Float(number) => special(f64::from(*number)),
        _ => None,
    };
    match field {
        Field::Str(text) => return write_text(out, name, text),
        // written without saying that it is text, as older writers do
        Field::Bytes(bytes) => {
            if let Ok(text) = std::str::from_utf8(bytes.data()) {
                return write_text(out, name, text);
            }
        }
        _ => {}
    }
    match special {
        Some(number) => {
            out.extend_from_slice(number.as_bytes());
            Ok(())
        }
        None => write_json(out, &field.to_json_value()),
    }
}
