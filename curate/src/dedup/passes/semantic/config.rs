//! Settings of semantic deduplication.

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::classifier::{ClassifierDtype, EmbeddingModel, Models, Pooling, TextEmbedder};
use crate::error::{Error, Result};

/// Name of the stage in errors.
pub(super) const STEP: &str = "dedup.semantic";

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

    pub(super) fn clusters_of(&self, documents: u64) -> usize {
        let chosen = match self.clusters {
            0 => (documents / (2 * self.iterations.max(1))).isqrt(),
            asked => asked,
        };
        usize::try_from(chosen.clamp(1, documents.max(1))).unwrap_or(usize::MAX)
    }
}
