//! SwiGLU: y = silu(gate) * up, silu(g) = g * logistic(g).
//! Paper: Shazeer 2020, arXiv:2002.05202. Gate and up are the halves of one row, as one product gives them.
//! All tensors of a call are f32 or all bf16, which is widened as it is read and rounded last: computing is in f32.

mod cpu;

use crate::{Error, Result, Tensor};

/// Returns y, of gate_up's type.
/// # Shapes
/// gate_up: `[.., 2f]`, first f gate, last f up -> y: `[n, f]` with leading dims flattened to n.
/// # Errors
/// `Shape` or `DType` if gate_up does not fit.
pub fn forward(gate_up: &Tensor) -> Result<Tensor> {
    let (n, f) = halves("swiglu::forward", gate_up)?;
    let mut y = Tensor::empty(&[n, f], gate_up.dtype(), gate_up.device())?;
    dispatch!(gate_up.device(), forward(&mut y, gate_up));
    Ok(y)
}

/// Returns the gradient of gate_up, with its dims and type.
/// # Shapes
/// dy: n * f elements with last dim f, of gate_up's type; gate_up: `[.., 2f]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(dy: &Tensor, gate_up: &Tensor) -> Result<Tensor> {
    const OP: &str = "swiglu::backward";
    let (n, f) = halves(OP, gate_up)?;
    dy.expect(OP, "dy", gate_up.dtype())?;
    if dy.expect_number_rows(OP, "dy")? != (n, f) {
        let (found, wanted) = (dy.dims().to_vec(), format!("[{n}, {f}]"));
        return Err(Error::Shape {
            op: OP,
            name: "dy",
            found,
            wanted,
        });
    }
    let mut dx = Tensor::empty(gate_up.dims(), gate_up.dtype(), gate_up.device())?;
    dispatch!(gate_up.device(), backward(&mut dx, dy, gate_up));
    Ok(dx)
}

fn halves(op: &'static str, gate_up: &Tensor) -> Result<(usize, usize)> {
    let (n, width) = gate_up.expect_number_rows(op, "gate_up")?;
    if width.is_multiple_of(2) {
        return Ok((n, width / 2));
    }
    let (found, wanted) = (gate_up.dims().to_vec(), "an even last dim".to_owned());
    Err(Error::Shape {
        op,
        name: "gate_up",
        found,
        wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_same_bits, devices, differences, error, random, stored_as, wide, widened,
    };
    use crate::{DType, Device, tolerance};

    /// Rows of 2 * 7.
    fn reference(x: &[f64]) -> Vec<f64> {
        let silu = |g: f64| g / (1.0 + (-g).exp());
        x.chunks(14)
            .flat_map(|x| (0..7).map(|i| silu(x[i]) * x[7 + i]).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn forward_matches_f64_and_backward_matches_finite_differences() {
        let device = Device::cpu();
        let x = random(&[11, 14], 1, &device).unwrap();
        let dy = random(&[11, 7], 2, &device).unwrap();
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
    fn bf16_has_the_bits_of_the_same_numbers_in_f32_rounded() {
        for (device, f) in devices()
            .iter()
            .flat_map(|d| [5, 16, 27, 96].map(|f| (d, f)))
        {
            let half = |x: &Tensor| stored_as(DType::Bf16, x);
            let x = half(&random(&[37, 2 * f], 1, device).unwrap());
            let dy = half(&random(&[37, f], 2, device).unwrap());
            let (y, dx) = (forward(&x).unwrap(), backward(&dy, &x).unwrap());
            let (x, dy) = (widened(&x), widened(&dy));
            let (whole, dwhole) = (forward(&x).unwrap(), backward(&dy, &x).unwrap());
            assert!(y.bytes() == half(&whole).bytes(), "{device:?} {f}");
            assert!(dx.bytes() == half(&dwhole).bytes(), "{device:?} {f}");
            // Must fail: not rounded.
            assert!(widened(&y).bytes() != whole.bytes());
        }
    }

    #[test]
    fn types_that_differ_are_refused_by_name() {
        let device = Device::cpu();
        let tensor = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &device).unwrap();
        let (dy, x) = (tensor(&[2, 4], DType::F32), tensor(&[2, 8], DType::Bf16));
        let wrong = backward(&dy, &x);
        assert!(matches!(wrong, Err(Error::DType { name: "dy", .. })));
        let wrong = forward(&tensor(&[2, 8], DType::U32));
        assert!(matches!(
            wrong,
            Err(Error::DType {
                name: "gate_up",
                ..
            })
        ));
    }

    #[test]
    fn swapped_halves_fail() {
        let x = random(&[11, 14], 1, &Device::cpu()).unwrap();
        let y = forward(&x).unwrap();
        let swapped = |x: &[f32]| [&x[7..], &x[..7]].concat();
        let swapped: Vec<f32> = x.f32().chunks(14).flat_map(swapped).collect();
        assert!(error(y.f32(), &reference(&wide(&swapped))) > tolerance::elementwise(8));
    }
}
