//! Megatron-Core checkpoints, read only.

pub(crate) mod import;
