//! The removed documents of a corpus, and the numbers of those that stay.

use xxhash_rust::xxh3::xxh3_64;

use super::search::Found;
use crate::text::narrow;

/// The removed documents of all shards.
#[derive(Clone, Debug, Default)]
pub struct Removals {
    /// By shard, in order.
    pub(super) documents: Vec<Vec<u32>>,
    /// Hashes of their ids, sorted.
    ids: Vec<u64>,
}

impl Removals {
    /// From the searched shards, the first one first.
    pub fn of(found: &[Found]) -> Removals {
        let documents = found.iter().map(|shard| {
            let numbers = shard.removed.iter().map(|one| one.document);
            numbers.collect()
        });
        let mut ids: Vec<u64> = found
            .iter()
            .flat_map(|shard| shard.removed.iter().map(|one| one.id_hash))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Removals {
            documents: documents.collect(),
            ids,
        }
    }

    /// Number of documents.
    pub fn len(&self) -> u64 {
        self.documents.iter().map(|d| d.len() as u64).sum()
    }

    /// Whether nothing is removed.
    pub fn is_empty(&self) -> bool {
        self.documents.iter().all(Vec::is_empty)
    }

    /// Whether something of the shard is removed.
    pub fn touches(&self, shard: usize) -> bool {
        self.documents.get(shard).is_some_and(|d| !d.is_empty())
    }

    pub(super) fn has(&self, shard: u32, document: u32) -> bool {
        let of = self.documents.get(shard as usize);
        of.is_some_and(|of| of.binary_search(&document).is_ok())
    }

    pub(super) fn has_id(&self, id: &str) -> bool {
        self.ids.binary_search(&xxh3_64(id.as_bytes())).is_ok()
    }

    /// The number of a document after the removal; None if it is removed.
    pub(super) fn renumbered(&self, shard: u32, document: u32) -> Option<u32> {
        let Some(of) = self.documents.get(shard as usize) else {
            return Some(document);
        };
        match of.binary_search(&document) {
            Ok(_) => None,
            Err(before) => Some(document - narrow(before)),
        }
    }
}
