//! Reads clean documents back, with their keep list and edits.
//!
//! `clean/NNNNN.jsonl.zst` (or `.jsonl.gz`) holds one object per line: `id`, `text`, `url`, `source`,
//! `subset`, `language`, `meta`; absent fields are left out. `clean/NNNNN.parquet` has the same as
//! columns, `meta` as JSON text in `metadata`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::corpus::{EditList, KeepList, KeepStatus, pieces};
use crate::document::CleanDocument;
use crate::error::{Error, Result, damaged};
use crate::read::{Batch, Reader};
use crate::text::json;
use crate::write::{clean_file, shard_file};

/// Streams the documents of one clean shard.
pub struct Documents {
    reader: Reader,
    path: PathBuf,
    batch: Batch,
    /// Next record of the batch.
    next: usize,
    line: Vec<u8>,
    number: u64,
    offset: u64,
}

/// All documents of a clean shard, removed duplicates included.
pub fn documents(out: &Path, shard: usize) -> Result<Documents> {
    let (path, format) = clean_file(out, shard);
    Ok(Documents {
        reader: Reader::open_ours(&path, format)?,
        path,
        batch: Batch::default(),
        next: 0,
        line: Vec::new(),
        number: 0,
        offset: 0,
    })
}

impl Documents {
    /// The document after `others` further ones, which are not parsed; None if there are fewer.
    ///
    /// # Errors
    /// `Damaged` if a record is not a document.
    pub(crate) fn skip_to(&mut self, mut others: u64) -> Result<Option<CleanDocument>> {
        while others > 0 {
            if self.next == self.batch.records.len() {
                self.next = 0;
                if !self.reader.fill(&mut self.batch)? {
                    break;
                }
            }
            let left = self.batch.records.len() - self.next;
            let many = usize::try_from(others).unwrap_or(left).min(left);
            self.next += many;
            self.number += many as u64;
            others -= many as u64;
        }
        self.next().transpose()
    }

    /// The record of the document that came last, in JSON.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.batch.bytes(&self.batch.records[self.next - 1])
    }

    /// The error for a shard with fewer documents than it should have.
    pub(crate) fn ended(&self) -> Error {
        let found = format!("end of file behind document {}", self.number);
        let wanted = "as many documents as there are signatures";
        damaged(&self.path, self.offset, found, wanted)
    }
}

impl Iterator for Documents {
    type Item = Result<CleanDocument>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.batch.records.len() {
            self.next = 0;
            match self.reader.fill(&mut self.batch) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(e) => return Some(Err(e)),
            }
        }
        let raw = &self.batch.records[self.next];
        self.next += 1;
        self.offset = raw.offset;
        let number = self.number;
        self.number += 1;
        let wrong = |why: String| {
            let found = format!("document {number}: {why}");
            damaged(&self.path, raw.offset, found, "a clean document")
        };
        if let Some(why) = &raw.bad {
            return Some(Err(wrong(why.clone())));
        }
        self.line.clear();
        self.line.extend_from_slice(self.batch.bytes(raw));
        let document = simd_json::serde::from_slice(&mut self.line);
        let document = document.or_else(|_| json::from_slice(self.batch.bytes(raw)));
        Some(document.map_err(|e| wrong(e.to_string())))
    }
}

/// Documents of a shard that survived deduplication, without the cut ranges; all of them if there is no keep list.
/// A split document comes as several, with `#1`, `#2` and so on appended to its id.
pub struct KeptDocuments {
    documents: Documents,
    keep: Option<KeepList>,
    edits: EditList,
    buffer: String,
    next: usize,
    /// Further pieces of the document that came last.
    pieces: VecDeque<CleanDocument>,
    kept: u64,
    emptied: u64,
}

/// Streams the documents of a shard that are kept.
///
/// # Errors
/// A shard or keep list that is absent or damaged. Items are errors for damage further on.
pub fn kept_documents(out: &Path, shard: usize) -> Result<KeptDocuments> {
    let path = out.join(shard_file("keep", shard, "keep"));
    let keep = if path.exists() {
        Some(KeepList::read(&path)?)
    } else {
        None
    };
    kept_by(out, shard, keep)
}

