//! RMS norm over the last axis: y = x * w / sqrt(mean(x^2) + eps).
//! Paper: Zhang & Sennrich 2019, arXiv:1910.07467.

pub(crate) mod cpu;
pub(super) mod cuda;

use super::norm::{self, check_forward};
use crate::{DType, Result, Tensor};

/// Returns y, and inv_rms for backward.
/// # Shapes
/// x: `[.., d]` with leading dims flattened to n, w: `[d]` -> y as x, inv_rms: `[n]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
    let (n, _) = check_forward("rms_norm::forward", x, None, &[("w", w)])?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let mut inv_rms = Tensor::empty(&[n], DType::F32, x.device())?;
    dispatch!(x.device(), forward(&mut y, &mut inv_rms, x, w, eps));
    Ok((y, inv_rms))
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
    eps: f32,
) -> Result<(Tensor, Tensor)> {
    let (n, _) = check_forward("rms_norm::forward_sum", x, Some(more), &[("w", w)])?;
    let device = x.device().clone();
    let mut y = Tensor::empty(x.dims(), DType::F32, &device)?;
    let mut inv_rms = Tensor::empty(&[n], DType::F32, &device)?;
    dispatch!(device, forward_sum(&mut y, &mut inv_rms, x, more, w, eps));
    Ok((y, inv_rms))
}

