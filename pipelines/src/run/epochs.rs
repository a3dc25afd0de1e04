//! The order of training on a set that is read epoch after epoch: epoch e is torch's randperm seeded with the job's seed + e, as
//! torch's DistributedSampler on one rank, without what does not fill a batch.

use index::sampler::randperm;
use std::sync::{Arc, Mutex, PoisonError};

/// Entries of a set in the order of training.
pub(super) struct Epochs {
    seed: u64,
    /// Entries of an epoch: whole batches.
    entries: u64,
    /// Permutation of the epoch requested last.
    latest: Mutex<Option<(u64, Arc<Vec<u32>>)>>,
}

impl Epochs {
    /// `entries`: those of an epoch, whole batches.
    pub(super) fn of(seed: u64, entries: u64) -> Epochs {
        Epochs {
            seed,
            entries,
            latest: Mutex::new(None),
        }
    }

    /// Number of the entry at a place, counted over all epochs. `all`: entries of the set.
    pub(super) fn at(&self, place: u64, all: usize) -> usize {
        let (epoch, place) = (place / self.entries, place % self.entries);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match &*latest {
            Some((of, order)) if *of == epoch => Arc::clone(order),
            _ => {
                let all = u32::try_from(all).unwrap_or(u32::MAX);
                let order = Arc::new(randperm(all, self.seed + epoch));
                *latest = Some((epoch, Arc::clone(&order)));
                order
            }
        };
        drop(latest);
        order[usize::try_from(place).unwrap_or(usize::MAX)] as usize
    }
}
