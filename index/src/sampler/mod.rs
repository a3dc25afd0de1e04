//! Samplers: the samples of each training step, positioned by one number.
//!
//! The state is `consumed_samples` alone, so a run resumes on any number of ranks at exactly the next sample. A
//! global batch is always the next positions of the order; its size may follow a schedule (`schedule.rs`). The
//! samples at those positions are in sequence (Megatron's `single`) or reshuffled every epoch (`cyclic.rs`).
//! [`share`] gives a data-parallel rank's part of a batch in Megatron: micro-batches dealt round-robin. Our trainer
//! takes contiguous shares instead; the set of samples of a step is the same. Source: Megatron-LM
//! `megatron/training/datasets/data_samplers.py` (facts).

mod cyclic;
mod prefetch;
mod schedule;

pub use cyclic::{Cyclic, randperm};
pub use prefetch::{Prefetch, prefetch};
pub use schedule::BatchSizes;

use std::ops::Range;

/// Iterator over global batches as ranges of places; the last incomplete one is dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    total: u64,
    sizes: BatchSizes,
    consumed: u64,
}

impl Sampler {
    /// A sampler over positions `0..total` that has consumed the first `consumed`.
    ///
    /// # Panics
    /// If `global_batch` is 0: the job's checks refuse that.
    pub fn new(total: u64, global_batch: u64, consumed: u64) -> Sampler {
        assert!(global_batch > 0, "a global batch has at least one sample");
        Sampler::with_sizes(total, BatchSizes::Constant(global_batch), consumed)
    }

    /// The same with batches that grow.
    pub fn with_sizes(total: u64, sizes: BatchSizes, consumed: u64) -> Sampler {
        Sampler {
            total,
            sizes,
            consumed,
        }
    }

    /// Samples consumed; store this to resume.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl Iterator for Sampler {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let size = self.sizes.at(self.consumed);
        let end = self.consumed.checked_add(size)?;
        (end <= self.total).then(|| std::mem::replace(&mut self.consumed, end)..end)
    }
}

/// The micro-batches of a global batch that data-parallel `rank` of `ranks` takes in Megatron, as ranges of
/// positions. As in Megatron, a remainder that does not fill a micro-batch on every rank is dropped.
pub fn share(
    batch: Range<u64>,
    micro_batch: u64,
    ranks: u64,
    rank: u64,
) -> impl Iterator<Item = Range<u64>> {
    let all = micro_batch * ranks;
    let rounds = (batch.end - batch.start).checked_div(all).unwrap_or(0);
    (0..rounds).map(move |i| {
        let from = batch.start + i * all + rank * micro_batch;
        from..from + micro_batch
    })
}

/// Samples of `rank` of `ranks` in a full validation pass, one at a time: every sample exactly once, however few
/// there are. Megatron's `--full-validation`.
pub fn full_validation(total: u64, ranks: u64, rank: u64) -> impl Iterator<Item = u64> {
    let step = usize::try_from(ranks.max(1)).unwrap_or(usize::MAX);
    (rank..total).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resuming_at_any_batch_continues_as_if_never_stopped() {
        let whole: Vec<_> = Sampler::new(103, 8, 0).collect();
        assert_eq!(whole.len(), 12);
        for stop in 0..=12 {
            let mut first = Sampler::new(103, 8, 0);
            let mut got: Vec<_> = first.by_ref().take(stop).collect();
            got.extend(Sampler::new(103, 8, first.consumed()));
            assert_eq!(got, whole, "stopped after {stop}");
        }
    }

    #[test]
    fn shares_of_all_ranks_are_the_batch_and_no_micro_batch_depends_on_the_start() {
        for (micro, ranks) in [(1u64, 1u64), (2, 3), (4, 2)] {
            let mut seen: Vec<u64> = Vec::new();
            for rank in 0..ranks {
                for m in share(24..48, micro, ranks, rank) {
                    assert_eq!(m.end - m.start, micro);
                    assert_eq!(((m.start - 24) / micro) % ranks, rank, "dealt round-robin");
                    seen.extend(m);
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (24..48).collect::<Vec<_>>());
        }
        let all: Vec<u64> = (0..4).flat_map(|r| full_validation(6, 4, r)).collect();
        assert_eq!(all, [0, 4, 1, 5, 2, 3]);
    }
}
