//! Rotary positions on packed q, k, v in place: pairs (`x[i]`, `x[i + e/2]`) of each q and k head are rotated by
//! the angle position * theta^(-2i/e); e is the head width, v is untouched. Paper: Su et al. 2021,
//! arXiv:2104.09864. We differ: pairs are the two halves of a head, as in LLaMA's released weights and Hugging
//! Face, not neighbours.
//!
//! Angles may be any (`frequencies.rs`): r rotated features of a head, the pairs being
//! the halves of the first r, the rest untouched; cosines and sines times the magnitude.

mod cpu;
pub(super) mod cuda;

pub use crate::descriptor::frequencies::{Frequencies, Scaling};
use crate::descriptor::rope::Way;
pub use crate::descriptor::rope::{Positions, Turn};
use crate::{Result, Tensor};

/// Rotates q and k by their angles per position.
/// # Shapes
/// qkv: `[b*t, packed]`, see `Heads`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit or more features are rotated than a head has.
pub fn forward(qkv: &mut Tensor, turn: &Turn<'_>) -> Result<()> {
    run("rope::forward", qkv, turn, Way::Forward)
}

/// Gradient of `forward`: turns back, with the same magnitude (the transpose).
/// # Shapes
/// As `forward`.
/// # Errors
/// As `forward`.
pub fn backward(dqkv: &mut Tensor, turn: &Turn<'_>) -> Result<()> {
    run("rope::backward", dqkv, turn, Way::Back)
}

