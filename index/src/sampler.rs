//! Which samples a step takes: Megatron's sequential sampler, positioned by one number.
//!
//! The state is `consumed_samples` alone, so a run resumes on any number of ranks at exactly the next sample. A global
//! batch is always the next `global_batch` samples. Which data-parallel rank takes which of them is the trainer's affair
//! (contiguous shares, where Megatron deals micro-batches round-robin); the set of samples of a step is Megatron's.

use std::ops::Range;

/// Iterator over global batches; the last incomplete one is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    total: u64,
    global_batch: u64,
    consumed: u64,
}

impl Sampler {
    /// A sampler over samples `0..total` that has given out `consumed`.
    ///
    /// # Panics
    /// If `global_batch` is 0: the job's checks refuse that.
    pub fn new(total: u64, global_batch: u64, consumed: u64) -> Sampler {
        assert!(global_batch > 0, "a global batch has at least one sample");
        Sampler {
            total,
            global_batch,
            consumed,
        }
    }

    /// Samples given out; store this to resume.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl Iterator for Sampler {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let end = self.consumed.checked_add(self.global_batch)?;
        (end <= self.total).then(|| std::mem::replace(&mut self.consumed, end)..end)
    }
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
}
