//! Passes over the texts of kept documents, after deduplication of whole documents; each reads the text that
//! earlier passes left.
//!
//! Order: `url`, `semantic`, `lines`, `bloom`, `substring`. A pass reads the kept texts, finds repeats by an external sort and
//! returns the pieces to cut; here they become `keep/NNNNN.edits`, and a document that loses all of its text, or
//! more than its share, is removed from the keep list. `contaminated.rs` is one more pass, after all of these.
//! Memory: 4 bytes per document beside the sort's budget, and one shard's cuts.

use std::io::Write;
use std::path::Path;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde_json::json;

use crate::corpus::{
    EditList, HOLLOW, KeepList, KeepStatus, NONE, SEMANTIC, Span, URL, compose, composed_splits,
    joined, kept_documents,
};
use crate::dedup::rehydration::rehydration_of;
use crate::dedup::report::{BloomReport, CutReport, DedupReport, RemovedCounts};
use crate::dedup::sort::Sorter;
use crate::document::CleanDocument;
use crate::error::{At, Result};
use crate::progress::Progress;
use crate::text::narrow;
use crate::write::{AtomicFile, OutputFile, shard_file, word};

/// Location of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DocumentRef {
    pub(super) shard: u32,
    pub(super) document: u32,
}

/// A piece of a text to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u32,
    /// Without the separator after it.
    pub(super) content_end: u32,
    /// With it. A piece without one ends its text: if it is cut, the separator before it is cut as well.
    pub(super) end: u32,
    /// Bytes of the separator before it.
    pub(super) before: u32,
}

impl Piece {
    /// As records have them: sorted they follow the documents.
    pub(super) fn numbers(&self, place: DocumentRef) -> [u32; 6] {
        [
            place.shard,
            place.document,
            self.start,
            self.content_end,
            self.end,
            self.before,
        ]
    }
}

const PIECE: usize = 24;

/// Pieces collected for the edit lists.
pub(super) struct Cuts {
    sorter: Sorter<PIECE>,
    /// Pieces examined.
    pub(super) looked_at: u64,
    /// The filter that found them.
    pub(super) bloom: Option<BloomReport>,
    /// Bytes of each document's text that count, by shard.
    sizes: Vec<Vec<u32>>,
}

impl Cuts {
    pub(super) fn push(&mut self, place: DocumentRef, piece: Piece) -> Result<()> {
        let mut record = [0; PIECE];
        fill(&mut record, 0, &piece.numbers(place));
        self.sorter.push(record)
    }

    /// Records how many bytes of a document's text could be cut.
    pub(super) fn size(&mut self, place: DocumentRef, bytes: u32) {
        let sizes = &mut self.sizes[place.shard as usize];
        let at = place.document as usize;
        if sizes.len() <= at {
            sizes.resize(at + 1, 0);
        }
        sizes[at] = bytes;
    }
}

/// Numbers into a record from `at` on, so that bytes sort like them.
pub(super) fn fill(record: &mut [u8], at: usize, numbers: &[u32]) {
    let places = record[at..].as_chunks_mut::<4>().0;
    for (to, number) in places.iter_mut().zip(numbers) {
        *to = number.to_be_bytes();
    }
}

/// The number at `at`.
pub(super) fn number(record: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(word(record, at))
}

/// The reason why a document is removed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Another one has its address.
    Url,
    /// Another one has nearly its embedding.
    Semantic,
}

/// The state between passes.
pub(super) struct Passes<'a> {
    out: &'a Path,
    shards: usize,
    memory: usize,
    progress: &'a dyn Progress,
    pub(super) report: DedupReport,
    /// A line for every document that is gone.
    dropped: AtomicFile,
}

/// Batch limits: documents, and bytes.
const BATCH_DOCUMENTS: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;

