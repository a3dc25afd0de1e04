//! Deduplication over the signatures of all shards: exact, then MinHash with banding.
//!
//! `clean/NNNNN.sig` -> `keep/NNNNN.keep` and `keep/clusters.jsonl`. Exact: equal XXH3-128 of the
//! text. Near: two documents that agree in all hashes of at least one of the bands are joined; each
//! connected set keeps one document. Bands are sorted externally within a memory budget; the sets
//! live in memory, 8 bytes per document (16 for `keep = "datatrove"`) beside 9 for the keep lists.
//! Exact duplicates take no part in the near stage: their first copy stands for them.

mod bloom;
mod cluster;
mod edits;
mod keep;
mod kernel;
mod lines;
mod minhash;
mod passes;
mod permutation;
mod signature;
mod simplify;
mod sort;
mod substring;
mod union_find;
mod url;

use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

pub use bloom::{BloomConfig, BloomRemove, BloomReport};
pub use edits::EditList;
pub(crate) use edits::{Span, cut};
pub use keep::{Fate, KeepList};
pub use lines::{LineHash, LineKeep, LineUnit, LinesConfig};
pub use minhash::{MinhashScratch, Minhasher};
pub use passes::CutReport;
pub(crate) use signature::SignatureWriter;
pub use signature::{Signature, SignatureReader, SignatureShape};
pub(crate) use simplify::simplify;
pub use substring::SubstringConfig;
pub use url::{UrlDedupConfig, UrlKeep};

use crate::config::{DedupConfig, KeepPolicy};
use crate::error::{Result, damaged};
use crate::progress::Progress;
use crate::write::OutputFile;
use sort::Sorter;
use union_find::UnionFind;

/// What deduplication did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DedupReport {
    /// Documents that came in; `documents == kept + exact + fuzzy + url + hollow`.
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
    /// What each pass over the text cut.
    #[serde(default)]
    pub cuts: Vec<CutReport>,
    /// Documents too short for a signature (kept unless exact duplicates).
    pub without_signature: u64,
    /// Sets of two and more documents, exact and near together.
    pub clusters: u64,
    /// Documents of the largest set.
    pub largest_cluster: u64,
    /// Pairs of neighbours that agreed in a band.
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
        stage.exact(progress)?;
    }
    if config.minhash.is_some() {
        match config.keep {
            KeepPolicy::First => stage.bands::<16, 24>(hashed_key, progress)?,
            KeepPolicy::Datatrove => {
                stage.bands::<ORDERED, { ORDERED + 8 }>(ordered_key, progress)?
            }
        }
    }
    let report = stage.finish(progress)?;
    passes::run(config, out, report, progress)
}

struct Stage<'a> {
    config: &'a DedupConfig,
    out: &'a Path,
    shards: usize,
    shape: SignatureShape,
    numbering: Numbering,
    total: u64,
    sets: UnionFind,
    /// Per document: it was removed as an exact duplicate.
    exact: Vec<bool>,
    report: DedupReport,
}

