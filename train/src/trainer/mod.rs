//! A training run: its steps, state, records and memory.

pub(crate) mod bad_steps;
pub(crate) mod endings;
pub mod memory;
pub(crate) mod reference;
pub(crate) mod reporter;
pub(crate) mod run;
pub(crate) mod step;
pub mod timeline;

pub use run::{Outcome, ValidationSet, run, run_in_world, run_with_sets};
