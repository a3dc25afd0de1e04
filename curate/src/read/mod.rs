//! Readers: files to batches of raw records.
//!
//! A reader streams; it never holds more than a batch and one record. Unreadable data becomes a bad record with
//! offset and reason, and reading continues after it. A failed read of the system and a file of another format are
//! errors: nothing of such a file is processed. Location of the bytes (storage), compression (compression) and
//! format of the records (warc, lines, pages, parquet, arrow, dolma) are independent.

mod arrow;
mod batch;
mod beside;
mod columns;
mod composed;
mod compression;
mod crawl;
mod detect;
mod dolma;
mod fields;
mod flow;
mod format;
mod forms;
mod http;
mod input;
mod jsonl;
mod keys;
mod latex;
mod lines;
mod names;
mod objects;
mod package;
mod pages;
mod parquet;
mod parse;
mod pdf;
mod rule;
mod shards;
mod splits;
mod storage;
mod table;
mod transcode;
mod wacz;
mod warc;
mod wat;
mod web;
mod wikitext;
mod zim;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{At, Error, Result};
use crate::write::OutputFormat;
use format::Mismatch;

pub use beside::{LeftOut, WhyLeftOut};
pub use crawl::{CrawlList, keep_crawl_lists};
pub(crate) use detect::{detect, is_binary, magic_of};
pub(crate) use fields::{Fields, Unread};
pub use forms::inputs;
#[cfg(test)]
pub(crate) use http::parse_response;
pub use input::{Format, Input, Split};
pub(crate) use jsonl::{JsonScratch, reason};
pub use keys::Keys;
pub(crate) use keys::{only as keep_only, take as take_field};
pub(crate) use lines::LineReader;
pub(crate) use parse::read_fields;
pub use rule::ReadRule;
pub use shards::{Overview, Shard, input_files, input_files_kept, missing_inputs, overview};
#[cfg(feature = "object-store")]
pub(crate) use storage::{FIRST_WAIT, MAX_FAILURES, Remote, Store, io_error};
pub(crate) use storage::{Options, is_remote};
pub(crate) use warc::{Provenance, parse_record};
pub(crate) use web::{Content, Html, parse_page};

pub(crate) use batch::{Batch, Fault, Raw};
pub(crate) use composed::Composed;
pub(crate) use compression::{Source, decode_body};

/// A file being read.
pub(crate) struct Reader {
    kind: Kind,
    last: Option<(u64, u32)>,
    path: PathBuf,
    /// Records that may still be read.
    left: u64,
}

enum Kind {
    Warc(Box<warc::WarcReader>),
    Lines(Box<LineReader>),
    Pages(Box<pages::PageReader>),
    Parquet(Box<parquet::ParquetReader>),
    Arrow(Box<arrow::ArrowReader>),
    Dolma(Box<dolma::DolmaReader>),
    Table(Box<table::TableReader>),
    Package(Box<package::PackageReader>),
    Pdf(Box<pdf::PdfReader>),
    Latex(Box<latex::LatexReader>),
    Wacz(Box<wacz::WaczReader>),
    Zim(Box<zim::ZimReader>),
    /// A file of a kind that no format reads, until it was told.
    Unknown(Option<String>),
}

impl Reader {
    /// Opens a file of `input`, or the records that start in a part of it; records longer than `max` bytes are not
    /// buffered.
    ///
    /// # Errors
    /// `Io` for a file that cannot be opened or read, `Format` for one of another kind.
    pub(crate) fn open(
        path: &Path,
        input: &Input,
        part: Option<&Range<u64>>,
        max: usize,
    ) -> Result<Reader> {
        let opened = open(path, input, part, max).at(path)?;
        let kind = opened.map_err(|other| Error::Format {
            path: path.to_path_buf(),
            wanted: other.wanted,
            found: other.found,
            start: other.start,
        })?;
        Ok(Reader::new(path, kind))
    }

