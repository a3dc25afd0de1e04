//! The text of ids and of single tokens.

use super::error::ApiError;
use crate::generation::text_of;
use index::tokenizer::Tokenizer;
use std::sync::{Arc, OnceLock};

/// Texts of single tokens as they are inside a text, each decoded once. A decoder may treat the first token of a text in its
/// own way (SentencePiece drops its blank), so a token is decoded behind another.
pub(super) struct TokenTexts {
    tokenizer: Arc<Tokenizer>,
    /// The token in front, and its text.
    front: Option<(u32, String)>,
    texts: Vec<OnceLock<Box<str>>>,
}

impl TokenTexts {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>) -> TokenTexts {
        let front = tokenizer
            .encode("a")
            .ok()
            .and_then(|ids| ids.last().copied());
        let front = front.and_then(|id| Some((id, text_of(tokenizer, &[id], false).ok()?)));
        TokenTexts {
            tokenizer: Arc::clone(tokenizer),
            front,
            texts: std::iter::repeat_with(OnceLock::new)
                .take(tokenizer.vocab())
                .collect(),
        }
    }

    /// A token's text; a part of a character is U+FFFD, an unknown id is empty.
    pub(super) fn text(&self, id: u32) -> &str {
        match self.texts.get(id as usize) {
            Some(text) => text.get_or_init(|| self.decode(id).into()),
            None => "",
        }
    }

    fn decode(&self, id: u32) -> String {
        let decoded = |ids: &[u32]| text_of(&self.tokenizer, ids, false).unwrap_or_default();
        let behind = self.front.as_ref().and_then(|(front, text)| {
            let both = decoded(&[*front, id]);
            both.strip_prefix(text.as_str()).map(str::to_owned)
        });
        behind.unwrap_or_else(|| decoded(&[id]))
    }
}

/// The text of ids.
///
/// # Errors
/// 500 with the tokenizer's reason.
pub(super) fn decode(
    tokenizer: &Tokenizer,
    ids: &[u32],
    skips_special: bool,
) -> Result<String, ApiError> {
    text_of(tokenizer, ids, skips_special).map_err(|e| internal(&e))
}

/// 500 for what a request cannot help.
pub(super) fn internal(e: &anyhow::Error) -> ApiError {
    ApiError::new(
        axum::http::StatusCode::INTERNAL_SERVER_ERROR,
        crate::log::message(e),
    )
}
