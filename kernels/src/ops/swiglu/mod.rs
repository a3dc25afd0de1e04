//! SwiGLU: y = silu(gate) * up, silu(g) = g * logistic(g).
//! Paper: Shazeer 2020, arXiv:2002.05202. Gate and up are the halves of one row, as one product gives them.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Returns y.
/// # Shapes
/// gate_up: [.., 2f], first f gate, last f up -> y: [n, f] with leading dims flattened to n.
/// # Errors
/// `Shape` or `DType` if gate_up does not fit.
pub fn forward(gate_up: &Tensor) -> Result<Tensor> {
    let (n, f) = halves("swiglu::forward", gate_up)?;
    let mut y = Tensor::empty(&[n, f], DType::F32, gate_up.device())?;
    dispatch!(gate_up.device(), forward(&mut y, gate_up));
    Ok(y)
}

/// Returns the gradient of gate_up, with its dims.
/// # Shapes
/// dy: n * f elements with last dim f, gate_up: [.., 2f].
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(dy: &Tensor, gate_up: &Tensor) -> Result<Tensor> {
    let (n, f) = halves("swiglu::backward", gate_up)?;
    if dy.expect_rows("swiglu::backward", "dy")? != (n, f) {
        let (found, wanted) = (dy.dims().to_vec(), format!("[{n}, {f}]"));
        return Err(Error::Shape {
            op: "swiglu::backward",
            name: "dy",
            found,
            wanted,
        });
    }
    let mut dx = Tensor::empty(gate_up.dims(), DType::F32, gate_up.device())?;
    dispatch!(gate_up.device(), backward(&mut dx, dy, gate_up));
    Ok(dx)
}

fn halves(op: &'static str, gate_up: &Tensor) -> Result<(usize, usize)> {
    let (n, width) = gate_up.expect_rows(op, "gate_up")?;
    if width.is_multiple_of(2) {
        return Ok((n, width / 2));
    }
    let (found, wanted) = (gate_up.dims().to_vec(), "an even last dim".to_owned());
    Err(Error::Shape {
        op,
        name: "gate_up",
        found,
        wanted,
    })
}