    /// Opens the lines of a file, whatever their content.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open_lines(path: &Path, options: &Options, max: usize) -> Result<Reader> {
        let lines =
            storage::open(path, options).and_then(|blob| LineReader::open(blob, max, false));
        Ok(Reader::new(path, Kind::Lines(Box::new(lines.at(path)?))))
    }

    /// Opens one of our clean shards: lines of any length, or rows.
    ///
    /// # Errors
    /// `Io`; `Format` if its format is not that of its name.
    pub(crate) fn open_ours(path: &Path, format: OutputFormat) -> Result<Reader> {
        let options = Options::default();
        if format == OutputFormat::Parquet {
            let all = 0..u64::MAX;
            let input = Input::of(Format::Parquet);
            return Reader::open(path, &input, Some(&all), usize::MAX);
        }
        let mut reader = Reader::open_lines(path, &options, usize::MAX)?;
        if let Kind::Lines(lines) = &mut reader.kind {
            lines.may_be_empty();
        }
        Ok(reader)
    }

    fn new(path: &Path, kind: Kind) -> Reader {
        Reader {
            kind,
            last: None,
            path: path.to_path_buf(),
            left: u64::MAX,
        }
    }

    /// Whether a Parquet file has no footer that can be read: it is one bad record.
    pub(crate) fn is_cut(&self) -> bool {
        if let Kind::Parquet(reader) = &self.kind {
            return reader.is_cut();
        }
        false
    }

    /// Reads no more than this many records, bad ones included.
    pub(crate) fn limit_to(&mut self, records: u64) {
        self.left = records;
    }

    /// Replaces `batch` by the next records; false once there are no more.
    ///
    /// # Errors
    /// `Io` if the system or the server refuses a read; the content of `batch` is unspecified then.
    pub(crate) fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        batch.clear();
        batch.last = self.last;
        if self.left == 0 {
            return Ok(false);
        }
        match &mut self.kind {
            Kind::Warc(reader) => reader.fill(batch),
            Kind::Lines(reader) => reader.fill(batch),
            Kind::Pages(reader) => reader.fill(batch),
            Kind::Parquet(reader) => reader.fill(batch),
            Kind::Arrow(reader) => reader.fill(batch),
            Kind::Dolma(reader) => reader.fill(batch),
            Kind::Table(reader) => reader.fill(batch),
            Kind::Package(reader) => reader.fill(batch),
            Kind::Pdf(reader) => {
                reader.fill(batch);
                Ok(())
            }
            Kind::Latex(reader) => {
                reader.fill(batch);
                Ok(())
            }
            Kind::Wacz(reader) => reader.fill(batch),
            Kind::Zim(reader) => reader.fill(batch),
            Kind::Unknown(why) => {
                if let Some(why) = why.take() {
                    batch.push_bad(0, 0, why);
                }
                Ok(())
            }
        }
        .at(&self.path)?;
        self.last = batch.last;
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        batch.records.truncate(most);
        self.left -= batch.records.len() as u64;
        Ok(!batch.records.is_empty())
    }
}

/// Names of the columns of a table whose fields `input` separates.
///
/// # Errors
/// `Io`.
pub(crate) fn column_names(path: &Path, input: &Input) -> Result<Vec<String>> {
    let delimiter = input.table_delimiter();
    let blob = storage::open(path, &Options::default()).at(path)?;
    table::names(blob, delimiter, MOST_NAMES).at(path)
}

/// The character between the fields of a table, by its first rows, and the name of its first column.
///
/// # Errors
/// `Io`.
pub(crate) fn delimiter_of(path: &Path) -> Result<(char, Option<String>)> {
    let open = || storage::open(path, &Options::default());
    table::delimiter_of(&open, MOST_NAMES).at(path)
}

/// Longest row that is read to learn the names of columns, in bytes.
const MOST_NAMES: usize = 1 << 20;

/// The reader of a file of `input`, if it has that format. The check reads only the file's start.
fn open(
    path: &Path,
    input: &Input,
    part: Option<&Range<u64>>,
    max: usize,
) -> io::Result<Result<Kind, Mismatch>> {
    let blob = || storage::open(path, &input.options);
    let has_start = part.is_none_or(|range| range.start == 0);
    let mut other = None;
    let kind = match input.format {
        Format::Warc | Format::Wet | Format::Wat => {
            let mut reader = warc::WarcReader::open(Source::open(blob()?, true)?, max);
            if let Some(range) = part {
                reader.keep_to(range, blob()?)?;
            }
            if has_start {
                other = reader.expect_records()?;
            }
            Kind::Warc(Box::new(reader))
        }
        Format::Jsonl => {
            let mut reader = LineReader::open(blob()?, max, false)?;
            if has_start {
                other = reader.expect_values()?;
            }
            if let Some(range) = part {
                reader.keep_to(range)?;
            }
            Kind::Lines(Box::new(reader))
        }
        Format::Text => Kind::Lines(Box::new(LineReader::open(blob()?, max, true)?)),
        Format::Html => {
            let mut reader = LineReader::open(blob()?, max, true)?;
            // a page names its charset itself
            reader.keep_bytes();
            Kind::Lines(Box::new(reader))
        }
        format @ (Format::Epub | Format::Docx | Format::Odt) => {
            let by_chapter = input.split == Split::Chapter;
            let reader = package::PackageReader::open(blob, format, by_chapter, max)?;
            return Ok(reader.map(|reader| Kind::Package(Box::new(reader))));
        }
        Format::Pdf => {
            let how = pdf::How {
                keeps_running: input.running_lines,
                by_page: input.split == Split::Page,
            };
            let reader = pdf::PdfReader::open(blob()?, how, max)?;
            return Ok(reader.map(|reader| Kind::Pdf(Box::new(reader))));
        }
        Format::Latex => {
            let reader = latex::LatexReader::open(blob()?, input.bibliography, max)?;
            return Ok(reader.map(|reader| Kind::Latex(Box::new(reader))));
        }
        Format::Wacz => {
            let (path, options) = (path.to_path_buf(), input.options.clone());
            let open = Box::new(move || storage::open(&path, &options));
            let reader = wacz::WaczReader::open(open, max)?;
            return Ok(reader.map(|reader| Kind::Wacz(Box::new(reader))));
        }
        Format::Zim => {
            let reader = zim::ZimReader::open(blob()?, max)?;
            return Ok(reader.map(|reader| Kind::Zim(Box::new(reader))));
        }
        Format::Csv | Format::Tsv => {
            let mut reader = table::TableReader::open(blob()?, input.table_delimiter(), max)?;
            other = reader.expect_column(|name| input.is_text_column(name))?;
            Kind::Table(Box::new(reader))
        }
        Format::Auto => match detect(path, input)? {
            Ok(format) => {
                let input = Input {
                    format,
                    ..input.clone()
                };
                return open(path, &input, part, max);
            }
            Err(kind) => Kind::Unknown(Some(format!("{kind}: no format reads it"))),
        },
        Format::Dolma => {
            let mut reader = dolma::DolmaReader::open(path, input, max)?;
            if has_start {
                other = reader.expect_objects()?;
            }
            if let Some(range) = part {
                reader.keep_to(range)?;
            }
            Kind::Dolma(Box::new(reader))
        }
        Format::Wikipedia => {
            let mut reader = pages::PageReader::open(blob()?, max)?;
            if let Some(range) = part {
                reader.keep_to(range, &blob)?;
            }
            if has_start {
                other = reader.expect_pages()?;
            }
            Kind::Pages(Box::new(reader))
        }
        Format::Parquet => {
            let reader = parquet::ParquetReader::open(path, input, part, max)?;
            return Ok(reader.map(|reader| Kind::Parquet(Box::new(reader))));
        }
        Format::Arrow => {
            let reader = arrow::ArrowReader::open(blob()?, input, part, max)?;
            return Ok(reader.map(|reader| Kind::Arrow(Box::new(reader))));
        }
    };
    Ok(other.map_or(Ok(kind), Err))
}

