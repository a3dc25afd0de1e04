//! Reader for Arrow files and streams (`.arrow`, `.feather`): rows of record batches, as JSON objects.
//!
//! Arrays come from the `arrow-ipc` crate, which validates them; messages are found and checked here, so that a
//! declared length never allocates memory that the file does not explain (messages.rs). One record batch is in memory
//! at a time. A row is passed on as Parquet's rows are (values.rs).
//!
//! Columns of texts are read as bytes, as the crate gives up a batch at a text that is no UTF-8: here its row is a bad
//! record, and so is one with other bytes in the column of the document's text. A text inside a list, an object or a
//! dictionary stays the crate's to check.
//!
//! A batch that cannot be read is one bad record with the batch's offset; a file's next batch is found by the
//! footer, a stream's by the length of the one before. A stream whose next message cannot be found ends there. A file
//! without a footer, which was cut, is read as the stream that it contains, and its end is a bad record.
//!
//! A part of a file owns the record batches that start in it; of a stream the heads before it are read, and all
//! dictionaries. Feather 2 is the file form; Feather 1 is another format.

mod messages;
mod values;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{Block, Endianness, MessageHeader};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, SchemaRef};

use super::format::{Mismatch, starts_with};
use super::storage::Blob;
use super::{Batch, Input};
use crate::panics::caught;
use messages::{CONTINUATION, File, Head, MAGIC, footer, rows_of};
use values::{Unwritten, write_row};

/// Offset of the first message of a file.
const FIRST: u64 = 8;

/// Where the next message is.
enum Walk {
    /// Places of the record batches that the footer lists, and the end of the last one read.
    Listed {
        places: VecDeque<u64>,
        end: u64,
    },
    /// Behind the one before.
    Stream(u64),
    End,
}

/// A record batch whose rows are read.
struct Rows {
    batch: RecordBatch,
    /// Offset of its message.
    offset: u64,
    bytes: u64,
    next: usize,
}

/// Reads rows.
pub(crate) struct ArrowReader {
    file: File,
    schema: SchemaRef,
    /// The same with columns of texts as bytes.
    bytes: SchemaRef,
    /// Of each column, whether its bytes must be UTF-8.
    is_text: Vec<bool>,
    input: Input,
    dictionaries: HashMap<i64, ArrayRef>,
    part: Option<Range<u64>>,
    walk: Walk,
    rows: Option<Rows>,
    /// Number of the next row.
    number: u64,
    record: Vec<u8>,
    max: usize,
    /// A fault of the file as a whole, until it is reported: offset and reason.
    fault: Option<(u64, String)>,
    has_records: bool,
}

/// Result of the library; its panic becomes an error like any other.
fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, String> {
    match caught(read) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(e.to_string()),
        Err(panic) => Err(format!("the file contradicts itself: {panic}")),
    }
}

fn schema_of(schema: arrow_ipc::Schema<'_>) -> Result<SchemaRef, String> {
    if schema.endianness() != Endianness::Little {
        return Err("numbers are big-endian".to_string());
    }
    guarded(|| try_fb_to_schema(schema)).map(Arc::new)
}

/// The type of bytes that is laid out as a column's texts are.
fn as_bytes(field: &Field) -> Option<DataType> {
    match field.data_type() {
        DataType::Utf8 => Some(DataType::Binary),
        DataType::LargeUtf8 => Some(DataType::LargeBinary),
        DataType::Utf8View => Some(DataType::BinaryView),
        _ => None,
    }
}

/// Offsets of messages that a footer lists.
fn places<'b>(blocks: impl Iterator<Item = &'b Block>) -> VecDeque<u64> {
    blocks
        .map(|block| u64::try_from(block.offset()).unwrap_or(u64::MAX))
        .collect()
}

/// True for the first bytes of a file or a stream.
pub(super) fn is_arrow(head: &[u8]) -> bool {
    head.starts_with(MAGIC) || head.starts_with(&CONTINUATION)
}

