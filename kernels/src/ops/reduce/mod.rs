//! Sums in fixed trees: column sums over rows, merges, slices of a vocabulary, squares.
//!
//! The tree is the binary counter of `matmul`: leaves of `leaf` rows, each a chain of additions from
//! 0.0 in ascending rows; equal aligned power-of-two blocks merge, the rest from the right.

mod cpu;

use crate::{Result, Tensor};

pub(crate) use cpu::{COLUMNS, LeafSums, leaf_rows, settle};

/// Computes out[c] = sum over rows of x[r, c], or adds it to out (one rounding). `leaf` is in rows;
/// 0 or anything from n up is one leaf.
/// # Shapes
/// x: [.., d] with leading dims flattened to n, out: [d].
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn sum_rows(out: &mut Tensor, x: &Tensor, leaf: usize, accumulate: bool) -> Result<()> {
    let (_, d) = x.expect_rows("reduce::sum_rows", "x")?;
    out.expect_f32("reduce::sum_rows", "out", &[d])?;
    dispatch!(x.device(), sum_rows(out, x, leaf, accumulate));
    Ok(())
}

/// Adds b to a: one merge of the tree, elementwise.
/// # Errors
/// `Shape` or `DType` if they differ.
pub fn tree_add_into(a: &mut Tensor, b: &Tensor) -> Result<()> {
    super::add::add_into(a, b)
}

/// Returns the tree sum over the first dim: out[i] = tree over s of sums[s, i].
/// # Shapes
/// sums: [slices, n] -> [n].
/// # Errors
/// `DType` or `Shape` if sums is empty; `Memory` if the result does not fit.
pub fn tree_sum_slices(sums: &Tensor) -> Result<Tensor> {
    let (_, n) = sums.expect_rows("reduce::tree_sum_slices", "sums")?;
    let mut out = Tensor::empty(&[n], crate::DType::F32, sums.device())?;
    // A leaf of one row is 0.0 + x, so a -0.0 slice counts as 0.0 wherever it is held.
    dispatch!(sums.device(), sum_rows(&mut out, sums, 1, false));
    Ok(out)
}

/// Returns the sum of squares in f64: blocks of 4096 elements, 16 lane sums per block and a fixed tree
/// over lanes, blocks added in order. Squares of f32 are exact in f64. Thread count changes nothing.
pub fn sum_squares(x: &[f32]) -> f64 {
    cpu::sum_squares(x)
}
