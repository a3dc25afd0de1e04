//! Deduplication over the signatures of all shards: exact, then MinHash with banding.
//!
//! `clean/NNNNN.sig` -> `keep/NNNNN.keep` and `keep/clusters.jsonl`. Exact: equal XXH3-128 of the
//! text. Near: two documents that agree in all hashes of at least one of the bands are joined; each
//! connected set keeps one document. Columns are read one after the other and sorted in memory, in as many parts of
//! the range of keys as the budget asks for (`equal.rs`); only `keep = "datatrove"`, whose result depends on the order of
//! keys, sorts with runs on disk. The sets live in memory, 4 bytes per document (5 from 2^32 documents on; with
//! `keep = "datatrove"` 8 more), beside a bit for exact duplicates and a byte for sizes of sets.
//! Exact duplicates take no part in the near stage: their first copy stands for them.

mod bloom;
mod cluster;
mod contaminated;
mod edits;
mod equal;
mod keep;
mod kernel;
mod lines;
mod minhash;
mod native;
mod passes;
mod permutation;
mod preset;
mod signature;
mod simplify;
mod sort;
mod substring;
mod union_find;
mod url;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use bloom::{BloomConfig, BloomRemove, BloomReport};
pub use contaminated::{Contaminated, Decontamination, TaskHits, decontaminate};
pub use edits::EditList;
pub(crate) use edits::{Span, pieces};
pub use keep::{Fate, KeepList};
pub use lines::{LineHash, LineKeep, LineUnit, LinesConfig};
pub use minhash::{MinhashScratch, Minhasher};
pub use passes::CutReport;
pub use preset::{MinhashConfig, MinhashPreset, Shingle, ShingleKind};
pub(crate) use signature::{Origin, Signature, SignatureWriter};
pub use signature::{SignatureColumn, SignatureFile, SignatureShape};
pub(crate) use simplify::simplify;
pub use substring::{SubstringConfig, SubstringUnit};
pub use url::{UrlDedupConfig, UrlKeep};

use crate::config::{DedupConfig, KeepPolicy};
use crate::error::{Error, Result, damaged};
use crate::progress::Progress;
use crate::write::OutputFile;
use cluster::Sizes;
use equal::{Column, equal};
use signature::NO_SIGNATURE;
use sort::Sorter;
use union_find::UnionFind;

/// What deduplication did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DedupReport {
    /// Documents that came in; `documents == kept + exact + fuzzy + url + hollow + contaminated`.
    pub documents: u64,
    /// Documents that stay.
    pub kept: u64,
    /// Removed as exact duplicates.
    pub exact: u64,
    /// Removed as near duplicates.
    pub fuzzy: u64,
    /// Removed because a document with the same address stays.
    #[serde(default)]
    pub url: u64,
    /// Removed because too much of their text was cut.
    #[serde(default)]
    pub hollow: u64,
    /// Removed because little or too many pieces were left without evaluation texts.
    #[serde(default)]
    pub contaminated: u64,
    /// What each pass over the text cut.
    #[serde(default)]
    pub cuts: Vec<CutReport>,
    /// What was met of evaluation sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decontamination: Option<Decontamination>,
    /// Documents too short for a signature (kept unless exact duplicates).
    pub without_signature: u64,
    /// Sets of two and more documents, exact and near together.
    pub clusters: u64,
    /// Documents of the largest set.
    pub largest_cluster: u64,
    /// Sets by their number of documents: 2, 3 to 4, 5 to 8, ... under the upper end.
    #[serde(default)]
    pub cluster_sizes: BTreeMap<u64, u64>,
    /// Over all bands: documents that agree in the band with an earlier one.
    pub pairs: u64,
    /// Kept documents per shard.
    pub kept_per_shard: Vec<u64>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
}

/// Name of a shard's file.
pub(crate) fn shard_file(folder: &str, shard: usize, extension: &str) -> String {
    format!("{folder}/{shard:05}.{extension}")
}

/// Numbers all documents of all shards in a row.
pub(crate) struct Numbering {
    starts: Vec<u64>,
    total: u64,
}

/// One bit per document.
pub(crate) struct Flags {
    bits: Vec<u64>,
}

impl Flags {
    fn new(count: u64) -> Flags {
        Flags {
            bits: vec![0; usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX)],
        }
    }

    fn set(&mut self, number: u64) {
        self.bits[usize::try_from(number / 64).unwrap_or(usize::MAX)] |= 1 << (number % 64);
    }

    #[inline]
    fn get(&self, number: u64) -> bool {
        self.bits[usize::try_from(number / 64).unwrap_or(usize::MAX)] >> (number % 64) & 1 == 1
    }
}

impl Numbering {
    fn number(&self, shard: u32, document: u32) -> u64 {
        self.starts[shard as usize] + u64::from(document)
    }

