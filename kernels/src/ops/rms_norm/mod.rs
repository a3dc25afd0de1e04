//! RMS norm over the last axis: y = x * w / sqrt(mean(x^2) + eps).
//! Paper: Zhang & Sennrich 2019, arXiv:1910.07467.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Returns y, and inv_rms for backward.
/// # Shapes
/// x: [.., d] with leading dims flattened to n, w: [d] -> y as x, inv_rms: [n].
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
    const OP: &str = "rms_norm::forward";
    let (n, d) = x.expect_rows(OP, "x")?;
    w.expect_f32(OP, "w", &[d])?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let mut inv_rms = Tensor::empty(&[n], DType::F32, x.device())?;
    dispatch!(x.device(), forward(&mut y, &mut inv_rms, x, w, eps));
    Ok((y, inv_rms))
}

/// Returns dx and adds to dw in the tree of `reduce` with leaves of `leaf` rows (0: one leaf); a leaf
/// is the chain acc = fma(dy, x * inv_rms, acc) from 0.0.
/// # Shapes
/// dy and x: [.., d], w, dw: [d], inv_rms: [n] -> dx as x.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    inv_rms: &Tensor,
    dw: &mut Tensor,
    leaf: usize,
) -> Result<Tensor> {
    const OP: &str = "rms_norm::backward";
    let (n, d) = x.expect_rows(OP, "x")?;
    dy.expect(OP, "dy", DType::F32)?;
    if dy.rows_cols() != (n, d) {
        let (found, wanted) = (dy.dims().to_vec(), format!("[{n}, {d}]"));
        return Err(Error::Shape {
            op: OP,
            name: "dy",
            found,
            wanted,
        });
    }
    w.expect_f32(OP, "w", &[d])?;
    inv_rms.expect_f32(OP, "inv_rms", &[n])?;
    dw.expect_f32(OP, "dw", &[d])?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), backward_input(&mut dx, dy, x, w, inv_rms));
    dispatch!(x.device(), backward_weights(dw, dy, x, inv_rms, leaf));
    Ok(dx)
}
