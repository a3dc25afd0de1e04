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

mod kmeans;
mod pairs;
mod stored;

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::classifier::{ClassifierDtype, EmbeddingModel, Models, Pooling, TextEmbedder};
use crate::dedup::passes::kept::Passes;
use crate::dedup::priority::Priority;
use crate::dedup::report::SemanticReport;
use crate::error::{Error, Result};

pub(crate) use stored::EmbeddingCounts;
pub use stored::FOLDER as EMBEDDINGS;

/// Name of the stage in errors.
const STEP: &str = "dedup.semantic";

/// Deduplication by embeddings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SemanticConfig {
    /// A Hugging Face folder with `config.json`, `model.safetensors` or shards of it, and `tokenizer.json`: an encoder of
    /// BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, DeBERTa-v2 or v3, with a head or without, or a folder of Sentence
    /// Transformers with one of these.
    pub model: String,
    /// Number format of the model's products.
    pub dtype: ClassifierDtype,
    /// The rows that an embedding is made of. Default: as the folder's `modules.json` says, or the mean.
    pub pooling: Option<Pooling>,
    /// Text before each document's, such as `query: ` for E5's models.
    pub prefix: String,
    /// Tokens of a text that are read, special ones included: the first; 0: as many as the model can.
    pub max_tokens: u64,
    /// Tokens of texts that run through the model together, sorted by length. Never changes the output.
    pub batch_tokens: u64,
    /// Cosine of two embeddings from which on the later document is removed: 1 - epsilon of SemDeDup.
    pub min_similarity: f64,
    /// Clusters of k-means; 0: the square root of the number of documents over twice `iterations`, which balances the work on
    /// clusters and on pairs.
    pub clusters: u64,
    /// Most iterations of k-means; it ends before if no document changes its cluster.
    pub iterations: u64,
    /// The documents of a cluster that stay before others.
    pub keep: SemanticKeep,
    /// Seed of the documents at which clusters begin.
    pub seed: u64,
}

/// The documents of a cluster that stay before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SemanticKeep {
    /// Those least like the cluster's centre.
    #[default]
    Hard,
    /// Those most like it.
    Easy,
    /// The one with the smallest (shard, document).
    First,
}

impl Default for SemanticConfig {
    fn default() -> Self {
        SemanticConfig {
            model: String::new(),
            dtype: ClassifierDtype::default(),
            pooling: None,
            prefix: String::new(),
            max_tokens: 0,
            batch_tokens: 2048,
            min_similarity: 0.95,
            clusters: 0,
            iterations: 20,
            keep: SemanticKeep::Hard,
            seed: 0,
        }
    }
}

impl SemanticConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.model.is_empty() {
            let wanted = "the path of a Hugging Face folder";
            problem("model", "\"\"".to_string(), wanted);
        }
        if self.batch_tokens == 0 || self.batch_tokens > 1 << 20 {
            let found = self.batch_tokens.to_string();
            problem("batch_tokens", found, "1 to 1048576");
        }
        // the product of a vector of length 1 with itself is rounded, sometimes to less than 1
        if !(self.min_similarity > 0.0 && self.min_similarity < 1.0) {
            let found = self.min_similarity.to_string();
            problem("min_similarity", found, "above 0, below 1, as 0.9999");
        }
        if self.clusters > 1 << 24 {
            problem("clusters", self.clusters.to_string(), "at most 16777216");
        }
        if self.iterations == 0 || self.iterations > 1000 {
            problem("iterations", self.iterations.to_string(), "1 to 1000");
        }
    }

    /// Opens the model.
    ///
    /// # Errors
    /// `Model` with every reason why it cannot be used.
    pub fn open(&self, models: &dyn Models) -> Result<Box<dyn TextEmbedder>> {
        let model = EmbeddingModel {
            folder: self.model.clone().into(),
            dtype: self.dtype,
            pooling: self.pooling,
            max_tokens: usize::try_from(self.max_tokens).unwrap_or(usize::MAX),
            batch_tokens: usize::try_from(self.batch_tokens).unwrap_or(usize::MAX),
        };
        models.embedder(&model).map_err(|why| Error::Model {
            step: STEP.to_string(),
            why,
        })
    }

    fn clusters_of(&self, documents: u64) -> usize {
        let chosen = match self.clusters {
            0 => (documents / (2 * self.iterations.max(1))).isqrt(),
            asked => asked,
        };
        usize::try_from(chosen.clamp(1, documents.max(1))).unwrap_or(usize::MAX)
    }
}

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

/// The product of two vectors of one width: the same bits on every processor, since each of sixteen sums is one chain.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum += a * b;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::dot;

    #[test]
    fn a_product_of_any_width_is_near_that_of_f64() {
        for width in [1, 7, 16, 17, 100] {
            let a: Vec<f32> = (0..width).map(|i| (i as f32 * 0.7).sin()).collect();
            let b: Vec<f32> = (0..width).map(|i| (i as f32 * 1.3).cos()).collect();
            let pairs = a.iter().zip(&b);
            let wanted: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(dot(&a, &b)) - wanted).abs() < 1e-5, "{width}");
        }
    }
}
