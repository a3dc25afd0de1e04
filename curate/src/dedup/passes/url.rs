//! URL deduplication: one document per address is kept.
//!
//! Addresses are compared as `text/address.rs` says; with `sort_query` the query's parts are put in order. A document
//! without an address is kept.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::dedup::passes::kept::{Passes, Removal, fill};
use crate::dedup::priority::Priority;
use crate::dedup::signature::source;
use crate::error::Result;
use crate::text::{address, narrow};

/// Document of an address to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UrlKeep {
    /// The one with the smallest (shard, document).
    #[default]
    First,
    /// The one with the most bytes of text, of several the first.
    Longest,
}

/// Deduplication by address.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct UrlDedupConfig {
    /// Document of an address to keep.
    pub keep: UrlKeep,
    /// The order of the query's parts does not matter.
    pub sort_query: bool,
}

/// Hash of the address, place of the source, rank, shard, document.
const RECORD: usize = 32;

/// Documents of the sources that `priority` names first stay before others; among those of one, as `config` says.
pub(super) fn run(
    config: &UrlDedupConfig,
    priority: &Priority,
    passes: &mut Passes<'_>,
) -> Result<()> {
    let mut sorter = passes.sorter::<RECORD>("url", 2);
    passes.each(
        |document| {
            let url = document.url.as_deref().filter(|u| !u.trim().is_empty())?;
            let key = xxh3_128(address::compared(url, config.sort_query).as_bytes());
            let rank = match config.keep {
                UrlKeep::First => 0,
                UrlKeep::Longest => u32::MAX - narrow(document.text.len()),
            };
            let source = source(&document.source, document.subset.as_deref());
            Some((key, [priority.place(source), rank]))
        },
        |place, made: Option<(u128, [u32; 2])>| {
            let Some((key, [first, rank])) = made else {
                return Ok(());
            };
            let mut record = [0; RECORD];
            record[..16].copy_from_slice(&key.to_be_bytes());
            fill(&mut record, 16, &[first, rank, place.shard, place.document]);
            sorter.push(record)
        },
    )?;
    let mut removed = passes.sorter::<16>("url-removed", 2);
    let mut first: Option<[u8; RECORD]> = None;
    sorter.drain(&mut |record: &[u8; RECORD]| {
        match &first {
            Some(stays) if stays[..16] == record[..16] => {
                let mut pair = [0; 16];
                pair[..8].copy_from_slice(&record[24..]);
                pair[8..].copy_from_slice(&stays[24..]);
                removed.push(pair)?;
            }
            _ => first = Some(*record),
        }
        Ok(())
    })?;
    passes.remove(removed, Removal::Url)
}
