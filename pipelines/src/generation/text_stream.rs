//! Text of tokens as they come. A token may be a part of a character, and a decoder may join tokens in its own way (white
//! space in front of a word, for example), so a token's text is the difference that it makes at the end of a short
//! window of tokens before it.

use anyhow::Result;
use index::tokenizer::Tokenizer;
use std::sync::Arc;

/// Tokens of the prompt that the first window begins with.
const PROMPT: usize = 6;

/// The text of a growing sequence of tokens.
pub(crate) struct TextStream {
    tokenizer: Arc<Tokenizer>,
    /// Whether special tokens have no text.
    skips_special: bool,
    /// Tokens of the window and those after it.
    ids: Vec<u32>,
    /// The window's text was given away before: `ids[..known]`.
    known: usize,
}

impl TextStream {
    /// After `prompt`, whose text is not repeated.
    pub(crate) fn new(
        tokenizer: &Arc<Tokenizer>,
        prompt: &[u32],
        skips_special: bool,
    ) -> TextStream {
        let ids = prompt[prompt.len().saturating_sub(PROMPT)..].to_vec();
        TextStream {
            tokenizer: Arc::clone(tokenizer),
            skips_special,
            known: ids.len(),
            ids,
        }
    }

    /// Adds a token; returns the text that is certain now. A character whose bytes are not all there waits.
    ///
    /// # Errors
    /// The tokenizer's.
    pub(crate) fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.unseen()?;
        if text.is_empty() || text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        self.ids.drain(..self.known);
        self.known = self.ids.len();
        Ok(text)
    }

    /// The text that waits, when no token follows.
    ///
    /// # Errors
    /// The tokenizer's.
    pub(crate) fn finish(&mut self) -> Result<String> {
        let text = self.unseen()?;
        self.known = self.ids.len();
        Ok(text)
    }

    /// Text that the tokens after the window add to it.
    fn unseen(&self) -> Result<String> {
        let known = text_of(&self.tokenizer, &self.ids[..self.known], self.skips_special)?;
        let all = text_of(&self.tokenizer, &self.ids, self.skips_special)?;
        // bytes that were no character in the window may be one now
        let same = known.bytes().zip(all.bytes()).take_while(|(a, b)| a == b);
        let mut at = same.count();
        while !all.is_char_boundary(at) {
            at -= 1;
        }
        Ok(all[at..].to_owned())
    }
}

/// Text of ids. Rows of the embedding beyond the tokenizer's ids have none.
///
/// # Errors
/// The tokenizer's.
pub(crate) fn text_of(tokenizer: &Tokenizer, ids: &[u32], skips_special: bool) -> Result<String> {
    let known = ids.iter().copied();
    let known: Vec<u32> = known
        .filter(|id| (*id as usize) < tokenizer.vocab())
        .collect();
    Ok(match skips_special {
        true => tokenizer.decode_text(&known)?,
        false => tokenizer.decode(&known)?,
    })
}
