#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod architecture;
mod bad_steps;
mod checkpoint;
#[cfg(test)]
mod claims;
mod config;
mod course;
mod data;
mod delayed;
mod endings;
mod error;
mod eval;
mod fit;
#[cfg(test)]
mod fixtures;
mod guardian;
mod infer;
mod launch;
mod layout;
mod lead;
pub mod memory;
mod mesh;
mod metrics;
mod mixture;
mod model;
mod offload;
mod optim;
mod panics;
mod parallel;
mod plan;
mod precision;
mod profile;
mod recipe;
mod run;
mod scaling;
mod secret;
mod step;
mod threads;
mod world;

pub use checkpoint::changes::{Difference, SettingChange};
pub use checkpoint::hf::{export_hf, export_hf_shards};
pub use checkpoint::hf_import::{Imported, import_hf, import_megatron, is_megatron};
pub use checkpoint::newest::{Newest, SkippedCheckpoint, checkpoint_at, newest_checkpoint};
pub use checkpoint::origin::{InitialModel, check_init, initial_model};
pub use checkpoint::reshard::{Reshard, reshard};
pub use config::{
    Activation, BadStepAction, BatchRampup, Biases, CheckpointConfig, Determinism, EarlyStop,
    Family, ModelConfig, MuonConfig, NormKind, OnBadStep, OptimizerKind, ParallelConfig,
    PipelineSchedule, Placement, Recompute, ResumeConfig, RopeScaling, Schedule, TieEmbeddings,
    TrainConfig, WsdDecay,
};
pub use course::Ended;
pub use data::{MaskedSample, Sample, Samples, SpanSample, TextSample};
pub use error::{Error, Result};
pub use eval::{decoder_logits, evaluate, inspect, logits};
pub use infer::{GenerateOptions, generate};
pub use kernels::{CpuPath, Device};
pub use launch::{LaunchConfig, Transport, cpu_path, mpi_here};
pub use metrics::{Events, StepRecord};
pub use mixture::{DropPolicy, MoeConfig, RouterScope, RouterScore};
pub use offload::Offload;
pub use optim::loss_scale::LossScaleConfig;
pub use panics::is_panic_expected;
pub use parallel::routing::RoutingRecord;
pub use plan::Plan;
pub use precision::{AmaxAlgo, Bf16Sums, Fp8Config, Fp8Format, Fp8Recipe, Precision};
pub use profile::{Profile, ProfileWindow};
pub use run::{Outcome, ValidationSet, run, run_in_world, run_with_sets};
pub use world::World;
