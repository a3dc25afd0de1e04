//! `PREFIX.json`, the sidecar of a dataset: tokenizer, source documents and statistics, which Megatron's two files
//! lack.
//!
//! Readers other than Millrace ignore it; a dataset without one is a dataset of unknown origin.

use crate::dataset::atomic::write_atomically;
use crate::dataset::build::{BuildOptions, Built, GroupCounts};
use crate::dataset::idx_format::TokenType;
use crate::dataset::paths::with_suffix;
use crate::dataset::read::Dataset;
use crate::dataset::stats::Statistics;
use crate::error::{At, Error, Result};
use crate::tokenizer::{ENCODER, SpecialTokens, Tokenizer};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file's content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sidecar {
    /// Origin of the documents, as described by the caller.
    pub dataset: serde_json::Value,
    /// Tokenizer that made the ids.
    pub tokenizer: TokenizerNote,
    /// numpy's name of the token type.
    pub dtype: String,
    /// Documents, empty ones included.
    pub documents: u64,
    /// Documents without tokens.
    #[serde(default)]
    pub empty_documents: u64,
    /// Sequences.
    pub sequences: u64,
    /// Tokens.
    pub tokens: u64,
    /// Bytes of UTF-8 text.
    pub text_bytes: u64,
    /// Counts by source and language.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Lengths and vocabulary.
    #[serde(default)]
    pub statistics: Option<Statistics>,
}

/// The tokenizer of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerNote {
    /// `Tokenizer::identity`.
    pub xxh3: String,
    /// Ids are below this.
    pub vocab: usize,
    /// Program and Unicode version.
    pub encoder: String,
    /// Appended to documents, if it was.
    pub end_of_document: Option<u32>,
    /// Treatment of special tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub special_tokens: SpecialTokens,
}

fn is_default(special_tokens: &SpecialTokens) -> bool {
    *special_tokens == SpecialTokens::default()
}

/// Counts of a group by its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the input.
    pub source: String,
    /// Language code; empty if unknown.
    pub language: String,
    /// Counts.
    #[serde(flatten)]
    pub counts: GroupCounts,
}

impl Sidecar {
    /// Describes the result of a build.
    pub fn new(
        dataset: serde_json::Value,
        tokenizer: &Tokenizer,
        token_type: TokenType,
        options: &BuildOptions,
        built: &Built,
        groups: Vec<Group>,
        statistics: Statistics,
    ) -> Sidecar {
        let end = tokenizer.end_of_document().filter(|_| options.append_eod);
        Sidecar {
            dataset,
            tokenizer: TokenizerNote {
                xxh3: tokenizer.identity(),
                vocab: tokenizer.vocab(),
                encoder: ENCODER.into(),
                end_of_document: end,
                special_tokens: options.special_tokens,
            },
            dtype: token_type.name().into(),
            documents: built.written.documents,
            empty_documents: built.empty_documents,
            sequences: built.written.sequences,
            tokens: built.written.tokens,
            text_bytes: built.text_bytes,
            groups,
            statistics: Some(statistics),
        }
    }

    /// `PREFIX.json`.
    pub fn path(prefix: &Path) -> PathBuf {
        with_suffix(prefix, ".json")
    }

    /// Writes it beside the dataset.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&self, prefix: &Path) -> Result<()> {
        let path = Sidecar::path(prefix);
        let text = serde_json::to_string_pretty(self).map_err(|e| unreadable(&path, &e))?;
        write_atomically(&path, format!("{text}\n").as_bytes())
    }

    /// Reads it; `None` if there is none.
    ///
    /// # Errors
    /// `Io`; `Format` if it is there and not a sidecar.
    pub fn read(prefix: &Path) -> Result<Option<Sidecar>> {
        let path = Sidecar::path(prefix);
        let text = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.at(&path)?,
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|e| unreadable(&path, &e))
    }

    /// Refuses a dataset that is not the one described.
    ///
    /// # Errors
    /// `Mismatch` naming the field.
    pub fn check(&self, data: &Dataset) -> Result<()> {
        let counts = [
            ("documents", self.documents, data.documents()),
            ("sequences", self.sequences, data.sequences()),
            ("tokens", self.tokens, data.tokens()),
        ];
        for (field, found, wanted) in counts {
            if found != wanted {
                return Err(Error::Mismatch {
                    path: Sidecar::path(data.prefix()),
                    field,
                    found: found.to_string(),
                    wanted: format!("{wanted}, as the index has"),
                });
            }
        }
        Ok(())
    }

    /// Refuses a tokenizer that did not make the ids of the dataset at `prefix`.
    ///
    /// # Errors
    /// `Mismatch` naming the field.
    pub fn check_tokenizer(&self, prefix: &Path, vocab: usize, identity: &str) -> Result<()> {
        let wrong = |field, found: String, wanted: String| {
            Err(Error::Mismatch {
                path: Sidecar::path(prefix),
                field,
                found,
                wanted: format!("{wanted} of this job's tokenizer"),
            })
        };
        if self.tokenizer.vocab != vocab {
            let found = self.tokenizer.vocab.to_string();
            return wrong("tokenizer.vocab", found, vocab.to_string());
        }
        if self.tokenizer.xxh3 != identity {
            let found = self.tokenizer.xxh3.clone();
            return wrong("tokenizer.xxh3", found, identity.to_string());
        }
        Ok(())
    }
}

fn unreadable(path: &Path, e: &serde_json::Error) -> Error {
    Error::Format {
        path: path.to_path_buf(),
        offset: 0,
        field: "sidecar",
        found: e.to_string(),
        wanted: "the JSON object that a build writes".into(),
    }
}
