//! Megatron-Core checkpoints (format torch_dist) of GPT-like models: weights are read and written.

pub(crate) mod export;
pub(crate) mod import;
mod settings;
