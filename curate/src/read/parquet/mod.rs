//! Reader for Parquet files: rows of some row groups, as JSON objects.
//!
//! The `parquet` crate reads rows without arrow. Rows are assembled from pages as they are decompressed, a few rows
//! at a time, so that memory is bounded by pages, not row groups. A row is passed on as a JSON object of its
//! columns (fields.rs converts it to a document); a column `metadata` or `meta` that holds JSON text is that JSON.
//! Columns of texts are read as bytes, as the library gives up a row group at a text that is no UTF-8: here its row
//! is a bad record, and so is one with other bytes in the column of the document's text. A text inside a list or an
//! object stays the library's to check. A row group that cannot be read further is one bad record with the group's position; reading continues with the
//! next group. A page that declares more than records can hold is refused before it is read (pages.rs).
//!
//! A part of a file owns the row groups that start in it.

mod chunks;
mod pages;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as Fields};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::Batch;
use super::columns::{Column, special, write_bytes, write_json, write_text};
use super::format::{Mismatch, starts_with};
use super::{Input, storage};
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
    /// The file's columns, those of texts as bytes.
    schema: SchemaDescPtr,
    projection: Type,
    /// Of each column of the projection, whether its bytes must be UTF-8.
    is_text: Vec<bool>,
    groups: Vec<Group>,
    /// The group being read and the rows taken from it.
    group: usize,
    row: u64,
    rows: Option<RowIter<'static>>,
    record: Vec<u8>,
    max: usize,
    /// Why there are no rows at all, until it is reported.
    empty: Option<String>,
    /// The file has no footer that can be read.
    is_cut: bool,
}

/// A row that was taken from the columns.
enum Row {
    /// In `record`.
    Sound,
    TooLong,
    /// A value of it cannot be written, in words.
    Bad(String),
}

/// First bytes of a file, and its last.
const MAGIC: &[u8] = b"PAR1";

/// Result of `read`; a panic of the library becomes an error like any other.
fn guarded<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, String> {
    match caught(read) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(in_words(e.to_string())),
        Err(panic) => Err(format!("the file contradicts itself: {panic}")),
    }
}

/// Around the name of a codec in the library's message about one that it has no code for: LZO, which no writer of today has.
const BEFORE: &str = "The codec type ";
const BEHIND: &str = " is not supported yet";

/// An error of the library, that of a codec it cannot read in words that help.
fn in_words(why: String) -> String {
    let codec = why
        .split_once(BEFORE)
        .and_then(|(_, rest)| rest.split_once(BEHIND));
    match codec {
        Some((codec, _)) => format!(
            "columns compressed with {codec}, which is not read (write the file anew with zstd, snappy, gzip, lz4, brotli or none)"
        ),
        None => why,
    }
}

/// A reader of no rows, with the reason if it is to be reported.
fn without_rows(chunks: Chunks, max: usize, empty: Option<String>) -> io::Result<ParquetReader> {
    let nothing = Type::group_type_builder("empty").build();
    let nothing = nothing.map_err(io::Error::other)?;
    Ok(ParquetReader {
        schema: Arc::new(SchemaDescriptor::new(Arc::new(nothing.clone()))),
        projection: nothing,
        is_text: Vec::new(),
        chunks,
        groups: Vec::new(),
        group: 0,
        row: 0,
        rows: None,
        record: Vec::new(),
        max,
        empty,
        is_cut: false,
    })
}

