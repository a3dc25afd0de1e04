//! Reader for tables as text: CSV and TSV, with the names of the columns in the first row.
//!
//! RFC 4180 as `csv-core` reads it: quoted fields may hold delimiters, quotes and line feeds. A row is passed on as a
//! JSON object of strings. A row with more or fewer fields than the header has is a bad record, and so is one that is
//! longer than allowed; memory is bounded by the longest row. After damage reading goes on at the next line.

use std::io;

use csv_core::ReadRecordResult;
use serde_json::{Map, Value};

use super::Batch;
use super::compression::Piece;
use super::format::{Mismatch, starts_with};
use super::storage::Blob;
use super::transcode::TextSource;

/// A row may have this many fields.
const MAX_FIELDS: usize = 1 << 16;

/// Characters that separate fields where a comma or a tab does not.
const DELIMITERS: [char; 4] = [';', '|', '\t', ','];

/// Rows behind the names that show which character separates the fields.
const ROWS: usize = 50;
/// Bytes in which they are searched.
const ROWS_BYTES: u64 = 64 << 20;

/// Names of the columns.
///
/// # Errors
/// A read that was refused.
pub(super) fn names(blob: Box<dyn Blob>, delimiter: u8, max: usize) -> io::Result<Vec<String>> {
    let mut reader = TableReader::open(blob, delimiter, max)?;
    reader.expect_column(|_| true)?;
    Ok(reader.names)
}

/// The character between the fields: of those that divide the first row, the one for which most of the next rows have as many
/// fields, then the one that makes most fields, then the first of them; a comma if none divides it. With it the first name.
///
/// # Errors
/// A read that was refused.
pub(super) fn delimiter_of(
    open: &dyn Fn() -> io::Result<Box<dyn Blob>>,
    max: usize,
) -> io::Result<(char, Option<String>)> {
    let mut best: Option<(usize, usize, char, String)> = None;
    let mut first = None;
    for delimiter in [',', ';', '\t', '|'] {
        let mut own = [0; 1];
        delimiter.encode_utf8(&mut own);
        let mut reader = TableReader::open(open()?, own[0], max)?;
        reader.expect_column(|_| true)?;
        let mut batch = Batch::default();
        while batch.records.len() < ROWS && !reader.end && reader.offset < ROWS_BYTES {
            reader.step(&mut batch);
            if let Some(e) = reader.failed.take() {
                return Err(e);
            }
        }
        let name = reader.names.first().cloned();
        if delimiter == ',' {
            first.clone_from(&name);
        }
        let rows = batch.records.iter().take(ROWS);
        let alike = rows.filter(|raw| raw.bad.is_none()).count();
        let fields = reader.names.len();
        if let Some(name) = name.filter(|_| fields > 1) {
            let is_better =
                |(a, f, _, _): &(usize, usize, char, String)| (alike, fields) > (*a, *f);
            if best.as_ref().is_none_or(is_better) {
                best = Some((alike, fields, delimiter, name));
            }
        }
    }
    Ok(match best {
        Some((_, _, delimiter, name)) => (delimiter, Some(name)),
        None => (',', first),
    })
}

/// Reads rows.
pub(crate) struct TableReader {
    source: TextSource,
    delimiter: u8,
    parser: csv_core::Reader,
    buffer: Vec<u8>,
    /// Start of the bytes not yet parsed.
    at: usize,
    /// Offset of `buffer[at]` in the decompressed file.
    offset: u64,
    /// Offset of the row that is parsed.
    start: u64,
    number: u64,
    max: usize,
    /// The fields of the row so far, one after the other, and the end of each.
    fields: Vec<u8>,
    used: usize,
    ends: Vec<usize>,
    ended: usize,
    is_too_long: bool,
    /// Behind damage, inside a line.
    is_lost: bool,
    names: Vec<String>,
    has_names: bool,
    end: bool,
    consumed: u64,
    record: Vec<u8>,
    /// Bad records that were met on the way to the names: offset, number, reason.
    early: Vec<(u64, u64, String)>,
    /// The read that was refused.
    failed: Option<io::Error>,
}

impl TableReader {
    pub(super) fn open(blob: Box<dyn Blob>, delimiter: u8, max: usize) -> io::Result<TableReader> {
        Ok(TableReader {
            source: TextSource::open(blob)?,
            delimiter,
            parser: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            buffer: Vec::new(),
            at: 0,
            offset: 0,
            start: 0,
            number: 0,
            max,
            fields: vec![0; 4096],
            used: 0,
            ends: vec![0; 64],
            ended: 0,
            is_too_long: false,
            is_lost: false,
            names: Vec::new(),
            has_names: false,
            end: false,
            consumed: 0,
            record: Vec::new(),
            early: Vec::new(),
            failed: None,
        })
    }

