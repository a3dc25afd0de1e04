#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod checkpoint;
mod config;
mod data;
mod dist;
mod error;
mod eval;
#[cfg(test)]
mod fixtures;
mod infer;
mod metrics;
mod model;
mod optim;
mod panics;
mod parallel;
mod profile;
#[cfg(test)]
mod tests;
mod trainer;

pub use checkpoint::huggingface::export::{export_hf, export_hf_shards};
pub use checkpoint::huggingface::import::{Imported, import_hf, import_megatron, is_megatron};
pub use checkpoint::initial_weights::{InitialModel, check_init, initial_model};
pub use checkpoint::newest::{Newest, SkippedCheckpoint, checkpoint_at, newest_checkpoint};
pub use checkpoint::reshard::{Reshard, reshard};
pub use checkpoint::train_state::Ended;
pub use config::loss_scale::LossScaleConfig;
pub use config::moe::{DropPolicy, MoeConfig, RouterScope, RouterScore};
pub use config::offload::Offload;
pub use config::plan::Plan;
pub use config::precision::{AmaxAlgo, Bf16Sums, Fp8Config, Fp8Format, Fp8Recipe, Precision};
pub use config::profile::{Profile, ProfileWindow};
pub use config::resume::{Difference, SettingChange};
pub use config::{
    Activation, BadStepAction, BatchRampup, Biases, CheckpointConfig, Determinism, EarlyStop,
    Family, ModelConfig, MuonConfig, NormKind, OnBadStep, OptimizerKind, ParallelConfig,
    PipelineSchedule, Placement, Recompute, ResumeConfig, RopeScaling, Schedule, TieEmbeddings,
    TrainConfig, WsdDecay,
};
pub use data::{MaskedSample, Sample, Samples, SpanSample, TextSample};
pub use dist::launch::{LaunchConfig, Transport, cpu_path, mpi_here};
pub use dist::world::World;
pub use error::{Error, Result};
pub use eval::{decoder_logits, evaluate, inspect, logits};
pub use infer::generate;
pub use infer::options::GenerateOptions;
pub use kernels::{CpuPath, Device};
pub use metrics::{Events, StepRecord};
pub use panics::is_panic_expected;
pub use parallel::routing::RoutingRecord;
pub use trainer::memory;
pub use trainer::run::{Outcome, ValidationSet, run, run_in_world, run_with_sets};