impl ParquetReader {
    pub(super) fn open(
        path: &Path,
        input: &Input,
        part: Option<&Range<u64>>,
        max: usize,
    ) -> io::Result<Result<ParquetReader, Mismatch>> {
        let chunks = Chunks::open(storage::open(path, &input.options)?)?;
        let no_file = |found: String| Mismatch {
            wanted: "a Parquet file",
            found,
            start: "\"PAR1\"",
        };
        let head = chunks.read_at(0, 4 * MAGIC.len())?;
        if head.is_empty() && part.is_none() {
            return without_rows(chunks, max, Some("the file is empty".to_string())).map(Ok);
        }
        if !head.starts_with(MAGIC) {
            return Ok(Err(no_file(starts_with(&head))));
        }
        let of = chunks.clone();
        let opened = guarded(move || {
            let reader = SerializedFileReader::new(of)?;
            let schema = reader.metadata().file_metadata().schema();
            let bytes = of_fields(schema, schema.get_fields().iter().map(texts_as_bytes))?;
            let own = of_fields(schema, wanted(schema).cloned().map(Ok))?;
            let projection = of_fields(schema, wanted(&bytes).cloned().map(Ok))?;
            let schema = Arc::new(SchemaDescriptor::new(Arc::new(bytes)));
            Ok((reader.metadata().clone(), schema, own, projection))
        });
        if let Some(e) = chunks.refused() {
            return Err(e);
        }
        let (metadata, schema, own, projection) = match opened {
            Ok(opened) => opened,
            // a file that was cut, or that was written over: its beginning says what it is
            Err(why) => {
                let has_start = part.is_none_or(|part| part.start == 0);
                let mut reader = without_rows(chunks, max, has_start.then_some(why))?;
                reader.is_cut = true;
                return Ok(Ok(reader));
            }
        };
        let names: Vec<&str> = own.get_fields().iter().map(|field| field.name()).collect();
        let texts = input.text_columns(&names);
        let fields = own.get_fields().iter();
        let is_text = fields.map(|field| is_of_texts(field) || texts.contains(&field.name()));
        let is_text = is_text.collect();
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
            schema,
            projection,
            is_text,
            groups,
            group: 0,
            row: 0,
            rows: None,
            record: Vec::new(),
            max,
            is_cut: false,
            empty: is_empty.then(|| "the file holds no rows".to_string()),
        }))
    }

    /// Whether the file has no footer that can be read.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        if let Some(why) = self.empty.take() {
            batch.push_bad(0, 0, why);
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
                Ok(Row::Sound) if self.record.len() <= self.max => {
                    batch.push(offset, number, &self.record, None);
                }
                Ok(Row::Sound | Row::TooLong) => {
                    let why = format!("row longer than {} bytes", self.max);
                    batch.push_bad(offset, number, why);
                }
                Ok(Row::Bad(why)) => batch.push_bad(offset, number, why),
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
    fn next_row(&mut self) -> Result<Row, String> {
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
            return Ok(Row::TooLong);
        }
        Ok(match write_row(&mut self.record, row, &self.is_text) {
            Ok(()) => Row::Sound,
            Err(why) => Row::Bad(why),
        })
    }

    /// An iterator over the rows of the current group alone.
    fn open_group(&mut self) -> Result<RowIter<'static>, String> {
        let wanted = self.groups[self.group].number;
        let chunks = self.chunks.clone();
        let (schema, projection) = (self.schema.clone(), self.projection.clone());
        guarded(move || {
            let mut number = 0;
            let options = ReadOptionsBuilder::new()
                .with_predicate(Box::new(move |_, _| {
                    number += 1;
                    number - 1 == wanted
                }))
                .with_parquet_schema(schema)
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
fn wanted(schema: &Type) -> impl Iterator<Item = &Arc<Type>> {
    schema
        .get_fields()
        .iter()
        .filter(|field| !is_repeated(field))
}

fn is_repeated(field: &Type) -> bool {
    let info = field.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// A schema of the same name.
fn of_fields(
    schema: &Type,
    fields: impl Iterator<Item = parquet::errors::Result<Arc<Type>>>,
) -> parquet::errors::Result<Type> {
    let fields = fields.collect::<parquet::errors::Result<_>>()?;
    Type::group_type_builder(schema.name())
        .with_fields(fields)
        .build()
}

/// Whether the library makes texts of a column's bytes.
fn is_of_texts(field: &Type) -> bool {
    let of_texts = [
        ConvertedType::UTF8,
        ConvertedType::ENUM,
        ConvertedType::JSON,
    ];
    field.is_primitive()
        && field.get_physical_type() == PhysicalType::BYTE_ARRAY
        && of_texts.contains(&field.get_basic_info().converted_type())
}

/// A column of texts as one of bytes; others as they are.
fn texts_as_bytes(field: &Arc<Type>) -> parquet::errors::Result<Arc<Type>> {
    if !is_of_texts(field) || is_repeated(field) {
        return Ok(field.clone());
    }
    let bytes = Type::primitive_type_builder(field.name(), PhysicalType::BYTE_ARRAY);
    let repetition = field.get_basic_info().repetition();
    bytes.with_repetition(repetition).build().map(Arc::new)
}

/// Bytes of a text.
fn length(field: &Field) -> usize {
    match field {
        Field::Str(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// A row as a JSON object; `is_text`: of each column, whether its bytes must be UTF-8.
fn write_row(out: &mut Vec<u8>, row: Fields, is_text: &[bool]) -> Result<(), String> {
    out.push(b'{');
    for (i, (name, field)) in row.into_columns().into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_json(out, &name)?;
        out.push(b':');
        let is_text = is_text.get(i).is_some_and(|is_text| *is_text);
        let name = name.as_str();
        write_field(out, Column { name, is_text }, &field)?;
    }
    out.push(b'}');
    Ok(())
}

/// A column's value as JSON.
fn write_field(out: &mut Vec<u8>, column: Column<'_>, field: &Field) -> Result<(), String> {
    let special = match field {
        Field::Double(number) => special(*number),
        Field::Float(number) => special(f64::from(*number)),
        _ => None,
    };
    match field {
        Field::Str(text) => return write_text(out, column.name, text),
        // texts that the file does not call so, as older writers have them, too
        Field::Bytes(bytes) => return write_bytes(out, Some(column), bytes.data()),
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
