//! Rotary positions on packed q, k, v in place: pairs (x[i], x[i + e/2]) of each q and k head turn by
//! the angle position * theta^(-2i/e); e is the head width, v is untouched.
//! Paper: Su et al. 2021, arXiv:2104.09864. We differ: pairs are the two halves of a head, as in
//! LLaMA's released weights and Hugging Face, not neighbours.

mod cpu;

use super::attention::Heads;
use crate::{Error, Result, Tensor};

/// Turns q and k. Row r is at position r % t + offset.
/// # Shapes
/// qkv: [b*t, packed], see `Heads`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit or the width is odd.
pub fn forward(qkv: &mut Tensor, heads: &Heads, t: usize, offset: usize, theta: f32) -> Result<()> {
    turn("rope::forward", qkv, heads, (t, offset, theta), 1.0)
}

/// Turns dq and dk back: the transpose of a rotation is its inverse.
/// # Shapes
/// As `forward`.
/// # Errors
/// As `forward`.
pub fn backward(
    dqkv: &mut Tensor,
    heads: &Heads,
    t: usize,
    offset: usize,
    theta: f32,
) -> Result<()> {
    turn("rope::backward", dqkv, heads, (t, offset, theta), -1.0)
}

fn turn(
    op: &'static str,
    qkv: &mut Tensor,
    heads: &Heads,
    (t, offset, theta): (usize, usize, f32),
    direction: f32,
) -> Result<()> {
    heads.check(op)?;
    let (rows, packed) = qkv.expect_rows(op, "qkv")?;
    if packed != heads.packed() || t == 0 || rows % t != 0 {
        let wanted = format!("[b * {t}, {}]", heads.packed());
        return Err(Error::Shape {
            op,
            name: "qkv",
            found: qkv.dims().to_vec(),
            wanted,
        });
    }
    if !heads.width.is_multiple_of(2) {
        let (found, wanted) = (heads.width.to_string(), "even".to_owned());
        return Err(Error::Argument {
            op,
            name: "heads.width",
            found,
            wanted,
        });
    }
    if !(theta > 0.0 && theta.is_finite()) {
        let (found, wanted) = (theta.to_string(), "above 0 and finite".to_owned());
        return Err(Error::Argument {
            op,
            name: "theta",
            found,
            wanted,
        });
    }
    let device = qkv.device().clone();
    dispatch!(device, turn(qkv, heads, (t, offset, theta), direction));
    Ok(())
}