impl<'a> Passes<'a> {
    /// Starts passes over the documents that a report counts as kept; `list_name` names the file that lists their cuts.
    pub(super) fn over(
        out: &'a Path,
        memory: usize,
        report: DedupReport,
        progress: &'a dyn Progress,
        list_name: &str,
    ) -> Result<Passes<'a>> {
        Ok(Passes {
            out,
            shards: report.kept_per_shard.len(),
            memory,
            progress,
            report,
            dropped: AtomicFile::create(out, list_name)?,
        })
    }

    pub(super) fn shards(&self) -> usize {
        self.shards
    }

    pub(super) fn out(&self) -> &Path {
        self.out
    }

    pub(super) fn progress(&self) -> &dyn Progress {
        self.progress
    }

    /// The memory budget in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// A sorter with `1 / parts` of the memory.
    pub(super) fn sorter<const N: usize>(&self, name: &str, parts: usize) -> Sorter<N> {
        let folder = self.out.join("tmp/dedup").join(name);
        Sorter::new(&folder, self.memory / parts)
    }

    /// Collects cuts in `1 / parts` of the memory.
    pub(super) fn cuts(&self, parts: usize) -> Cuts {
        Cuts {
            sorter: self.sorter("cuts", parts),
            looked_at: 0,
            bloom: None,
            sizes: vec![Vec::new(); self.shards],
        }
    }

    /// Calls `make` for all kept documents, in parallel, and `take` with the results, in order.
    pub(super) fn each<T: Send>(
        &self,
        make: impl Fn(&CleanDocument) -> T + Sync,
        mut take: impl FnMut(DocumentRef, T) -> Result<()>,
    ) -> Result<()> {
        (0..self.shards).try_for_each(|shard| self.each_of(shard, &make, &mut take))
    }

    /// [`Passes::each`] for one shard.
    pub(super) fn each_of<T: Send>(
        &self,
        shard: usize,
        make: impl Fn(&CleanDocument) -> T + Sync,
        mut take: impl FnMut(DocumentRef, T) -> Result<()>,
    ) -> Result<()> {
        let mut batch: Vec<(u32, CleanDocument)> = Vec::new();
        let mut documents = kept_documents(self.out, shard)?;
        let shard = narrow(shard);
        loop {
            batch.clear();
            let mut bytes = 0;
            while batch.len() < BATCH_DOCUMENTS && bytes < BATCH_BYTES {
                let Some(document) = documents.next() else {
                    break;
                };
                let document = document?;
                bytes += document.text.len();
                batch.push((narrow(documents.number()), document));
            }
            if batch.is_empty() {
                return Ok(());
            }
            let made: Vec<T> = batch.par_iter().map(|(_, d)| make(d)).collect();
            for ((document, _), made) in batch.iter().zip(made) {
                let document = *document;
                take(DocumentRef { shard, document }, made)?;
            }
            self.progress.documents(batch.len() as u64, 0);
        }
    }

    /// Writes a line about a document.
    pub(super) fn tell(&mut self, line: &serde_json::Value) -> Result<()> {
        let path = self.dropped.path();
        writeln!(self.dropped, "{line}").at(&path)
    }

    /// Writes the cuts of a pass. A document that loses more than `limit` of the bytes that count, or all, is gone.
    pub(super) fn write_cuts(&mut self, rule: &str, limit: f64, cuts: Cuts) -> Result<()> {
        let Cuts {
            sorter,
            looked_at,
            bloom,
            sizes,
        } = cuts;
        let mut writer = CutWriter {
            passes: self,
            rule,
            limit,
            sizes,
            shard: None,
            document: 0,
            pieces: Vec::new(),
            report: CutReport {
                rule: rule.to_string(),
                pieces: looked_at,
                bloom,
                ..CutReport::default()
            },
        };
        sorter.drain(&mut |record: &[u8; PIECE]| {
            let place = DocumentRef {
                shard: number(record, 0),
                document: number(record, 4),
            };
            writer.go_to(place)?;
            writer.pieces.push(Piece {
                start: number(record, 8),
                content_end: number(record, 12),
                end: number(record, 16),
                before: number(record, 20),
            });
            Ok(())
        })?;
        writer.end_shard()?;
        let report = writer.report;
        self.report.hollow += report.hollow;
        self.report.kept -= report.hollow;
        self.report.cuts.push(report);
        Ok(())
    }

    /// Takes documents out that others stand for: (document, the one that stays), sorted.
    pub(super) fn remove(&mut self, sorter: Sorter<16>, why: Removal) -> Result<()> {
        let flag = match why {
            Removal::Url => URL,
            Removal::Semantic => SEMANTIC,
        };
        let mut open: Option<(u32, KeepList)> = None;
        let mut count = 0;
        sorter.drain(&mut |record: &[u8; 16]| {
            let (shard, document) = (number(record, 0), number(record, 4) as usize);
            if open.as_ref().is_none_or(|(s, _)| *s != shard) {
                if let Some((before, list)) = open.take() {
                    self.write_keep(before, &list)?;
                }
                open = Some((shard, self.read_keep(shard)?));
            }
            if let Some((_, list)) = &mut open {
                list.flags[document] = flag;
                list.of[document] =
                    u64::from(number(record, 8)) << 32 | u64::from(number(record, 12));
                count += 1;
            }
            Ok(())
        })?;
        if let Some((shard, list)) = open {
            self.write_keep(shard, &list)?;
        }
        match why {
            Removal::Url => self.report.url += count,
            Removal::Semantic => self.report.semantic += count,
        }
        self.report.kept -= count;
        Ok(())
    }

    pub(super) fn read_keep(&self, shard: u32) -> Result<KeepList> {
        let path = self.out.join(shard_file("keep", shard as usize, "keep"));
        KeepList::read(&path)
    }

    /// The cuts of the passes before; none without a file.
    pub(super) fn read_edits(&self, shard: u32, keep: &KeepList) -> Result<EditList> {
        let path = shard_file("keep", shard as usize, "edits");
        let path = self.out.join(path);
        if path.exists() {
            EditList::read(&path)
        } else {
            Ok(EditList::none(keep.len() as u64))
        }
    }

    /// Writes a shard's keep-list and its cuts: those of before, with those of the changed documents in their place.
    pub(super) fn write_changes(
        &mut self,
        shard: u32,
        keep: &KeepList,
        old: &EditList,
        changed: &[Changed],
    ) -> Result<()> {
        let mut list = EditList::none(keep.len() as u64);
        let mut changed = changed.iter().peekable();
        let is_kept = |d: u32| keep.status(d as usize) == KeepStatus::Kept;
        for (document, spans) in old.iter() {
            while let Some(earlier) = changed.next_if(|c| c.document < document) {
                list.add(earlier.document, &earlier.spans, &earlier.splits);
            }
            match changed.next_if(|c| c.document == document) {
                Some(c) => list.add(document, &c.spans, &c.splits),
                None if is_kept(document) => {
                    list.add(document, spans, old.splits_of(document as usize));
                }
                None => {}
            }
        }
        changed.for_each(|c| list.add(c.document, &c.spans, &c.splits));
        let name = shard_file("keep", shard as usize, "edits");
        let file = list.write(self.out, &name)?;
        self.put(file);
        self.write_keep(shard, keep)
    }

    fn write_keep(&mut self, shard: u32, list: &KeepList) -> Result<()> {
        let name = shard_file("keep", shard as usize, "keep");
        let report = &mut self.report;
        report.kept_per_shard[shard as usize] = list.kept() as u64;
        if let Some(counts) = report.removed_per_shard.get_mut(shard as usize) {
            *counts = RemovedCounts::of(list);
        }
        let file = list.write(self.out, &name)?;
        self.put(file);
        Ok(())
    }

    /// Takes the place of the file of that name, or is one more.
    pub(super) fn put(&mut self, file: OutputFile) {
        let outputs = &mut self.report.outputs;
        match outputs.iter_mut().find(|o| o.path == file.path) {
            Some(old) => *old = file,
            None => outputs.push(file),
        }
    }

    pub(super) fn finish(self) -> Result<DedupReport> {
        let mut report = self.report;
        report.rehydration = rehydration_of(self.out, self.shards)?;
        report.outputs.push(self.dropped.finish()?);
        Ok(report)
    }
}

