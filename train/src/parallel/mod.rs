//! Parallelism outside layers: batches and gradient reduction (gradient_tree.rs, gradient_reducer.rs), sharding of
//! weights, gradients and moments (shards.rs, zero.rs), pipelines (pipeline.rs, schedules). Tensor, sequence and
//! context parallelism are in the layers that are split.

pub(crate) mod gradient_reducer;
pub(crate) mod gradient_tree;
pub(crate) mod losses;
pub(crate) mod offload;
pub(crate) mod pipeline;
pub(crate) mod routing;
pub(crate) mod schedule;
pub(crate) mod shards;
pub(crate) mod stage_messages;
pub(crate) mod zero;