    /// (shard, document) of a number.
    fn place(&self, number: u64) -> (usize, usize) {
        let shard = self.starts.partition_point(|&s| s <= number) - 1;
        (
            shard,
            usize::try_from(number - self.starts[shard]).unwrap_or(usize::MAX),
        )
    }

    fn packed(&self, number: u64) -> u64 {
        let (shard, document) = self.place(number);
        (shard as u64) << 32 | document as u64
    }
}

/// Reads the signatures of `shards` shards under `out` and writes who stays.
///
/// # Errors
/// `Damaged` for a signature file that is not what was written or was made with other settings.
pub fn dedup(
    config: &DedupConfig,
    out: &Path,
    shards: usize,
    progress: &dyn Progress,
) -> Result<DedupReport> {
    passes::forget(out, shards)?;
    let mut stage = Stage::open(config, out, shards)?;
    if config.exact.is_some() {
        if stage.numbering.total <= 1 << 32 {
            stage.exact::<5>(progress)?;
        } else {
            stage.exact::<6>(progress)?;
        }
    }
    for band in 0..stage.shape.bands {
        match config.keep {
            KeepPolicy::First if stage.numbering.total <= 1 << 32 => {
                stage.band::<3>(band, progress)?;
            }
            KeepPolicy::First => stage.band::<4>(band, progress)?,
            // Band after band: datatrove's kept document depends on this order.
            KeepPolicy::Datatrove => stage.ordered_band(band, progress)?,
        }
    }
    let report = stage.finish(progress)?;
    passes::run(config, out, report, progress)
}

struct Stage<'a> {
    config: &'a DedupConfig,
    out: &'a Path,
    files: Vec<SignatureFile>,
    shape: SignatureShape,
    numbering: Numbering,
    sets: UnionFind,
    /// Documents that were removed as exact duplicates.
    exact: Flags,
    report: DedupReport,
}

impl<'a> Stage<'a> {
    fn open(config: &'a DedupConfig, out: &'a Path, shards: usize) -> Result<Stage<'a>> {
        let shape = SignatureShape::of(config.minhash.is_some().then_some(config));
        if config.keep == KeepPolicy::Datatrove && shape.rows as usize * 8 > ORDERED {
            return Err(Error::Config {
                key: "minhash.rows".to_string(),
                found: shape.rows.to_string(),
                wanted: "at most 8 with keep = \"datatrove\"".to_string(),
            });
        }
        let (files, numbering) = open_all(out, shards, config.minhash.as_ref().map(|_| shape))?;
        let total = numbering.total;
        if total >= union_find::MOST {
            return Err(Error::Config {
                key: "inputs".to_string(),
                found: format!("{total} documents"),
                wanted: "fewer than 2^40".to_string(),
            });
        }
        Ok(Stage {
            config,
            out,
            files,
            shape,
            numbering,
            sets: UnionFind::new(total, config.keep),
            exact: Flags::new(total),
            report: DedupReport {
                documents: total,
                ..DedupReport::default()
            },
        })
    }

    fn memory(&self) -> usize {
        usize::try_from(self.config.memory_mb << 20).unwrap_or(usize::MAX)
    }

    fn exact<const N: usize>(&mut self, progress: &dyn Progress) -> Result<()> {
        let memory = self.memory();
        let (exact, sets) = (&mut self.exact, &mut self.sets);
        let column = Column {
            files: &self.files,
            numbering: &self.numbering,
            column: SignatureColumn::Exact,
        };
        let mut join = |first, other| {
            sets.join(first, other);
            exact.set(other);
        };
        equal::<4, N>(&column, memory, &|_| false, &mut join, progress)?;
        Ok(())
    }

    fn band<const N: usize>(&mut self, band: u32, progress: &dyn Progress) -> Result<()> {
        let memory = self.memory();
        let (exact, sets) = (&self.exact, &mut self.sets);
        let column = Column {
            files: &self.files,
            numbering: &self.numbering,
            column: SignatureColumn::Band(band),
        };
        let skip = |number| exact.get(number);
        let mut join = |first, other| sets.join(first, other);
        let found = equal::<2, N>(&column, memory, &skip, &mut join, progress)?;
        self.report.without_signature = found.without;
        self.report.pairs += found.repeated;
        Ok(())
    }

    /// Joins neighbours in the order of a band's minima.
    fn ordered_band(&mut self, band: u32, progress: &dyn Progress) -> Result<()> {
        let folder = self.out.join("tmp/dedup").join(format!("band-{band:03}"));
        let mut sorter = Sorter::<{ ORDERED + 8 }>::new(&folder, self.memory());
        let width = 8 * self.shape.width as usize;
        let mut without = 0;
        for (shard, file) in (0u32..).zip(&self.files) {
            let mut number = 0u32;
            for group in 0..file.groups() {
                let bytes = file.column(SignatureColumn::Band(band), group)?;
                progress.bytes(bytes.len() as u64);
                for minima in bytes.chunks_exact(width) {
                    if minima[..8] == NO_SIGNATURE.to_le_bytes() {
                        without += 1;
                    } else if !self.exact.get(self.numbering.number(shard, number)) {
                        sorter.push(record(minima, shard, number))?;
                    }
                    number += 1;
                }
            }
        }
        self.report.without_signature = without;
        let mut last: Option<[u8; ORDERED + 8]> = None;
        let (sets, numbering, pairs) = (&mut self.sets, &self.numbering, &mut self.report.pairs);
        sorter.drain(&mut |r| {
            if let Some(previous) = &last
                && previous[..ORDERED] == r[..ORDERED]
            {
                sets.join(number_of(previous, numbering), number_of(r, numbering));
                *pairs += 1;
            }
            last = Some(*r);
            Ok(())
        })
    }

    fn finish(mut self, progress: &dyn Progress) -> Result<DedupReport> {
        let mut sizes = Sizes::new(self.numbering.total);
        for (shard, file) in self.files.iter().enumerate() {
            let start = self.numbering.starts[shard];
            let end = start + file.count();
            let mut list = KeepList::all_kept(usize::try_from(end - start).unwrap_or(0));
            for number in start..end {
                let root = self.sets.root(number);
                if root == number {
                    continue;
                }
                sizes.add(root);
                let at = usize::try_from(number - start).unwrap_or(0);
                let exact = self.exact.get(number);
                list.flags[at] = if exact { 1 } else { 2 };
                list.of[at] = self.numbering.packed(root);
                self.report.exact += u64::from(exact);
                self.report.fuzzy += u64::from(!exact);
            }
            self.report.kept_per_shard.push(list.kept() as u64);
            let name = shard_file("keep", shard, "keep");
            self.report.outputs.push(list.write(self.out, &name)?);
            progress.documents(end - start, list.kept() as u64);
        }
        self.report.kept = self.report.documents - self.report.exact - self.report.fuzzy;
        self.report.cluster_sizes = sizes.histogram();
        self.report.clusters = self.report.cluster_sizes.values().sum();
        let shown = cluster::largest(&sizes, &mut self.sets, self.numbering.total);
        drop(sizes);
        self.report.largest_cluster = shown.first().map_or(0, |set| set.size);
        let clusters = cluster::write(self.out, shown, &self.exact, &self.numbering)?;
        self.report.outputs.push(clusters);
        let _ = std::fs::remove_dir_all(self.out.join("tmp/dedup"));
        let _ = std::fs::remove_dir(self.out.join("tmp"));
        Ok(self.report)
    }
}

