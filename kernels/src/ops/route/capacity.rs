//! Expert capacity: an expert takes a limited number of choices, the rest are dropped. Choices are counted over all
//! tokens of the group that shares the limit, in (sequence, position) order: the drops must not depend on which
//! rank holds which tokens.

use crate::ops::permute::DROPPED;
use crate::{Error, Result, Tensor};

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

/// Marks the choices over `capacity` of each expert as dropped and returns how many; on the host, for any device.
/// # Shapes
/// experts: `[n, k]` u32, weights: `[n, k]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn drop_over(
    experts: &mut Tensor,
    weights: &Tensor,
    capacity: usize,
    policy: Drop,
) -> Result<usize> {
    const OP: &str = "route::drop_over";
    experts.expect_ids(OP, "experts", experts.elements())?;
    weights.expect_f32(OP, "weights", experts.dims())?;
    let weights: Vec<f32> = weights.download()?;
    if let Some(i) = weights.iter().position(|w| w.is_nan()) {
        return Err(Error::Argument {
            op: OP,
            name: "weights",
            found: format!("NaN at choice {i}"),
            wanted: "numbers".to_owned(),
        });
    }
    let mut ids: Vec<u32> = experts.download()?;
    let mut choices: Vec<usize> = (0..ids.len()).filter(|i| ids[*i] != DROPPED).collect();
    // Stable, so that equal weights stay in token order.
    choices.sort_by(|&a, &b| {
        let by_weight = match policy {
            Drop::ByPosition => std::cmp::Ordering::Equal,
            Drop::ByWeight => weights[b].total_cmp(&weights[a]),
        };
        ids[a].cmp(&ids[b]).then(by_weight)
    });
    let mut over: Vec<usize> = Vec::new();
    for group in choices.chunk_by(|a, b| ids[*a] == ids[*b]) {
        over.extend(group.iter().skip(capacity));
    }
    for i in &over {
        ids[*i] = DROPPED;
    }
    experts.upload(&ids)?;
    Ok(over.len())
}
