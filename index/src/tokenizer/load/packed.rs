//! Packed tokenizers: files and options in one JSON text, so that any tokenizer is one file with one identity.
//!
//! `{"millrace_tokenizer": 1, "options": LoadOptions, "roles": {ROLE: TOKEN}, "files": [BASE64, ...]}`; the main file
//! comes first. The options contain the kind and everything detected when the files were read.

use super::base64;
use super::source::Source;
use crate::error::Result;
use crate::tokenizer::format::{Kind, LoadOptions};
use crate::tokenizer::wrong::wrong;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The key that marks a packed tokenizer.
pub(super) const KEY: &str = "millrace_tokenizer";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Packed {
    millrace_tokenizer: u32,
    options: LoadOptions,
    roles: BTreeMap<String, String>,
    files: Vec<String>,
}

pub(super) fn pack(source: &Source) -> String {
    let packed = Packed {
        millrace_tokenizer: 1,
        options: LoadOptions {
            kind: Some(source.kind),
            ..source.options.clone()
        },
        roles: source.roles.clone(),
        files: source.files.iter().map(|f| base64::encode(f)).collect(),
    };
    // strings, numbers and maps of strings: nothing that JSON cannot hold
    serde_json::to_string(&packed).unwrap_or_default()
}

/// The source, or None if `bytes` are no packed tokenizer.
pub(super) fn unpack(path: &Path, bytes: &[u8]) -> Result<Option<Source>> {
    let head = &bytes[..bytes.len().min(64)];
    let marked = std::str::from_utf8(head)
        .unwrap_or_default()
        .trim_start()
        .strip_prefix('{')
        .is_some_and(|h| h.trim_start().starts_with(&format!("\"{KEY}\"")));
    if !marked {
        return Ok(None);
    }
    let fail = |why: String| wrong(path, &why);
    let packed: Packed = serde_json::from_slice(bytes).map_err(|e| fail(e.to_string()))?;
    if packed.millrace_tokenizer != 1 {
        let found = packed.millrace_tokenizer;
        return Err(fail(format!("{KEY}: found version {found}, wanted 1")));
    }
    let files: Option<Vec<Vec<u8>>> = packed.files.iter().map(|f| base64::decode(f)).collect();
    let (Some(files), Some(kind)) = (files, packed.options.kind) else {
        return Err(fail(format!(
            "{KEY}: files or options.kind: wanted base64 and a kind"
        )));
    };
    let wanted = if kind == Kind::Gpt2 { 2 } else { 1 };
    if files.len() != wanted {
        let found = files.len();
        return Err(fail(format!(
            "{KEY}: files: found {found}, wanted {wanted}"
        )));
    }
    Ok(Some(Source {
        kind,
        files,
        options: packed.options,
        roles: packed.roles,
    }))
}
