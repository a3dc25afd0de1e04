//! Megatron-LM's checkpoints.

pub(crate) mod import;
