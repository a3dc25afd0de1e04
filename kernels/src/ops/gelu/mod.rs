//! GELU, tanh form as in GPT-2: y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
//! Paper: Hendrycks & Gimpel 2016, arXiv:1606.08415. Computed as x * logistic(2u), the same function.

mod cpu;

use crate::{DType, Result, Tensor};

/// Returns y, dims of x.
/// # Errors
/// `DType` if x is not f32.
pub fn forward(x: &Tensor) -> Result<Tensor> {
    x.expect("gelu::forward", "x", DType::F32)?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), forward(&mut y, x));
    Ok(y)
}

/// Returns dx, dims of x.
/// # Errors
/// `Shape` or `DType` if dy and x differ.
pub fn backward(dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    x.expect("gelu::backward", "x", DType::F32)?;
    dy.expect_f32("gelu::backward", "dy", x.dims())?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), backward(&mut dx, dy, x));
    Ok(dx)
}
