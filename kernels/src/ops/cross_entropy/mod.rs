//! Cross entropy over a shard of the vocabulary: loss = ln(sum_v e^(x_v - max)) + max - x_target.
//!
//! A shard's logits [n, rows] hold ids first .. first + rows; ids from `vocab` up are padding and count
//! as -inf. Ranks take the largest row_max, gather the slice sums of row_sums, and every rank adds the
//! slices in the same tree (`reduce::tree_sum_slices`), so the bits do not depend on the sharding.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Returns the largest logit of each row: [n]; -inf where the shard is all padding.
/// # Shapes
/// logits: [.., rows] with leading dims flattened to n.
/// # Errors
/// `Shape` or `DType` if logits is empty or not f32.
pub fn row_max(logits: &Tensor, first: usize, vocab: usize) -> Result<Tensor> {
    let (n, _) = logits.expect_rows("cross_entropy::row_max", "logits")?;
    let mut max = Tensor::empty(&[n], DType::F32, logits.device())?;
    dispatch!(logits.device(), row_max(&mut max, logits, first, vocab));
    Ok(max)
}

/// Returns the sums of e^(x - max) per slice of `slice` vocabulary rows, [slices, n], and the target's
/// logit, [n], 0.0 where the target is not in this shard.
/// # Shapes
/// logits: [.., rows], max: [n], targets: n u32; slice divides rows.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn row_sums(
    logits: &Tensor,
    max: &Tensor,
    targets: &Tensor,
    first: usize,
    vocab: usize,
    slice: usize,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "cross_entropy::row_sums";
    let (n, rows) = logits.expect_rows(OP, "logits")?;
    max.expect_f32(OP, "max", &[n])?;
    targets.expect_ids(OP, "targets", n)?;
    if slice == 0 || rows % slice != 0 {
        let wanted = format!("a divisor of the shard's {rows} rows");
        return Err(Error::Argument {
            op: OP,
            name: "slice",
            found: slice.to_string(),
            wanted,
        });
    }
    let mut sums = Tensor::empty(&[rows / slice, n], DType::F32, logits.device())?;
    let mut target = Tensor::empty(&[n], DType::F32, logits.device())?;
    let outs = (&mut sums, &mut target);
    dispatch!(
        logits.device(),
        row_sums(outs, logits, (max, targets), (first, vocab), slice)
    )?;
    Ok((sums, target))
}

/// Replaces logits by their gradients: (e^(x - max) / sum - [id is the target]) * weight; 0 for padding.
/// # Shapes
/// logits: [.., rows], max, sum, weights: [n], targets: n u32.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    logits: &mut Tensor,
    max: &Tensor,
    sum: &Tensor,
    targets: &Tensor,
    weights: &Tensor,
    first: usize,
    vocab: usize,
) -> Result<()> {
    const OP: &str = "cross_entropy::backward";
    let (n, _) = logits.expect_rows(OP, "logits")?;
    max.expect_f32(OP, "max", &[n])?;
    sum.expect_f32(OP, "sum", &[n])?;
    weights.expect_f32(OP, "weights", &[n])?;
    targets.expect_ids(OP, "targets", n)?;
    let device = logits.device().clone();
    dispatch!(
        device,
        backward(logits, (max, sum), (targets, weights), (first, vocab))
    );
    Ok(())
}
