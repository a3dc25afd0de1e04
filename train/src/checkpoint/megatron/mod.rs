//! Megatron-Core checkpoints (format torch_dist) of GPT-like models, dense or mixtures of experts: weights are read and written.

pub(crate) mod export;
pub(crate) mod import;
mod mixture;
mod names;
mod namespace;
mod settings;
