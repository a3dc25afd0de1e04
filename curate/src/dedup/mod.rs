//! Deduplication over the signatures of all shards: exact, then MinHash with banding.
//!
//! `clean/NNNNN.sig` -> `keep/NNNNN.keep` and `keep/clusters.jsonl`. Exact: equal XXH3-128 of the
//! text. Near: two documents that agree in all hashes of at least one of the bands are joined; each
//! connected set keeps one document (`keep_policy.rs`), or, with `minhash.verify`, as many as are not alike (`verify/`).
//! Columns are read one after the other and sorted in memory, in as many parts of the range of keys as the budget asks for
//! (`equal.rs`); only `keep = "datatrove"`, whose result depends on the order of keys, sorts with runs on disk. The sets
//! live in memory, 4 bytes per document (5 from 2^32 documents on; twice with `verify`; with another `keep` than `first`, or
//! `priority`, 8 more), beside a bit for exact duplicates and a byte for sizes of sets. Documents of `index`, which earlier
//! crawls kept, count as documents. Exact duplicates take no part in the near stage: the copy that stays stands for them.

mod bloom;
mod cluster;
mod contaminated;
mod edits;
mod equal;
mod finish;
mod index;
mod keep;
mod keep_policy;
mod kernel;
mod lines;
mod minhash;
mod native;
mod numbering;
mod ordered;
mod passes;
mod permutation;
mod preset;
mod signature;
mod simplify;
mod sort;
mod substring;
mod union_find;
mod url;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use bloom::{BloomConfig, BloomRemove, BloomReport};
pub use contaminated::{Contaminated, Decontamination, TaskHits, decontaminate};
pub use edits::EditList;
pub(crate) use edits::{Span, pieces};
pub use finish::{REHYDRATION, Rehydrated};
pub use index::{index_files, merge_indexes};
pub use keep::{Fate, KeepList};
pub use lines::{LineHash, LineKeep, LineUnit, LinesConfig};
pub use minhash::{MinhashScratch, Minhasher};
pub(crate) use native::words_digest;
pub use passes::CutReport;
pub use preset::{MinhashConfig, MinhashPreset, Shingle, ShingleKind};
pub(crate) use signature::{Origin, Signature, SignatureWriter, source};
pub use signature::{SignatureColumn, SignatureFile, SignatureShape};
pub(crate) use simplify::simplify;
pub use substring::{SubstringConfig, SubstringUnit};
pub use url::{UrlDedupConfig, UrlKeep};
pub use verify::VerifyReport;

use crate::config::{DedupConfig, KeepPolicy};
use crate::error::{At, Error, Result};
use crate::progress::Progress;
use crate::write::OutputFile;
use equal::{Column, equal};
use numbering::{Flags, Numbering, open_all};
use union_find::{Order, UnionFind};
use verify::Verify;

/// What deduplication did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DedupReport {
    /// Documents that came in; `documents == kept + earlier + exact + fuzzy + url + hollow + contaminated`.
    pub documents: u64,
    /// Documents that stay.
    pub kept: u64,
    /// Documents of the indexes that were compared with.
    #[serde(default)]
    pub indexed: u64,
    /// Removed because an earlier crawl has the same or nearly the same.
    #[serde(default)]
    pub earlier: u64,
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
    /// What verification did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyReport>,
    /// Kept documents by how many they stand for, and how often FineWeb-2 would repeat them.
    #[serde(default)]
    pub rehydration: Vec<Rehydrated>,
    /// Kept documents per shard.
    pub kept_per_shard: Vec<u64>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
}

/// Name of a shard's file.
pub(crate) fn shard_file(folder: &str, shard: usize, extension: &str) -> String {
    format!("{folder}/{shard:05}.{extension}")
}

/// Reads the signatures of `shards` shards under `out` and writes who stays.
///
/// # Errors
/// `Damaged` for a signature file or an index that is not what was written or was made with other settings.
pub fn dedup(
    config: &DedupConfig,
    out: &Path,
    shards: usize,
    progress: &dyn Progress,
) -> Result<DedupReport> {
    forget(out, shards)?;
    let mut stage = Stage::open(config, out, shards)?;
    let is_narrow = stage.numbering.total <= 1 << 32;
    if config.exact.is_some() {
        if is_narrow {
            stage.exact::<5>(progress)?;
        } else {
            stage.exact::<6>(progress)?;
        }
    }
    stage.start_bands();
    for band in 0..stage.shape.bands {
        if config.keep == KeepPolicy::Datatrove {
            // Band after band: datatrove's kept document depends on this order.
            stage.ordered_band(band, progress)?;
        } else if is_narrow {
            stage.band::<3>(band, progress)?;
        } else {
            stage.band::<4>(band, progress)?;
        }
    }
    stage.verify(progress)?;
    let (files, numbering, report) = stage.finish(progress)?;
    let mut report = passes::run(config, out, report, progress)?;
    if config.index.is_some() {
        report.outputs.push(index::write(out, &files, &numbering)?);
    }
    sweep(out);
    Ok(report)
}

/// Removes what did not fit the memory; what cannot be removed does no harm.
fn sweep(out: &Path) {
    let _ = std::fs::remove_dir_all(out.join("tmp/dedup"));
    let _ = std::fs::remove_dir(out.join("tmp"));
}

/// Removes what an earlier job wrote and this one may not.
fn forget(out: &Path, shards: usize) -> Result<()> {
    passes::forget(out, shards)?;
    for name in ["keep/pairs.jsonl", index::NAME] {
        let path = out.join(name);
        if path.exists() {
            std::fs::remove_file(&path).at(&path)?;
        }
    }
    Ok(())
}

