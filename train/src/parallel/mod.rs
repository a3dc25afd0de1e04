//! Data parallelism (the gradient tree) and pipeline parallelism (schedules and their execution).
//! Tensor parallelism lives in the layers that are split.

pub(crate) mod data;
pub(crate) mod pipeline;
pub(crate) mod schedule;
