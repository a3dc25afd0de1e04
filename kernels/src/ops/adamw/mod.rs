//! One AdamW step, elementwise, with torch.optim.AdamW's formula in f32:
//! w *= 1 - lr wd; m += (g - m)(1 - b1); v = b2 v + (1 - b2) g^2;
//! w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps), with g the gradient times `grad_scale`.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Scalars are computed in f64 and rounded once.

mod cpu;
pub(super) mod cuda;
mod settings;

use crate::view::expect_alike;
use crate::{Result, View, ViewMut};
pub use settings::{AdamW, Moments};

/// Updates weights and both moments, all f32.
/// # Errors
/// `Argument` or `DType` if they differ in length or are no f32.
pub fn step(mut w: ViewMut<'_>, g: View<'_>, mut moments: Moments<'_>, p: &AdamW) -> Result<()> {
    let (m, v) = (moments.m.as_view(), moments.v.as_view());
    expect_alike("adamw::step", w.as_view(), &[("g", g), ("m", m), ("v", v)])?;
    let device = w.device().clone();
    dispatch!(device, step(&mut w, g, &mut moments, p));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, error, random, values, wide};
    use crate::{DType, Device, Error, Tensor, tolerance};

    const P: AdamW = AdamW {
        lr: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        grad_scale: 0.5,
        step: 0,
    };

    /// torch.optim.AdamW's documentation, in f64; weights after `steps` steps.
    fn reference(w: &[f64], g: &[f64], steps: i32, p: &AdamW) -> Vec<f64> {
        let [lr, b1, b2, eps, decay] =
            [p.lr, p.beta1, p.beta2, p.eps, p.weight_decay].map(f64::from);
        let one = |(w, g): (&f64, &f64)| {
            let (mut w, g) = (*w, *g * f64::from(p.grad_scale));
            let (mut m, mut v) = (0.0, 0.0);
            for t in 1..=steps {
                w -= lr * decay * w;
                m = b1 * m + (1.0 - b1) * g;
                v = b2 * v + (1.0 - b2) * g * g;
                let (m, v) = (m / (1.0 - b1.powi(t)), v / (1.0 - b2.powi(t)));
                w -= lr * m / (v.sqrt() + eps);
            }
            w
        };
        w.iter().zip(g).map(one).collect()
    }

    #[test]
    fn five_steps_match_torchs_formula_in_f64() {
        let device = Device::cpu();
        let g = random(&[10_007], 1, &device).unwrap();
        let mut w = random(&[10_007], 2, &device).unwrap();
        let start = wide(w.f32());
        let [mut m, mut v] = [0; 2].map(|_| Tensor::zeros(&[10_007], DType::F32, &device).unwrap());
        for number in 1..=5 {
            let moments = Moments {
                m: m.view_mut(),
                v: v.view_mut(),
            };
            let p = AdamW { step: number, ..P };
            step(w.view_mut(), g.view(), moments, &p).unwrap();
        }
        let bound = tolerance::elementwise(5 * 8);
        assert!(error(w.f32(), &reference(&start, &wide(g.f32()), 5, &P)) < bound);
        let wrong = AdamW {
            weight_decay: 0.101,
            ..P
        };
        assert!(error(w.f32(), &reference(&start, &wide(g.f32()), 5, &wrong)) > bound);
    }

    #[test]
    fn a_part_alone_has_the_bits_of_the_whole() {
        let device = Device::cpu();
        let g = random(&[9000], 1, &device).unwrap();
        let w = random(&[9000], 2, &device).unwrap();
        let run = |range: std::ops::Range<usize>| {
            let n = range.len();
            let mut w = Tensor::from_f32(&[n], &w.f32()[range.clone()], &device).unwrap();
            let [mut m, mut v] =
                [0.1, 0.2].map(|x| Tensor::from_f32(&[n], &vec![x; n], &device).unwrap());
            let moments = Moments {
                m: m.view_mut(),
                v: v.view_mut(),
            };
            let p = AdamW { step: 3, ..P };
            step(w.view_mut(), g.flat(range).unwrap(), moments, &p).unwrap();
            w.f32().to_vec()
        };
        assert_eq!(run(0..9000)[4001..8503], run(4001..8503));
    }

    #[test]
    fn every_device_gives_the_same_bits() {
        assert_same_bits(|device| {
            let n = 10_007;
            let [mut w, g, mut m, v] = [2, 1, 3, 4].map(|seed| random(&[n], seed, device).unwrap());
            let squares: Vec<f32> = values(&v).iter().map(|v| v.abs()).collect();
            let mut v = Tensor::from_f32(&[n], &squares, device).unwrap();
            let moments = Moments {
                m: m.view_mut(),
                v: v.view_mut(),
            };
            let p = AdamW { step: 3, ..P };
            step(w.view_mut(), g.view(), moments, &p).unwrap();
            vec![w, m, v]
        });
    }

    #[test]
    fn other_lengths_are_an_error() {
        let device = Device::cpu();
        let [mut w, g, mut m, mut v] =
            [9, 9, 9, 8].map(|n| Tensor::zeros(&[n], DType::F32, &device).unwrap());
        let moments = Moments {
            m: m.view_mut(),
            v: v.view_mut(),
        };
        let found = step(w.view_mut(), g.view(), moments, &P);
        assert!(matches!(found, Err(Error::Argument { name: "v", .. })));
    }
}
