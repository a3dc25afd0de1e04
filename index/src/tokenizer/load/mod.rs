//! Tokenizer loading: detects the kind of a file and builds the tokenizer.
//!
//! By content, because names are unreliable: `{` opens a `tokenizer.json` (has `model`), Mistral's `tekken.json`
//! (has `config` and a list `vocab`), a packed tokenizer of ours, or GPT-2's `vocab.json` (with `merges.txt` beside
//! it); text whose first line is `BASE64 NUMBER` is tiktoken's; other text is BERT's `vocab.txt`, one token per
//! line; anything else must be a SentencePiece model. A folder is searched for the usual names in that order.
//! `null:VOCAB` or `null:VOCAB:END` is no file name but the null tokenizer.

mod base64;
mod byte_level;
mod library;
mod metaspace;
mod packed;
mod roles;
mod source;
mod tekken;
#[cfg(test)]
mod tests;
mod tiktoken;
mod wordpiece;

#[cfg(test)]
pub(super) use base64::decode as decode_base64;
pub(super) use byte_level::tokenizer_json;
pub(super) use metaspace::json as metaspace_json;
pub(super) use wordpiece::json as wordpiece_json;

use super::Tokenizer;
use super::engine::Engine;
use super::format::{Kind, LoadOptions};
use super::null::Null;
use super::sentencepiece::SentencePiece;
use super::special::Special;
use super::special_tokens::{Added, Around};
use super::vocabulary::Vocabulary;
use super::wrong::wrong;
use crate::error::{At, Result};
use source::{Parts, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Size limit of a tokenizer file: catches a corpus given by mistake.
const MOST_BYTES: u64 = 1 << 30;

impl Tokenizer {
    /// Loads a tokenizer of any kind, detected from the file's content by the rules at the head of this module.
    ///
    /// # Errors
    /// `Io`; `Tokenizer` with the place in the file, what was found and what was wanted.
    pub fn load(path: &Path) -> Result<Tokenizer> {
        Tokenizer::load_with(path, &LoadOptions::default())
    }

    /// Same as [`Tokenizer::load`], with options for facts that the files do not contain.
    ///
    /// # Errors
    /// `Io`; `Tokenizer`, also if the file is not of the requested kind.
    pub fn load_with(path: &Path, options: &LoadOptions) -> Result<Tokenizer> {
        if let Some(null) = Null::parse(path)? {
            return of_null(path, null, options);
        }
        let main = main_file(path, options.kind)?;
        let bytes = read(&main)?;
        // the null tokenizer's `json` is its name
        if let Some(null) = Null::parse(Path::new(
            String::from_utf8_lossy(&bytes[..bytes.len().min(32)]).trim_end(),
        ))? {
            return of_null(path, null, options);
        }
        let kind = match options.kind {
            Some(Kind::Null) => {
                let why = "found a file, wanted null:VOCAB for the null tokenizer";
                return Err(wrong(path, &why));
            }
            Some(kind) => kind,
            None => kind_of(&bytes),
        };
        if let (Kind::TokenizerJson, Some(packed)) = (kind, packed::unpack(&main, &bytes)?) {
            return assemble(path, packed);
        }
        let mut source = Source {
            kind,
            files: vec![bytes],
            options: LoadOptions {
                kind: Some(kind),
                ..options.clone()
            },
            roles: BTreeMap::new(),
        };
        let config = roles::read(&main)?;
        match kind {
            Kind::Gpt2 => source.files.push(read(&byte_level::merges_beside(&main)?)?),
            Kind::WordPiece => {
                let text = utf8(&main, &source.files[0])?;
                let said = options.lowercase.or(config.lowercase);
                source.options.lowercase =
                    Some(said.unwrap_or_else(|| !wordpiece::has_upper_case(text)));
            }
            Kind::Tiktoken => {
                let name = main.file_name().unwrap_or_default().to_string_lossy();
                let known = tiktoken::known_by_name(&name);
                let (split, special) = known.unzip();
                source.options.split = options.split.or(split);
                if options.special.is_empty() {
                    source.options.special = special.unwrap_or_default();
                }
            }
            _ => {}
        }
        source.roles = config.roles;
        assemble(path, source)
    }

    /// From the text that [`Tokenizer::json`] returned, or any `tokenizer.json`; `path` only names it in messages.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn from_json(path: &Path, json: String) -> Result<Tokenizer> {
        if let Some(null) = Null::parse(Path::new(json.trim_end()))? {
            return of_null(path, null, &LoadOptions::default());
        }
        let bytes = json.into_bytes();
        let source = match packed::unpack(path, &bytes)? {
            Some(packed) => packed,
            None => Source {
                kind: Kind::TokenizerJson,
                files: vec![bytes],
                options: LoadOptions::default(),
                roles: BTreeMap::new(),
            },
        };
        assemble(path, source)
    }

    /// The tokenizer as the `tokenizer.json` that Hugging Face's programs read, which has no roles of tokens; None where that
    /// format cannot express it.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn hugging_face_json(&self) -> Result<Option<String>> {
        let Some(source) = packed::unpack(&self.path, self.json.as_bytes())? else {
            return Ok(Some(self.json.clone()));
        };
        let file = source.files.into_iter().next();
        let is_theirs = source.kind == Kind::TokenizerJson;
        Ok(file
            .filter(|_| is_theirs)
            .and_then(|file| String::from_utf8(file).ok()))
    }

    /// From the contents of a `tokenizer.json`, with the roles of tokens of a `tokenizer_config.json`.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn from_json_with(
        path: &Path,
        json: String,
        config: &serde_json::Value,
    ) -> Result<Tokenizer> {
        let source = Source {
            kind: Kind::TokenizerJson,
            files: vec![json.into_bytes()],
            options: LoadOptions::default(),
            roles: roles::of(config).roles,
        };
        assemble(path, source)
    }
}

