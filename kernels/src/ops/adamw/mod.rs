//! One AdamW step, elementwise, with torch.optim.AdamW's formula in f32:
//! w *= 1 - lr wd; m += (g - m)(1 - b1); v = b2 v + (1 - b2) g^2;
//! w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps), with g the gradient times `grad_scale`.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Scalars are computed in f64 and rounded once.

mod cpu;
mod settings;

use crate::Device;
pub use settings::{AdamW, Moments};

/// Updates weights and both moments, with the instruction set of `device`.
/// # Panics
/// If the slices differ in length.
pub fn step(device: &Device, w: &mut [f32], g: &[f32], moments: Moments<'_>, p: &AdamW) {
    let n = w.len();
    assert!(
        g.len() == n && moments.m.len() == n && moments.v.len() == n,
        "one gradient and two moments per weight"
    );
    let _span = crate::trace::op("adamw::step");
    cpu::step(device.isa(), w, g, moments, p);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, error, random, wide};
    use crate::tolerance;

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
        let (mut m, mut v) = (vec![0.0; 10_007], vec![0.0; 10_007]);
        for number in 1..=5 {
            step(
                &device,
                w.f32_mut(),
                g.f32(),
                Moments {
                    m: &mut m,
                    v: &mut v,
                },
                &AdamW { step: number, ..P },
            );
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
            let mut w = w.f32()[range.clone()].to_vec();
            let (mut m, mut v) = (vec![0.1; w.len()], vec![0.2; w.len()]);
            step(
                &device,
                &mut w,
                &g.f32()[range],
                Moments {
                    m: &mut m,
                    v: &mut v,
                },
                &AdamW { step: 3, ..P },
            );
            w
        };
        assert_eq!(run(0..9000)[4001..8503], run(4001..8503));
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        assert_same_bits(|device| {
            let n = 10_007;
            let [mut w, g, mut m] = [2, 1, 3].map(|seed| random(&[n], seed, device).unwrap());
            let mut v = random(&[n], 4, device).unwrap();
            v.f32_mut().iter_mut().for_each(|v| *v = v.abs());
            let moments = Moments {
                m: m.f32_mut(),
                v: v.f32_mut(),
            };
            let p = AdamW { step: 3, ..P };
            step(device, w.f32_mut(), g.f32(), moments, &p);
            vec![w, m, v]
        });
    }
}
