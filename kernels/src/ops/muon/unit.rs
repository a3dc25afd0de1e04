//! The factor that makes a matrix of unit norm.

/// A norm is taken as at least this.
pub(super) const EPS: f64 = 1e-7;

/// The factor by the sum of squares; rounds to f32, in which the matrix is.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32, in which the matrix is"
)]
pub(super) fn factor(squares: f64) -> f32 {
    (1.0 / squares.sqrt().max(EPS)) as f32
}
