//! Deduplication over the signatures of all shards: exact, then MinHash with banding.
//!
//! `clean/NNNNN.sig` -> `keep/NNNNN.keep` and `keep/clusters.jsonl`. Exact: equal XXH3-128 of the text. Near: two
//! documents that agree in all hashes of at least one of the bands are joined; each connected set keeps one
//! document (`keep_policy.rs`), or, with `minhash.verify`, as many as are not alike (`verify/`). Columns are read
//! one after the other and sorted in memory, in as many parts of the range of keys as the budget asks for
//! (`equal.rs`); only `keep = "datatrove"`, whose result depends on the order of keys, sorts with runs on disk. The
//! union-find sets are in memory, 4 bytes per document (5 from 2^32 documents on; twice with `verify`; with another
//! `keep` than `first`, or `priority`, 8 more), beside a bit for exact duplicates and a byte for sizes of sets.
//! Documents of `index`, which earlier crawls kept, count as documents. Exact duplicates take no part in the near
//! stage: the kept copy represents them.

mod cluster;
mod config;
mod equal;
mod finish;
mod index;
mod keep_policy;
mod minhash;
mod numbering;
mod open;
mod ordered;
mod passes;
mod priority;
mod rehydration;
mod report;
mod shape;
mod signature;
mod sort;
mod stage;
mod union_find;
mod verify;

use std::path::Path;

use crate::classifier::{Models, NoModels};
use crate::error::{At, Result};
use crate::progress::Progress;
use stage::Stage;

pub use config::{DedupConfig, ExactConfig, KeepPolicy};
pub(crate) use index::{NAME as KEPT_INDEX, write_kept};
pub use index::{index_files, merge_indexes};
pub(crate) use minhash::words_digest;
pub use minhash::{MinhashConfig, MinhashPreset, MinhashScratch, Minhasher, Shingle, ShingleKind};
pub(crate) use passes::EmbeddingCounts;
pub use passes::{
    BloomConfig, BloomRemove, EMBEDDINGS, LineHash, LineKeep, LineUnit, LinesConfig,
    SemanticConfig, SemanticKeep, SubstringConfig, SubstringUnit, UrlDedupConfig, UrlKeep,
    decontaminate,
};
pub use rehydration::{REHYDRATION, Rehydrated};
pub use report::{BloomReport, CutReport, DedupReport, RemovedCounts, SemanticReport};
pub(crate) use signature::{Origin, Signature, SignatureWriter, source};
pub use signature::{SignatureColumn, SignatureFile, SignatureShape};
pub use verify::VerifyReport;

/// [`dedup_with_models`] for settings without `semantic`.
///
/// # Errors
/// As there.
pub fn dedup(
    config: &DedupConfig,
    out: &Path,
    shards: usize,
    progress: &dyn Progress,
) -> Result<DedupReport> {
    dedup_with_models(config, out, shards, &NoModels, progress)
}

/// Reads the signatures of `shards` shards under `out` and writes the keep lists; `models` opens the model of `semantic`.
///
/// # Errors
/// `Damaged` for a signature file or an index that is not as it was written or was made with other settings; `Model` for a
/// model that cannot be used.
pub fn dedup_with_models(
    config: &DedupConfig,
    out: &Path,
    shards: usize,
    models: &dyn Models,
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
    let mut report = passes::run(config, out, report, models, progress)?;
    if config.index.is_some() {
        report.outputs.push(index::write(out, &files, &numbering)?);
    }
    sweep(out);
    Ok(report)
}

/// Removes temporary files; a failure does no harm.
fn sweep(out: &Path) {
    let _ = std::fs::remove_dir_all(out.join("tmp/dedup"));
    let _ = std::fs::remove_dir(out.join("tmp"));
}

/// Removes files of an earlier job that this one may not write.
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
