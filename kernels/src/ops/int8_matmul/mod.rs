//! Matrix product with factors of 8 bits, for inference on the CPU: y = f(x W^T + b), where each row of x and each row of W is
//! rounded to 127 steps of its largest size in both directions (symmetric, by row and by output: Dettmers et al. 2022,
//! arXiv:2208.07339, sec. 2.1).
//!
//! Sums of codes are exact integers. y = (sum of codes' products) (s t), s and t the steps of the row and the output: the sum
//! rounded to f32, the product of the steps, their product and the addition of the bias are one rounded operation each. So a
//! row's bits depend on no other row, and are the same on every instruction set. A row with a number that is not finite is
//! NaN; one whose numbers are all below 1e-30 counts as zero.

mod cpu;

use crate::cpu::int8::Panels;
use crate::descriptor::activation::Kind;
use crate::{DType, Error, Result, Tensor};

/// W in 8 bits.
pub struct Int8Weights(Panels);

/// Most inputs: sums of codes stay below 2^31.
const MOST_INPUTS: usize = 1 << 16;

impl Int8Weights {
    /// Rounds w: `[n, k]`.
    /// # Errors
    /// `Shape` or `DType` if it is no matrix of f32 with at most 65,536 columns; `NotOnHost`.
    pub fn new(w: &Tensor) -> Result<Int8Weights> {
        const OP: &str = "int8_matmul::Int8Weights";
        w.expect(OP, "w", DType::F32)?;
        match *w.dims() {
            [n, k] if n > 0 && (1..=MOST_INPUTS).contains(&k) => {
                Ok(Int8Weights(Panels::of(w.host()?, [n, k])))
            }
            ref dims => Err(Error::Shape {
                op: OP,
                name: "w",
                found: dims.to_vec(),
                wanted: format!("[n, k], k at most {MOST_INPUTS}"),
            }),
        }
    }

    /// Bytes of codes and steps.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// Returns f(x W^T + b).
/// # Shapes
/// x: `[.., k]`, bias: `[n]` -> `[m, n]`, leading dims of x flattened to m.
/// # Errors
/// `Shape` or `DType` if they do not fit; `NotOnHost`; `Memory`.
pub fn product(
    x: &Tensor,
    w: &Int8Weights,
    bias: Option<&Tensor>,
    then: Option<Kind>,
) -> Result<Tensor> {
    const OP: &str = "int8_matmul::product";
    let [n, k] = w.0.dims();
    let (m, columns) = x.expect_rows(OP, "x")?;
    if columns != k {
        return Err(Error::Shape {
            op: OP,
            name: "x",
            found: x.dims().to_vec(),
            wanted: format!("a last dim of {k}"),
        });
    }
    if let Some(bias) = bias {
        bias.expect_f32(OP, "bias", &[n])?;
    }
    let mut y = Tensor::empty(&[m, n], DType::F32, x.device())?;
    cpu::product(&mut y, x, &w.0, bias, then)?;
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bits, devices, random, values};
    use crate::{Device, activation};

    /// Codes of a row and its step.
    fn rounded(row: &[f32]) -> (Vec<i64>, f32) {
        let most = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let by = 127.0 / most;
        #[expect(clippy::cast_possible_truncation, reason = "at most 127")]
        let code = |x: &f32| (x * by).round_ties_even() as i64;
        (row.iter().map(code).collect(), most / 127.0)
    }

    /// The definition, element by element.
    fn naive(x: &[f32], w: &[f32], bias: &[f32], k: usize) -> Vec<f32> {
        let outputs: Vec<(Vec<i64>, f32)> = w.chunks(k).map(rounded).collect();
        let mut y = Vec::new();
        for row in x.chunks(k) {
            let (codes, s) = rounded(row);
            for ((own, t), bias) in outputs.iter().zip(bias) {
                let sum: i64 = codes.iter().zip(own).map(|(q, w)| q * w).sum();
                y.push(sum as f32 * (s * t) + bias);
            }
        }
        y
    }

    #[test]
    fn every_device_has_the_bits_of_the_definition() {
        for device in devices() {
            for (m, n, k) in [
                (1, 1, 1),
                (5, 33, 7),
                (12, 32, 4),
                (13, 70, 130),
                (25, 64, 257),
                (50, 31, 768),
            ] {
                let x = random(&[m, k], 1, &device).unwrap();
                let w = random(&[n, k], 2, &device).unwrap();
                let bias = random(&[n], 3, &device).unwrap();
                let wanted = naive(x.f32(), w.f32(), bias.f32(), k);
                let w = Int8Weights::new(&w).unwrap();
                let y = product(&x, &w, Some(&bias), None).unwrap();
                assert!(bits(y.f32()) == bits(&wanted), "{device:?} {m} {n} {k}");
                // rows alone
                let last = Tensor::from_f32(&[1, k], &x.f32()[(m - 1) * k..], &device).unwrap();
                let alone = product(&last, &w, Some(&bias), None).unwrap();
                assert_eq!(bits(alone.f32()), bits(&wanted[(m - 1) * n..]));
            }
        }
    }