fn run(op: &'static str, qkv: &mut Tensor, turn: &Turn<'_>, way: Way) -> Result<()> {
    qkv.expect_rows(op, "qkv")?;
    turn.check(op, "qkv", qkv)?;
    let device = qkv.device().clone();
    dispatch!(device, turn(qkv, turn, way));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, error, random, wide};
    use crate::{Device, tolerance};
    use crate::{Error, Heads};

    const HEADS: Heads = Heads {
        heads: 4,
        kv_heads: 2,
        width: 10,
    };

    fn run(t: usize, offset: usize) -> Positions<'static> {
        Positions::Run { t, offset }
    }

    fn turn<'a>(positions: Positions<'a>, frequencies: &'a Frequencies) -> Turn<'a> {
        Turn {
            heads: &HEADS,
            positions,
            frequencies,
        }
    }

    fn plain(theta: f64, rotary: usize) -> Frequencies {
        Frequencies::new(theta, rotary, &Scaling::Plain).unwrap()
    }

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
        forward(&mut qkv, &turn(run(t, offset), &plain(100.0, 10))).unwrap();
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
        forward(&mut qkv, &turn(run(8, 5), &plain(1e4, 10))).unwrap();
        backward(&mut qkv, &turn(run(8, 5), &plain(1e4, 10))).unwrap();
        assert!(error(qkv.f32(), &before) < tolerance::elementwise(8));
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let mut qkv = random(&[21, HEADS.packed()], 1, device).unwrap();
            forward(&mut qkv, &turn(run(7, 2), &plain(1e4, 10))).unwrap();
            let mut part = random(&[6, HEADS.packed()], 2, device).unwrap();
            let of = [2, 3, 4, 2, 0, 1];
            let each = Positions::Each { of: &of, limit: 5 };
            forward(&mut part, &turn(each, &plain(100.0, 6))).unwrap();
            let mut back = qkv.try_clone().unwrap();
            backward(&mut back, &turn(run(7, 2), &plain(1e4, 10))).unwrap();
            vec![qkv, part, back]
        });
    }

    #[test]
    fn part_of_a_head_turns_by_scaled_angles_and_backward_is_the_transpose() {
        let device = Device::cpu();
        let scaling = Scaling::Yarn {
            factor: 4.0,
            original: 64,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            magnitude: None,
        };
        let frequencies = Frequencies::new(100.0, 6, &scaling).unwrap();
        let (t, offset) = (6, 3);
        let mut qkv = random(&[2 * t, HEADS.packed()], 1, &device).unwrap();
        let mut back = random(&[2 * t, HEADS.packed()], 2, &device).unwrap();
        let (before, dy) = (wide(qkv.f32()), wide(back.f32()));
        forward(&mut qkv, &turn(run(t, offset), &frequencies)).unwrap();
        let want = |size: f64| {
            let mut out = before.clone();
            for (i, head) in out.chunks_mut(10).enumerate().filter(|(i, _)| i % 4 != 3) {
                let position = (i / 8 % t + offset) as f64;
                for (pair, step) in frequencies.steps().iter().enumerate() {
                    let (sin, cos) = (position * step).sin_cos();
                    let (a, b) = (head[pair], head[pair + 3]);
                    head[pair] = size * (a * cos - b * sin);
                    head[pair + 3] = size * (b * cos + a * sin);
                }
            }
            out
        };
        let size = 0.1 * 4_f64.ln() + 1.0;
        assert!(error(qkv.f32(), &want(size)) < tolerance::elementwise(5));
        // Must fail: cosines and sines without their factor.
        assert!(error(qkv.f32(), &want(1.0)) > tolerance::elementwise(5));
        backward(&mut back, &turn(run(t, offset), &frequencies)).unwrap();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (left, right) = (dot(&wide(qkv.f32()), &dy), dot(&before, &wide(back.f32())));
        assert!((left - right).abs() < tolerance::sum(1000) * before.len() as f64);
    }

    #[test]
    fn rows_with_a_position_each_turn_as_in_a_run() {
        let device = Device::cpu();
        let frequencies = plain(100.0, 10);
        let mut want = random(&[6, HEADS.packed()], 1, &device).unwrap();
        let mut found = want.try_clone().unwrap();
        forward(&mut want, &turn(run(3, 2), &frequencies)).unwrap();
        let each = |of| Positions::Each { of, limit: 5 };
        forward(&mut found, &turn(each(&[2, 3, 4, 2, 3, 4]), &frequencies)).unwrap();
        assert_eq!(found.f32(), want.f32());
        for wrong in [&[0; 5][..], &[5; 6]] {
            assert!(forward(&mut found, &turn(each(wrong), &frequencies)).is_err());
        }
    }

    #[test]
    fn tables_are_not_mixed_up() {
        let device = Device::cpu();
        let turned = |device: &Device, theta: f64, offset: usize| {
            let mut qkv = random(&[4, HEADS.packed()], 1, device).unwrap();
            let frequencies = Frequencies::new(theta, 10, &Scaling::Plain).unwrap();
            forward(&mut qkv, &turn(run(4, offset), &frequencies)).unwrap();
            qkv.f32().to_vec()
        };
        for (theta, offset) in [(1e4, 0), (1e4, 5), (1e6, 5), (1e4, 0)] {
            let fresh = turned(&Device::cpu(), theta, offset);
            assert_eq!(turned(&device, theta, offset), fresh);
        }
    }

    #[test]
    fn odd_widths_and_ragged_batches_are_errors() {
        assert!(matches!(
            Frequencies::new(1e4, 9, &Scaling::Plain),
            Err(Error::Argument { .. })
        ));
        let wide = Frequencies::new(1e4, 12, &Scaling::Plain).unwrap();
        let mut qkv = random(&[4, HEADS.packed()], 1, &Device::cpu()).unwrap();
        assert!(matches!(
            forward(&mut qkv, &turn(run(2, 0), &wide)),
            Err(Error::Argument { name: "rotary", .. })
        ));
        let mut qkv = random(&[5, HEADS.packed()], 1, &Device::cpu()).unwrap();
        assert!(matches!(
            forward(&mut qkv, &turn(run(2, 0), &plain(1e4, 10))),
            Err(Error::Shape { .. })
        ));
    }
}
