//! Activations of a feed-forward layer, with its bias: y = f(x + bias). GELU: Hendrycks & Gimpel 2016,
//! arXiv:1606.08415, in tanh and erf form; quick GELU is its approximation x logistic(1.702 x). Squared ReLU: So et
//! al. 2021, arXiv:2109.08668. The derivative of ReLU at 0 is 0, as in torch. The bias's gradient is
//! `reduce::sum_rows` of dx.

mod cpu;
pub(super) mod cuda;

pub use crate::descriptor::activation::Kind;
use crate::{DType, Error, Result, Tensor};

/// Returns y, dims of x.
/// # Shapes
/// x: `[.., d]`, bias: `[d]` if there is one.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(x: &Tensor, bias: Option<&Tensor>, kind: Kind) -> Result<Tensor> {
    check("activation::forward", x, bias)?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), forward(&mut y, x, bias, kind));
    Ok(y)
}

/// Returns dx, dims of x.
/// # Shapes
/// As `forward`; dy like x.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(dy: &Tensor, x: &Tensor, bias: Option<&Tensor>, kind: Kind) -> Result<Tensor> {
    const OP: &str = "activation::backward";
    check(OP, x, bias)?;
    dy.expect_f32(OP, "dy", x.dims())?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), backward(&mut dx, dy, x, bias, kind));
    Ok(dx)
}

