//! What ranks share out: batches and gradient sums (data.rs, sums.rs), elements of weights, gradients
//! and moments (shards.rs, zero.rs), layers (pipeline.rs, schedules). Tensor, sequence and context
//! parallelism live in the layers that are split.

pub(crate) mod data;
pub(crate) mod pipeline;
pub(crate) mod routing;
pub(crate) mod schedule;
pub(crate) mod shards;
pub(crate) mod sums;
pub(crate) mod zero;
