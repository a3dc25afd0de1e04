//! Shares, rounded in Python's way.

/// Rounded share; of nothing none.
pub(super) fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| rounded(part as f64 / whole as f64))
}

/// To 8 digits behind the point as Python's `round`: the nearest decimal, of two the even one.
pub(super) fn rounded(value: f64) -> f64 {
    // printing is exact, so its rounding is that of the decimal expansion; products are only near
    let scaled = value * 1e8;
    let near = scaled.round();
    if value.is_finite() && (scaled - scaled.floor() - 0.5).abs() > 1e-3 && near.abs() < 1e15 {
        return near / 1e8;
    }
    format!("{value:.8}").parse().unwrap_or(value)
}
