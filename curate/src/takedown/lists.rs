//! Keep lists, cuts and the index of kept documents without the removed documents.

use std::path::{Path, PathBuf};

use super::removals::Removals;
use crate::corpus::{EARLIER, EditList, KeepList, KeepStatus, NONE, edits};
use crate::dedup::{KEPT_INDEX, RemovedCounts, SignatureFile, write_kept};
use crate::error::Result;
use crate::text::narrow;
use crate::write::{OutputFile, shard_file};

/// Counts of a shard's removed documents in the report of deduplication, and the references they leave behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListCounts {
    /// Documents that stay.
    pub kept: u64,
    /// Documents of the shard that deduplication removed, without those that are taken down.
    pub removed: RemovedCounts,
    /// Removed documents that were kept.
    pub gone_kept: u64,
    /// Removed documents that were exact duplicates.
    pub gone_exact: u64,
    /// Removed documents that were near duplicates.
    pub gone_fuzzy: u64,
    /// Removed documents whose address another one has.
    pub gone_url: u64,
    /// Removed documents whose embedding another one nearly has.
    pub gone_semantic: u64,
    /// Removed documents that repeat an earlier crawl.
    pub gone_earlier: u64,
    /// Removed documents of which too much was cut.
    pub gone_hollow: u64,
    /// Removed documents with evaluation texts and little else.
    pub gone_contaminated: u64,
    /// Documents that stay in the shard, marked as duplicates of one that is removed.
    pub orphans: u64,
}

/// Writes the keep list and the cuts of a shard below `to`, unless they stay as they are. `smaller` are the kept documents
/// of the shard, sorted, that lose a duplicate; one that loses several is named as often.
///
/// # Errors
/// `Io`; `Damaged`.
pub fn rewrite_lists(
    out: &Path,
    to: &Path,
    shard: usize,
    removals: &Removals,
    smaller: &[u32],
) -> Result<(Vec<OutputFile>, ListCounts)> {
    let name = shard_file("keep", shard, "keep");
    let old = KeepList::read(&out.join(&name))?;
    let number = narrow(shard);
    let (mut list, mut counts) = (KeepList::default(), ListCounts::default());
    for document in 0..old.len() {
        let status = old.status(document);
        if removals.has(number, narrow(document)) {
            counts.gone(status);
            continue;
        }
        let (flag, of) = (old.flags[document], old.of[document]);
        let of = match status {
            KeepStatus::Exact(shard, document)
            | KeepStatus::Fuzzy(shard, document)
            | KeepStatus::Url(shard, document)
            | KeepStatus::Semantic(shard, document)
                if of != NONE =>
            {
                match removals.renumbered(shard, document) {
                    Some(document) => u64::from(shard) << 32 | u64::from(document),
                    None => {
                        counts.orphans += 1;
                        NONE
                    }
                }
            }
            KeepStatus::Kept => {
                let document = narrow(document);
                let first = smaller.partition_point(|one| *one < document);
                let lost = smaller[first..].partition_point(|one| *one == document) as u64;
                // the document itself counts
                of.saturating_sub(lost).max(1)
            }
            _ => of,
        };
        list.flags.push(flag);
        list.of.push(of);
    }
    counts.kept = list.kept() as u64;
    counts.removed = RemovedCounts::of(&list);
    let mut files = Vec::new();
    if list != old {
        files.push(list.write(to, &name)?);
    }
    let name = shard_file("keep", shard, "edits");
    if removals.touches(shard) && out.join(&name).exists() {
        let old_edits = edits(out, shard, Some(&old))?;
        let mut new = EditList::none(list.len() as u64);
        for (document, spans) in old_edits.iter() {
            if let Some(at) = removals.renumbered(number, document) {
                new.add(at, spans, old_edits.splits_of(document as usize));
            }
        }
        files.push(new.write(to, &name)?);
    }
    Ok((files, counts))
}

impl ListCounts {
    fn gone(&mut self, status: KeepStatus) {
        let count = match status {
            KeepStatus::Kept => &mut self.gone_kept,
            KeepStatus::Exact(..) => &mut self.gone_exact,
            KeepStatus::Fuzzy(..) => &mut self.gone_fuzzy,
            KeepStatus::Url(..) => &mut self.gone_url,
            KeepStatus::Semantic(..) => &mut self.gone_semantic,
            KeepStatus::Hollow => &mut self.gone_hollow,
            KeepStatus::Contaminated => &mut self.gone_contaminated,
            KeepStatus::Earlier(_) => &mut self.gone_earlier,
        };
        *count += 1;
    }

    /// Adds another shard's counts.
    pub fn add(&mut self, other: &ListCounts) {
        self.kept += other.kept;
        self.removed.add(&other.removed);
        self.gone_kept += other.gone_kept;
        self.gone_exact += other.gone_exact;
        self.gone_fuzzy += other.gone_fuzzy;
        self.gone_url += other.gone_url;
        self.gone_semantic += other.gone_semantic;
        self.gone_earlier += other.gone_earlier;
        self.gone_hollow += other.gone_hollow;
        self.gone_contaminated += other.gone_contaminated;
        self.orphans += other.orphans;
    }
}

/// The kept documents that lose a duplicate, by shard and in order, as [`rewrite_lists`] takes them.
///
/// # Errors
/// `Io`; `Damaged`.
pub fn smaller(out: &Path, removals: &Removals) -> Result<Vec<Vec<u32>>> {
    let mut smaller = vec![Vec::new(); removals.documents.len()];
    for (shard, documents) in removals.documents.iter().enumerate() {
        if documents.is_empty() {
            continue;
        }
        for (shard, document) in repeated(out, shard, documents)? {
            if let Some(of) = smaller.get_mut(shard as usize) {
                of.push(document);
            }
        }
    }
    smaller.iter_mut().for_each(|of| of.sort_unstable());
    Ok(smaller)
}

/// The kept documents, by shard, that lose a duplicate: those that the removed documents of `shard` repeat.
fn repeated(out: &Path, shard: usize, documents: &[u32]) -> Result<Vec<(u32, u32)>> {
    let list = KeepList::read(&out.join(shard_file("keep", shard, "keep")))?;
    let mut found = Vec::new();
    for document in documents {
        let at = *document as usize;
        if at >= list.len() || list.of[at] == NONE || list.flags[at] == EARLIER {
            continue;
        }
        if let KeepStatus::Exact(shard, of) | KeepStatus::Fuzzy(shard, of) = list.status(at) {
            found.push((shard, of));
        }
    }
    Ok(found)
}

/// Writes the index of kept documents below `to`, if the corpus has one, from the signatures and keep lists below `to` or,
/// where nothing changed, below `out`.
///
/// # Errors
/// `Io`; `Damaged`.
pub fn rewrite_index(out: &Path, to: &Path, shards: usize) -> Result<Option<OutputFile>> {
    if !out.join(KEPT_INDEX).exists() {
        return Ok(None);
    }
    let newest = |name: String| -> PathBuf {
        let new = to.join(&name);
        if new.exists() { new } else { out.join(name) }
    };
    let signatures =
        (0..shards).map(|i| SignatureFile::open(&newest(shard_file("clean", i, "sig"))));
    let signatures = signatures.collect::<Result<Vec<_>>>()?;
    let keep = |shard| newest(shard_file("keep", shard, "keep"));
    write_kept(to, &signatures, &keep).map(Some)
}
