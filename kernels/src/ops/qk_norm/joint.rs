//! RMS norm over all query heads of a packed row together, and over all its key heads, in place, before the rotary embedding
//! (OLMo 2; OLMo team 2024, arXiv:2501.00656, sec. 3.2): y = x w / sqrt(mean(x^2) + eps), where the mean is over the heads of
//! all ranks.
//!
//! Ranks may share out heads, so an op gives or takes one number per row and head or per row: `squares` and `products` return
//! sums head by head, the caller adds those of all ranks in the order of heads, and `forward` and `backward` take the totals.

use super::weights::Sums;
pub use super::weights::{Normed, Totals};
use super::{Weights, check_leaf, check_rows, cpu, cuda};
use crate::descriptor::heads::Heads;
use crate::{DType, Result, Tensor};

/// Returns the sum of squares of each query head and of each key head: `[n, heads]`, `[n, kv_heads]`.
/// # Shapes
/// qkv: `[n, packed]`, see `Heads`.
/// # Errors
/// `Shape` or `DType` if they do not fit; `Memory`.
pub fn squares(qkv: &Tensor, heads: &Heads) -> Result<[Tensor; 2]> {
    let n = check_rows("qk_norm::joint::squares", qkv, heads)?;
    let [mut q, mut k] = by_head(n, heads, qkv)?;
    dispatch!(qkv.device(), squares([&mut q, &mut k], qkv, heads));
    Ok([q, k])
}

/// Normalises queries and keys; `squares` are the totals of the rows' squares.
/// # Shapes
/// qkv: `[n, packed]`; weights: `[heads * width]`, `[kv_heads * width]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(
    qkv: &mut Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    squares: Totals<'_>,
    eps: f32,
) -> Result<()> {
    const OP: &str = "qk_norm::joint::forward";
    let n = check_rows(OP, qkv, heads)?;
    check_weights(OP, heads, weights)?;
    squares.check(OP, n)?;
    let device = qkv.device().clone();
    dispatch!(device, joint_forward(qkv, heads, weights, squares, eps));
    Ok(())
}

/// Returns the sum of dy w x / rms of each query head and of each key head: `[n, heads]`, `[n, kv_heads]`.
/// # Shapes
/// dqkv: `[n, packed]`, the gradient of the output; weights as `forward`'s.
/// # Errors
/// `Shape` or `DType` if they do not fit; `Memory`.
pub fn products(
    dqkv: &Tensor,
    normed: Normed<'_>,
    heads: &Heads,
    weights: Weights<'_>,
) -> Result<[Tensor; 2]> {
    let n = normed.check("qk_norm::joint::products", (dqkv, heads), weights)?;
    let [mut q, mut k] = by_head(n, heads, dqkv)?;
    let sums = [&mut q, &mut k];
    dispatch!(
        dqkv.device(),
        joint_products(sums, dqkv, normed, heads, weights)
    );
    Ok([q, k])
}

/// Turns the gradient of the output into that of the input, in place; returns the gradients of wq and wk of each leaf of `leaf`
/// rows (0: one leaf): `[leaves, heads * width]`, `[leaves, kv_heads * width]`, chains over a leaf's rows.
/// # Shapes
/// dqkv: `[n, packed]`; products: the totals of `products`; weights as `forward`'s; n a multiple of `leaf`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory`.
pub fn backward(
    dqkv: &mut Tensor,
    (normed, products): (Normed<'_>, Totals<'_>),
    heads: &Heads,
    weights: Weights<'_>,
    leaf: usize,
) -> Result<[Tensor; 2]> {
    const OP: &str = "qk_norm::joint::backward";
    let n = normed.check(OP, (dqkv, heads), weights)?;
    products.check(OP, n)?;
    let leaf = check_leaf(OP, leaf, n)?;
    let device = dqkv.device().clone();
    let room = |width: usize| Tensor::empty(&[n / leaf, width], DType::F32, &device);
    let mut dwq = room(heads.heads * heads.width)?;
    let mut dwk = room(heads.kv_heads * heads.width)?;
    let sums = Sums {
        q: &mut dwq,
        k: &mut dwk,
        leaf,
    };
    let of = (normed, products);
    dispatch!(device, joint_backward(dqkv, sums, of, heads, weights));
    Ok([dwq, dwk])
}

fn by_head(n: usize, heads: &Heads, like: &Tensor) -> Result<[Tensor; 2]> {
    let room = |heads: usize| Tensor::empty(&[n, heads], DType::F32, like.device());
    Ok([room(heads.heads)?, room(heads.kv_heads)?])
}

