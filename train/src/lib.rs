#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod dist;
mod error;
pub mod eval;
#[cfg(test)]
mod fixtures;
pub mod infer;
pub mod metrics;
mod model;
mod optim;
mod panics;
mod parallel;
mod profile;
#[cfg(test)]
mod tests;
pub mod trainer;

pub use error::{Error, Result};
pub use kernels::{CpuPath, Device};
pub use panics::is_panic_expected;