/// The cuts of a document that a pass changed.
pub(super) struct Changed {
    document: u32,
    spans: Vec<Span>,
    splits: Vec<bool>,
}

impl Changed {
    /// Cuts in the text that `old` left of a document, as cuts of the whole text.
    pub(super) fn of(document: u32, old: &EditList, spans: &[Span], splits: &[bool]) -> Changed {
        let old = old.of(document as usize);
        let whole = compose(old, spans);
        Changed {
            document,
            splits: composed_splits(&whole, old, spans, splits),
            spans: whole,
        }
    }
}

/// Pieces in order to edit lists.
struct CutWriter<'p, 'a> {
    passes: &'p mut Passes<'a>,
    rule: &'p str,
    limit: f64,
    sizes: Vec<Vec<u32>>,
    shard: Option<OpenShard>,
    /// The document of `pieces`.
    document: u32,
    pieces: Vec<Piece>,
    report: CutReport,
}

struct OpenShard {
    number: u32,
    keep: KeepList,
    old: EditList,
    /// Documents of this pass.
    changed: Vec<Changed>,
}

impl CutWriter<'_, '_> {
    fn go_to(&mut self, place: DocumentRef) -> Result<()> {
        let is_open = self.shard.as_ref().is_some_and(|s| s.number == place.shard);
        if !is_open {
            self.end_shard()?;
            let keep = self.passes.read_keep(place.shard)?;
            self.shard = Some(OpenShard {
                number: place.shard,
                old: self.passes.read_edits(place.shard, &keep)?,
                keep,
                changed: Vec::new(),
            });
        } else if self.document != place.document {
            self.end_document()?;
        }
        self.document = place.document;
        Ok(())
    }

