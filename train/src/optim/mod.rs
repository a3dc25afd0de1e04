//! From gradients to new weights: learning rate, clipping, AdamW.

pub(crate) mod adamw;
pub(crate) mod clip;
pub(crate) mod guard;
pub(crate) mod schedule;
