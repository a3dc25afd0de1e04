//! Roles of tokens (bos, eos, ...): from Hugging Face's `tokenizer_config.json` beside the file, the SentencePiece
//! model itself, or known names.

use super::source::Source;
use crate::error::{At, Result};
use crate::tokenizer::engine::Engine;
use crate::tokenizer::format::Kind;
use crate::tokenizer::special::Special;
use crate::tokenizer::vocabulary::Vocabulary;
use crate::tokenizer::wrong::wrong;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Names that end a document, tried in this order. GPT-2 / NeoX, LLaMA 3, LLaMA / T5, BERT, others.
const END_OF_DOCUMENT: [&str; 7] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "[SEP]",
    "<eos>",
    "<eod>",
    "<EOD>",
];

/// Contents of a configuration beside a tokenizer.
#[derive(Debug, Default)]
pub(super) struct Config {
    pub(super) roles: BTreeMap<String, String>,
    pub(super) lowercase: Option<bool>,
}

/// Reads `tokenizer_config.json` beside `file`; empty if there is none.
pub(super) fn read(file: &Path) -> Result<Config> {
    let path = file.with_file_name("tokenizer_config.json");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(e) => return Err(e).at(&path),
    };
    let value: Value = serde_json::from_str(&text).map_err(|e| wrong(&path, &e))?;
    Ok(of(&value))
}

/// Those that a `tokenizer_config.json` has.
pub(super) fn of(value: &Value) -> Config {
    let mut config = Config {
        lowercase: value["do_lower_case"].as_bool(),
        ..Config::default()
    };
    for role in ["bos", "eos", "pad", "unk", "cls", "sep", "mask"] {
        let said = &value[format!("{role}_token")];
        // a token alone, or an object that says how it matches text
        if let Some(token) = said.as_str().or_else(|| said["content"].as_str()) {
            config.roles.insert(role.into(), token.into());
        }
    }
    config
}

/// `said`, completed from the SentencePiece model where `said` has no value.
pub(super) fn with_models(
    engine: &Engine,
    said: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut roles = said.clone();
    if let Engine::SentencePiece(model) = engine {
        for (role, piece) in ["bos", "eos", "pad"].into_iter().zip(model.roles()) {
            if model.control(piece).is_some() {
                roles.entry(role.into()).or_insert_with(|| piece.into());
            }
        }
        let unknown = || model.unknown().into();
        roles.entry("unk".into()).or_insert_with(unknown);
    }
    roles
}

/// Megatron's rule for the kind; see the table of the tokenizer module.
pub(super) fn end_of_document(
    source: &Source,
    vocabulary: &Vocabulary,
    special: &Special,
    roles: &BTreeMap<String, String>,
) -> Option<u32> {
    if let Some(token) = &source.options.eod {
        return vocabulary.id_of(token);
    }
    let said = |role: &str| roles.get(role).and_then(|t| vocabulary.id_of(t));
    match source.kind {
        Kind::WordPiece => special.sep.or_else(|| by_name(vocabulary)),
        _ => said("eos")
            .or_else(|| said("sep"))
            .or_else(|| by_name(vocabulary)),
    }
}

/// The first known name that the vocabulary has.
pub(super) fn by_name(vocabulary: &Vocabulary) -> Option<u32> {
    END_OF_DOCUMENT.iter().find_map(|t| vocabulary.id_of(t))
}
