//! Bounds of an engine.

use crate::error::{Error, Result};
use crate::infer::engine::blocks::BLOCK;

/// Bounds of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that run at once; others wait.
    pub max_sequences: usize,
    /// Tokens of a batch.
    pub max_batch_tokens: usize,
    /// Tokens whose keys and values the cache holds, rounded up to blocks of 16; 0: as many as 1 GiB of each rank holds, but no more
    /// than `max_sequences` of full length, and at least one of full length if 8 GiB hold it.
    pub cache_tokens: usize,
    /// Guesses per token: of a draft model if there is one, else tokens that followed the same last tokens earlier in
    /// the text (prompt lookup); 0: none.
    pub draft_tokens: usize,
    /// Adapters in memory at once, those included that are unloaded and finish their requests.
    pub max_adapters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_sequences: 64,
            max_batch_tokens: 512,
            cache_tokens: 0,
            draft_tokens: 0,
            max_adapters: 16,
        }
    }
}

impl Limits {
    /// # Errors
    /// A bound of 0.
    pub(super) fn check(&self) -> Result<()> {
        for (what, found) in [
            ("max_sequences", self.max_sequences),
            ("max_batch_tokens", self.max_batch_tokens),
        ] {
            if found == 0 {
                let (found, wanted) = (found.to_string(), "at least 1".into());
                return Err(Error::Request {
                    what,
                    found,
                    wanted,
                });
            }
        }
        Ok(())
    }

    /// Blocks of the cache. `token`: bytes of a token's keys and values in all layers, on one rank.
    pub(super) fn blocks(&self, length: usize, token: usize) -> usize {
        const BYTES: usize = 1 << 30;
        if self.cache_tokens > 0 {
            return self.cache_tokens.div_ceil(BLOCK);
        }
        let held_by = |bytes: usize| bytes / (token * BLOCK).max(1);
        let whole = length.div_ceil(BLOCK);
        let most = whole.saturating_mul(self.max_sequences);
        let least = whole.min(held_by(8 * BYTES)).max(1);
        held_by(BYTES).min(most).max(least)
    }
}
