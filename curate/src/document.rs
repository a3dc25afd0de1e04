//! A clean document.
//!
//! `clean/NNNNN.jsonl.zst` (or `.jsonl.gz`) holds one object per line: `id`, `text`, `url`, `source`,
//! `subset`, `language`, `meta`; absent fields are left out. `clean/NNNNN.parquet` has the same as
//! columns, `meta` as JSON text in `metadata`.

use serde::{Deserialize, Serialize};

/// One document that passed the filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanDocument {
    /// `source/shard file/record number`, or the record's own id.
    pub id: String,
    /// The text.
    pub text: String,
    /// Source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `Input::source`.
    pub source: String,
    /// `meta.pile_set_name` of Pile documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// Language code; empty if no language step ran.
    pub language: String,
    /// Crawl date; the page's own metadata (see `PageMeta`); `is_cut` if it was not read completely; metadata of
    /// the record. A number that JSON does not have (`NaN`, infinities, which Python writes) is an object of one
    /// field: its name is U+FDD0, its value the number as it was written. In files it is written bare.
    #[serde(skip_serializing_if = "Option::is_none", alias = "metadata")]
    pub meta: Option<serde_json::Value>,
}

impl CleanDocument {
    /// All but id and text.
    pub(crate) fn fields(&self) -> CleanDocument {
        CleanDocument {
            id: String::new(),
            text: String::new(),
            url: self.url.clone(),
            source: self.source.clone(),
            subset: self.subset.clone(),
            language: self.language.clone(),
            meta: self.meta.clone(),
        }
    }
}
