//! Memory of the sample order, beside that of the model: its arrays grow with the number of samples requested, so
//! their size is predicted before they are built.

use crate::machine::{grouped, memory_bytes};
use anyhow::{Result, bail};
use index::blend::{BlendRequest, IndexBytes};

/// Smaller arrays are not reported.
const WORTH_A_LINE: u64 = 64 << 20;
/// Bytes per masked sample: its row of three numbers, its dataset and its number there.
const MASKED_BYTES: u64 = 12 + 10;

/// Prints the memory of the sample order, and refuses more than the machine has. The same with a cache: cached
/// arrays are read into memory.
pub(super) fn check(request: &BlendRequest) -> Result<()> {
    let parts = index::blend::index_bytes(request)?;
    let sum = |of: fn(&IndexBytes) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let kinds = format!(
        "documents {}, samples {}, blend {}",
        megabytes(sum(|part| part.documents)),
        megabytes(sum(|part| part.samples)),
        megabytes(sum(|part| part.order))
    );
    let total = sum(IndexBytes::total);
    report(total, &kinds, memory_limit())
}

/// Like `check`, for masked samples; `samples` per part.
pub(super) fn check_masked(samples: &[u64; 3]) -> Result<()> {
    let count = samples.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let total = count.saturating_mul(MASKED_BYTES);
    let kinds = format!("{MASKED_BYTES} bytes per sample");
    report(total, &kinds, memory_limit())
}

/// Logs or refuses `total` bytes against `limit` bytes.
fn report(total: u64, kinds: &str, limit: u64) -> Result<()> {
    if total > limit {
        bail!(
            "the order of the samples takes {} ({kinds}): found more than the {} of memory here, want fewer train.steps or a smaller train.global_batch",
            megabytes(total),
            megabytes(limit)
        );
    }
    if total >= WORTH_A_LINE {
        info!(
            "blend: the order of the samples takes {} ({kinds})",
            megabytes(total)
        );
    }
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", grouped(bytes / 1_000_000))
}

/// Memory of the machine, or the limit of this process's control group (cgroup); no limit where neither is known.
fn memory_limit() -> u64 {
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    let group = group.trim().parse().unwrap_or(u64::MAX);
    match memory_bytes() {
        0 => group,
        machine => group.min(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let order = |limit| report(17_000_000_000, "blend 8,000 MB", limit);
        assert!(order(17_000_000_000).is_ok());
        let refused = order(16_000_000_000).unwrap_err().to_string();
        assert!(
            refused.contains("takes 17,000 MB (blend 8,000 MB): found more than the 16,000 MB"),
            "{refused}"
        );
        assert!(check_masked(&[u64::MAX, 1, 0]).is_err());
    }
}
