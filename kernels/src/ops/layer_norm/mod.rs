//! Layer norm over the last axis: y = (x - mean) * inv_std * w + b, inv_std = 1 / sqrt(var + eps).
//! Paper: Ba et al. 2016, arXiv:1607.06450. The variance is the mean square of (x - mean).

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Returns y, and mean and inv_std for backward.
/// # Shapes
/// x: [.., d] with leading dims flattened to n, w and b: [d] -> y as x, mean: [n], inv_std: [n].
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(x: &Tensor, w: &Tensor, b: &Tensor, eps: f32) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "layer_norm::forward";
    let (n, d) = x.expect_rows(OP, "x")?;
    w.expect_f32(OP, "w", &[d])?;
    b.expect_f32(OP, "b", &[d])?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let mut mean = Tensor::empty(&[n], DType::F32, x.device())?;
    let mut inv_std = Tensor::empty(&[n], DType::F32, x.device())?;
    dispatch!(
        x.device(),
        forward(&mut y, (&mut mean, &mut inv_std), x, (w, b), eps)
    );
    Ok((y, mean, inv_std))
}

/// Returns dx and adds to dw and db in the tree of `reduce` with leaves of `leaf` rows (0: one leaf).
/// A leaf of dw is the chain acc = fma(dy, xhat, acc), of db the chain acc = acc + dy, from 0.0.
/// # Shapes
/// dy and x: [.., d], w, dw, db: [d], mean, inv_std: [n] -> dx as x.
/// # Errors
/// `Shape` or `DType` if they do not fit.
#[expect(
    clippy::too_many_arguments,
    reason = "one gradient and one saved value per input"
)]
pub fn backward(
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    mean: &Tensor,
    inv_std: &Tensor,
    dw: &mut Tensor,
    db: &mut Tensor,
    leaf: usize,
) -> Result<Tensor> {
    const OP: &str = "layer_norm::backward";
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
    mean.expect_f32(OP, "mean", &[n])?;
    inv_std.expect_f32(OP, "inv_std", &[n])?;
    dw.expect_f32(OP, "dw", &[d])?;
    db.expect_f32(OP, "db", &[d])?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let saved = (mean, inv_std);
    dispatch!(x.device(), backward_input(&mut dx, dy, x, w, saved));
    dispatch!(x.device(), backward_weights((dw, db), dy, x, saved, leaf));
    Ok(dx)
}