fn check(op: &'static str, x: &Tensor, bias: Option<&Tensor>) -> Result<()> {
    let (_, d) = x.expect_rows(op, "x")?;
    match bias {
        Some(bias) if bias.dims() != [d] => Err(Error::Shape {
            op,
            name: "bias",
            found: bias.dims().to_vec(),
            wanted: format!("[{d}]"),
        }),
        Some(bias) => bias.expect(op, "bias", DType::F32),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, differences, error, extreme, random, wide};
    use crate::{Device, tolerance};

    const KINDS: [Kind; 6] = [
        Kind::GeluTanh,
        Kind::GeluErf,
        Kind::QuickGelu,
        Kind::Relu,
        Kind::SquaredRelu,
        Kind::Tanh,
    ];

    /// Lines of `kind | x | y | dy/dx`, f64, from torch.
    const GOLDEN: &str = include_str!("../../../tests/data/activation.txt");

    fn golden(kind: Kind) -> [Vec<f64>; 3] {
        let name = format!("{kind:?}");
        let line = GOLDEN
            .lines()
            .find(|l| l.split(" | ").next() == Some(&name));
        let mut parts = line.unwrap().split(" | ").skip(1);
        std::array::from_fn(|_| {
            let part = parts.next().unwrap();
            part.split(' ').map(|w| w.parse().unwrap()).collect()
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the numbers are f32")]
    fn narrow(x: &[f64]) -> Vec<f32> {
        x.iter().map(|x| *x as f32).collect()
    }

    #[test]
    fn values_and_derivatives_are_those_of_torch() {
        let device = Device::cpu();
        for kind in KINDS {
            let [x, y, derivative] = golden(kind);
            let n = x.len();
            let x = Tensor::from_f32(&[n], &narrow(&x), &device).unwrap();
            let one = Tensor::from_f32(&[n], &vec![1.0; n], &device).unwrap();
            let found = forward(&x, None, kind).unwrap();
            let dx = backward(&one, &x, None, kind).unwrap();
            let near = |found: f32, want: f64| {
                (f64::from(found) - want).abs() <= tolerance::elementwise(8) * want.abs().max(1.0)
            };
            for i in 0..n {
                let at = x.f32()[i];
                assert!(
                    near(found.f32()[i], y[i]),
                    "{kind:?} at {at}: {} {}",
                    found.f32()[i],
                    y[i]
                );
                assert!(near(dx.f32()[i], derivative[i]), "{kind:?} at {at}");
            }
            // Must fail: another function.
            let other = KINDS.into_iter().filter(|k| *k != kind);
            for other in other {
                let y = golden(other)[1].clone();
                assert!(found.f32().iter().zip(&y).any(|(f, y)| !near(*f, *y)));
            }
        }
    }

    #[test]
    fn bias_is_added_and_backward_matches_finite_differences_of_f64() {
        let device = Device::cpu();
        let x = random(&[9, 21], 1, &device).unwrap();
        let bias = random(&[21], 2, &device).unwrap();
        let dy = random(&[9, 21], 3, &device).unwrap();
        let y = forward(&x, Some(&bias), Kind::QuickGelu).unwrap();
        let dx = backward(&dy, &x, Some(&bias), Kind::QuickGelu).unwrap();
        let (b, weights) = (wide(bias.f32()), wide(dy.f32()));
        let reference = |x: &[f64]| -> Vec<f64> {
            let shifted = x.iter().enumerate().map(|(i, x)| x + b[i % 21]);
            shifted.map(|x| x / (1.0 + (-1.702 * x).exp())).collect()
        };
        let x = wide(x.f32());
        assert!(error(y.f32(), &reference(&x)) < tolerance::elementwise(8));
        let want = differences(&x, 1e-5, |x| {
            reference(x).iter().zip(&weights).map(|(y, w)| y * w).sum()
        });
        let bound = tolerance::elementwise(12) + tolerance::central_difference(1e-5);
        assert!(error(dx.f32(), &want) < bound);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let x = random(&[37, 54], 1, device).unwrap();
            let bias = random(&[54], 2, device).unwrap();
            let far = extreme(&[5, 31], 3, true, device).unwrap();
            let each = KINDS.into_iter().flat_map(|kind| {
                let y = forward(&x, Some(&bias), kind).unwrap();
                let dx = backward(&y, &x, Some(&bias), kind).unwrap();
                let far_y = forward(&far, None, kind).unwrap();
                let far_dx = backward(&far, &far, None, kind).unwrap();
                [y, dx, far_y, far_dx]
            });
            each.collect()
        });
    }

    #[test]
    fn far_inputs_saturate_and_nan_goes_on() {
        let x = [-1e30, -50.0, 50.0, 1e30, f32::NAN];
        let x = Tensor::from_f32(&[5], &x, &Device::cpu()).unwrap();
        let one = Tensor::from_f32(&[5], &[1.0; 5], &Device::cpu()).unwrap();
        let bounded = [Kind::SquaredRelu, Kind::Tanh];
        for kind in KINDS.into_iter().filter(|k| !bounded.contains(k)) {
            let y = forward(&x, None, kind).unwrap();
            let dx = backward(&one, &x, None, kind).unwrap();
            assert!(y.f32()[..2].iter().all(|y| y.abs() < 1e-30), "{kind:?}");
            assert_eq!(&y.f32()[2..4], &[50.0, 1e30], "{kind:?}");
            assert!(y.f32()[4].is_nan(), "{kind:?}");
            assert_eq!(dx.f32()[2], 1.0, "{kind:?}");
        }
        let y = forward(&x, None, Kind::Tanh).unwrap();
        assert_eq!(&y.f32()[..4], &[-1.0, -1.0, 1.0, 1.0]);
        assert!(y.f32()[4].is_nan());
        assert_eq!(backward(&one, &x, None, Kind::Tanh).unwrap().f32()[3], 0.0);
    }

    #[test]
    fn wrong_widths_are_refused_by_name() {
        let device = Device::cpu();
        let x = random(&[2, 8], 1, &device).unwrap();
        let bias = random(&[7], 1, &device).unwrap();
        let found = forward(&x, Some(&bias), Kind::Relu);
        assert!(matches!(found, Err(Error::Shape { name: "bias", .. })));
        let found = backward(&bias, &x, None, Kind::Relu);
        assert!(matches!(found, Err(Error::Shape { name: "dy", .. })));
    }
}
