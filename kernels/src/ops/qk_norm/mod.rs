//! qk_norm: RMS norm of each query and key head in packed rows, in place, before the rotary embedding; v is untouched.
//! Dehghani et al. 2023, arXiv:2302.05442 (norms of queries and keys); as Qwen 3: over the head width, one
//! weight for all query heads and one for all key heads.
//!
//! The weights' gradients are returned head by head and leaf by leaf, as chains over a leaf's rows: ranks that
//! share out heads gather them and add them in one order. `joint` is the norm over all heads together.

mod cpu;
pub(super) mod cuda;
pub mod joint;
mod weights;

use crate::descriptor::heads::Heads;
use crate::{DType, Error, Result, Tensor};
use weights::Sums;
pub use weights::Weights;

/// Normalises each head of q and k.
/// # Shapes
/// qkv: `[n, packed]`, see `Heads`; weights: `[width]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(qkv: &mut Tensor, heads: &Heads, weights: Weights<'_>, eps: f32) -> Result<()> {
    check("qk_norm::forward", qkv, heads, weights)?;
    let device = qkv.device().clone();
    dispatch!(device, forward(qkv, heads, weights, eps));
    Ok(())
}

/// Turns the gradient of the output into that of the input, in place; returns the gradients of wq and wk
/// of each leaf of `leaf` rows (0: one leaf) and head: `[leaves, heads * width]`, `[leaves, kv_heads * width]`.
/// # Shapes
/// qkv: `[n, packed]`, forward's input; n a multiple of `leaf`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    dqkv: &mut Tensor,
    qkv: &Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    eps: f32,
    leaf: usize,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "qk_norm::backward";
    let n = check(OP, qkv, heads, weights)?;
    dqkv.expect_f32(OP, "dqkv", qkv.dims())?;
    let leaf = check_leaf(OP, leaf, n)?;
    let device = dqkv.device().clone();
    let room = |heads: usize| Tensor::empty(&[n / leaf, heads], DType::F32, &device);
    let mut dwq = room(heads.heads * heads.width)?;
    let mut dwk = room(heads.kv_heads * heads.width)?;
    let sums = Sums {
        q: &mut dwq,
        k: &mut dwk,
        leaf,
    };
    dispatch!(device, backward(dqkv, sums, qkv, heads, weights, eps));
    Ok((dwq, dwk))
}

/// Rows of a leaf of n rows; 0: all.
fn check_leaf(op: &'static str, leaf: usize, n: usize) -> Result<usize> {
    let leaf = if leaf == 0 { n.max(1) } else { leaf };
    if n.is_multiple_of(leaf) {
        return Ok(leaf);
    }
    Err(Error::Argument {
        op,
        name: "leaf",
        found: leaf.to_string(),
        wanted: format!("a divisor of {n} rows"),
    })
}

fn check(op: &'static str, qkv: &Tensor, heads: &Heads, weights: Weights<'_>) -> Result<usize> {
    let n = check_rows(op, qkv, heads)?;
    weights.q.expect_f32(op, "wq", &[heads.width])?;
    weights.k.expect_f32(op, "wk", &[heads.width])?;
    Ok(n)
}

