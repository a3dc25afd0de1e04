//! Ids of prompts.

use crate::job::{Marked, Marker, at_markers, has_marker, task_of};
use anyhow::Result;
use index::tokenizer::{SpecialTokens, Tokenizer};
use train::config::TaskMarkers;
use train::data::virtual_tokens;

/// Ids of a prompt. Names of special tokens in it are these tokens, as with Hugging Face's tokenizers; `adds`: the tokens that
/// its post-processor puts around a text as well.
///
/// # Errors
/// The tokenizer's.
pub(crate) fn encode(tokenizer: &Tokenizer, text: &str, adds: bool) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    let special = |add| SpecialTokens { add, parse: true };
    // a post-processor of an unknown form adds nothing
    let encoder = tokenizer.encoder_with(special(adds));
    let encoder = encoder.or_else(|_| tokenizer.encoder_with(special(false)));
    encoder?.encode_into(text, &mut ids)?;
    Ok(ids)
}

/// Ids of a prompt as of a training text, but that the names of T5 sentinels are sentinel ids: in a prompt they are intended.
///
/// # Errors
/// The tokenizer's.
pub(crate) fn encode_with_sentinels(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    let (mut ids, mut rest) = (Vec::new(), prompt);
    loop {
        let sentinels = tokenizer.special().sentinels.iter();
        let named = sentinels.filter_map(|&id| Some((id, tokenizer.token(id)?)));
        let found = named.filter_map(|(id, name)| Some((rest.find(name)?, name.len(), id)));
        // the longest of names that start at the same position
        let first = found.min_by_key(|&(at, len, _)| (at, usize::MAX - len));
        let Some((at, len, id)) = first else {
            ids.extend(tokenizer.encode(rest)?);
            return Ok(ids);
        };
        ids.extend(tokenizer.encode(&rest[..at])?);
        ids.push(id);
        rest = &rest[at + len..];
    }
}

/// Ids of a prompt for a model with these markers: the virtual tokens of the task that a text's markers name, or fit, take their place. A
/// text without markers, and any text of a model without virtual tokens: as `encode`.
///
/// # Errors
/// Markers that are not those of one task, each once and in order; those of the tokenizer.
pub(crate) fn encode_marked(
    tokenizer: &Tokenizer,
    text: &str,
    adds: bool,
    markers: &[TaskMarkers],
) -> Result<Vec<u32>> {
    if markers.is_empty() || !has_marker(text) {
        return encode(tokenizer, text, adds);
    }
    let task = task_of(text, markers).map_err(anyhow::Error::msg)?;
    // a post-processor of an unknown form adds nothing
    let around = adds.then(|| tokenizer.around().ok()).flatten();
    let (before, after) = around.unwrap_or_default();
    let mut ids = ids_at_markers(tokenizer, text, before, task)?;
    ids.extend(after);
    Ok(ids)
}

/// Ids of a text whose markers are those of a task, with `before` in front of its first words: after the virtual tokens that begin it, as
/// those of a model without markers stand in front of everything.
///
/// # Errors
/// The tokenizer's.
pub(crate) fn ids_at_markers(
    tokenizer: &Tokenizer,
    text: &str,
    mut before: &[u32],
    task: &TaskMarkers,
) -> Result<Vec<u32>> {
    let all: Vec<u32> = virtual_tokens(task.end()).skip(task.first).collect();
    let mut ids = Vec::new();
    for part in at_markers(text) {
        match part {
            Marked::Text(text) => {
                ids.extend(std::mem::take(&mut before));
                ids.extend(encode(tokenizer, text, false)?);
            }
            Marked::Marker(Marker { number, .. }) => {
                let first: usize = task.counts.iter().take(number).sum();
                let count = task.counts.get(number).copied().unwrap_or(0);
                ids.extend(&all[first..first + count]);
            }
        }
    }
    ids.extend(before);
    Ok(ids)
}