fn of_null(path: &Path, null: Null, options: &LoadOptions) -> Result<Tokenizer> {
    let null = match &options.eod {
        None => null,
        Some(token) => null.ending(null.id_of(token).ok_or_else(|| {
            let found = format!(
                "eod: found {token:?}, wanted a number below {}",
                null.vocab()
            );
            wrong(path, &found)
        })?),
    };
    Ok(Tokenizer {
        path: path.to_path_buf(),
        kind: Kind::Null,
        json: null.name(),
        vocabulary: Vocabulary::numbers(null.vocab() as usize),
        special: Special::default(),
        end_of_document: Some(null.end_of_document()),
        around: Ok(Around::default()),
        named: Vec::new(),
        engine: Engine::Null(null),
    })
}

fn assemble(path: &Path, source: Source) -> Result<Tokenizer> {
    let fail = |why: String| wrong(path, &why);
    let parts = match source.kind {
        Kind::TokenizerJson => library::parts(utf8(path, &source.files[0])?.to_string()),
        Kind::Gpt2 => byte_level::parts(&source.files),
        Kind::WordPiece => {
            let lowercase = source.options.lowercase.unwrap_or(false);
            wordpiece::parts(utf8(path, &source.files[0])?, lowercase)
        }
        Kind::SentencePiece => SentencePiece::parse(&source.files[0]).map(|model| Parts {
            entries: (model.pieces().map(str::to_string)).zip(0u32..).collect(),
            named: (model.controls().into_iter())
                .map(|(token, id)| (token, Added::named(id)))
                .collect(),
            engine: Engine::SentencePiece(Box::new(model)),
            json: None,
            around: Ok(Around::default()),
        }),
        Kind::Tiktoken => match source.options.split {
            Some(split) => {
                let text = utf8(path, &source.files[0])?;
                tiktoken::parts(text, split)
            }
            None => Err("split: found none, wanted gpt2, cl100k, o200k, llama3 or qwen (the file's name does not show it)".into()),
        },
        Kind::Tekken => tekken::parts(utf8(path, &source.files[0])?),
        Kind::Null => Err("found a file, wanted null:VOCAB for the null tokenizer".into()),
    };
    let Parts {
        engine,
        entries,
        json,
        around,
        mut named,
    } = parts.map_err(fail)?;
    let extra = source.options.special.iter().cloned();
    named.extend(extra.clone().map(|(token, id)| (token, Added::named(id))));
    let vocabulary = Vocabulary::new(entries.into_iter().chain(extra)).map_err(fail)?;
    let roles = roles::with_models(&engine, &source.roles);
    let special = Special::find(&vocabulary, &roles);
    let end_of_document = roles::end_of_document(&source, &vocabulary, &special, &roles);
    if let (Some(token), None) = (&source.options.eod, end_of_document) {
        return Err(fail(format!(
            "eod: found {token:?}, wanted a token of the vocabulary"
        )));
    }
    // Facts that a tokenizer.json cannot hold (another end of document, roles from another file) need our own
    // packed form.
    let none = BTreeMap::new();
    let plain = source.options.eod.is_none()
        && source.options.special.is_empty()
        && Special::find(&vocabulary, &none) == special
        && roles::by_name(&vocabulary) == end_of_document;
    let json = match json {
        Some(json) if plain => json,
        _ => packed::pack(&source),
    };
    Ok(Tokenizer {
        path: path.to_path_buf(),
        kind: source.kind,
        json,
        engine,
        vocabulary,
        special,
        end_of_document,
        around,
        named,
    })
}

