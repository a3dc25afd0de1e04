//! Elementwise additions in place: x[r, c] += b[c] and x += y. Each element is one rounded addition.

mod cpu;

use crate::{Result, Tensor};

/// Adds the bias to every row of x.
/// # Shapes
/// x: [.., d], b: [d].
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn bias(x: &mut Tensor, b: &Tensor) -> Result<()> {
    let (_, d) = x.expect_rows("add::bias", "x")?;
    b.expect_f32("add::bias", "b", &[d])?;
    let device = x.device().clone();
    dispatch!(device, bias(x, b));
    Ok(())
}

/// Adds y to x.
/// # Shapes
/// The same dims.
/// # Errors
/// `Shape` or `DType` if they differ.
pub fn add_into(x: &mut Tensor, y: &Tensor) -> Result<()> {
    x.expect("add::add_into", "x", crate::DType::F32)?;
    y.expect_f32("add::add_into", "y", x.dims())?;
    let device = x.device().clone();
    dispatch!(device, add_into(x, y));
    Ok(())
}
