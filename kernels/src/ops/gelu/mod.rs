//! GELU, tanh form as in GPT-2: y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
//! Paper: Hendrycks & Gimpel 2016, arXiv:1606.08415. Computed as x * logistic(2u), the same function.

mod cpu;

use crate::{DType, Result, Tensor};

/// Returns y, dims of x.
/// # Errors
/// `DType` if x is not f32.
pub fn forward(x: &Tensor) -> Result<Tensor> {
    x.expect("gelu::forward", "x", DType::F32)?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), forward(&mut y, x));
    Ok(y)
}

/// Returns dx, dims of x.
/// # Errors
/// `Shape` or `DType` if dy and x differ.
pub fn backward(dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    x.expect("gelu::backward", "x", DType::F32)?;
    dy.expect_f32("gelu::backward", "dy", x.dims())?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), backward(&mut dx, dy, x));
    Ok(dx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, differences, error, random, wide};
    use crate::{Device, tolerance};

    /// The textbook form, with tanh.
    fn reference(x: &[f64]) -> Vec<f64> {
        let u = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        x.iter().map(|&x| 0.5 * x * (1.0 + u(x).tanh())).collect()
    }

    #[test]
    fn forward_matches_f64_and_backward_matches_finite_differences() {
        let device = Device::cpu();
        let x = random(&[11, 14], 1, &device).unwrap();
        let dy = random(&[11, 14], 2, &device).unwrap();
        let (y, dx) = (forward(&x).unwrap(), backward(&dy, &x).unwrap());
        let (x, dy) = (wide(x.f32()), wide(dy.f32()));
        assert!(error(y.f32(), &reference(&x)) < tolerance::elementwise(8));
        let want = differences(&x, 1e-5, |x| {
            reference(x)
                .iter()
                .zip(&dy)
                .map(|(y, dy)| y * dy)
                .sum::<f64>()
        });
        let bound = tolerance::elementwise(12) + tolerance::central_difference(1e-5);
        assert!(error(dx.f32(), &want) < bound);
        // Must fail: the input's gradient taken for the wrong element.
        let mut shifted = want;
        shifted.rotate_left(1);
        assert!(error(dx.f32(), &shifted) > bound);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let x = random(&[37, 54], 1, device).unwrap();
            let y = forward(&x).unwrap();
            let dx = backward(&y, &x).unwrap();
            vec![y, dx]
        });
    }

    #[test]
    fn far_inputs_saturate_without_nan() {
        let x = [-1e30, -50.0, -0.0, 0.0, 50.0, 1e30];
        let x = Tensor::from_f32(&[6], &x, &Device::cpu()).unwrap();
        let y = forward(&x).unwrap();
        assert_eq!(&y.f32()[2..], &[0.0, 0.0, 50.0, 1e30]);
        assert!(y.f32()[..2].iter().all(|y| y.abs() == 0.0), "{:?}", y.f32());
        let one = Tensor::from_f32(&[6], &[1.0; 6], &Device::cpu()).unwrap();
        let dx = backward(&one, &x).unwrap();
        assert_eq!(&dx.f32()[4..5], &[1.0]);
    }
}
