//! A training run: its steps, state, records and memory.

pub(crate) mod bad_steps;
pub(crate) mod endings;
pub mod memory;
pub(crate) mod rank_loop;
pub(crate) mod reference;
pub(crate) mod reporter;
pub(crate) mod run;
pub(crate) mod step;
pub mod timeline;
pub(crate) mod together;
pub(crate) mod training;

pub use run::{
    Outcome, Resumption, resumption, resumption_by_settings, run, run_in_world, run_together,
    run_with_sets,
};
pub use training::{Training, ValidationSet};
