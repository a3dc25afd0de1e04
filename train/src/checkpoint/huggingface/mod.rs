//! Hugging Face checkpoints: configurations, tensor names, import and export.

pub(crate) mod adapter_folder;
pub(crate) mod bert;
mod bloom;
mod classes;
pub(crate) mod config;
pub(crate) mod deepseek;
pub(crate) mod described;
pub(crate) mod export;
mod falcon;
pub(crate) mod fields;
pub(crate) mod files;
mod gemma;
mod gpt_neox;
mod gpt_oss;
pub(crate) mod import;
mod layer_types;
pub(crate) mod moe;
mod mxfp4;
pub(crate) mod names;
mod opt;
#[cfg(test)]
pub(crate) mod outs;
pub(crate) mod pair;
pub(crate) mod peft;
mod peft_sizes;
mod rope;
pub(crate) mod soft_prompt;
pub(crate) mod t5;