/// Number of packed rows.
fn check_rows(op: &'static str, qkv: &Tensor, heads: &Heads) -> Result<usize> {
    heads.check(op)?;
    let (n, packed) = qkv.expect_rows(op, "qkv")?;
    if packed != heads.packed() {
        return Err(Error::Shape {
            op,
            name: "qkv",
            found: qkv.dims().to_vec(),
            wanted: format!("[n, {}]", heads.packed()),
        });
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, differences, error, extreme, random, wide};
    use crate::{Device, tolerance};

    const HEADS: Heads = Heads {
        heads: 4,
        kv_heads: 2,
        width: 20,
    };
    const EPS: f32 = 1e-5;

    /// Slots of a group are q, q, k, v.
    fn reference(qkv: &[f64], wq: &[f64], wk: &[f64]) -> Vec<f64> {
        let mut out = qkv.to_vec();
        for (i, head) in out.chunks_mut(20).enumerate().filter(|(i, _)| i % 4 != 3) {
            let w = if i % 4 == 2 { wk } else { wq };
            let mean = head.iter().map(|x| x * x).sum::<f64>() / 20.0;
            let by = 1.0 / (mean + f64::from(EPS)).sqrt();
            head.iter_mut().zip(w).for_each(|(x, w)| *x *= by * w);
        }
        out
    }

    fn sum(parts: &Tensor, heads: usize) -> Vec<f32> {
        let mut out = vec![0.0; 20];
        for row in parts.f32().chunks(20 * heads) {
            for head in row.chunks(20) {
                out.iter_mut().zip(head).for_each(|(o, x)| *o += x);
            }
        }
        out
    }

    #[test]
    fn forward_and_backward_match_f64_and_finite_differences() {
        let device = Device::cpu();
        let mut qkv = random(&[6, HEADS.packed()], 1, &device).unwrap();
        let before = qkv.try_clone().unwrap();
        let (wq, wk) = (
            random(&[20], 2, &device).unwrap(),
            random(&[20], 3, &device).unwrap(),
        );
        let mut dqkv = random(&[6, HEADS.packed()], 4, &device).unwrap();
        let dy = wide(dqkv.f32());
        forward(&mut qkv, &HEADS, Weights { q: &wq, k: &wk }, EPS).unwrap();
        let (x, q, k) = (wide(before.f32()), wide(wq.f32()), wide(wk.f32()));
        assert!(error(qkv.f32(), &reference(&x, &q, &k)) < tolerance::sum(20));
        // Must fail: the weights swapped.
        assert!(error(qkv.f32(), &reference(&x, &k, &q)) > tolerance::sum(20));
        let (dwq, dwk) = backward(
            &mut dqkv,
            &before,
            &HEADS,
            Weights { q: &wq, k: &wk },
            EPS,
            2,
        )
        .unwrap();
        assert_eq!((dwq.dims(), dwk.dims()), (&[3, 80][..], &[3, 40][..]));
        let bound = tolerance::sum(480) + tolerance::central_difference(1e-5);
        let loss = |out: Vec<f64>| out.iter().zip(&dy).map(|(o, d)| o * d).sum::<f64>();
        let want = differences(&x, 1e-5, |x| loss(reference(x, &q, &k)));
        assert!(error(dqkv.f32(), &want) < bound);
        let want = differences(&q, 1e-5, |q| loss(reference(&x, q, &k)));
        assert!(error(&sum(&dwq, 4), &want) < bound);
        let want = differences(&k, 1e-5, |k| loss(reference(&x, &q, k)));
        assert!(error(&sum(&dwk, 2), &want) < bound);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let mut qkv = random(&[40, HEADS.packed()], 1, device).unwrap();
            let w = random(&[20], 2, device).unwrap();
            let mut dqkv = random(&[40, HEADS.packed()], 3, device).unwrap();
            let (a, b) =
                backward(&mut dqkv, &qkv, &HEADS, Weights { q: &w, k: &w }, EPS, 10).unwrap();
            forward(&mut qkv, &HEADS, Weights { q: &w, k: &w }, EPS).unwrap();
            let mut all = vec![qkv, dqkv, a, b];
            // one head, a width of less than a vector; one group of many heads
            for (heads, kv_heads, width) in [(1, 1, 3), (5, 1, 33)] {
                let heads = Heads {
                    heads,
                    kv_heads,
                    width,
                };
                let mut qkv = extreme(&[7, heads.packed()], 1, false, device).unwrap();
                let mut dqkv = random(&[7, heads.packed()], 3, device).unwrap();
                let (q, k) = (random(&[width], 2, device), random(&[width], 4, device));
                let (q, k) = (q.unwrap(), k.unwrap());
                let weights = Weights { q: &q, k: &k };
                let sums = backward(&mut dqkv, &qkv, &heads, weights, EPS, 0).unwrap();
                forward(&mut qkv, &heads, weights, EPS).unwrap();
                all.extend([qkv, dqkv, sums.0, sums.1]);
            }
            all
        });
    }

    #[test]
    fn widths_and_leaves_that_do_not_fit_are_refused() {
        let device = Device::cpu();
        let mut qkv = random(&[6, HEADS.packed()], 1, &device).unwrap();
        let (w, short) = (
            random(&[20], 2, &device).unwrap(),
            random(&[19], 2, &device).unwrap(),
        );
        let found = forward(&mut qkv, &HEADS, Weights { q: &w, k: &short }, EPS);
        assert!(matches!(found, Err(Error::Shape { name: "wk", .. })));
        let x = qkv.try_clone().unwrap();
        let found = backward(&mut qkv, &x, &HEADS, Weights { q: &w, k: &w }, EPS, 4);
        assert!(matches!(found, Err(Error::Argument { name: "leaf", .. })));
    }
}
