//! FineWeb-2's rehydration: cluster sizes of kept documents, and how often FineWeb-2 would repeat them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::corpus::KeepList;
use crate::error::Result;
use crate::write::shard_file;

/// (Least cluster size, number of repetitions).
pub const REHYDRATION: [(u64, u64); 6] = [(1, 1), (2, 2), (3, 3), (5, 5), (100, 8), (1000, 1)];

/// Kept documents with a cluster size of `from` or more (below the next row's).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehydrated {
    /// Minimum size of the cluster.
    pub from: u64,
    /// Repetitions of each.
    pub times: u64,
    /// Kept documents.
    pub documents: u64,
}

/// The table, still empty.
pub(crate) fn rehydration() -> Vec<Rehydrated> {
    let rows = REHYDRATION.into_iter();
    rows.map(|(from, times)| Rehydrated {
        from,
        times,
        documents: 0,
    })
    .collect()
}

/// Adds a shard's kept documents.
pub(crate) fn rehydrate(table: &mut [Rehydrated], list: &KeepList) {
    for document in 0..list.len() {
        let size = list.cluster_size(document);
        if let Some(row) = table.iter_mut().rev().find(|row| row.from <= size) {
            row.documents += 1;
        }
    }
}

/// The table of the keep lists as they are now.
pub(super) fn rehydration_of(out: &Path, shards: usize) -> Result<Vec<Rehydrated>> {
    let mut table = rehydration();
    for shard in 0..shards {
        let list = KeepList::read(&out.join(shard_file("keep", shard, "keep")))?;
        rehydrate(&mut table, &list);
    }
    Ok(table)
}
