//! What a tokenizer is made of: its files, and the parts that come of them.

use crate::tokenizer::engine::Engine;
use crate::tokenizer::format::{Kind, LoadOptions};
use crate::tokenizer::special_tokens::{Added, Around};
use std::collections::BTreeMap;

/// Everything that makes a tokenizer: what is packed, and what its identity covers.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) kind: Kind,
    /// Main file first.
    pub(super) files: Vec<Vec<u8>>,
    pub(super) options: LoadOptions,
    /// Role (bos, eos, ...) to token, as a configuration beside the file says.
    pub(super) roles: BTreeMap<String, String>,
}

/// An engine with its vocabulary, before special tokens are added.
pub(super) struct Parts {
    pub(super) engine: Engine,
    pub(super) entries: Vec<(String, u32)>,
    /// The whole as a `tokenizer.json`, if it can be written as one.
    pub(super) json: Option<String>,
    /// What its post-processor adds.
    pub(super) around: Result<Around, String>,
    /// Its special tokens.
    pub(super) named: Vec<(String, Added)>,
}
