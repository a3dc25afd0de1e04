//! The job's tables `[model]`, `[parallel]` and `[train]`, and the plan that joins them with the data's sizes.

pub(crate) mod adapted_layers;
pub(crate) mod architecture;
mod check;
pub(crate) mod choices;
mod classify;
mod divisibility;
pub(crate) mod eval_tasks;
pub(crate) mod exact;
mod families;
pub(crate) mod latent;
pub(crate) mod lora;
pub(crate) mod loss_mean;
pub(crate) mod loss_scale;
pub(crate) mod model;
pub(crate) mod moe;
pub(crate) mod mtp;
pub(crate) mod numbers;
pub(crate) mod offload;
pub(crate) mod parallel;
pub(crate) mod plan;
pub(crate) mod precision;
pub(crate) mod preference;
mod problem;
pub(crate) mod profile;
pub(crate) mod prompt;
pub(crate) mod resume;
pub(crate) mod rope_scaling;
pub(crate) mod sums;
pub(crate) mod train;

pub use choices::{Activation, Biases, Family, NormKind, NormPlace, QkNormOver, TieEmbeddings};
pub use classify::ClassifyConfig;
pub use eval_tasks::EvalTasks;
pub use lora::{LoraConfig, LoraTarget};
pub use loss_mean::LossMean;
pub use loss_scale::LossScaleConfig;
pub use model::{Determinism, ModelConfig};
pub use moe::{DropPolicy, MoeConfig, RouterScope, RouterScore};
pub use offload::Offload;
pub(crate) use parallel::Axis;
pub use parallel::{ParallelConfig, PipelineSchedule, Placement};
pub use plan::Plan;
pub use precision::{AmaxAlgo, Bf16Sums, Fp8Config, Fp8Format, Fp8Recipe, Precision};
pub use preference::{PreferenceConfig, PreferenceLoss};
pub(crate) use problem::Problem;
pub use profile::{Profile, ProfileWindow};
pub use prompt::{EncoderKind, PromptConfig, PromptEncoder, PromptTask, TaskMarkers, is_of_name};
pub use resume::{Difference, SettingChange, resume_entries};
pub use rope_scaling::RopeScaling;
pub use train::{
    BadStepAction, BatchRampup, CheckpointConfig, EarlyStop, MuonConfig, OnBadStep, OptimizerKind,
    Recompute, ResumeConfig, Schedule, TrainConfig, WsdDecay,
};
