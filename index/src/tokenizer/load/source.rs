//! Sources of a tokenizer: its files, and the parts built from them.

use crate::tokenizer::engine::Engine;
use crate::tokenizer::format::{Kind, LoadOptions};
use crate::tokenizer::special_tokens::{Added, Around};
use std::collections::BTreeMap;

/// Everything that determines a tokenizer: the contents of its packed form and identity.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) kind: Kind,
    /// Main file first.
    pub(super) files: Vec<Vec<u8>>,
    pub(super) options: LoadOptions,
    /// Role (bos, eos, ...) to token, from a configuration beside the file.
    pub(super) roles: BTreeMap<String, String>,
}

/// An engine with its vocabulary, before special tokens are added.
pub(super) struct Parts {
    pub(super) engine: Engine,
    pub(super) entries: Vec<(String, u32)>,
    /// The equivalent `tokenizer.json`, if there is one.
    pub(super) json: Option<String>,
    /// Tokens that its post-processor adds around a text.
    pub(super) around: Result<Around, String>,
    /// Its special tokens.
    pub(super) named: Vec<(String, Added)>,
}
