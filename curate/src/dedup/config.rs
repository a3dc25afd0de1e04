//! Settings of deduplication.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::minhash::MinhashConfig;
use super::passes::{BloomConfig, LinesConfig, SemanticConfig, SubstringConfig, UrlDedupConfig};
use crate::check::Problem;
use crate::text::languages::OF_DOCUMENT;

/// Deduplication.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DedupConfig {
    /// Exact duplicates of the cleaned text; absent: off.
    pub exact: Option<ExactConfig>,
    /// Near duplicates; absent: off.
    pub minhash: Option<MinhashConfig>,
    /// Documents with the same address, among those that are left; absent: off.
    pub url: Option<UrlDedupConfig>,
    /// Then documents whose embeddings nearly agree (SemDeDup); absent: off.
    pub semantic: Option<SemanticConfig>,
    /// Removes repeated lines or paragraphs from the remaining texts; absent: off.
    pub lines: Option<LinesConfig>,
    /// Then removes paragraphs and documents of repeated n-grams, by a Bloom filter; absent: off.
    pub bloom: Option<BloomConfig>,
    /// Then removes long repeated substrings; absent: off.
    pub substring: Option<SubstringConfig>,
    /// Document of a cluster to keep, among those of the best source.
    pub keep: KeepPolicy,
    /// Sources, best first, as `source` or `source/subset`: a document of an earlier one survives those of later ones and of
    /// all that are not named.
    pub priority: Vec<String>,
    /// Folder of indexes (`*.index`) of documents that earlier crawls kept: documents that match them are removed,
    /// without reading the earlier texts. The index of the kept documents is written to `keep/kept.index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<PathBuf>,
    /// Memory budget of the sort in MiB. Larger inputs are read once per part that fits; with `keep = "datatrove"`
    /// they are sorted in runs on disk.
    pub memory_mb: u64,
}

impl Default for DedupConfig {
    fn default() -> Self {
        DedupConfig {
            exact: None,
            minhash: None,
            url: None,
            semantic: None,
            lines: None,
            bloom: None,
            substring: None,
            keep: KeepPolicy::First,
            priority: Vec::new(),
            index: None,
            memory_mb: 512,
        }
    }
}

/// Exact deduplication by XXH3-128 of the text. Nothing to set yet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExactConfig {
    /// Texts are compared by their words in lower case, not by their bytes; a text without a word by its bytes.
    pub normalized: bool,
}

/// Document of a duplicate cluster to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepPolicy {
    /// The one with the smallest (shard, document).
    #[default]
    First,
    /// The one with the most characters; the first of these.
    Longest,
    /// The one with the highest `meta.quality`; one without comes last; the first of these.
    Quality,
    /// The root that datatrove's union by size ends with.
    Datatrove,
}

impl DedupConfig {
    /// The key whose value asks for the language of each document, which only a step `language` of the curation finds.
    pub fn language_key(&self) -> Option<&'static str> {
        let minhash = self.minhash.as_ref()?;
        (minhash.language == OF_DOCUMENT).then_some("minhash.language")
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if let Some(m) = &self.minhash {
            m.check(&mut |k, f, w| problem(&format!("minhash.{k}"), f, w));
            if self.keep == KeepPolicy::Datatrove && m.rows > 8 {
                let wanted = "at most 8 with keep = \"datatrove\"";
                problem("minhash.rows", m.rows.to_string(), wanted);
            }
        }
        self.check_keeper(problem);
        if let Some(semantic) = &self.semantic {
            semantic.check(&mut |k, f, w| problem(&format!("semantic.{k}"), f, w));
        }
        if let Some(lines) = &self.lines {
            lines.check(&mut |k, f, w| problem(&format!("lines.{k}"), f, w));
        }
        if let Some(bloom) = &self.bloom {
            bloom.check(&mut |k, f, w| problem(&format!("bloom.{k}"), f, w));
        }
        if let Some(substring) = &self.substring {
            substring.check(&mut |k, f, w| problem(&format!("substring.{k}"), f, w));
        }
        let documents = self.exact.is_some()
            || self.minhash.is_some()
            || self.url.is_some()
            || self.semantic.is_some();
        let texts = self.lines.is_some() || self.bloom.is_some() || self.substring.is_some();
        if !documents && !texts {
            problem(
                "exact",
                "none of exact, minhash, url, semantic, lines, bloom, substring".to_string(),
                "at least one of them",
            );
        }
        if self.memory_mb < 16 {
            problem("memory_mb", self.memory_mb.to_string(), "at least 16");
        }
    }

    /// Checks the settings that decide which document is kept: sources, verification, indexes.
    fn check_keeper(&self, problem: Problem<'_>) {
        for (i, name) in self.priority.iter().enumerate() {
            if name.is_empty() || self.priority[..i].contains(name) {
                let wanted = "every source once, as source or source/subset";
                problem(&format!("priority[{i}]"), format!("{name:?}"), wanted);
            }
        }
        let minhash = self.minhash.as_ref();
        if self.index.is_some() && minhash.is_none() && self.exact.is_none() {
            problem(
                "index",
                "neither exact nor minhash".to_string(),
                "one of them",
            );
        }
        if self.keep != KeepPolicy::Datatrove {
            return;
        }
        let other = "keep = \"first\", \"longest\" or \"quality\"";
        if let Some(m) = minhash.filter(|m| m.verify > 0.0) {
            let wanted = format!("0 with keep = \"datatrove\", or {other}");
            problem("minhash.verify", m.verify.to_string(), &wanted);
        }
        if !self.priority.is_empty() {
            problem("priority", format!("{:?}", self.priority), other);
        }
        if let Some(index) = &self.index {
            problem("index", format!("{index:?}"), other);
        }
    }
}
