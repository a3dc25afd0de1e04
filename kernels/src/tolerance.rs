//! Tolerances: the largest error of a correct f32 result relative to the f64 truth. Derived, never widened to pass.
//!
//! A chain of n rounded additions of terms with like magnitudes errs by about eps sqrt(n) times the
//! root of the sum of squared partial sums (Higham 2002, sec. 4.2, statistical bound); `FACTOR` covers the tail.

/// Unit roundoff of f32: 2^-24.
pub const EPS: f64 = 5.960_464_477_539_063e-8;

/// Safety factor: five standard deviations of the rounding walk.
const FACTOR: f64 = 5.0;

/// Returns the relative error allowed after sums of `terms` numbers, relative to the sum of magnitudes.
pub fn sum(terms: usize) -> f64 {
    FACTOR * EPS * (terms.max(1) as f64).sqrt()
}

/// Returns the largest error of a sum of `terms` exact products by `mma.sync` in f32, relative to the sum of their
/// magnitudes; no statistics, as tensor cores may truncate.
///
/// An instruction adds up to 16 products and the sum before, 17 numbers of which none is above the sum of magnitudes. Each
/// is truncated to the last place of the largest one, 2^-23 of it, and so is their sum. A chain of multiply-adds, rounded to
/// nearest, errs by less.
pub fn tensor_core(terms: usize) -> f64 {
    let instructions = terms.div_ceil(16);
    2.0 * EPS * (terms + 2 * instructions) as f64
}

/// Returns the largest error of a sum of `terms` products of 8 bits by `mma.sync`, relative to the sum of their magnitudes.
///
/// As `tensor_core`, with 32 products an instruction, and numbers that are truncated to 2^-13 of the largest one: Hopper's tensor
/// cores add products of 8 bits with about 14 bits (DeepSeek-AI 2024, arXiv:2412.19437, sec. 3.3.2).
pub fn tensor_core_of_eight(terms: usize) -> f64 {
    let instructions = terms.div_ceil(32);
    (terms + 2 * instructions) as f64 / 8192.0
}

/// Returns the relative error allowed after `operations` elementwise steps of at most one ulp each.
pub fn elementwise(operations: usize) -> f64 {
    2.0 * EPS * operations.max(1) as f64
}

/// Returns the relative error of a central difference in f64 with step `h` on a smooth function:
/// truncation h^2 and cancellation 2^-53 / h.
pub fn central_difference(h: f64) -> f64 {
    10.0 * (h * h + f64::EPSILON / h)
}