impl ArrowReader {
    pub(super) fn open(
        blob: Box<dyn Blob>,
        input: &Input,
        part: Option<&Range<u64>>,
        max: usize,
    ) -> io::Result<Result<ArrowReader, Mismatch>> {
        let mut file = File::over(blob)?;
        let no_file = |found: String| {
            Ok(Err(Mismatch {
                wanted: "an Arrow file or stream",
                found,
                start: "\"ARROW1\", or a message with a schema",
            }))
        };
        let shown = file.size.min(64);
        let start = file.bytes(0, shown)?.unwrap_or_default();
        let mut made = ArrowReader {
            schema: Arc::new(arrow_schema::Schema::empty()),
            bytes: Arc::new(arrow_schema::Schema::empty()),
            is_text: Vec::new(),
            input: input.clone(),
            dictionaries: HashMap::new(),
            part: part.cloned(),
            walk: Walk::End,
            rows: None,
            number: 0,
            record: Vec::new(),
            max,
            fault: None,
            has_records: false,
            file,
        };
        if start.is_empty() {
            made.fault = Some((0, "the file is empty".to_string()));
            return Ok(Ok(made));
        }
        if start.starts_with(b"FEA1") {
            return no_file("is Feather 1".to_string());
        }
        if !start.starts_with(MAGIC) {
            return Ok(match made.open_stream(0)? {
                Ok(()) => Ok(made),
                Err(_) if !start.starts_with(&CONTINUATION) => return no_file(starts_with(&start)),
                Err(why) => return no_file(why),
            });
        }
        match made.open_file()? {
            Ok(()) => {}
            Err(why) => match made.open_stream(FIRST)? {
                Ok(()) => made.fault = Some((made.file.size - 1, why)),
                Err(_) => return no_file(why),
            },
        }
        Ok(Ok(made))
    }

    fn take_schema(&mut self, schema: SchemaRef) {
        let fields = schema.fields().iter();
        let names: Vec<&str> = fields.clone().map(|field| field.name().as_str()).collect();
        let texts = self.input.text_columns(&names);
        let is_text = fields
            .clone()
            .map(|field| as_bytes(field).is_some() || texts.contains(&field.name().as_str()));
        self.is_text = is_text.collect();
        let bytes = fields.map(|field| match as_bytes(field) {
            Some(bytes) => Arc::new(field.as_ref().clone().with_data_type(bytes)),
            None => field.clone(),
        });
        self.bytes = Arc::new(arrow_schema::Schema::new(bytes.collect::<Vec<FieldRef>>()));
        self.schema = schema;
    }

