//! Reader for WACZ: a ZIP archive with WARC files, which are read one after the other.
//!
//! Facts: WACZ 1.1.1 (Webrecorder): WARC files in `archive/`, not compressed a second time, beside `indexes/`, `pages/`
//! and `datapackage.json`, which have nothing that the WARC files lack. The offset of a record is that in the WACZ
//! file, so a range of it is the record's gzip member.

use std::io::{self, Read};

use super::Batch;
use super::compression::Source;
use super::format::{Mismatch, starts_with};
use super::package::{Container, is_archive, is_package};
use super::storage::Blob;
use super::warc::WarcReader;

type Open = Box<dyn Fn() -> io::Result<Box<dyn Blob>> + Send>;

/// WARC files of an archive that are read.
const MAX_ARCHIVES: usize = 100_000;

/// A WARC file inside.
struct Entry {
    name: String,
    /// Its bytes in the file, or why there are none.
    place: Result<(u64, u64), String>,
}

/// Reads the records of all WARC files.
pub(crate) struct WaczReader {
    open: Open,
    entries: std::vec::IntoIter<Entry>,
    current: Option<(u64, WarcReader)>,
    /// Records so far.
    number: u64,
    max: usize,
    /// Why the file has none.
    empty: Option<String>,
}

/// A part of a file.
struct Part {
    blob: Box<dyn Blob>,
    start: u64,
    size: u64,
    at: u64,
}

impl Read for Part {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = out.len().min(left);
        let n = self.blob.read(&mut out[..most])?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Blob for Part {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.at = offset;
        self.blob.go_to(self.start.saturating_add(offset))
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(self.size))
    }
}

impl WaczReader {
    /// `open` opens the file once for the list of entries and once for each WARC file.
    pub(super) fn open(open: Open, max: usize) -> io::Result<Result<WaczReader, Mismatch>> {
        let mut blob = open()?;
        let size = blob.size()?;
        let mut head = Vec::new();
        blob.by_ref().take(64).read_to_end(&mut head)?;
        if !head.is_empty() && !is_package(&head) {
            return Ok(Err(Mismatch {
                wanted: "a WACZ file",
                found: starts_with(&head),
                start: "\"PK\" of a ZIP archive",
            }));
        }
        let (mut entries, mut empty) = (Vec::new(), None);
        match size {
            Some(0) => empty = Some("the file is empty".to_string()),
            None => empty = Some("the server does not say how long the file is".to_string()),
            Some(size) => match Container::open(blob, size, 0)? {
                Err(why) => empty = Some(why),
                Ok(mut archive) => {
                    let mut names = archive.names();
                    names.retain(|name| is_archive(name));
                    names.sort();
                    names.truncate(MAX_ARCHIVES);
                    for name in names {
                        let place = archive.place(&name)?;
                        entries.push(Entry { name, place });
                    }
                    if entries.is_empty() {
                        empty = Some("no WARC file in archive/".to_string());
                    }
                }
            },
        }
        Ok(Ok(WaczReader {
            open,
            entries: entries.into_iter(),
            current: None,
            number: 0,
            max,
            empty,
        }))
    }

    fn bad(&mut self, offset: u64, why: String, batch: &mut Batch) {
        batch.push_bad(offset, self.number, why);
        self.number += 1;
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        if let Some(why) = self.empty.take() {
            self.bad(0, why, batch);
        }
        while !batch.is_full() {
            let Some((start, reader)) = &mut self.current else {
                if !self.next_archive(batch)? {
                    break;
                }
                continue;
            };
            let (known, consumed) = (batch.records.len(), batch.consumed);
            reader.fill(batch)?;
            batch.consumed += consumed;
            // numbers and offsets of the WARC file become those of the whole
            for raw in &mut batch.records[known..] {
                raw.number = self.number;
                raw.offset += *start;
                self.number += 1;
            }
            if batch.records.len() == known {
                self.current = None;
            }
        }
        Ok(())
    }

    /// Opens the next WARC file; false if there is none.
    fn next_archive(&mut self, batch: &mut Batch) -> io::Result<bool> {
        let Some(entry) = self.entries.next() else {
            return Ok(false);
        };
        let (start, size) = match entry.place {
            Ok(place) => place,
            Err(why) => {
                self.bad(0, format!("{}: {why}", entry.name), batch);
                return Ok(true);
            }
        };
        let mut blob = (self.open)()?;
        blob.go_to(start)?;
        let part = Part {
            blob,
            start,
            size,
            at: 0,
        };
        let mut reader = WarcReader::open(Source::open(Box::new(part), true)?, self.max);
        match reader.expect_records()? {
            Some(other) => {
                let why = format!("{}: not a WARC file: {}", entry.name, other.found);
                self.bad(start, why, batch);
            }
            None => self.current = Some((start, reader)),
        }
        Ok(true)
    }
}
