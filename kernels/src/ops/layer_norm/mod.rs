//! Layer norm over the last axis: y = (x - mean) * inv_std * w + b, inv_std = 1 / sqrt(var + eps).
//! Paper: Ba et al. 2016, arXiv:1607.06450. The variance is the mean square of (x - mean).

mod cpu;
pub(super) mod cuda;
mod tensors;

use super::norm::{self, check_forward};
use crate::{DType, Result, Tensor};
pub use tensors::{Gradients, Statistics};
use tensors::{Kept, Weights};

/// Returns y, and mean and inv_std for backward.
/// # Shapes
/// x: `[.., d]` with leading dims flattened to n, w and b: `[d]` -> y as x, mean: `[n]`, inv_std: `[n]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(x: &Tensor, w: &Tensor, b: &Tensor, eps: f32) -> Result<(Tensor, Tensor, Tensor)> {
    let weights = [("w", w), ("b", b)];
    let (n, _) = check_forward("layer_norm::forward", x, None, &weights)?;
    let [mut y, mut mean, mut inv_std] = outputs(x, n)?;
    let kept = Kept {
        mean: &mut mean,
        inv_std: &mut inv_std,
    };
    dispatch!(x.device(), forward(&mut y, kept, x, Weights { w, b }, eps));
    Ok((y, mean, inv_std))
}

/// y and the statistics of n rows.
fn outputs(x: &Tensor, n: usize) -> Result<[Tensor; 3]> {
    let empty = |dims: &[usize]| Tensor::empty(dims, DType::F32, x.device());
    Ok([empty(x.dims())?, empty(&[n])?, empty(&[n])?])
}

/// Like `forward` of x + more, which x becomes: the end of a residual branch and the norm after it.
/// # Shapes
/// As `forward`; more: the dims of x.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward_sum(
    x: &mut Tensor,
    more: &Tensor,
    w: &Tensor,
    b: &Tensor,
    eps: f32,
) -> Result<(Tensor, Tensor, Tensor)> {
    let weights = [("w", w), ("b", b)];
    let (n, _) = check_forward("layer_norm::forward_sum", x, Some(more), &weights)?;
    let device = x.device().clone();
    let [mut y, mut mean, mut inv_std] = outputs(x, n)?;
    let kept = Kept {
        mean: &mut mean,
        inv_std: &mut inv_std,
    };
    dispatch!(
        device,
        forward_sum(&mut y, kept, x, more, Weights { w, b }, eps)
    );
    Ok((y, mean, inv_std))
}

