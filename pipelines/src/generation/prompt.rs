//! Ids of prompts.

use anyhow::Result;
use index::tokenizer::{SpecialTokens, Tokenizer};

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
