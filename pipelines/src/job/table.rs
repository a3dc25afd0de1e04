//! The job file as one struct, with the small tables that belong to no other crate.

use super::blend::BlendTable;
use super::classify::ClassifyTable;
use super::executors::{Kubernetes, Ray, Slurm};
use super::finetune::FinetuneTable;
use super::nodes::Nodes;
use super::tokenize::Tokenize;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A whole job. Tables that are absent are not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Shown in reports.
    pub name: String,
    /// Folder that everything is written under, relative to the working directory.
    pub out: PathBuf,
    /// Object store through which machines without a common file system share finished files; `out` is then local
    /// to each machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreTable>,
    /// Seed of sample order, initial weights and generation.
    pub seed: u32,
    /// Threads, at most 4,096; 0 is one per core.
    pub threads: usize,
    /// Device of training, evaluation and generation: `cpu`, or `cuda` for NVIDIA GPUs.
    pub device: train::dist::DeviceKind,
    /// Guarantee about the bits of a training run.
    pub determinism: train::config::Determinism,
    /// Who runs the tasks of a curation, and the training.
    pub executor: Executor,
    /// Settings of `executor = "slurm"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm: Option<Slurm>,
    /// Settings of `executor = "ray"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray: Option<Ray>,
    /// Settings of `executor = "kubernetes"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Nodes of a training that an executor starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// Read, extract, filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curate: Option<curate::pipeline::CurateConfig>,
    /// Drop documents that hold evaluation texts (part of the curation pass), or cut these out (part of the dedup stage).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decontaminate: Option<curate::decontaminate::DecontaminateConfig>,
    /// Drop duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup: Option<curate::dedup::DedupConfig>,
    /// Text to token datasets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<Tokenize>,
    /// Datasets to samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blend: Option<BlendTable>,
    /// Labelled texts, in place of `[blend]`: fine-tuning with a classification head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classify: Option<ClassifyTable>,
    /// Conversations, in place of `[blend]`: supervised fine-tuning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finetune: Option<FinetuneTable>,
    /// Shape of the model; without the table that of `train.init_from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<train::config::ModelConfig>,
    /// Ranks.
    pub parallel: train::config::ParallelConfig,
    /// Launch of several training processes, as far as the launcher's environment does not define it.
    pub launch: train::dist::LaunchConfig,
    /// Optimisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<train::config::TrainConfig>,
    /// Validation of the trained model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<Eval>,
    /// Sample texts of the trained model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    /// `report.html`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

impl Default for Job {
    fn default() -> Self {
        Job {
            name: String::new(),
            out: PathBuf::new(),
            store: None,
            seed: 1234,
            threads: 0,
            device: train::dist::DeviceKind::Cpu,
            determinism: train::config::Determinism::Layout,
            executor: Executor::Local,
            slurm: None,
            ray: None,
            kubernetes: None,
            nodes: None,
            curate: None,
            decontaminate: None,
            dedup: None,
            tokenize: None,
            blend: None,
            classify: None,
            finetune: None,
            model: None,
            parallel: train::config::ParallelConfig::default(),
            launch: train::dist::LaunchConfig::default(),
            train: None,
            eval: None,
            generate: None,
            report: None,
        }
    }
}

/// `[store]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreTable {
    /// Folder in an object store: `s3://bucket/runs/one`, `gs://...`, `az://...`.
    pub url: String,
    /// Settings of the store by the names of the `object_store` crate, above those of the environment. A secret is left to the
    /// environment or named as `file:PATH`; one that is written here is not printed, so the resolved job cannot be run elsewhere.
    pub options: BTreeMap<String, String>,
}

/// Who runs the tasks of a curation, and a training on several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// This process.
    Local,
    /// Jobs of Slurm.
    Slurm,
    /// Jobs of Ray.
    Ray,
    /// Indexed Jobs, rendered for kubectl.
    Kubernetes,
}

/// `[eval]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Eval {
    /// Samples of the final measurement; with `blend.full_validation` all of the validation part.
    pub samples: u64,
    /// Part of the data that is measured: `valid` or `test`. Default: `valid`.
    #[serde(skip_serializing_if = "EvalPart::is_valid")]
    pub part: EvalPart,
    /// Measure the running averages of the weights (`train.ema_decay`). Default: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub use_ema: bool,
}

impl Default for Eval {
    fn default() -> Self {
        Eval {
            samples: 64,
            part: EvalPart::Valid,
            use_ema: false,
        }
    }
}

/// Part of the data that `eval` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalPart {
    /// The one that training measures as well.
    Valid,
    /// The one that nothing else reads.
    Test,
}

impl EvalPart {
    fn is_valid(&self) -> bool {
        *self == EvalPart::Valid
    }

    /// As the blend names it.
    pub(crate) fn of_index(self) -> index::split::Part {
        match self {
            EvalPart::Valid => index::split::Part::Valid,
            EvalPart::Test => index::split::Part::Test,
        }
    }

    /// Key of the loss in `eval.json`.
    pub(crate) fn loss_key(self) -> &'static str {
        match self {
            EvalPart::Valid => "valid_loss",
            EvalPart::Test => "test_loss",
        }
    }

    /// In a sentence.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            EvalPart::Valid => "validation",
            EvalPart::Test => "test",
        }
    }
}

/// `[generate]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Generate {
    /// Texts to continue.
    pub prompts: Vec<String>,
    /// Tokens to add to each.
    pub max_tokens: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// Sample among this many likeliest; 0 is all.
    pub top_k: usize,
    /// Sample among the likeliest whose probabilities reach this; 1 is all.
    pub top_p: f64,
}

impl Default for Generate {
    fn default() -> Self {
        Generate {
            prompts: vec!["The".into()],
            max_tokens: 64,
            temperature: 0.8,
            top_k: 50,
            top_p: 1.0,
        }
    }
}

/// `[report]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    /// Examples shown of each kind (kept, dropped, clusters).
    pub examples: usize,
}

impl Default for Report {
    fn default() -> Self {
        Report { examples: 8 }
    }
}