/// Returns dx, with `more` added to it if there is any, and adds to dw and db in the tree of `reduce` with leaves of `leaf` rows
/// (0: one leaf). A leaf of dw is the chain acc = fma(dy, xhat, acc), of db the chain acc = acc + dy, from 0.0.
/// # Shapes
/// dy, x and more: `[.., d]`, w: `[d]` -> dx as x; statistics and sums as their structs say.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    statistics: &Statistics<'_>,
    more: Option<&Tensor>,
    sums: Gradients<'_>,
    leaf: usize,
) -> Result<Tensor> {
    let kept = [("mean", statistics.mean), ("inv_std", statistics.inv_std)];
    norm::Backward { dy, x, w, more }.check(
        "layer_norm::backward",
        &kept,
        &[("dw", sums.dw), ("db", sums.db)],
    )?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(
        x.device(),
        backward_input(&mut dx, dy, x, w, statistics, more)
    );
    dispatch!(x.device(), backward_weights(sums, dy, x, statistics, leaf));
    Ok(dx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_same_bits, bits, differences, error, extreme, random, values, wide,
    };
    use crate::{Device, Error, add, tolerance};

    const H: f64 = 1e-5;

    fn reference(x: &[f64], w: &[f64], b: &[f64], eps: f64) -> Vec<f64> {
        let d = w.len();
        x.chunks(d)
            .flat_map(|x| {
                let mean = x.iter().sum::<f64>() / d as f64;
                let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
                let y = |i: usize| (x[i] - mean) / (var + eps).sqrt() * w[i] + b[i];
                (0..d).map(y).collect::<Vec<_>>()
            })
            .collect()
    }

    fn inputs(n: usize, d: usize) -> [Tensor; 4] {
        let device = Device::cpu();
        let make = |dims: &[usize], seed| random(dims, seed, &device).unwrap();
        let mut x = make(&[n, d], 1);
        // Small rows, so that eps counts.
        x.f32_mut().iter_mut().for_each(|x| *x *= 0.01);
        [x, make(&[d], 2), make(&[d], 3), make(&[n, d], 4)]
    }

    #[test]
    fn forward_matches_an_f64_loop_on_odd_widths() {
        for (n, d) in [(1, 1), (3, 7), (40, 16), (5, 129), (2, 1000)] {
            let [x, w, b, _] = inputs(n, d);
            let (y, _, _) = forward(&x, &w, &b, 1e-5).unwrap();
            let args = [wide(x.f32()), wide(w.f32()), wide(b.f32())];
            let want = reference(&args[0], &args[1], &args[2], f64::from(1e-5_f32));
            assert!(error(y.f32(), &want) < tolerance::sum(d) + tolerance::elementwise(6));
            if d > 1 {
                let wrong = reference(&args[0], &args[1], &args[2], 1.1e-5);
                assert!(error(y.f32(), &wrong) > tolerance::sum(d) + tolerance::elementwise(6));
            }
        }
    }

    #[test]
    fn backward_matches_finite_differences() {
        let (n, d) = (5, 19);
        let [x, w, b, dy] = inputs(n, d);
        let (_, mean, inv_std) = forward(&x, &w, &b, 1e-5).unwrap();
        let mut dw = Tensor::zeros(&[d], DType::F32, x.device()).unwrap();
        let mut db = Tensor::zeros(&[d], DType::F32, x.device()).unwrap();
        let saved = Statistics {
            mean: &mean,
            inv_std: &inv_std,
        };
        let sums = Gradients {
            dw: &mut dw,
            db: &mut db,
        };
        let dx = backward(&dy, &x, &w, &saved, None, sums, 2).unwrap();
        let [x, w, b, dy] = [&x, &w, &b, &dy].map(|t| wide(t.f32()));
        let loss = |x: &[f64], w: &[f64], b: &[f64]| {
            let y = reference(x, w, b, f64::from(1e-5_f32));
            y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
        };
        // The inputs are of size 0.01, so the step is too.
        let bound = tolerance::sum(n * d) + tolerance::central_difference(H);
        let want = differences(&x, H * 0.01, |x| loss(x, &w, &b));
        assert!(error(dx.f32(), &want) < bound);
        assert!(error(dw.f32(), &differences(&w, H, |w| loss(&x, w, &b))) < bound);
        assert!(error(db.f32(), &differences(&b, H, |b| loss(&x, &w, b))) < bound);
        // Must fail: the gradient along the other axis.
        let swapped: Vec<f64> = (0..n * d).map(|i| want[i % n * d + i / n]).collect();
        assert!(error(dx.f32(), &swapped) > bound);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set_and_alone_or_in_a_batch() {
        let run = |device: &Device| {
            let copy = |t: &Tensor| Tensor::from_f32(t.dims(), t.f32(), device).unwrap();
            let [x, w, b, dy] = inputs(37, 77).map(|t| copy(&t));
            let (y, mean, inv_std) = forward(&x, &w, &b, 1e-5).unwrap();
            let [mut dw, mut db] = [b.try_clone().unwrap(), b.try_clone().unwrap()];
            let saved = Statistics {
                mean: &mean,
                inv_std: &inv_std,
            };
            let sums = Gradients {
                dw: &mut dw,
                db: &mut db,
            };
            let dx = backward(&dy, &x, &w, &saved, None, sums, 8).unwrap();
            vec![y, mean, inv_std, dx, dw, db]
        };
        assert_same_bits(run);
        // one number per row, parts of the sums, a divisor of 0, numbers that overflow
        assert_same_bits(|device| {
            let mut all = Vec::new();
            for (n, d, parts) in [(1, 1, 1), (12, 3, 4), (6, 16, 2), (9, 50, 3)] {
                for eps in [0.0, 1e-5] {
                    let make = |dims: &[usize], seed| random(dims, seed, device).unwrap();
                    let x = extreme(&[n, d], 1, d == 50, device).unwrap();
                    let (w, b, dy) = (make(&[d], 2), make(&[d], 3), make(&[n, d], 4));
                    let (y, mean, inv_std) = forward(&x, &w, &b, eps).unwrap();
                    let [mut dw, mut db] = [make(&[parts, d], 5), make(&[parts, d], 6)];
                    let saved = Statistics {
                        mean: &mean,
                        inv_std: &inv_std,
                    };
                    let sums = Gradients {
                        dw: &mut dw,
                        db: &mut db,
                    };
                    let dx = backward(&dy, &x, &w, &saved, None, sums, 2).unwrap();
                    all.extend([y, mean, inv_std, dx, dw, db]);
                }
            }
            all
        });
        let [x, w, b, _] = inputs(37, 77);
        let (y, _, _) = forward(&x, &w, &b, 1e-5).unwrap();
        let row = Tensor::from_f32(&[1, 77], &x.f32()[20 * 77..21 * 77], x.device()).unwrap();
        let (alone, _, _) = forward(&row, &w, &b, 1e-5).unwrap();
        assert_eq!(bits(alone.f32()), bits(&y.f32()[20 * 77..21 * 77]));
    }

    #[test]
    fn sums_of_parts_are_those_of_the_parts_alone() {
        let device = Device::cpu();
        let [x, w, b, dy] = inputs(12, 77);
        let (_, mean, inv_std) = forward(&x, &w, &b, 1e-5).unwrap();
        let zeros = |dims: &[usize]| Tensor::zeros(dims, DType::F32, &device).unwrap();
        let (mut dw, mut db) = (zeros(&[3, 77]), zeros(&[3, 77]));
        let saved = Statistics {
            mean: &mean,
            inv_std: &inv_std,
        };
        let sums = Gradients {
            dw: &mut dw,
            db: &mut db,
        };
        backward(&dy, &x, &w, &saved, None, sums, 2).unwrap();
        for part in 0..3 {
            let rows = |t: &Tensor, width: usize| {
                let values = &t.f32()[part * 4 * width..(part + 1) * 4 * width];
                Tensor::from_f32(&[4, width], values, &device).unwrap()
            };
            let flat = |t: &Tensor| rows(t, 1).reshape(&[4]).unwrap();
            let (mut w_alone, mut b_alone) = (zeros(&[77]), zeros(&[77]));
            let (mean, inv_std) = (flat(&mean), flat(&inv_std));
            let saved = Statistics {
                mean: &mean,
                inv_std: &inv_std,
            };
            let (dy, x) = (rows(&dy, 77), rows(&x, 77));
            let sums = Gradients {
                dw: &mut w_alone,
                db: &mut b_alone,
            };
            backward(&dy, &x, &w, &saved, None, sums, 2).unwrap();
            let at = part * 77..(part + 1) * 77;
            assert_eq!(bits(w_alone.f32()), bits(&dw.f32()[at.clone()]));
            assert_eq!(bits(b_alone.f32()), bits(&db.f32()[at]));
        }
    }

    #[test]
    fn with_an_addition_bits_are_those_of_the_ops_apart() {
        assert_same_bits(|device| {
            let copy = |t: &Tensor| Tensor::from_f32(t.dims(), t.f32(), device).unwrap();
            let [x, w, b, more] = inputs(37, 77).map(|t| copy(&t));
            let mut sum = x.try_clone().unwrap();
            let fused = forward_sum(&mut sum, &more, &w, &b, 1e-5).unwrap();
            let mut apart = x.try_clone().unwrap();
            add::add_into(&mut apart, &more).unwrap();
            let (y, mean, inv_std) = forward(&apart, &w, &b, 1e-5).unwrap();
            for (a, b) in [
                (&sum, &apart),
                (&fused.0, &y),
                (&fused.1, &mean),
                (&fused.2, &inv_std),
            ] {
                assert_eq!(bits(&values(a)), bits(&values(b)));
            }
            let backward = |more| {
                let (mut dw, mut db) = (w.try_clone().unwrap(), b.try_clone().unwrap());
                let saved = Statistics {
                    mean: &mean,
                    inv_std: &inv_std,
                };
                let sums = Gradients {
                    dw: &mut dw,
                    db: &mut db,
                };
                backward(&x, &sum, &w, &saved, more, sums, 8).unwrap()
            };
            let (mut dx, fused) = (backward(None), backward(Some(&more)));
            add::add_into(&mut dx, &more).unwrap();
            assert_eq!(bits(&values(&fused)), bits(&values(&dx)));
            vec![y, dx]
        });
    }

    #[test]
    fn a_weight_of_another_width_is_an_error() {
        let [x, _, b, _] = inputs(2, 6);
        let w = Tensor::zeros(&[5], DType::F32, x.device()).unwrap();
        assert!(matches!(
            forward(&x, &w, &b, 1e-5),
            Err(Error::Shape { name: "w", .. })
        ));
    }
}