    /// Whether the first row names a column that `is_wanted`.
    pub(super) fn expect_column(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Option<Mismatch>> {
        let mut batch = Batch::default();
        while !self.has_names && !self.end {
            self.step(&mut batch);
            if let Some(e) = self.failed.take() {
                return Err(e);
            }
        }
        for raw in batch.records {
            let why = raw.bad.unwrap_or_default();
            self.early.push((raw.offset, raw.number, why));
        }
        if self.names.iter().any(|name| is_wanted(name)) || self.names.is_empty() {
            return Ok(None);
        }
        let found = starts_with(self.names.join(" ").as_bytes());
        let other = self.other_delimiter(is_wanted);
        let found = other.map_or(found.clone(), |other| {
            let own = char::from(self.delimiter).escape_default();
            let other = other.escape_default();
            format!(
                "{found}: its names are separated by \"{other}\", not by \"{own}\"; delimiter = \"{other}\" reads it"
            )
        });
        Ok(Some(Mismatch {
            wanted: "a table with a column of texts",
            found,
            start: "a row of names, among them that of the text (text_key)",
        }))
    }

    /// The character that separates the names of the first row, if it is not the one that was wanted.
    fn other_delimiter(&self, is_wanted: impl Fn(&str) -> bool) -> Option<char> {
        let [row] = &self.names[..] else {
            return None;
        };
        let is_named = |delimiter: &char| {
            let names = row
                .split(*delimiter)
                .map(|name| name.trim().trim_matches('"'));
            row.contains(*delimiter) && names.into_iter().any(&is_wanted)
        };
        DELIMITERS.into_iter().find(is_named)
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        for (offset, number, why) in self.early.drain(..) {
            batch.push_bad(offset, number, why);
        }
        while !batch.is_full() && !self.end {
            self.step(batch);
        }
        batch.consumed = self.source.consumed() - self.consumed;
        self.consumed = self.source.consumed();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Parses to the end of a row or of the buffer.
    fn step(&mut self, batch: &mut Batch) {
        if self.is_lost {
            self.skip_line();
        }
        if self.at == self.buffer.len() {
            return self.more(batch);
        }
        self.parse(false, batch);
    }

    /// Skips to the next line feed.
    fn skip_line(&mut self) {
        let rest = &self.buffer[self.at..];
        let found = memchr::memchr(b'\n', rest);
        let skipped = found.map_or(rest.len(), |i| i + 1);
        self.is_lost = found.is_none();
        self.at += skipped;
        self.offset += skipped as u64;
        self.start = self.offset;
    }

    /// Parses what is in the buffer, or tells the parser that there is no more; true unless it wants more room.
    fn parse(&mut self, is_last: bool, batch: &mut Batch) -> bool {
        let input = if is_last {
            &[]
        } else {
            &self.buffer[self.at..]
        };
        let (result, read, written, ended) = self.parser.read_record(
            input,
            &mut self.fields[self.used..],
            &mut self.ends[self.ended..],
        );
        self.at += read;
        self.offset += read as u64;
        self.used += written;
        self.ended += ended;
        match result {
            ReadRecordResult::InputEmpty | ReadRecordResult::End => return true,
            ReadRecordResult::Record => {
                self.take(batch);
                return true;
            }
            ReadRecordResult::OutputFull if self.fields.len() < self.max => {
                let size = (self.fields.len() * 2).min(self.max);
                self.fields.resize(size, 0);
            }
            ReadRecordResult::OutputEndsFull if self.ends.len() < MAX_FIELDS => {
                self.ends.resize(self.ends.len() * 2, 0);
            }
            ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                self.is_too_long = true;
                (self.used, self.ended) = (0, 0);
            }
        }
        false
    }

    /// Reads another piece.
    fn more(&mut self, batch: &mut Batch) {
        self.buffer.clear();
        self.at = 0;
        match self.source.next(&mut self.buffer) {
            Piece::Data { .. } => {
                if self.offset == 0 && self.buffer.starts_with(b"\xef\xbb\xbf") {
                    self.at = 3;
                    self.offset = 3;
                    self.start = 3;
                }
            }
            Piece::Failed(e) => (self.end, self.failed) = (true, Some(e)),
            Piece::End => {
                // a last row may have no line feed
                while !self.parse(true, batch) {}
                if self.offset == 0 {
                    batch.push_bad(0, 0, "the file is empty".to_string());
                }
                self.end = true;
            }
            Piece::Damage { offset, why, .. } => {
                let why = format!("{why} (at file byte {offset})");
                batch.push_bad(self.start, self.number, why);
                self.number += 1;
                self.parser.reset();
                self.begin();
                self.is_lost = true;
            }
        }
    }

    fn begin(&mut self) {
        (self.used, self.ended, self.is_too_long) = (0, 0, false);
        self.start = self.offset;
    }

    /// Takes the row that was parsed.
    fn take(&mut self, batch: &mut Batch) {
        let row = self.row();
        match row {
            Ok(row) if !self.has_names => {
                self.names = distinct(row);
                self.has_names = true;
            }
            Ok(row) => {
                let named = self
                    .names
                    .iter()
                    .cloned()
                    .zip(row.into_iter().map(Value::from));
                let object: Map<String, Value> = named.collect();
                self.record.clear();
                // strings can be written, and a vector takes them
                let written = serde_json::to_writer(&mut self.record, &object);
                match written {
                    Ok(()) => batch.push(self.start, self.number, &self.record, None),
                    Err(e) => batch.push_bad(self.start, self.number, e.to_string()),
                }
                self.number += 1;
            }
            Err(why) => {
                batch.push_bad(self.start, self.number, why);
                self.number += 1;
                self.has_names = true;
            }
        }
        self.begin();
    }

    fn row(&self) -> Result<Vec<String>, String> {
        if self.is_too_long {
            return Err(format!("row longer than {} bytes", self.max));
        }
        let fields = &self.ends[..self.ended];
        if self.has_names && fields.len() != self.names.len() {
            let (found, wanted) = (fields.len(), self.names.len());
            return Err(format!("row of {found} fields, the first row has {wanted}"));
        }
        let mut start = 0;
        let mut row = Vec::with_capacity(fields.len());
        for &end in fields {
            let bytes = &self.fields[start..end];
            let text = std::str::from_utf8(bytes);
            let text = text.map_err(|e| {
                format!(
                    "invalid UTF-8 at byte {} of the row",
                    start + e.valid_up_to()
                )
            })?;
            row.push(text.to_string());
            start = end;
        }
        Ok(row)
    }
}

/// Names that occur once: a repeated one gets a number.
fn distinct(names: Vec<String>) -> Vec<String> {
    let mut made: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let name = name.trim().to_string();
        let mut unique = name.clone();
        let mut n = 1;
        while made.contains(&unique) {
            n += 1;
            unique = format!("{name}_{n}");
        }
        made.push(unique);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Format, Input, Reader};

