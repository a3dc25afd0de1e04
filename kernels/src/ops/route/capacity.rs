//! Expert capacity: an expert takes a limited number of choices, the rest are dropped. Choices are counted over all
//! tokens of the group that shares the limit, in (sequence, position) order: the drops must not depend on which
//! rank holds which tokens.

/// The choices that a full expert drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Those of the last tokens.
    ByPosition,
    /// Those with the smallest weights; of equal ones the later.
    ByWeight,
}

/// Returns ceil(tokens * k / experts * factor), at least 1 and at most `usize::MAX`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a factor that is too large saturates: nothing is dropped"
)]
pub fn capacity(tokens: usize, k: usize, experts: usize, factor: f64) -> usize {
    let even = (tokens as f64 * k as f64) / experts.max(1) as f64;
    ((even * factor).ceil() as usize).max(1)
}