/// A raw record of a file; for people and tools that inspect files.
pub struct Record<'a> {
    /// Byte offset: of the gzip member or frame for WARC, in the decompressed text for lines.
    pub offset: u64,
    /// Number of the record in its file or part, from 0, bad ones included.
    pub number: u64,
    /// Kind of a WARC or ARC record (`response`, ...); empty for others.
    pub kind: String,
    /// The block of a WARC or ARC record; all of any other.
    pub block: &'a [u8],
    /// Why it cannot be read.
    pub bad: Option<&'a str>,
    /// Name of the fault that it was read in spite of.
    pub repaired: Option<&'a str>,
}

/// Calls `each` with every record of a file of `input` (or of those that start in a part of it).
///
/// # Errors
/// `Io` if the file cannot be opened or read further, `Format` if it is of another kind.
pub fn each_record(
    path: &Path,
    input: &Input,
    part: Option<&Range<u64>>,
    max: usize,
    each: &mut dyn FnMut(&Record<'_>),
) -> Result<()> {
    let mut reader = Reader::open(path, input, part, max)?;
    let mut batch = Batch::default();
    while reader.fill(&mut batch)? {
        for raw in &batch.records {
            let bytes = batch.bytes(raw);
            let archive = matches!(
                input.format,
                Format::Warc | Format::Wet | Format::Wat | Format::Wacz
            );
            let parsed = archive.then(|| parse_record(bytes)).flatten();
            let (kind, block) = parsed.map_or((String::new(), bytes), |r| (r.kind, r.body));
            each(&Record {
                offset: raw.offset,
                number: raw.number,
                kind,
                block,
                bad: raw.bad.as_deref(),
                repaired: raw.repaired.map(|fault| fault.name),
            });
        }
    }
    Ok(())
}

/// A bzip2 file whose second stream is not in its first bytes counts as a single stream: streams of a wiki's dump
/// are a quarter of this, the first one is its header.
const FIRST_STREAMS: usize = 4 << 20;

/// True if parts of a file can be read without the bytes before them.
pub(crate) fn can_be_split(path: &Path, input: &Input) -> io::Result<bool> {
    // parts of a file are few records
    if storage::parts_of(path).is_some() {
        return Ok(false);
    }
    let open = || Source::open(storage::open(path, &input.options)?, false);
    match input.format {
        Format::Warc | Format::Wet | Format::Wat | Format::Parquet | Format::Arrow => Ok(true),
        // attributes are in other files, whose lines are matched by counting
        Format::Dolma if !input.attributes.is_empty() => Ok(false),
        // a byte of UTF-16 does not tell where a line starts
        Format::Jsonl | Format::Dolma => {
            let source = open()?;
            if source.is_compressed() || source.is_utf_16() {
                return Ok(false);
            }
            if input.format == Format::Dolma {
                return Ok(true);
            }
            let mut reader = LineReader::open(storage::open(path, &input.options)?, 0, false)?;
            reader.expect_values()?;
            Ok(reader.has_lines())
        }
        Format::Wikipedia => {
            let mut source = open()?;
            Ok(!source.is_compressed() || source.has_streams(FIRST_STREAMS)?)
        }
        Format::Text
        | Format::Html
        | Format::Csv
        | Format::Tsv
        | Format::Epub
        | Format::Docx
        | Format::Odt
        | Format::Pdf
        | Format::Latex
        | Format::Wacz
        | Format::Zim
        | Format::Auto => Ok(false),
    }
}

#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod tests;