fn check_weights(op: &'static str, heads: &Heads, weights: Weights<'_>) -> Result<()> {
    let width = heads.width;
    weights.q.expect_f32(op, "wq", &[heads.heads * width])?;
    weights.k.expect_f32(op, "wk", &[heads.kv_heads * width])
}

impl Totals<'_> {
    fn check(&self, op: &'static str, n: usize) -> Result<()> {
        self.q.expect_f32(op, "totals of q", &[n, 1])?;
        self.k.expect_f32(op, "totals of k", &[n, 1])
    }
}

impl Normed<'_> {
    fn check(
        &self,
        op: &'static str,
        (dqkv, heads): (&Tensor, &Heads),
        weights: Weights<'_>,
    ) -> Result<usize> {
        let n = check_rows(op, self.qkv, heads)?;
        dqkv.expect_f32(op, "dqkv", self.qkv.dims())?;
        check_weights(op, heads, weights)?;
        self.squares.check(op, n)?;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::sum_groups;
    use crate::testing::{assert_same_bits, differences, error, random, wide};
    use crate::{Device, tolerance};

    const HEADS: Heads = Heads {
        heads: 4,
        kv_heads: 2,
        width: 20,
    };
    const EPS: f32 = 1e-5;

    /// Slots of a group are q, q, k, v.
    fn reference(qkv: &[f64], weights: [&[f64]; 2]) -> Vec<f64> {
        let mut out = qkv.to_vec();
        for row in out.chunks_mut(160) {
            for (is_key, w) in weights.into_iter().enumerate() {
                let slots: &[usize] = if is_key == 1 { &[2, 6] } else { &[0, 1, 4, 5] };
                let at: Vec<usize> = slots.iter().flat_map(|s| s * 20..s * 20 + 20).collect();
                let squares: f64 = at.iter().map(|&i| row[i] * row[i]).sum();
                let by = 1.0 / (squares / at.len() as f64 + f64::from(EPS)).sqrt();
                at.iter().zip(w).for_each(|(&i, w)| row[i] *= by * w);
            }
        }
        out
    }

    /// The totals of one rank's heads.
    fn total(by_head: &Tensor) -> Tensor {
        let heads = by_head.dims()[1];
        let column = by_head.try_clone().unwrap();
        let column = column.reshape(&[by_head.elements(), 1]).unwrap();
        sum_groups(&column, heads).unwrap()
    }

    fn totals<'a>(q: &'a Tensor, k: &'a Tensor) -> Totals<'a> {
        Totals {
            q,
            k,
            q_width: 80,
            k_width: 40,
        }
    }

    /// Results of forward and backward for leaves of 2 rows: y, dx, dwq, dwk.
    fn run(device: &Device) -> (Tensor, [Tensor; 3]) {
        let make = |dims: &[usize], seed| random(dims, seed, device).unwrap();
        let (qkv, dy) = (make(&[6, 160], 1), make(&[6, 160], 4));
        let (wq, wk) = (make(&[80], 2), make(&[40], 3));
        let weights = Weights { q: &wq, k: &wk };
        let [q, k] = squares(&qkv, &HEADS).unwrap().map(|sums| total(&sums));
        let mut y = qkv.try_clone().unwrap();
        forward(&mut y, &HEADS, weights, totals(&q, &k), EPS).unwrap();
        let normed = Normed {
            qkv: &qkv,
            squares: totals(&q, &k),
            eps: EPS,
        };
        let [pq, pk] = products(&dy, normed, &HEADS, weights)
            .unwrap()
            .map(|sums| total(&sums));
        let mut dx = dy.try_clone().unwrap();
        let of = (normed, totals(&pq, &pk));
        let [dwq, dwk] = backward(&mut dx, of, &HEADS, weights, 2).unwrap();
        (y, [dx, dwq, dwk])
    }

    #[test]
    fn forward_and_backward_match_f64_and_finite_differences() {
        let device = Device::cpu();
        let (y, [dx, dwq, dwk]) = run(&device);
        let made = |dims: &[usize], seed| wide(random(dims, seed, &device).unwrap().f32());
        let (x, dy) = (made(&[6, 160], 1), made(&[6, 160], 4));
        let (q, k) = (made(&[80], 2), made(&[40], 3));
        assert!(error(y.f32(), &reference(&x, [&q, &k])) < tolerance::sum(80));
        // Must fail: a norm of each head.
        let mut by_head = random(&[6, 160], 1, &device).unwrap();
        let ones = Tensor::from_f32(&[20], &[1.0; 20], &device).unwrap();
        let weights = Weights { q: &ones, k: &ones };
        super::super::forward(&mut by_head, &HEADS, weights, EPS).unwrap();
        let plain = reference(&x, [&[1.0; 80], &[1.0; 40]]);
        assert!(error(by_head.f32(), &plain) > tolerance::sum(80));
        assert_eq!((dwq.dims(), dwk.dims()), (&[3, 80][..], &[3, 40][..]));
        let bound = tolerance::sum(960) + tolerance::central_difference(1e-5);
        let loss = |out: Vec<f64>| out.iter().zip(&dy).map(|(o, d)| o * d).sum::<f64>();
        let want = differences(&x, 1e-5, |x| loss(reference(x, [&q, &k])));
        assert!(error(dx.f32(), &want) < bound);
        let leaves = |parts: &Tensor| {
            let width = parts.dims()[1];
            let mut sums = vec![0.0f32; width];
            for row in parts.f32().chunks(width) {
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            sums
        };
        let want = differences(&q, 1e-5, |q| loss(reference(&x, [q, &k])));
        assert!(error(&leaves(&dwq), &want) < bound);
        let want = differences(&k, 1e-5, |k| loss(reference(&x, [&q, k])));
        assert!(error(&leaves(&dwk), &want) < bound);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let (y, [dx, dwq, dwk]) = run(device);
            vec![y, dx, dwq, dwk]
        });
    }

    #[test]
    fn a_rank_with_a_group_of_heads_has_its_part_of_the_bits() {
        let device = Device::cpu();
        let (y, [dx, dwq, dwk]) = run(&device);
        let half = Heads {
            heads: 2,
            kv_heads: 1,
            width: 20,
        };
        // columns from .. from + width of each row
        let cut = |x: &Tensor, from: usize, width: usize| {
            let rows = x.f32().chunks(*x.dims().last().unwrap());
            let found: Vec<f32> = rows
                .flat_map(|row| row[from..from + width].to_vec())
                .collect();
            let dims = match x.dims() {
                [_] => vec![width],
                dims => vec![dims[0], width],
            };
            Tensor::from_f32(&dims, &found, &device).unwrap()
        };
        let make = |dims: &[usize], seed| random(dims, seed, &device).unwrap();
        let (x, dy) = (make(&[6, 160], 1), make(&[6, 160], 4));
        let all = squares(&x, &HEADS).unwrap().map(|sums| total(&sums));
        let weights = [make(&[80], 2), make(&[40], 3)];
        let parts = [0, 1].map(|rank| {
            let [q, k] = [
                cut(&weights[0], rank * 40, 40),
                cut(&weights[1], rank * 20, 20),
            ];
            (cut(&x, rank * 80, 80), cut(&dy, rank * 80, 80), [q, k])
        });
        let normed = |qkv| Normed {
            qkv,
            squares: totals(&all[0], &all[1]),
            eps: EPS,
        };
        // sums of all ranks' heads, side by side, in their order
        let [low, high] = [0, 1].map(|rank: usize| {
            let (x, dy, [q, k]) = &parts[rank];
            products(dy, normed(x), &half, Weights { q, k }).unwrap()
        });
        let joined = [0, 1].map(|i: usize| {
            let width = low[i].dims()[1];
            let rows = low[i].f32().chunks(width).zip(high[i].f32().chunks(width));
            let found: Vec<f32> = rows.flat_map(|(a, b)| [a, b].concat()).collect();
            total(&Tensor::from_f32(&[6, 2 * width], &found, &device).unwrap())
        });
        for (rank, (qkv, dy, [q, k])) in parts.iter().enumerate() {
            let weights = Weights { q, k };
            let mut out = qkv.try_clone().unwrap();
            forward(&mut out, &half, weights, totals(&all[0], &all[1]), EPS).unwrap();
            assert_eq!(out.f32(), cut(&y, rank * 80, 80).f32());
            let mut out = dy.try_clone().unwrap();
            let of = (normed(qkv), totals(&joined[0], &joined[1]));
            let [dq, dk] = backward(&mut out, of, &half, weights, 2).unwrap();
            assert_eq!(out.f32(), cut(&dx, rank * 80, 80).f32());
            assert_eq!(dq.f32(), cut(&dwq, rank * 40, 40).f32());
            assert_eq!(dk.f32(), cut(&dwk, rank * 20, 20).f32());
        }
    }

    #[test]
    fn weights_of_one_head_are_refused() {
        let device = Device::cpu();
        let mut qkv = random(&[6, 160], 1, &device).unwrap();
        let [q, k] = squares(&qkv, &HEADS).unwrap().map(|sums| total(&sums));
        let w = random(&[20], 2, &device).unwrap();
        let weights = Weights { q: &w, k: &w };
        let found = forward(&mut qkv, &HEADS, weights, totals(&q, &k), EPS);
        assert!(matches!(found, Err(crate::Error::Shape { name: "wq", .. })));
    }
}