    #[test]
    fn instruction_sets_agree_with_activations_too() {
        let of = |device: &Device| {
            let x = random(&[70, 130], 1, device).unwrap();
            let w = Int8Weights::new(&random(&[65, 130], 2, device).unwrap()).unwrap();
            let kinds = [None, Some(Kind::GeluErf), Some(Kind::Tanh)];
            kinds.map(|kind| bits(product(&x, &w, None, kind).unwrap().f32()))
        };
        // the op is for the CPU alone
        let devices = devices();
        for device in &devices[1..] {
            assert!(of(device) == of(&devices[0]), "{device:?}");
        }
        let device = Device::cpu();
        let x = random(&[70, 130], 1, &device).unwrap();
        let w = Int8Weights::new(&random(&[65, 130], 2, &device).unwrap()).unwrap();
        let plain = product(&x, &w, None, None).unwrap();
        let wanted = activation::forward(&plain, None, Kind::GeluErf).unwrap();
        let found = product(&x, &w, None, Some(Kind::GeluErf)).unwrap();
        assert_eq!(bits(found.f32()), bits(wanted.f32()));
    }

    #[test]
    fn products_are_off_by_half_a_step_of_each_factor_and_no_more() {
        let (m, n, k, device) = (20, 40, 300, Device::cpu());
        let x = random(&[m, k], 1, &device).unwrap();
        let w = random(&[n, k], 2, &device).unwrap();
        let y = product(&x, &Int8Weights::new(&w).unwrap(), None, None).unwrap();
        let mut most = 0.0f64;
        for (i, row) in x.f32().chunks(k).enumerate() {
            for (j, own) in w.f32().chunks(k).enumerate() {
                let (s, t) = (f64::from(rounded(row).1), f64::from(rounded(own).1));
                let pairs = row.iter().zip(own);
                let (mut exact, mut bound) = (0.0, 1e-4);
                for (x, w) in pairs {
                    let (x, w) = (f64::from(*x), f64::from(*w));
                    exact += x * w;
                    bound += (s * w.abs() + t * x.abs()) / 2.0 + s * t / 4.0;
                }
                let off = (f64::from(y.f32()[i * n + j]) - exact).abs();
                assert!(off <= bound, "{off} {bound}");
                most = most.max(off / bound);
            }
        }
        assert!(most > 0.01, "factors are rounded: {most}");
    }

    #[test]
    fn rows_without_a_size_are_zero_and_rows_that_are_not_finite_are_nan() {
        for device in devices() {
            let w = random(&[3, 20], 2, &device).unwrap();
            let bias = random(&[3], 3, &device).unwrap();
            let w = Int8Weights::new(&w).unwrap();
            let mut x = vec![0.0; 5 * 20];
            x[20] = 1e-31;
            x[59] = f32::INFINITY;
            x[60] = f32::NAN;
            x[99] = 1.0;
            let x = Tensor::from_f32(&[5, 20], &x, &device).unwrap();
            let y = values(&product(&x, &w, Some(&bias), None).unwrap());
            assert_eq!(bits(&y[..3]), bits(bias.f32()));
            assert_eq!(bits(&y[3..6]), bits(bias.f32()));
            assert!(y[6..12].iter().all(|y| y.is_nan()));
            assert!(y[12..].iter().all(|y| y.is_finite()));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let device = Device::cpu();
        let w = random(&[3, 20], 2, &device).unwrap();
        let weights = Int8Weights::new(&w).unwrap();
        assert!(weights.bytes() >= 60);
        let x = random(&[4, 21], 1, &device).unwrap();
        let narrow = product(&x, &weights, None, None);
        assert!(matches!(narrow, Err(Error::Shape { name: "x", .. })));
        let bias = random(&[4], 1, &device).unwrap();
        let long = product(&w, &weights, Some(&bias), None);
        assert!(matches!(long, Err(Error::Shape { name: "bias", .. })));
        let wide = Tensor::zeros(&[1, MOST_INPUTS + 1], DType::F32, &device).unwrap();
        assert!(Int8Weights::new(&wide).is_err() && Int8Weights::new(&bias).is_err());
    }
}
