#![doc = include_str!("../README.md")]

mod check;
pub mod classifier;
mod clock;
pub mod contract;
pub mod corpus;
pub mod decontaminate;
pub mod dedup;
mod document;
mod error;
pub mod expression;
pub mod extract;
pub mod filter;
#[cfg(test)]
mod hostile;
pub mod language;
pub mod mixer;
mod panics;
pub mod pii;
pub mod pipeline;
mod progress;
pub mod quality;
pub mod read;
pub mod secrets;
pub mod statistics;
mod steps;
pub mod store;
pub mod takedown;
mod takedown_list;
pub mod text;
pub mod verdict;
pub mod write;

pub use error::{Error, Result};
pub use panics::is_panic_expected;
pub use progress::{Progress, Silent};
