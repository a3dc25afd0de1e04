//! URL deduplication: one document per address is kept.
//!
//! Addresses are compared as parsed by the WHATWG's rules (host in lower case and ASCII, `.` and `..` resolved, the
//! scheme's own port left out), without `http://` or `https://`, `www.`, the fragment, and slashes at the end of
//! the path; with `sort_query` the query's parts in order. An unparsable address is compared as it is, without
//! white space at its ends. A document without an address is kept.

use serde::{Deserialize, Serialize};
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use crate::dedup::passes::kept::{Passes, fill};
use crate::dedup::priority::Priority;
use crate::dedup::signature::source;
use crate::error::Result;
use crate::text::narrow;

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
            let address = document.url.as_deref().filter(|u| !u.trim().is_empty())?;
            let key = xxh3_128(plain(address, config.sort_query).as_bytes());
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
    passes.remove_urls(removed)
}

/// The part of an address that is compared.
fn plain(address: &str, sort_query: bool) -> String {
    let address = address.trim();
    let Ok(mut url) = Url::parse(address) else {
        return address.to_string();
    };
    url.set_fragment(None);
    if sort_query && let Some(query) = url.query() {
        let mut parts: Vec<&str> = query.split('&').filter(|p| !p.is_empty()).collect();
        parts.sort_unstable();
        let sorted = parts.join("&");
        url.set_query(Some(&sorted).filter(|q| !q.is_empty()).map(String::as_str));
    }
    let whole = url.as_str();
    let Some(rest) = whole
        .strip_prefix("https://")
        .or_else(|| whole.strip_prefix("http://"))
    else {
        return whole.to_string();
    };
    let rest = rest.strip_prefix("www.").unwrap_or(rest);
    match rest.split_once('?') {
        Some((path, query)) if !query.is_empty() => {
            format!("{}?{query}", path.trim_end_matches('/'))
        }
        Some((path, _)) => path.trim_end_matches('/').to_string(),
        None => rest.trim_end_matches('/').to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_address_are_the_same_and_others_are_not() {
        let same = [
            "http://example.com/a",
            "https://www.example.com/a/",
            " HTTPS://Example.COM:443/a#part ",
            "http://example.com:80/b/../a?",
            "http://example.com/a/?#x",
        ];
        for address in same {
            assert_eq!(plain(address, false), "example.com/a", "{address}");
        }
        for other in [
            "http://example.com/A",
            "http://example.com:8080/a",
            "http://example.com/a?x",
            "http://m.example.com/a",
            "ftp://example.com/a",
            "example.com/a?",
        ] {
            assert_ne!(plain(other, false), "example.com/a", "{other}");
        }
        let (one, two) = ("http://e.org/?b=2&a=1&", "http://e.org?a=1&b=2");
        assert_ne!(plain(one, false), plain(two, false));
        assert_eq!(plain(one, true), plain(two, true));
        assert_eq!(plain("not an address", true), "not an address");
    }
}
