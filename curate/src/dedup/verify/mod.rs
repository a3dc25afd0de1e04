//! Verification of near duplicates: of the documents that bands connect, only those with similar enough shingle
//! sets are removed.
//!
//! Bands yield candidates; this computes the true Jaccard similarity of their shingles (Broder 1997), of words or
//! characters as the signatures have them. The clean shards are read a second time, only candidates are parsed; their
//! sets go to files in parts of whole components (`spill.rs`), and part after part is decided in memory, many
//! components at once, a component that is larger than the budget by itself, in blocks (`component.rs`). Components
//! and the order of their documents follow from the keep policy alone, so neither shards nor threads nor memory
//! change the result.
//!
//! We differ from programs that remove everything that bands connect, and from those that connect verified pairs:
//! of three documents in a chain the middle one may be like both others while these are not alike. Documents
//! removed by an earlier crawl's index are not verified (their partners' texts are not available) and take no part.

mod component;
mod report;
mod sets;
mod spill;

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::json;

use super::minhash::{MinhashScratch, Minhasher};
use super::numbering::{Flags, Numbering};
use super::signature::{SignatureColumn, SignatureFile};
use super::union_find::UnionFind;
use crate::corpus::documents;
use crate::dedup::minhash::MinhashConfig;
use crate::document::CleanDocument;
use crate::error::Result;
use crate::progress::Progress;
use crate::text::{Scratch, excerpt};
use crate::write::{OutputFile, word};
use component::decide;
use report::Tally;
use sets::Set;
use spill::{Bodies, Candidate, Head, Spill};

pub use report::VerifyReport;

/// Inputs of the verification.
pub(super) struct Verify<'a> {
    pub(super) minhash: &'a MinhashConfig,
    pub(super) hasher: &'a Minhasher,
    pub(super) out: &'a Path,
    pub(super) files: &'a [SignatureFile],
    pub(super) numbering: &'a Numbering,
    /// None: the first document comes first.
    pub(super) ranks: Option<Arc<Vec<u64>>>,
    /// Documents that are gone, as exact duplicates or as an earlier crawl's.
    pub(super) gone: &'a dyn Fn(u64) -> bool,
    pub(super) memory: usize,
    pub(super) progress: &'a dyn Progress,
}

/// Batch limits: documents, and bytes of text.
const BATCH_DOCUMENTS: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;
/// Characters of a text shown in reports.
const EXCERPT_CHARS: usize = 200;

/// A document of a batch, before it is written.
struct Draft {
    document: CleanDocument,
    number: u64,
    component: u64,
    keys: Vec<u64>,
}

