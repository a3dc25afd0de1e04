//! Counts of deduplication.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rehydration::Rehydrated;
use super::verify::VerifyReport;
use crate::corpus::{KeepList, KeepStatus};
use crate::decontaminate::Decontamination;
use crate::write::OutputFile;

/// Counts of a deduplication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DedupReport {
    /// Input documents; `documents == kept + earlier + exact + fuzzy + url + semantic + hollow +
    /// contaminated`.
    pub documents: u64,
    /// Kept documents.
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
    /// Removed because the embedding of a document that stays is nearly the same.
    #[serde(default)]
    pub semantic: u64,
    /// Removed because too much of their text was cut.
    #[serde(default)]
    pub hollow: u64,
    /// Removed because little or too many pieces were left without evaluation texts.
    #[serde(default)]
    pub contaminated: u64,
    /// Embeddings and clusters of `semantic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_clusters: Option<SemanticReport>,
    /// Cuts of each pass over the texts.
    #[serde(default)]
    pub cuts: Vec<CutReport>,
    /// Matches with evaluation sets.
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
    /// Counts of the verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyReport>,
    /// Kept documents by cluster size, and how often FineWeb-2 would repeat them.
    #[serde(default)]
    pub rehydration: Vec<Rehydrated>,
    /// Kept documents per shard.
    pub kept_per_shard: Vec<u64>,
    /// Removed documents per shard; empty in records of earlier versions.
    #[serde(default)]
    pub removed_per_shard: Vec<RemovedCounts>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
}

/// Removed documents by reason, under the names of the counts of [`DedupReport`]; those that are zero are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemovedCounts {
    /// An earlier crawl has the same or nearly the same.
    #[serde(skip_serializing_if = "is_zero")]
    pub earlier: u64,
    /// Exact duplicates.
    #[serde(skip_serializing_if = "is_zero")]
    pub exact: u64,
    /// Near duplicates.
    #[serde(skip_serializing_if = "is_zero")]
    pub fuzzy: u64,
    /// A document with the same address stays.
    #[serde(skip_serializing_if = "is_zero")]
    pub url: u64,
    /// The embedding of a document that stays is nearly the same.
    #[serde(skip_serializing_if = "is_zero")]
    pub semantic: u64,
    /// Too much of their text was cut.
    #[serde(skip_serializing_if = "is_zero")]
    pub hollow: u64,
    /// Little or too many pieces were left without evaluation texts.
    #[serde(skip_serializing_if = "is_zero")]
    pub contaminated: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RemovedCounts {
    /// Of a shard's documents.
    pub(crate) fn of(list: &KeepList) -> RemovedCounts {
        let mut counts = RemovedCounts::default();
        for document in 0..list.len() {
            let count = match list.status(document) {
                KeepStatus::Kept => continue,
                KeepStatus::Exact(..) => &mut counts.exact,
                KeepStatus::Fuzzy(..) => &mut counts.fuzzy,
                KeepStatus::Url(..) => &mut counts.url,
                KeepStatus::Semantic(..) => &mut counts.semantic,
                KeepStatus::Hollow => &mut counts.hollow,
                KeepStatus::Contaminated => &mut counts.contaminated,
                KeepStatus::Earlier(_) => &mut counts.earlier,
            };
            *count += 1;
        }
        counts
    }

    /// Of all reasons together.
    pub fn total(&self) -> u64 {
        let RemovedCounts {
            earlier,
            exact,
            fuzzy,
            url,
            semantic,
            hollow,
            contaminated,
        } = self;
        earlier + exact + fuzzy + url + semantic + hollow + contaminated
    }

    /// Adds another shard's counts.
    pub fn add(&mut self, other: &RemovedCounts) {
        self.earlier += other.earlier;
        self.exact += other.exact;
        self.fuzzy += other.fuzzy;
        self.url += other.url;
        self.semantic += other.semantic;
        self.hollow += other.hollow;
        self.contaminated += other.contaminated;
    }
}

/// Embeddings and clusters of the semantic deduplication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SemanticReport {
    /// Documents with an embedding.
    pub embedded: u64,
    /// Documents without one, such as texts without a token; they are kept.
    pub unembedded: u64,
    /// Clusters of k-means.
    pub clusters: u64,
    /// Documents of the largest one.
    pub largest_cluster: u64,
    /// Iterations of k-means.
    pub iterations: u64,
    /// Whether no document changed its cluster in the last one.
    pub is_settled: bool,
}

/// Cuts of one pass over the texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CutReport {
    /// The pass: `lines`, `bloom` or `substring`.
    pub rule: String,
    /// Pieces examined: lines, paragraphs or anchors of windows.
    pub pieces: u64,
    /// Documents that lost something and stay.
    pub documents: u64,
    /// Documents that lost too much and are gone.
    pub hollow: u64,
    /// Bytes cut from documents that stay.
    pub bytes: u64,
    /// The filter of `bloom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bloom: Option<BloomReport>,
}

/// State of the Bloom filter at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BloomReport {
    /// Its size.
    pub bytes: u64,
    /// Bits of each n-gram.
    pub hashes: u32,
    /// N-grams it was sized for.
    pub expected_ngrams: u64,
    /// Insertions of n-grams, repeated ones included.
    pub ngrams: u64,
    /// False positives at the end: the share of bits that are set, to the power of `hashes`.
    pub false_positive_rate: f64,
}
