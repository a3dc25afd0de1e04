//! Readers: files to batches of raw records.
//!
//! A reader streams; it never holds more than a batch and one record. What it cannot make sense of
//! becomes a bad record with offset and reason, and it goes on with what follows.

mod compression;
mod http;
mod inflate;
mod jsonl;
mod lines;
mod warc;
mod window;

use std::io;
use std::path::Path;

pub(crate) use compression::decode_body;
pub(crate) use http::parse_response;
pub(crate) use jsonl::{JsonScratch, parse_line, reason};
pub(crate) use lines::LineReader;
pub(crate) use warc::parse_record;

use crate::config::Format;
use crate::text::narrow;

/// One record of a batch: a slice of the batch's bytes, or why there is none.
pub(crate) struct Raw {
    /// Byte offset in the file (of the gzip member for WARC, in the decompressed text for lines).
    pub(crate) offset: u64,
    /// Number of the record in its file, from 0, bad ones included.
    pub(crate) number: u64,
    start: u32,
    end: u32,
    /// Why the record cannot be read.
    pub(crate) bad: Option<String>,
}

/// Some records of a file.
#[derive(Default)]
pub(crate) struct Batch {
    data: Vec<u8>,
    pub(crate) records: Vec<Raw>,
    /// File bytes consumed for this batch.
    pub(crate) consumed: u64,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.records.clear();
        self.consumed = 0;
    }

    /// The bytes of a record.
    pub(crate) fn bytes(&self, raw: &Raw) -> &[u8] {
        &self.data[raw.start as usize..raw.end as usize]
    }

    fn push(&mut self, offset: u64, number: u64, bytes: &[u8]) {
        let start = narrow(self.data.len());
        self.data.extend_from_slice(bytes);
        self.records.push(Raw {
            offset,
            number,
            start,
            end: narrow(self.data.len()),
            bad: None,
        });
    }

    fn push_bad(&mut self, offset: u64, number: u64, why: String) {
        self.records.push(Raw {
            offset,
            number,
            start: 0,
            end: 0,
            bad: Some(why),
        });
    }

    fn is_full(&self) -> bool {
        self.data.len() >= BATCH_BYTES || self.records.len() >= BATCH_RECORDS
    }
}

/// A batch is closed once it holds this much; one record may exceed it.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_RECORDS: usize = 2048;

/// A file being read.
pub(crate) enum Reader {
    Warc(warc::WarcReader),
    Lines(lines::LineReader),
}

impl Reader {
    /// Opens `path`; no longer records than `max` bytes are buffered.
    pub(crate) fn open(path: &Path, format: Format, max: usize) -> io::Result<Reader> {
        Ok(match format {
            Format::Warc | Format::Wet => Reader::Warc(warc::WarcReader::open(path, max)?),
            Format::Jsonl => Reader::Lines(lines::LineReader::open(path, max, false)?),
            Format::Text => Reader::Lines(lines::LineReader::open(path, max, true)?),
        })
    }

    /// Replaces `batch` by the next records; false once there are no more.
    pub(crate) fn fill(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        match self {
            Reader::Warc(reader) => reader.fill(batch),
            Reader::Lines(reader) => reader.fill(batch),
        }
        !batch.records.is_empty()
    }
}
