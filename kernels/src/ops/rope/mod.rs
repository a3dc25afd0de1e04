//! Rotary positions on packed q, k, v in place: pairs (`x[i]`, `x[i + e/2]`) of each q and k head turn by
//! the angle position * theta^(-2i/e); e is the head width, v is untouched.
//! Paper: Su et al. 2021, arXiv:2104.09864. We differ: pairs are the two halves of a head, as in
//! LLaMA's released weights and Hugging Face, not neighbours.

mod cpu;

use super::attention::Heads;
use crate::{Error, Result, Tensor};

/// Turns q and k. Row r is at position r % t + offset.
/// # Shapes
/// qkv: `[b*t, packed]`, see `Heads`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, error, random, wide};
    use crate::{Device, tolerance};

    const HEADS: Heads = Heads {
        heads: 4,
        kv_heads: 2,
        width: 10,
    };

    /// Hugging Face's form: x cos + rotate_half(x) sin, on one head.
    fn reference(x: &[f64], position: usize, theta: f64) -> Vec<f64> {
        let half = x.len() / 2;
        (0..x.len())
            .map(|i| {
                let angle = position as f64 * theta.powf(-((i % half) as f64) / half as f64);
                let turned = if i < half { -x[i + half] } else { x[i - half] };
                x[i] * angle.cos() + turned * angle.sin()
            })
            .collect()
    }

    #[test]
    fn forward_turns_q_and_k_and_leaves_v() {
        let (t, offset) = (6, 3);
        let mut qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let before = wide(qkv.f32());
        forward(&mut qkv, &HEADS, t, offset, 100.0).unwrap();
        let want = |shift: usize| {
            let mut out = Vec::new();
            for (i, head) in before.chunks(10).enumerate() {
                let position = i / 8 % t + offset + shift;
                // Slots of a group: q, q, k, v.
                let v = i % 4 == 3;
                out.extend(if v {
                    head.to_vec()
                } else {
                    reference(head, position, 100.0)
                });
            }
            out
        };
        assert!(error(qkv.f32(), &want(0)) < tolerance::elementwise(4));
        assert!(
            error(qkv.f32(), &want(1)) > tolerance::elementwise(4),
            "positions count"
        );
    }

    #[test]
    fn backward_undoes_forward() {
        let mut qkv = random(&[8, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let before = wide(qkv.f32());
        forward(&mut qkv, &HEADS, 8, 5, 1e4).unwrap();
        backward(&mut qkv, &HEADS, 8, 5, 1e4).unwrap();
        assert!(error(qkv.f32(), &before) < tolerance::elementwise(8));
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let mut qkv = random(&[21, HEADS.packed()], 1, device).unwrap();
            forward(&mut qkv, &HEADS, 7, 2, 1e4).unwrap();
            vec![qkv]
        });
    }

    #[test]
    fn odd_widths_and_ragged_batches_are_errors() {
        let odd = Heads { width: 9, ..HEADS };
        let mut qkv = random(&[4, odd.packed()], 1, &Device::cpu()).unwrap();
        assert!(matches!(
            forward(&mut qkv, &odd, 2, 0, 1e4),
            Err(Error::Argument { .. })
        ));
        let mut qkv = random(&[5, HEADS.packed()], 1, &Device::cpu()).unwrap();
        assert!(matches!(
            forward(&mut qkv, &HEADS, 2, 0, 1e4),
            Err(Error::Shape { .. })
        ));
    }
}