impl<'a> Stage<'a> {
    fn open(config: &'a DedupConfig, out: &'a Path, shards: usize) -> Result<Stage<'a>> {
        let shape = SignatureShape::of(config.minhash.as_ref());
        if shape.hashes as usize * 8 > ORDERED {
            return Err(crate::error::Error::Config {
                key: "minhash.hashes".to_string(),
                found: shape.hashes.to_string(),
                wanted: "at most 8".to_string(),
            });
        }
        let mut starts = Vec::with_capacity(shards);
        let mut total = 0;
        for shard in 0..shards {
            let path = out.join(shard_file("clean", shard, "sig"));
            let reader = SignatureReader::open(&path)?;
            if config.minhash.is_some() && reader.shape() != shape {
                let found = format!("signatures of {:?}", reader.shape());
                return Err(damaged(
                    &path,
                    8,
                    found,
                    format!("{shape:?}, as the job says"),
                ));
            }
            starts.push(total);
            total += reader.count();
        }
        Ok(Stage {
            config,
            out,
            shards,
            shape,
            numbering: Numbering { starts },
            total,
            sets: UnionFind::new(total, config.keep),
            exact: vec![false; usize::try_from(total).unwrap_or(usize::MAX)],
            report: DedupReport {
                documents: total,
                ..DedupReport::default()
            },
        })
    }

    /// A sorter with `1 / parts` of the memory.
    fn sorter<const N: usize>(&self, name: &str, parts: usize) -> Sorter<N> {
        let memory = usize::try_from(self.config.memory_mb << 20).unwrap_or(usize::MAX);
        Sorter::new(&self.out.join("tmp/dedup").join(name), memory / parts)
    }

    /// Calls `each(shard, document, signature)` for all documents in order.
    fn every(
        &self,
        each: &mut dyn FnMut(u32, u32, &Signature) -> Result<()>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut signature = Signature::default();
        for shard in 0..self.shards {
            let path = self.out.join(shard_file("clean", shard, "sig"));
            let mut reader = SignatureReader::open(&path)?;
            let shard = u32::try_from(shard).unwrap_or(u32::MAX);
            let mut document = 0;
            while reader.read(&mut signature)? {
                each(shard, document, &signature)?;
                document += 1;
            }
            progress.bytes(reader.count() * (32 + 8 * reader.shape().len() as u64));
        }
        Ok(())
    }

    fn exact(&mut self, progress: &dyn Progress) -> Result<()> {
        let mut sorter = self.sorter::<24>("exact", 1);
        self.every(
            &mut |shard, document, s| sorter.push(record(&s.exact.to_be_bytes(), shard, document)),
            progress,
        )?;
        let mut last: Option<([u8; 16], u64)> = None;
        let (exact, sets, numbering) = (&mut self.exact, &mut self.sets, &self.numbering);
        sorter.drain(&mut |r: &[u8; 24]| {
            let number = number_of(r, numbering);
            let key: [u8; 16] = signature::word(r, 0);
            match last {
                Some((previous, first)) if previous == key => {
                    sets.join(first, number);
                    exact[usize::try_from(number).unwrap_or(usize::MAX)] = true;
                }
                _ => last = Some((key, number)),
            }
            Ok(())
        })
    }

    /// Sorts every band by its key and joins neighbours with equal keys. Signatures are read once;
    /// each band's sorter gets its share of the memory.
    fn bands<const K: usize, const N: usize>(
        &mut self,
        key: fn(&[u64]) -> [u8; K],
        progress: &dyn Progress,
    ) -> Result<()> {
        let count = self.shape.buckets as usize;
        let hashes = self.shape.hashes as usize;
        let mut sorters: Vec<Sorter<N>> = (0..count)
            .map(|band| self.sorter(&format!("band-{band:03}"), count))
            .collect();
        let mut without = 0;
        let (numbering, exact) = (&self.numbering, &self.exact);
        self.every(
            &mut |shard, document, s| {
                if s.minima.is_empty() {
                    without += 1;
                    return Ok(());
                }
                let number = numbering.number(shard, document);
                if exact[usize::try_from(number).unwrap_or(usize::MAX)] {
                    return Ok(());
                }
                for (part, sorter) in s.minima.chunks_exact(hashes).zip(&mut sorters) {
                    sorter.push(record(&key(part), shard, document))?;
                }
                Ok(())
            },
            progress,
        )?;
        self.report.without_signature = without;
        // Band after band: datatrove's kept document depends on this order.
        sorters
            .into_iter()
            .try_for_each(|sorter| self.join_neighbours(sorter, K))
    }

    fn join_neighbours<const N: usize>(&mut self, sorter: Sorter<N>, key: usize) -> Result<()> {
        let mut last: Option<[u8; N]> = None;
        let (sets, numbering, pairs) = (&mut self.sets, &self.numbering, &mut self.report.pairs);
        sorter.drain(&mut |r: &[u8; N]| {
            if let Some(previous) = &last
                && previous[..key] == r[..key]
            {
                sets.join(number_of(previous, numbering), number_of(r, numbering));
                *pairs += 1;
            }
            last = Some(*r);
            Ok(())
        })
    }

    fn finish(mut self, progress: &dyn Progress) -> Result<DedupReport> {
        let mut sizes: rustc_hash::FxHashMap<u64, u64> = rustc_hash::FxHashMap::default();
        for shard in 0..self.shards {
            let start = self.numbering.starts[shard];
            let end = self
                .numbering
                .starts
                .get(shard + 1)
                .copied()
                .unwrap_or(self.total);
            let mut list = KeepList::all_kept(usize::try_from(end - start).unwrap_or(0));
            for number in start..end {
                let root = self.sets.root(number);
                if root == number {
                    continue;
                }
                *sizes.entry(root).or_insert(1) += 1;
                let at = usize::try_from(number - start).unwrap_or(0);
                let exact = self.exact[usize::try_from(number).unwrap_or(usize::MAX)];
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
        self.report.clusters = sizes.len() as u64;
        self.report.largest_cluster = sizes.values().copied().max().unwrap_or(0);
        let shown = cluster::largest(sizes, &mut self.sets, &self.numbering, self.total);
        self.report.outputs.push(cluster::write(
            self.out,
            shown,
            &self.exact,
            &self.numbering,
        )?);
        let _ = std::fs::remove_dir_all(self.out.join("tmp/dedup"));
        let _ = std::fs::remove_dir(self.out.join("tmp"));
        Ok(self.report)
    }
}

/// Bytes of an ordered key: eight hashes, the most a band may have.
const ORDERED: usize = 64;

/// A band's numbers as 128 bits: 24 bytes per document and band. Order does not matter, only equality.
fn hashed_key(part: &[u64]) -> [u8; 16] {
    xxh3_128(&ordered_key(part)).to_be_bytes()
}

/// A band's numbers so that bytes sort like them.
fn ordered_key(part: &[u64]) -> [u8; ORDERED] {
    let mut key = [0u8; ORDERED];
    for (to, value) in key.as_chunks_mut::<8>().0.iter_mut().zip(part) {
        *to = value.to_be_bytes();
    }
    key
}

/// Key, then shard, then document, all big-endian.
fn record<const K: usize, const N: usize>(key: &[u8; K], shard: u32, document: u32) -> [u8; N] {
    let mut r = [0; N];
    r[..K].copy_from_slice(key);
    r[N - 8..N - 4].copy_from_slice(&shard.to_be_bytes());
    r[N - 4..].copy_from_slice(&document.to_be_bytes());
    r
}

fn number_of<const N: usize>(record: &[u8; N], numbering: &Numbering) -> u64 {
    let shard = u32::from_be_bytes(signature::word(record, N - 8));
    let document = u32::from_be_bytes(signature::word(record, N - 4));
    numbering.number(shard, document)
}
