#![doc = include_str!("../README.md")]

mod array;
pub mod blend;
pub mod cache;
pub mod dataset;
mod error;
pub mod numpy_random;
mod panics;
pub mod sampler;
pub mod samples;
pub mod sentences;
pub mod split;
pub mod tokenizer;

pub use array::Array;
pub use error::{Error, Result};
pub use panics::is_panic_expected;