struct Stage<'a> {
    config: &'a DedupConfig,
    out: &'a Path,
    /// Indexes of earlier crawls, then the shards.
    files: Vec<SignatureFile>,
    shape: SignatureShape,
    numbering: Numbering,
    ranks: Option<Arc<Vec<u64>>>,
    sets: UnionFind,
    /// With verification the sets that stand without it: exact duplicates, and what an earlier crawl has. `sets` are then
    /// the candidates.
    verified: Option<UnionFind>,
    /// Documents that were removed as exact duplicates.
    exact: Flags,
    /// With verification: documents of this crawl that share a band with one of an earlier crawl.
    earlier: Flags,
    report: DedupReport,
}

impl<'a> Stage<'a> {
    fn open(config: &'a DedupConfig, out: &'a Path, shards: usize) -> Result<Stage<'a>> {
        let mut wrong = None;
        config.check(&mut |key, found, wanted| {
            // "exact": nothing is asked for, and all documents stay, which cutting evaluation texts starts from
            if key != "memory_mb" && key != "exact" {
                wrong.get_or_insert((key.to_string(), found, wanted.to_string()));
            }
        });
        if let Some((key, found, wanted)) = wrong {
            return Err(Error::Config { key, found, wanted });
        }
        let shape = SignatureShape::of(Some(config));
        let shape_of_files = config.minhash.as_ref().map(|_| shape);
        let (files, numbering) = open_all(out, shards, config.index.as_deref(), shape_of_files)?;
        let is_other = |file: &&SignatureFile| file.shape().exact != shape.exact;
        if config.exact.is_some()
            && let Some(file) = files.iter().find(is_other)
        {
            return Err(Error::Config {
                key: "exact.normalized".to_string(),
                found: (shape.exact == 1).to_string(),
                wanted: format!(
                    "{}, as {} was made",
                    shape.exact == 0,
                    file.path().display()
                ),
            });
        }
        let total = numbering.total;
        if total >= union_find::MOST {
            return Err(Error::Config {
                key: "inputs".to_string(),
                found: format!("{total} documents"),
                wanted: "fewer than 2^40".to_string(),
            });
        }
        let ranks = keep_policy::ranks(config, &files, &numbering)?.map(Arc::new);
        let order = match &ranks {
            Some(ranks) => Order::Rank(ranks.clone()),
            None if config.keep == KeepPolicy::Datatrove => Order::sizes(total),
            None => Order::Number,
        };
        Ok(Stage {
            config,
            out,
            files,
            shape,
            ranks,
            sets: UnionFind::new(total, order),
            verified: None,
            exact: Flags::new(total),
            earlier: Flags::new(0),
            report: DedupReport {
                documents: total - numbering.earlier,
                indexed: numbering.earlier,
                ..DedupReport::default()
            },
            numbering,
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
        if self.ranks.is_some() {
            // Of equal texts not the first stays but the one of the lowest rank.
            for number in 0..self.numbering.total {
                if self.sets.root(number) == number {
                    self.exact.clear(number);
                } else {
                    self.exact.set(number);
                }
            }
        }
        Ok(())
    }

    /// The similarity from which candidates are duplicates, if they are verified.
    fn threshold(&self) -> Option<f64> {
        let minhash = self.config.minhash.as_ref()?;
        Some(minhash.verify).filter(|threshold| *threshold > 0.0)
    }

    /// From here on `sets` are candidates if they are to be verified.
    fn start_bands(&mut self) {
        if self.threshold().is_some() {
            self.verified = Some(self.sets.clone());
            self.earlier = Flags::new(self.numbering.total);
        }
    }

    fn band<const N: usize>(&mut self, band: u32, progress: &dyn Progress) -> Result<()> {
        let memory = self.memory();
        let (exact, sets) = (&self.exact, &mut self.sets);
        let (verified, earlier) = (&mut self.verified, &mut self.earlier);
        let old = self.numbering.earlier;
        let column = Column {
            files: &self.files,
            numbering: &self.numbering,
            column: SignatureColumn::Band(band),
        };
        let skip = |number| exact.get(number);
        let mut join = |first, other| match verified {
            // The first of equal keys is an earlier crawl's if any is.
            Some(verified) if first < old => {
                if other >= old {
                    verified.join(first, other);
                    earlier.set(other);
                }
            }
            _ => sets.join(first, other),
        };
        let found = equal::<2, N>(&column, memory, &skip, &mut join, progress)?;
        self.report.without_signature = found.without;
        self.report.pairs += found.repeated;
        Ok(())
    }

    /// Replaces the candidates by what is alike enough.
    fn verify(&mut self, progress: &dyn Progress) -> Result<()> {
        let Some(minhash) = &self.config.minhash else {
            return Ok(());
        };
        let Some(mut verified) = self.verified.take() else {
            return Ok(());
        };
        let (exact, earlier) = (&self.exact, &self.earlier);
        let verify = Verify {
            minhash,
            hasher: &Minhasher::new(minhash),
            out: self.out,
            files: &self.files,
            numbering: &self.numbering,
            ranks: self.ranks.clone(),
            gone: &|number| exact.get(number) || earlier.get(number),
            memory: self.memory(),
            progress,
        };
        let mut remove = |document, keeper| verified.join(keeper, document);
        let (mut report, pairs) = verify.run(&mut self.sets, &mut remove)?;
        report.unverified = self.earlier.count();
        self.report.verify = Some(report);
        self.report.outputs.push(pairs);
        self.sets = verified;
        Ok(())
    }
}
