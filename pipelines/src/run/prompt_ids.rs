//! Ids of the text that virtual tokens start from.

use anyhow::{Context as _, Result, bail};

use crate::generation::{ModelFiles, encode};
use crate::job::FinetuneTable;

/// Ids of `finetune.prompt.init_text` as PEFT has them: with those that the tokenizer adds around a text. None without a text.
///
/// # Errors
/// A text that has no tokens.
pub(super) fn init_ids(files: &ModelFiles, table: &FinetuneTable) -> Result<Vec<u32>> {
    let text = table.init_text();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let ids = encode(&files.tokenizer, text, true).context("finetune.prompt.init_text")?;
    if ids.is_empty() {
        bail!("finetune.prompt.init_text: found {text:?}, which has no tokens");
    }
    Ok(ids)
}