    /// The rows of a table as JSON, or why it is none.
    fn rows(table: &[u8], delimiter: &str) -> Result<Vec<String>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), table).unwrap();
        let input = Input {
            delimiter: delimiter.to_string(),
            ..Input::of(Format::Csv)
        };
        let opened = Reader::open(file.path(), &input, None, 1 << 20);
        let mut reader = opened.map_err(|e| e.to_string())?;
        let mut batch = Batch::default();
        let mut rows = Vec::new();
        while reader.fill(&mut batch).unwrap() {
            let texts = batch.records.iter().map(|raw| batch.bytes(raw));
            rows.extend(texts.map(|text| String::from_utf8(text.to_vec()).unwrap()));
        }
        Ok(rows)
    }

    #[test]
    fn the_delimiter_is_the_one_that_divides_the_rows_alike() {
        let found = |table: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), table).unwrap();
            crate::read::delimiter_of(file.path()).unwrap()
        };
        for (table, delimiter, name) in [
            ("id,text\n1,\"a; b; c\"\n2,d\n", ',', "id"),
            ("id;text;url\n1;\"a, b\";u\n2;c, d;v\n", ';', "id"),
            ("\u{feff}id;text\r\n1;\"a,\nb\"\r\n", ';', "id"),
            ("id|a,b|c\n1|2|3,4\n1|2|3\n", '|', "id"),
            ("id\ttext\n1\tone, two\n", '\t', "id"),
            // more rows fit the comma, although the names have more semicolons
            ("a,b;c;d\n1,2\n3,4\n", ',', "a"),
            ("text\none, two\nthree\n", ',', "text"),
        ] {
            assert_eq!(found(table), (delimiter, Some(name.to_string())), "{table}");
        }
        assert_eq!(found(""), (',', None));
    }

    #[test]
    fn another_delimiter_is_named_and_read() {
        let row = [r#"{"id":"1","text":"a, b"}"#];
        for (delimiter, written) in [(";", ";"), ("|", "|"), ("\t", "\\t")] {
            let table = ["id,\"text\"\n1,\"a", " b\"\n"]
                .join("\u{1}")
                .replace(',', delimiter);
            let table = table.replace('\u{1}', ",");
            let why = rows(table.as_bytes(), ",").unwrap_err();
            let want = format!(
                "its names are separated by \"{written}\", not by \",\"; delimiter = \"{written}\" reads it"
            );
            assert!(why.contains(&want), "{why}");
            assert_eq!(rows(table.as_bytes(), delimiter).unwrap(), row);
        }
        for table in ["id;body\n1;a\n", "id,body\n1,a\n"] {
            let why = rows(table.as_bytes(), ",").unwrap_err();
            assert!(!why.contains("delimiter"), "{why}");
        }
    }
}
