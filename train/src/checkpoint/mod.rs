//! Checkpoints: `checkpoints/step-NNNNNNNN/` with
//!
//! - `model.safetensors`: every tensor whole, f32, in the order of `model/param.rs`;
//! - `optimizer.safetensors`: `<name>.m` and `<name>.v` in the same form; tensors that Muon updates have no `.v`;
//! - `ema.safetensors`: running averages of the weights, as the model, if they are kept;
//! - `state.json`: progress of the run, the plan, and a checksum of each tensor; its own checksum
//!   is its last field.
//!
//! With `train.checkpoint.sharded` each of the first three is a file per rank that owns part of it, such
//! as `model.rank-00003.safetensors` (`files.rs`).
//!
//! The tensors do not depend on the layout that wrote them, so any layout can resume. A folder gets its name only
//! once all of it is on disk, and every byte is verified before use.

pub(crate) mod adapter_base;
pub(crate) mod adapters;
pub(crate) mod background;
mod bounds;
pub(crate) mod changes;
pub(crate) mod files;
pub(crate) mod gguf;
pub(crate) mod huggingface;
pub(crate) mod initial_weights;
pub(crate) mod listed;
pub(crate) mod megatron;
pub(crate) mod newest;
pub(crate) mod quantized;
pub(crate) mod read;
pub(crate) mod read_adapter;
pub(crate) mod reshard;
pub(crate) mod safetensors;
pub(crate) mod shard_sender;
pub(crate) mod snapshot;
pub(crate) mod soft_prompt;
pub(crate) mod state;
pub(crate) mod torch;
pub(crate) mod train_state;
pub(crate) mod weight_source;
pub(crate) mod whole_model;
pub(crate) mod write;
pub(crate) mod write_shards;

pub use adapter_base::other_base;
pub use gguf::export::{GgufOptions, expect_gguf, export_gguf};
pub use gguf::import::is_gguf;
pub use gguf::mix::FileType;
pub use gguf::vocabulary::{GgufTokenizer, gguf_tokenizer};
pub use huggingface::adapter_folder::{adapter_base, adapter_bases};
pub use huggingface::export::{export_hf, export_hf_shards, unmerge_hf};
pub use huggingface::import::{
    Imported, import_gguf, import_hf, import_megatron, is_hugging_face, is_megatron,
};
pub use huggingface::peft::export_peft;
pub use initial_weights::{InitialModel, check_init, initial_model};
pub use listed::{ListedCheckpoint, list_checkpoints};
pub use megatron::export::export_megatron;
pub use newest::{Newest, SkippedCheckpoint, checkpoint_at, newest_checkpoint};
pub use quantized::write::{Int4Form, WeightFormat, export_quantized};
pub use reshard::{Reshard, reshard};
pub use torch::save_writer::TorchDtype;
pub use train_state::Ended;

use std::path::{Path, PathBuf};

use crate::error::{At, Result};

pub(crate) const MODEL: &str = "model.safetensors";
pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
pub(crate) const EMA: &str = "ema.safetensors";
pub(crate) const STATE: &str = "state.json";

/// Folder of the checkpoint after `step`.
pub fn path_of(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:08}"))
}

/// Steps that have a checkpoint folder, ascending.
pub(crate) fn steps_in(folder: &Path) -> Result<Vec<u64>> {
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(folder).at("list", folder)? {
        let name = entry.at("list", folder)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("step-"));
        // another spelling of a number is not a folder of ours
        let step = digits.and_then(|digits| digits.parse().ok());
        if let Some(step) = step.filter(|&step| path_of(folder, step).ends_with(&name)) {
            steps.push(step);
        }
    }
    steps.sort_unstable();
    Ok(steps)
}
