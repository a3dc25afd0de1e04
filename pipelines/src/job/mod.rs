//! The job file's tables: one struct each, resolved defaults, and every contradiction between them.
//!
//! Parse, resolve, print, then run; `load.rs` does the reading. Tables that belong to a crate are that crate's structs.

mod blend;
mod check;
mod executors;
mod load;
mod problem;
mod secrets;
mod table;
mod tokenize;

pub(crate) use blend::{
    BlendDataset, BlendSampler, BlendSamples, BlendTable, BlendWeights, FimTable,
};
pub(crate) use executors::{Kubernetes, Ray, Slurm};
pub(crate) use load::LoadError;
pub use load::load;
pub use problem::Problem;
pub use table::Job;
pub(crate) use table::{Executor, Generate};
pub(crate) use tokenize::TokenDataset;
pub(crate) use tokenize::Tokenize;
