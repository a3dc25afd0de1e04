//! Reader for dolma's layout: `documents/x.jsonl.gz` with `id`, `text`, `source`, `added`, `created`, `metadata`,
//! and beside it `attributes/NAME/x.jsonl.gz` with one line per document: `id`, `attributes`.
//!
//! Facts: dolma 1.2 docs/data-format.md. The lines of both are read in parallel; a record is the document's line
//! and those of the requested attributes, one per line. Matching ids are checked when the record is parsed
//! (parse.rs). A document without a line of attributes, and lines of attributes without a document, are bad records
//! that name the attributes.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::format::Mismatch;
use super::lines::LineReader;
use super::{Batch, storage};
use crate::read::Input;

/// Lines one by one.
struct Lines {
    name: String,
    reader: LineReader,
    batch: Batch,
    next: usize,
}

impl Lines {
    fn open(name: &str, path: &Path, input: &Input, max: usize) -> io::Result<Lines> {
        let blob = storage::open(path, &input.options)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(Lines {
            name: name.to_string(),
            reader: LineReader::open(blob, max, false)?,
            batch: Batch::default(),
            next: 0,
        })
    }

    /// Index of the next record in the batch; None at the end.
    fn step(&mut self) -> io::Result<Option<usize>> {
        if self.next == self.batch.records.len() {
            self.batch.clear();
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.name));
            self.reader.fill(&mut self.batch).map_err(named)?;
            self.next = 0;
        }
        let at = self.next;
        self.next += 1;
        Ok((at < self.batch.records.len()).then_some(at))
    }
}

/// Reads documents with their attributes.
pub(crate) struct DolmaReader {
    documents: Lines,
    attributes: Vec<Lines>,
    record: Vec<u8>,
    max: usize,
    is_at_end: bool,
}

impl DolmaReader {
    pub(super) fn open(path: &Path, input: &Input, max: usize) -> io::Result<DolmaReader> {
        let attributes = input.attributes.iter().map(|name| {
            let beside = beside(path, name).ok_or_else(|| {
                io::Error::other("no folder `documents` in the path, so no attributes beside it")
            })?;
            Lines::open(name, &beside, input, max)
        });
        Ok(DolmaReader {
            attributes: attributes.collect::<io::Result<_>>()?,
            documents: Lines::open("documents", path, input, max)?,
            record: Vec::new(),
            max,
            is_at_end: false,
        })
    }

    /// Only the documents that start in `range` of a plain file; their attributes are elsewhere.
    pub(super) fn keep_to(&mut self, range: &Range<u64>) -> io::Result<()> {
        if !self.attributes.is_empty() {
            return Err(io::Error::other("a range of documents with attributes"));
        }
        self.documents.reader.keep_to(range)
    }

    /// Like [`LineReader::expect_objects`], of the documents and of their attributes.
    pub(super) fn expect_objects(&mut self) -> io::Result<Option<Mismatch>> {
        for lines in std::iter::once(&mut self.documents).chain(&mut self.attributes) {
            if let Some(mut other) = lines.reader.expect_objects()? {
                other.found = format!("{} {}", lines.name, other.found);
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_full() {
            let Some(at) = self.documents.step()? else {
                self.expect_no_more(batch)?;
                break;
            };
            let raw = &self.documents.batch.records[at];
            batch.consumed += std::mem::take(&mut self.documents.batch.consumed);
            let (offset, number) = (raw.offset, raw.number);
            self.record.clear();
            self.record
                .extend_from_slice(self.documents.batch.bytes(raw));
            let mut bad = raw.bad.clone();
            for lines in &mut self.attributes {
                let at = lines.step()?;
                let name = &lines.name;
                let Some(at) = at else {
                    bad.get_or_insert_with(|| format!("attributes {name} end before it"));
                    continue;
                };
                let line = &lines.batch.records[at];
                if let Some(why) = &line.bad {
                    bad.get_or_insert_with(|| format!("attributes {name}: {why}"));
                }
                self.record.push(b'\n');
                self.record.extend_from_slice(lines.batch.bytes(line));
            }
            if self.record.len() > self.max.saturating_mul(2) {
                bad.get_or_insert_with(|| "attributes longer than allowed".to_string());
            }
            match bad {
                Some(why) => batch.push_bad(offset, number, why),
                None => batch.push(offset, number, &self.record, None),
            }
        }
        Ok(())
    }
}

impl DolmaReader {
    /// A bad record for each file of attributes with lines behind the last document's.
    fn expect_no_more(&mut self, batch: &mut Batch) -> io::Result<()> {
        if std::mem::replace(&mut self.is_at_end, true) {
            return Ok(());
        }
        for lines in &mut self.attributes {
            let Some(at) = lines.step()? else { continue };
            let line = &lines.batch.records[at];
            let why = match &line.bad {
                Some(why) => format!("attributes {}: {why}", lines.name),
                None => format!("attributes {} go on behind the last document", lines.name),
            };
            batch.push_bad(line.offset, line.number, why);
        }
        Ok(())
    }
}

/// The file of attributes that belongs to a file of documents.
fn beside(path: &Path, name: &str) -> Option<PathBuf> {
    let text = path.to_str()?;
    let at = text.rfind("/documents/")?;
    let rest = &text[at + "/documents/".len()..];
    Some(format!("{}/attributes/{name}/{rest}", &text[..at]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_lie_beside_the_documents() {
        let path = Path::new("s3://b/v1/documents/cc/000.jsonl.gz");
        let want = "s3://b/v1/attributes/len/cc/000.jsonl.gz";
        assert_eq!(beside(path, "len").as_deref(), Some(Path::new(want)));
        assert_eq!(beside(Path::new("a/b.gz"), "len"), None);
    }
}