    fn end_document(&mut self) -> Result<()> {
        let Some(shard) = &mut self.shard else {
            return Ok(());
        };
        let (spans, lost) = spans_of(&self.pieces);
        self.pieces.clear();
        let at = self.document as usize;
        let size = self.sizes[shard.number as usize]
            .get(at)
            .copied()
            .unwrap_or(0);
        let share = f64::from(lost) / f64::from(size.max(1));
        if lost >= size || share > self.limit {
            shard.keep.flags[at] = HOLLOW;
            shard.keep.of[at] = NONE;
            self.report.hollow += 1;
            let line = json!({"shard": shard.number, "document": self.document,
                "rule": format!("{}.removed_ratio", self.rule), "value": share,
                "limit": self.limit});
            return self.passes.tell(&line);
        }
        self.report.documents += 1;
        self.report.bytes += spans.iter().map(|s| u64::from(s.1 - s.0)).sum::<u64>();
        let splits = vec![false; spans.len()];
        let changed = Changed::of(self.document, &shard.old, &spans, &splits);
        shard.changed.push(changed);
        Ok(())
    }

    fn end_shard(&mut self) -> Result<()> {
        if self.shard.is_none() {
            return Ok(());
        }
        self.end_document()?;
        let Some(shard) = self.shard.take() else {
            return Ok(());
        };
        self.passes
            .write_changes(shard.number, &shard.keep, &shard.old, &shard.changed)
    }
}

/// Ranges of a document's pieces, and their bytes of content.
fn spans_of(pieces: &[Piece]) -> (Vec<Span>, u32) {
    let mut spans: Vec<Span> = Vec::new();
    let (mut lost, mut covered) = (0, 0);
    // the separator before the first of the pieces that touch
    let mut before = 0;
    for piece in pieces {
        let from = piece.start.max(covered);
        lost += piece.content_end.saturating_sub(from);
        covered = covered.max(piece.content_end);
        match spans.last_mut() {
            Some(last) if last.1 >= piece.start => last.1 = last.1.max(piece.end),
            _ => {
                before = piece.before;
                spans.push((piece.start, piece.end));
            }
        }
        if piece.end == piece.content_end
            && let Some(last) = spans.last_mut()
        {
            last.0 -= before;
            before = 0;
        }
    }
    (joined(&spans), lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start: u32, content_end: u32, end: u32) -> Piece {
        Piece {
            start,
            content_end,
            end,
            before: u32::from(start > 0),
        }
    }

    #[test]
    fn the_last_line_takes_the_break_before_it_along() {
        // "ab\ncd\nef"
        let (first, second, last) = (line(0, 2, 3), line(3, 5, 6), line(6, 8, 8));
        assert_eq!(spans_of(&[first]), (vec![(0, 3)], 2));
        assert_eq!(spans_of(&[second]), (vec![(3, 6)], 2));
        assert_eq!(spans_of(&[last]), (vec![(5, 8)], 2));
        assert_eq!(spans_of(&[second, last]), (vec![(2, 8)], 4));
        assert_eq!(spans_of(&[first, last]), (vec![(0, 3), (5, 8)], 4));
        assert_eq!(spans_of(&[first, second, last]), (vec![(0, 8)], 6));
    }

    #[test]
    fn overlapping_pieces_count_once() {
        let piece = |start, end| Piece {
            start,
            content_end: end,
            end,
            before: 0,
        };
        let (spans, lost) = spans_of(&[piece(0, 10), piece(5, 12), piece(20, 21)]);
        assert_eq!((spans, lost), (vec![(0, 12), (20, 21)], 13));
    }
}
