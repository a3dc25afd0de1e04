//! Classifiers and embeddings of texts that another crate runs: the interface through which steps and deduplication have
//! them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The outputs of a classifier for a text, one per label; or why it has none, such as a text that its tokenizer refuses.
pub type Logits = Result<Vec<f32>, String>;

/// The kind of answer that a classifier was trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The outputs are the scores.
    Regression,
    /// One of the labels applies.
    OneLabel,
    /// Each label may apply.
    AnyLabels,
}

/// Number format of a classifier's products. Each gives the same scores on every processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassifierDtype {
    /// f32.
    #[default]
    F32,
    /// Factors rounded to bf16 and sums in f32, in the order of AVX-512 BF16: twice as fast as f32 on some processors that
    /// have it, half as fast on others, several times slower without.
    Bf16,
    /// The same in the order of AMX's tiles, for processors that have them.
    Bf16Tiles,
    /// Factors of linear layers rounded to 8 bits by row, with exact sums; the fastest with AVX-512 VNNI, slow without.
    Int8,
}

/// The model of a step, as its settings say.
#[derive(Clone, Debug)]
pub struct ClassifierModel {
    /// A Hugging Face folder.
    pub folder: PathBuf,
    /// Number format of products.
    pub dtype: ClassifierDtype,
    /// Tokens of a text that are read, special ones included; 0: as many as the model can.
    pub max_tokens: usize,
    /// Tokens that run together.
    pub batch_tokens: usize,
}

/// A classifier, ready. Shared by threads.
pub trait TextClassifier: Send + Sync {
    /// Names of the outputs.
    fn labels(&self) -> &[String];

    /// The kind of answer.
    fn answer(&self) -> Answer;

    /// The outputs for each text, which depend on the text alone. Texts that are too long lose their end.
    ///
    /// # Errors
    /// In words, if the model cannot run.
    fn logits(&self, texts: &[&str]) -> Result<Vec<Logits>, String>;
}

/// The rows of a text that its embedding is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The mean over all tokens.
    Mean,
    /// The row of the first token.
    Cls,
}

/// The model of embeddings, as the settings say.
#[derive(Clone, Debug)]
pub struct EmbeddingModel {
    /// A Hugging Face folder.
    pub folder: PathBuf,
    /// Number format of products.
    pub dtype: ClassifierDtype,
    /// The rows that are used; none: as the folder says.
    pub pooling: Option<Pooling>,
    /// Tokens of a text that are read, special ones included; 0: as many as the model can.
    pub max_tokens: usize,
    /// Tokens that run together.
    pub batch_tokens: usize,
}

/// The embedding of a text, of length 1; or why it has none.
pub type Embedding = Result<Vec<f32>, String>;

/// A model of embeddings, ready. Shared by threads.
pub trait TextEmbedder: Send + Sync {
    /// Numbers of an embedding.
    fn width(&self) -> usize;

    /// The embedding of each text, which depends on the text alone. Texts that are too long lose their end.
    ///
    /// # Errors
    /// In words, if the model cannot run.
    fn embeddings(&self, texts: &[&str]) -> Result<Vec<Embedding>, String>;
}

/// Opens models.
pub trait Models {
    /// Opens the model of a step.
    ///
    /// # Errors
    /// Every reason why it cannot be used, in words.
    fn classifier(&self, model: &ClassifierModel) -> Result<Box<dyn TextClassifier>, String>;

    /// Opens a model of embeddings. An implementation without one runs none.
    ///
    /// # Errors
    /// Every reason why it cannot be used, in words.
    fn embedder(&self, _model: &EmbeddingModel) -> Result<Box<dyn TextEmbedder>, String> {
        Err(NONE_RUN.to_string())
    }
}

/// No models: settings that need one are an error.
pub struct NoModels;

const NONE_RUN: &str = "this program runs no transformer models";

impl Models for NoModels {
    fn classifier(&self, _: &ClassifierModel) -> Result<Box<dyn TextClassifier>, String> {
        Err(NONE_RUN.to_string())
    }
}

/// Files of a folder that a model may be read from, sorted.
pub(crate) fn files_of(folder: &Path) -> Vec<PathBuf> {
    let is_part = |path: &PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        matches!(kind, Some("json" | "safetensors" | "bin"))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_part).collect();
    files.sort();
    files
}