/// Streams all documents of a shard, as [`kept_documents`] does without a keep list: for a job without deduplication, which
/// ignores the lists that an earlier job left in its folder.
///
/// # Errors
/// As [`kept_documents`].
pub fn all_documents(out: &Path, shard: usize) -> Result<KeptDocuments> {
    kept_by(out, shard, None)
}

fn kept_by(out: &Path, shard: usize, keep: Option<KeepList>) -> Result<KeptDocuments> {
    Ok(KeptDocuments {
        documents: documents(out, shard)?,
        edits: edits(out, shard, keep.as_ref())?,
        buffer: String::new(),
        keep,
        next: 0,
        pieces: VecDeque::new(),
        kept: 0,
        emptied: 0,
    })
}

/// The cuts of a shard; none without a keep list.
pub(crate) fn edits(out: &Path, shard: usize, keep: Option<&KeepList>) -> Result<EditList> {
    let path = out.join(shard_file("keep", shard, "edits"));
    let Some(keep) = keep.filter(|_| path.exists()) else {
        return Ok(EditList::default());
    };
    let list = EditList::read(&path)?;
    if list.documents() != keep.len() as u64 {
        let found = format!("{} documents", list.documents());
        let wanted = format!("{}, as in the keep list", keep.len());
        return Err(damaged(&path, 8, found, wanted));
    }
    Ok(list)
}

impl Iterator for KeptDocuments {
    type Item = Result<CleanDocument>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(piece) = self.pieces.pop_front() {
            return Some(Ok(piece));
        }
        loop {
            let document = match self.documents.next() {
                None => return self.end(),
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok(document)) => document,
            };
            let at = self.next;
            self.next += 1;
            match &self.keep {
                None => {
                    self.kept += 1;
                    return Some(Ok(document));
                }
                Some(keep) if at >= keep.len() => return Some(Err(self.mismatch(keep))),
                Some(keep) if keep.status(at) == KeepStatus::Kept => {
                    self.kept += 1;
                    match self.edited(at, document) {
                        Err(e) => return Some(Err(e)),
                        Ok(Some(document)) => return Some(Ok(document)),
                        Ok(None) => self.emptied += 1,
                    }
                }
                Some(_) => {}
            }
        }
    }
}

impl KeptDocuments {
    /// Kept documents so far; a split one counts once.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Kept documents so far of which the cuts left nothing.
    pub fn emptied(&self) -> u64 {
        self.emptied
    }

    /// Number in the shard of the document that came last.
    pub(crate) fn number(&self) -> usize {
        self.next - 1
    }

    /// The document without its cut ranges, or the first of its pieces.
    fn edited(&mut self, at: usize, document: CleanDocument) -> Result<Option<CleanDocument>> {
        let (spans, splits) = (self.edits.of(at), self.edits.splits_of(at));
        if spans.is_empty() {
            return Ok(Some(document));
        }
        let found = &mut self.pieces;
        let is_split = splits.contains(&true);
        let mut take = |text: &str| {
            let id = if is_split {
                format!("{}#{}", document.id, found.len() + 1)
            } else {
                document.id.clone()
            };
            found.push_back(CleanDocument {
                id,
                text: text.to_string(),
                ..document.fields()
            });
        };
        let text = &document.text;
        pieces(text, spans, splits, &mut self.buffer, &mut take).map_err(|why| {
            let found = format!("document {at}: {why}");
            let path = &self.documents.path;
            damaged(path, self.documents.offset, found, "the text that was cut")
        })?;
        Ok(self.pieces.pop_front())
    }

    fn mismatch(&self, keep: &KeepList) -> crate::Error {
        let found = format!("document {}", self.next);
        damaged(
            &self.documents.path,
            self.documents.offset,
            found,
            format!("{} documents, as in the keep list", keep.len()),
        )
    }

    /// A shard shorter than its keep list is an error, once.
    fn end(&mut self) -> Option<Result<CleanDocument>> {
        let short = self
            .keep
            .as_ref()
            .is_some_and(|keep| self.next < keep.len());
        let keep = self.keep.take().filter(|_| short)?;
        let error = self.mismatch(&keep);
        Some(Err(error))
    }
}
