//! Ids of the text that virtual tokens start from.

use anyhow::{Context as _, Result, bail};

use crate::generation::{ModelFiles, encode};
use crate::job::FinetuneTable;
use train::config::PromptConfig;

/// Ids of `init_text` as PEFT has them: with those that the tokenizer adds around a text. None without a text. With several tasks, each
/// of their virtual tokens has one, in order: a task's from its own text, again and again.
///
/// # Errors
/// A text that has no tokens.
pub(super) fn init_ids(
    files: &ModelFiles,
    table: &FinetuneTable,
    prompt: &PromptConfig,
) -> Result<Vec<u32>> {
    let (texts, mut all) = (table.init_texts(), Vec::new());
    for (text, markers) in texts.iter().zip(prompt.markers()) {
        if text.is_empty() {
            continue;
        }
        let ids = encode(&files.tokenizer, text, true).context("init_text")?;
        if ids.is_empty() {
            bail!("init_text: found {text:?}, which has no tokens");
        }
        match texts.len() {
            1 => all.extend(ids),
            _ => all.extend(ids.iter().cycle().take(markers.virtual_tokens())),
        }
    }
    Ok(all)
}