/// The file to read for `path`, which may be a folder.
fn main_file(path: &Path, kind: Option<Kind>) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(path).at(path)? {
        names.push(entry.at(path)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let is_named = |name: &String, kind| match kind {
        Kind::TokenizerJson => name == "tokenizer.json",
        Kind::Tekken => name == "tekken.json",
        Kind::Gpt2 => name.ends_with("vocab.json"),
        Kind::WordPiece => name.ends_with("vocab.txt"),
        Kind::SentencePiece => name.ends_with(".model"),
        Kind::Tiktoken => name.ends_with(".tiktoken"),
        Kind::Null => false,
    };
    let order = [
        Kind::TokenizerJson,
        Kind::Tekken,
        Kind::Gpt2,
        Kind::SentencePiece,
        Kind::Tiktoken,
        Kind::WordPiece,
    ];
    let wanted = order.into_iter().filter(|k| kind.is_none_or(|w| w == *k));
    let found = wanted
        .filter_map(|k| names.iter().find(|n| is_named(n, k)))
        .next();
    match found {
        Some(name) => Ok(path.join(name)),
        None => Err(wrong(
            path,
            &"found a folder without tokenizer.json, tekken.json, vocab.json, *.model, *.tiktoken or vocab.txt, wanted one of them",
        )),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let len = std::fs::metadata(path).at(path)?.len();
    if len > MOST_BYTES {
        let why = format!("found {len} bytes, wanted a tokenizer of at most {MOST_BYTES}");
        return Err(wrong(path, &why));
    }
    std::fs::read(path).at(path)
}

fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes)
        .map_err(|e| wrong(path, &format!("byte {}: wanted UTF-8", e.valid_up_to())))
}

/// Kind of the file content `bytes`, by the rules above.
fn kind_of(bytes: &[u8]) -> Kind {
    let text = std::str::from_utf8(bytes).ok();
    let Some(text) = text.filter(|t| !t.contains(|c: char| c < '\t')) else {
        return Kind::SentencePiece;
    };
    if text.trim_start().starts_with('{') {
        // tokens may be called "model" or "version" as well, but only a vocabulary has numbers for all values
        let is_vocabulary = serde_json::from_str::<BTreeMap<String, u64>>(text).is_ok();
        return match is_vocabulary {
            true => Kind::Gpt2,
            false if tekken::is_tekken(text) => Kind::Tekken,
            false => Kind::TokenizerJson,
        };
    }
    let first = text.lines().next().unwrap_or_default();
    match first.split_once(' ') {
        Some((token, rank))
            if base64::decode(token).is_some() && rank.trim_end().parse::<u32>().is_ok() =>
        {
            Kind::Tiktoken
        }
        _ => Kind::WordPiece,
    }
}