/// Opens the signatures of all shards: each must be its shard's, all of one run and of this shape.
fn open_all(
    out: &Path,
    shards: usize,
    shape: Option<SignatureShape>,
) -> Result<(Vec<SignatureFile>, Numbering)> {
    let (mut files, mut starts, mut total) = (Vec::<SignatureFile>::new(), Vec::new(), 0);
    for shard in 0..shards {
        let path = out.join(shard_file("clean", shard, "sig"));
        let file = SignatureFile::open(&path)?;
        if let Some(shape) = shape.filter(|shape| *shape != file.shape()) {
            let found = format!("signatures of {:?}", file.shape());
            return Err(damaged(
                &path,
                8,
                found,
                format!("{shape:?}, as the job says"),
            ));
        }
        let origin = file.origin();
        if origin.shard as usize != shard {
            let found = format!("the signatures of shard {}", origin.shard);
            return Err(damaged(&path, 36, found, format!("those of shard {shard}")));
        }
        let run = files.first().map_or(origin.run, |first| first.origin().run);
        if origin.run != run {
            let found = format!("signatures of another run, {:032x}", origin.run);
            let wanted = format!("those of the run that made shard 0, {run:032x}");
            return Err(damaged(&path, 40, found, wanted));
        }
        starts.push(total);
        total += file.count();
        files.push(file);
    }
    Ok((files, Numbering { starts, total }))
}

/// Bytes of an ordered key: eight hashes, the most a band may have with `keep = "datatrove"`.
const ORDERED: usize = 64;

/// Minima so that bytes sort like them, then shard, then document, all big-endian.
fn record(minima: &[u8], shard: u32, document: u32) -> [u8; ORDERED + 8] {
    let mut r = [0; ORDERED + 8];
    for (to, from) in r
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(minima.as_chunks::<8>().0)
    {
        *to = u64::from_le_bytes(*from).to_be_bytes();
    }
    r[ORDERED..ORDERED + 4].copy_from_slice(&shard.to_be_bytes());
    r[ORDERED + 4..].copy_from_slice(&document.to_be_bytes());
    r
}

fn number_of(record: &[u8; ORDERED + 8], numbering: &Numbering) -> u64 {
    let shard = u32::from_be_bytes(signature::word(record, ORDERED));
    let document = u32::from_be_bytes(signature::word(record, ORDERED + 4));
    numbering.number(shard, document)
}