/// Returns dx, with `more` added to it if there is any, and adds to dw in the tree of `reduce` with leaves of `leaf` rows (0: one leaf); a leaf
/// is the chain acc = fma(dy, x * inv_rms, acc) from 0.0.
/// # Shapes
/// dy, x and more: `[.., d]`, w: `[d]`, inv_rms: `[n]` -> dx as x. dw: `[d]`, or `[parts, d]` for one sum per
/// `n / parts` rows.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    inv_rms: &Tensor,
    more: Option<&Tensor>,
    dw: &mut Tensor,
    leaf: usize,
) -> Result<Tensor> {
    norm::Backward { dy, x, w, more }.check(
        "rms_norm::backward",
        &[("inv_rms", inv_rms)],
        &[("dw", dw)],
    )?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), backward_input(&mut dx, dy, x, w, inv_rms, more));
    dispatch!(x.device(), backward_weights(dw, dy, x, inv_rms, leaf));
    Ok(dx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_same_bits, bits, differences, error, extreme, random, values, wide,
    };
    use crate::{Device, add, tolerance};

    fn reference(x: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
        let d = w.len();
        x.chunks(d)
            .flat_map(|x| {
                let mean = x.iter().map(|x| x * x).sum::<f64>() / d as f64;
                (0..d)
                    .map(|i| x[i] * w[i] / (mean + eps).sqrt())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn inputs(n: usize, d: usize, device: &Device) -> [Tensor; 3] {
        // Small rows, so that eps counts.
        let x = values(&random(&[n, d], 1, device).unwrap());
        let x: Vec<f32> = x.iter().map(|x| x * 0.01).collect();
        [
            Tensor::from_f32(&[n, d], &x, device).unwrap(),
            random(&[d], 2, device).unwrap(),
            random(&[n, d], 3, device).unwrap(),
        ]
    }

    #[test]
    fn forward_matches_an_f64_loop_and_fails_with_the_wrong_eps() {
        for (n, d) in [(1, 1), (3, 7), (40, 16), (5, 129), (2, 1000)] {
            let [x, w, _] = inputs(n, d, &Device::cpu());
            let (y, _) = forward(&x, &w, 1e-5).unwrap();
            let (x, w) = (wide(x.f32()), wide(w.f32()));
            let bound = tolerance::sum(d) + tolerance::elementwise(5);
            assert!(error(y.f32(), &reference(&x, &w, f64::from(1e-5_f32))) < bound);
            assert!(error(y.f32(), &reference(&x, &w, 1.1e-5)) > bound);
        }
    }

    #[test]
    fn backward_matches_finite_differences() {
        let (n, d) = (5, 19);
        let [x, w, dy] = inputs(n, d, &Device::cpu());
        let (_, inv_rms) = forward(&x, &w, 1e-5).unwrap();
        let mut dw = Tensor::zeros(&[d], DType::F32, x.device()).unwrap();
        let dx = backward(&dy, &x, &w, &inv_rms, None, &mut dw, 2).unwrap();
        let [x, w, dy] = [&x, &w, &dy].map(|t| wide(t.f32()));
        let loss = |x: &[f64], w: &[f64]| {
            let y = reference(x, w, f64::from(1e-5_f32));
            y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
        };
        let bound = tolerance::sum(n * d) + tolerance::central_difference(1e-5);
        let want = differences(&x, 1e-7, |x| loss(x, &w));
        assert!(error(dx.f32(), &want) < bound);
        assert!(error(dw.f32(), &differences(&w, 1e-5, |w| loss(&x, w))) < bound);
        // Must fail: the gradient along the other axis.
        let swapped: Vec<f64> = (0..n * d).map(|i| want[i % n * d + i / n]).collect();
        assert!(error(dx.f32(), &swapped) > bound);
    }

    #[test]
    fn with_an_addition_bits_are_those_of_the_ops_apart() {
        assert_same_bits(|device| {
            let [x, w, more] = inputs(37, 77, device);
            let mut sum = x.try_clone().unwrap();
            let fused = forward_sum(&mut sum, &more, &w, 1e-5).unwrap();
            let mut apart = x.try_clone().unwrap();
            add::add_into(&mut apart, &more).unwrap();
            let (y, inv_rms) = forward(&apart, &w, 1e-5).unwrap();
            for (a, b) in [(&sum, &apart), (&fused.0, &y), (&fused.1, &inv_rms)] {
                assert_eq!(bits(&values(a)), bits(&values(b)));
            }
            let backward = |more| {
                let mut dw = w.try_clone().unwrap();
                backward(&x, &sum, &w, &inv_rms, more, &mut dw, 8).unwrap()
            };
            let (mut dx, fused) = (backward(None), backward(Some(&more)));
            add::add_into(&mut dx, &more).unwrap();
            assert_eq!(bits(&values(&fused)), bits(&values(&dx)));
            vec![y, dx]
        });
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set_and_alone_or_in_a_batch() {
        assert_same_bits(|device| {
            let [x, w, dy] = inputs(37, 77, device);
            let (y, inv_rms) = forward(&x, &w, 1e-5).unwrap();
            let mut dw = w.try_clone().unwrap();
            let dx = backward(&dy, &x, &w, &inv_rms, None, &mut dw, 8).unwrap();
            vec![y, inv_rms, dx, dw]
        });
        // one number per row, parts of the sums, a divisor of 0, numbers that overflow
        assert_same_bits(|device| {
            let mut all = Vec::new();
            for (n, d, parts) in [(1, 1, 1), (12, 3, 4), (6, 16, 2), (9, 50, 3)] {
                for eps in [0.0, 1e-5] {
                    let x = extreme(&[n, d], 1, d == 50, device).unwrap();
                    let [_, w, dy] = inputs(n, d, device);
                    let (y, inv_rms) = forward(&x, &w, eps).unwrap();
                    let mut dw = random(&[parts, d], 4, device).unwrap();
                    let dx = backward(&dy, &x, &w, &inv_rms, None, &mut dw, 2).unwrap();
                    all.extend([y, inv_rms, dx, dw]);
                }
            }
            all
        });
        let [x, w, _] = inputs(37, 77, &Device::cpu());
        let (y, _) = forward(&x, &w, 1e-5).unwrap();
        let row = Tensor::from_f32(&[1, 77], &x.f32()[20 * 77..21 * 77], x.device()).unwrap();
        let (alone, _) = forward(&row, &w, 1e-5).unwrap();
        assert_eq!(bits(alone.f32()), bits(&y.f32()[20 * 77..21 * 77]));
    }
}
