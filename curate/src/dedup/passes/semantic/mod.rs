//! Semantic deduplication (SemDeDup: Abbas et al. 2023, arXiv:2303.09540): texts whose embeddings nearly agree.
//!
//! Embeddings of the kept texts, of length 1, are parted by k-means (`kmeans.rs`). In a cluster documents stand in an order:
//! those least like its centre first (`hard`), those most like it (`easy`), or as they come. A document is removed if an
//! earlier one of its cluster is as similar as `min_similarity`, which is 1 - epsilon of the paper, even if that one is
//! removed as well (`pairs.rs`), as in the authors' program. Documents of sources that `priority` names first stand before
//! others, which theirs has not.
//!
//! The result depends on the texts, the model and the settings alone: products have one order of sums on every processor,
//! clusters begin at documents drawn by a hash, and sums over a cluster follow the documents. Embeddings are kept in
//! `embeddings/`, where a run that was stopped, or has other settings of clusters, finds them (`stored.rs`).

mod config;
mod kmeans;
mod pairs;
mod product;
mod stored;

use crate::classifier::Models;
use crate::dedup::passes::kept::Passes;
use crate::dedup::priority::Priority;
use crate::dedup::report::SemanticReport;
use crate::error::{Error, Result};

pub use config::{SemanticConfig, SemanticKeep};
pub(crate) use stored::EmbeddingCounts;
pub use stored::FOLDER as EMBEDDINGS;

pub(super) fn run(
    config: &SemanticConfig,
    priority: &Priority,
    models: &dyn Models,
    passes: &mut Passes<'_>,
) -> Result<()> {
    let embedder = config.open(models)?;
    let print = stored::fingerprint(config)?;
    let mut unembedded = 0;
    let mut files = Vec::with_capacity(passes.shards());
    for shard in 0..passes.shards() {
        let source = stored::Source {
            config,
            print,
            embedder: embedder.as_ref(),
        };
        let file = source.of_shard(shard, passes)?;
        unembedded += file.unembedded;
        files.push(file);
    }
    drop(embedder);
    let stored = stored::Stored::new(files);
    let mut report = SemanticReport {
        embedded: stored.documents(),
        unembedded,
        ..SemanticReport::default()
    };
    if report.embedded > 0 {
        let block = kmeans::block(stored.width(), passes);
        let clusters = config.clusters_of(report.embedded);
        // f32 centres and f64 sums
        let most = passes.memory() / (12 * stored.width());
        if clusters > most {
            return Err(Error::Config {
                key: "dedup.semantic.clusters".to_string(),
                found: clusters.to_string(),
                wanted: format!("at most {most}, whose centres fit in dedup.memory_mb"),
            });
        }
        let first = kmeans::drawn(&stored, clusters, config.seed);
        let mut centres = kmeans::Centres::at(&stored, &first)?;
        centres.settle(&stored, config.iterations, block, &mut report)?;
        let clusters = pairs::Clusters {
            stored: &stored,
            centres: &centres,
            config,
            priority,
            block,
        };
        clusters.remove_alike(&mut report, passes)?;
    }
    passes.report.semantic_clusters = Some(report);
    Ok(())
}