impl Verify<'_> {
    /// Verifies the sets in `sets` and calls `remove(document, keeper)` for each removed document.
    pub(super) fn run(
        &self,
        sets: &mut UnionFind,
        remove: &mut dyn FnMut(u64, u64),
    ) -> Result<(VerifyReport, OutputFile)> {
        let mut tally = Tally::default();
        let (several, components) = self.several(sets);
        let folder = self.out.join("tmp/dedup/verify");
        let parts = self.parts(sets, &several)?;
        let mut spill = Spill::create(&folder, parts)?;
        let mut documents = 0;
        let mut sampled = 0;
        for file in self.numbering.indexes..self.files.len() {
            self.read(file, sets, &several, &mut |component, candidate| {
                documents += 1;
                sampled += u64::from(candidate.set.scale > 0);
                spill.push(component, self.rank(candidate.number), candidate)
            })?;
        }
        for part in 0..spill.finish()? {
            self.decide_part(&folder, part, &mut tally, remove)?;
        }
        let pairs = tally.write(self.out, self.numbering)?;
        let report = VerifyReport {
            threshold: self.minhash.verify,
            candidates: documents - components,
            sampled,
            ..tally.report
        };
        Ok((report, pairs))
    }

    fn rank(&self, number: u64) -> u64 {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        self.ranks.as_ref().map_or(0, |ranks| ranks[at])
    }

    fn own(&self) -> impl Iterator<Item = u64> + '_ {
        (self.numbering.earlier..self.numbering.total).filter(|number| !(self.gone)(*number))
    }

    /// Roots of components with at least two remaining documents, and their number.
    fn several(&self, sets: &mut UnionFind) -> (Flags, u64) {
        let mut one = Flags::new(self.numbering.total);
        let mut several = Flags::new(self.numbering.total);
        let mut count = 0;
        for number in self.own() {
            let root = sets.root(number);
            if !one.get(root) {
                one.set(root);
            } else if !several.get(root) {
                several.set(root);
                count += 1;
            }
        }
        (several, count)
    }

    /// Number of parts: each should take about half of the memory. A shingle of words has about six characters and
    /// becomes eight bytes.
    fn parts(&self, sets: &mut UnionFind, several: &Flags) -> Result<usize> {
        let mut chars = 0u64;
        for (file, start) in self.files.iter().zip(&self.numbering.starts) {
            for group in 0..file.groups() {
                let (first, documents) = file.documents(group);
                let first = start + first;
                let mut lengths: Option<Vec<u8>> = None;
                for number in first.max(self.numbering.earlier)..first + documents {
                    if (self.gone)(number) || !several.get(sets.root(number)) {
                        continue;
                    }
                    if lengths.is_none() {
                        lengths = Some(file.column(SignatureColumn::Chars, group)?);
                    }
                    let at = 8 * usize::try_from(number - first).unwrap_or(0);
                    let length = lengths.as_ref().map(|l| u64::from_le_bytes(word(l, at)));
                    chars = chars.saturating_add(length.unwrap_or(0));
                }
            }
        }
        let parts = chars.saturating_mul(2) / (self.memory as u64 / 2).max(1);
        Ok(usize::try_from(parts)
            .unwrap_or(usize::MAX)
            .saturating_add(1))
    }

    /// Calls `take` with the candidates of a shard, in order.
    fn read(
        &self,
        file: usize,
        sets: &mut UnionFind,
        several: &Flags,
        take: &mut dyn FnMut(u64, &Candidate) -> Result<()>,
    ) -> Result<()> {
        let (start, file, shard) = (
            self.numbering.starts[file],
            &self.files[file],
            file - self.numbering.indexes,
        );
        let mut texts = documents(self.out, shard)?;
        // The number of the next document in `texts`.
        let mut next = 0;
        for group in 0..file.groups() {
            let (first, count) = file.documents(group);
            let wanted: Vec<(u64, u64)> = (first..first + count)
                .map(|document| (document, sets.root(start + document)))
                .filter(|(document, root)| !(self.gone)(start + document) && several.get(*root))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let bands = (0..file.shape().bands).map(SignatureColumn::Band);
            let bands: Vec<Vec<u8>> = bands
                .map(|b| file.column(b, group))
                .collect::<Result<_>>()?;
            let mut batch = Vec::new();
            let mut bytes = 0;
            for (i, &(document, component)) in wanted.iter().enumerate() {
                let Some(text) = texts.skip_to(document - next)? else {
                    return Err(texts.ended());
                };
                next = document + 1;
                let at = 8 * usize::try_from(document - first).unwrap_or(0);
                bytes += text.text.len();
                batch.push(Draft {
                    document: text,
                    number: start + document,
                    component,
                    keys: bands
                        .iter()
                        .map(|b| u64::from_le_bytes(word(b, at)))
                        .collect(),
                });
                if batch.len() == BATCH_DOCUMENTS || bytes > BATCH_BYTES || i + 1 == wanted.len() {
                    self.make(&batch, take)?;
                    self.progress.documents(batch.len() as u64, 0);
                    batch.clear();
                    bytes = 0;
                }
            }
        }
        Ok(())
    }

    fn make(
        &self,
        batch: &[Draft],
        take: &mut dyn FnMut(u64, &Candidate) -> Result<()>,
    ) -> Result<()> {
        let made: Vec<Candidate> = batch
            .par_iter()
            .map_init(
                || (Scratch::new(), MinhashScratch::default()),
                |(text, scratch), draft| {
                    let document = &draft.document;
                    let rules = self.hasher.word_rules(&document.language);
                    let splitter = text.splitter_of(rules);
                    let shingles = self.hasher.wide_shingles(&document.text, splitter, scratch);
                    let label = json!({"id": document.id, "url": document.url,
                        "excerpt": excerpt(&document.text, EXCERPT_CHARS)});
                    Candidate {
                        number: draft.number,
                        keys: draft.keys.clone(),
                        set: Set::of(shingles),
                        label: label.to_string(),
                    }
                },
            )
            .collect();
        let mut drafts = batch.iter().zip(&made);
        drafts.try_for_each(|(draft, candidate)| take(draft.component, candidate))
    }

    fn decide_part(
        &self,
        folder: &Path,
        part: usize,
        tally: &mut Tally,
        remove: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let heads = spill::heads(folder, part)?;
        let mut bodies = Bodies::open(folder, part)?;
        let mut batch: Vec<Vec<Arc<Candidate>>> = Vec::new();
        let mut used = 0;
        for component in heads.chunk_by(|a, b| a.component == b.component) {
            let bytes: u64 = component.iter().map(|head| head.bytes).sum();
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            if bytes > self.memory {
                self.decide_large(component, &mut bodies, tally, remove)?;
                continue;
            }
            if used + bytes > self.memory {
                self.decide_batch(&batch, tally, remove)?;
                batch.clear();
                used = 0;
            }
            let members = component.iter().map(|head| bodies.read(head).map(Arc::new));
            batch.push(members.collect::<Result<_>>()?);
            used += bytes;
        }
        self.decide_batch(&batch, tally, remove)
    }

    fn decide_batch(
        &self,
        batch: &[Vec<Arc<Candidate>>],
        tally: &mut Tally,
        remove: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        type Decided = (Tally, Vec<(u64, u64)>);
        let one = |component: &Vec<Arc<Candidate>>| -> Result<Decided> {
            let (mut tally, mut removed) = (Tally::default(), Vec::new());
            decide(
                component.len(),
                &mut |i| Ok(component[i].clone()),
                self.minhash.verify,
                usize::MAX,
                &mut tally,
                &mut |document, keeper| removed.push((document, keeper)),
            )?;
            Ok((tally, removed))
        };
        let decided: Vec<Decided> = batch.par_iter().map(one).collect::<Result<_>>()?;
        for (own, removed) in decided {
            tally.add(own);
            removed
                .iter()
                .for_each(|&(document, keeper)| remove(document, keeper));
        }
        Ok(())
    }

    fn decide_large(
        &self,
        component: &[Head],
        bodies: &mut Bodies,
        tally: &mut Tally,
        remove: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let mut own = Tally::default();
        decide(
            component.len(),
            &mut |i| bodies.read(&component[i]).map(Arc::new),
            self.minhash.verify,
            self.memory / 2,
            &mut own,
            remove,
        )?;
        tally.add(own);
        Ok(())
    }
}