    /// Goes by the footer.
    fn open_file(&mut self) -> io::Result<Result<(), String>> {
        let bytes = match footer(&mut self.file)? {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Err(why)),
        };
        let footer = match arrow_ipc::root_as_footer(&bytes) {
            Ok(footer) => footer,
            Err(e) => return Ok(Err(format!("no footer: {e}"))),
        };
        let schema = footer.schema().ok_or("no schema in the footer".to_string());
        match schema.and_then(schema_of) {
            Ok(schema) => self.take_schema(schema),
            Err(why) => return Ok(Err(why)),
        }
        for place in places(footer.dictionaries().into_iter().flatten()) {
            let read = match Head::read(&mut self.file, place)? {
                Ok(Some(head)) => self.read_dictionary(&head)?,
                Ok(None) => Err(format!("no message at byte {place}")),
                Err(why) => Err(why),
            };
            if let Err(why) = read {
                // the batches that need it are bad records
                self.fault.get_or_insert((place, why));
            }
        }
        let mut places = places(footer.recordBatches().into_iter().flatten());
        places.retain(|place| self.owns(*place));
        self.walk = Walk::Listed { places, end: 0 };
        Ok(Ok(()))
    }

    /// Goes from message to message; the first one has the schema.
    fn open_stream(&mut self, at: u64) -> io::Result<Result<(), String>> {
        let head = match Head::read(&mut self.file, at)? {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Err("holds no message".to_string())),
            Err(why) => return Ok(Err(why)),
        };
        let schema = head.message().and_then(|message| {
            let schema = message.header_as_schema();
            schema_of(schema.ok_or("starts with a message without a schema")?)
        });
        match schema {
            Ok(schema) => self.take_schema(schema),
            Err(why) => return Ok(Err(why)),
        }
        self.walk = Walk::Stream(head.end());
        Ok(Ok(()))
    }

    /// Whether a message belongs to the part. Damage at the very end belongs to the last byte.
    fn owns(&self, offset: u64) -> bool {
        let offset = offset.min(self.file.size.saturating_sub(1));
        self.part.as_ref().is_none_or(|part| part.contains(&offset))
    }

    fn read_dictionary(&mut self, head: &Head) -> io::Result<Result<(), String>> {
        let message = match head.message() {
            Ok(message) => message,
            Err(why) => return Ok(Err(why)),
        };
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            return Ok(Err("no dictionary where one should be".to_string()));
        };
        let id = dictionary.id();
        let named = |why: String| format!("dictionary {id}: {why}");
        let Some(data) = dictionary.data() else {
            return Ok(Err(named("no data".to_string())));
        };
        let body = match head.body(&mut self.file, &data, self.max)? {
            Ok(body) => body,
            Err(why) => return Ok(Err(named(why))),
        };
        let mut dictionaries = self.dictionaries.clone();
        let (schema, version) = (self.schema.clone(), message.version());
        let read = guarded(|| {
            read_dictionary(&body, dictionary, &schema, &mut dictionaries, &version)?;
            Ok(dictionaries)
        });
        Ok(match read {
            Ok(dictionaries) => {
                let bytes = dictionaries
                    .values()
                    .map(|d| d.get_array_memory_size() as u64)
                    .sum();
                self.dictionaries = dictionaries;
                messages::allowed(bytes, self.max).map_err(|why| {
                    self.dictionaries.clear();
                    format!("dictionaries: {why}")
                })
            }
            Err(why) => {
                // an older one would give other values
                self.dictionaries.remove(&id);
                Err(named(why))
            }
        })
    }

    /// The batch of a head.
    fn decode(&mut self, head: &Head) -> io::Result<Result<RecordBatch, String>> {
        let message = match head.message() {
            Ok(message) => message,
            Err(why) => return Ok(Err(why)),
        };
        let Some(batch) = message.header_as_record_batch() else {
            return Ok(Err("no record batch where one should be".to_string()));
        };
        let body = match head.body(&mut self.file, &batch, self.max)? {
            Ok(body) => body,
            Err(why) => return Ok(Err(why)),
        };
        let (schema, version) = (self.bytes.clone(), message.version());
        let dictionaries = &self.dictionaries;
        Ok(guarded(|| {
            RecordBatchDecoder::try_new(&body, batch, schema, dictionaries, &version)?
                .read_record_batch()
        }))
    }

    /// The offset of the next message, and its head.
    fn step(&mut self) -> io::Result<Option<(u64, Result<Head, String>)>> {
        let at = match &mut self.walk {
            Walk::End => return Ok(None),
            Walk::Stream(at) => *at,
            Walk::Listed { places, end } => match places.pop_front() {
                None => return Ok(None),
                Some(place) if place < *end => {
                    let why = "it overlaps the one before".to_string();
                    return Ok(Some((place, Err(why))));
                }
                Some(place) => place,
            },
        };
        let head = Head::read(&mut self.file, at)?;
        match (&mut self.walk, &head) {
            (Walk::Stream(next), Ok(Some(head))) => *next = head.end(),
            (Walk::Stream(_), _) => self.walk = Walk::End,
            (Walk::Listed { end, .. }, Ok(Some(head))) => *end = head.end(),
            (Walk::Listed { .. } | Walk::End, _) => {}
        }
        Ok(match (head, &self.walk) {
            (Ok(None), Walk::End | Walk::Stream(_)) => None,
            (Ok(None), Walk::Listed { .. }) => Some((at, Err(format!("no message at byte {at}")))),
            (Ok(Some(head)), _) => Some((at, Ok(head))),
            (Err(why), _) => Some((at, Err(why))),
        })
    }

    /// Makes the next record batch of the part the current one; false at the end, or once bad records fill `out`.
    fn next_batch(&mut self, out: &mut Batch) -> io::Result<bool> {
        while !out.is_full() {
            let Some((at, head)) = self.step()? else {
                break;
            };
            if self
                .part
                .as_ref()
                .is_some_and(|part| at >= part.end && part.end < self.file.size)
            {
                self.walk = Walk::End;
                return Ok(false);
            }
            let head = match head {
                Ok(head) => head,
                Err(why) => {
                    self.report(out, at, why);
                    continue;
                }
            };
            let kind = head.message().map(|message| message.header_type());
            if kind == Ok(MessageHeader::DictionaryBatch) {
                if let Err(why) = self.read_dictionary(&head)? {
                    self.report(out, at, why);
                }
                continue;
            }
            if kind != Ok(MessageHeader::RecordBatch) {
                let why = format!("the message at byte {at} is no record batch");
                self.report(out, at, why);
                continue;
            }
            let rows = head.message().and_then(|message| {
                let batch = message.header_as_record_batch();
                rows_of(&batch.ok_or("no record batch")?)
            });
            let rows = rows.unwrap_or(0);
            if !self.owns(at) {
                self.number = self.number.saturating_add(rows);
                continue;
            }
            let bytes = head.end() - at;
            match self.decode(&head)? {
                Ok(batch) => {
                    self.rows = Some(Rows {
                        batch,
                        offset: at,
                        bytes,
                        next: 0,
                    });
                    return Ok(true);
                }
                Err(why) => {
                    self.report(
                        out,
                        at,
                        format!("record batch: {why}; {rows} rows are lost"),
                    );
                    // their numbers stay theirs
                    self.number = self.number.saturating_add(rows.saturating_sub(1));
                    out.consumed += bytes;
                }
            }
        }
        Ok(false)
    }

    /// A bad record, if its place is the part's.
    fn report(&mut self, out: &mut Batch, offset: u64, why: String) {
        if self.owns(offset) {
            out.push_bad(offset, self.number, why);
            self.number = self.number.saturating_add(1);
            self.has_records = true;
        }
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_full() {
            let Some(rows) = &mut self.rows else {
                if self.next_batch(batch)? {
                    continue;
                }
                if batch.is_full() {
                    break;
                }
                if let Some((offset, why)) = self.fault.take() {
                    self.report(batch, offset, why);
                }
                if !self.has_records && self.part.is_none() {
                    self.report(batch, 0, "the file holds no rows".to_string());
                }
                break;
            };
            if rows.next == rows.batch.num_rows() {
                batch.consumed += rows.bytes;
                self.rows = None;
                continue;
            }
            let (offset, row) = (rows.offset, rows.next);
            rows.next += 1;
            let record = &mut self.record;
            let (max, is_text) = (self.max, &self.is_text);
            let written = caught(|| write_row(record, &rows.batch, row, is_text, max));
            self.has_records = true;
            match written {
                Ok(Ok(())) => batch.push(offset, self.number, &self.record, None),
                Ok(Err(Unwritten::TooLong)) => {
                    batch.push_bad(offset, self.number, format!("row longer than {max} bytes"));
                }
                Ok(Err(Unwritten::Other(why))) | Err(why) => {
                    batch.push_bad(offset, self.number, why);
                }
            }
            self.number += 1;
        }
        Ok(())
    }
}
