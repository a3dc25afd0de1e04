//! GeGLU: y = gelu(gate) * up, GELU in tanh form (T5 v1.1's `gated-gelu`) or erf form.
//! Paper: Shazeer 2020, arXiv:2002.05202. Gate and up are the halves of one row, as one product gives them.
//! All tensors of a call are f32 or all bf16, which is widened as it is read and rounded last: computing is in f32.

mod cpu;

use crate::{Error, Result, Tensor};

/// Form of GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
    Tanh,
    /// x/2 (1 + erf(x / sqrt 2)).
    Erf,
}

/// Returns y, of gate_up's type.
/// # Shapes
/// gate_up: `[.., 2f]`, first f gate, last f up -> y: `[n, f]` with leading dims flattened to n.
/// # Errors
/// `Shape` or `DType` if gate_up does not fit.
pub fn forward(gate_up: &Tensor, form: Form) -> Result<Tensor> {
    let (n, f) = halves("geglu::forward", gate_up)?;
    let mut y = Tensor::empty(&[n, f], gate_up.dtype(), gate_up.device())?;
    dispatch!(gate_up.device(), forward(&mut y, gate_up, form));
    Ok(y)
}

/// Returns the gradient of gate_up, with its dims and type.
/// # Shapes
/// dy: n * f elements with last dim f, of gate_up's type; gate_up: `[.., 2f]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(dy: &Tensor, gate_up: &Tensor, form: Form) -> Result<Tensor> {
    const OP: &str = "geglu::backward";
    let (n, f) = halves(OP, gate_up)?;
    dy.expect(OP, "dy", gate_up.dtype())?;
    if dy.expect_number_rows(OP, "dy")? != (n, f) {
        return Err(Error::Shape {
            op: OP,
            name: "dy",
            found: dy.dims().to_vec(),
            wanted: format!("[{n}, {f}]"),
        });
    }
    let mut dx = Tensor::empty(gate_up.dims(), gate_up.dtype(), gate_up.device())?;
    dispatch!(gate_up.device(), backward(&mut dx, dy, gate_up, form));
    Ok(dx)
}

fn halves(op: &'static str, gate_up: &Tensor) -> Result<(usize, usize)> {
    let (n, width) = gate_up.expect_number_rows(op, "gate_up")?;
    if width.is_multiple_of(2) {
        return Ok((n, width / 2));
    }
    Err(Error::Shape {
        op,
        name: "gate_up",
        found: gate_up.dims().to_vec(),
        wanted: "an even last dim".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::{self, Kind};
    use crate::testing::{
        assert_same_bits, bits, devices, differences, error, random, stored_as, wide, widened,
    };
    use crate::{DType, Device, tolerance};

    /// Rows of 2 * 7, tanh form.
    fn reference(x: &[f64]) -> Vec<f64> {
        let u = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        let gelu = |x: f64| 0.5 * x * (1.0 + u(x).tanh());
        x.chunks(14)
            .flat_map(|x| (0..7).map(|i| gelu(x[i]) * x[7 + i]).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn forward_matches_f64_and_backward_matches_finite_differences() {
        let device = Device::cpu();
        let x = random(&[11, 14], 1, &device).unwrap();
        let dy = random(&[11, 7], 2, &device).unwrap();
        let y = forward(&x, Form::Tanh).unwrap();
        let dx = backward(&dy, &x, Form::Tanh).unwrap();
        let (x, dy) = (wide(x.f32()), wide(dy.f32()));
        assert!(error(y.f32(), &reference(&x)) < tolerance::elementwise(8));
        let want = differences(&x, 1e-5, |x| {
            reference(x).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        });
        let bound = tolerance::elementwise(12) + tolerance::central_difference(1e-5);
        assert!(error(dx.f32(), &want) < bound);
        // Must fail: the halves swapped.
        let swapped: Vec<f64> = x
            .chunks(14)
            .flat_map(|x| [&x[7..], &x[..7]].concat())
            .collect();
        assert!(error(y.f32(), &reference(&swapped)) > tolerance::elementwise(8));
    }

    /// `activation` is compared with torch; this ties both forms to it.
    #[test]
    fn both_forms_are_the_activation_times_up() {
        let device = Device::cpu();
        let x = random(&[5, 70], 1, &device).unwrap();
        let dy = random(&[5, 35], 2, &device).unwrap();
        let half = |which: usize| {
            let rows = x
                .f32()
                .chunks(70)
                .flat_map(|r| r[35 * which..][..35].to_vec());
            Tensor::from_f32(&[5, 35], &rows.collect::<Vec<_>>(), &device).unwrap()
        };
        let (gate, up) = (half(0), half(1));
        for (form, kind) in [(Form::Tanh, Kind::GeluTanh), (Form::Erf, Kind::GeluErf)] {
            let y = activation::forward(&gate, None, kind).unwrap();
            let want: Vec<f32> = y.f32().iter().zip(up.f32()).map(|(y, u)| y * u).collect();
            assert_eq!(bits(forward(&x, form).unwrap().f32()), bits(&want));
            let dx = backward(&dy, &x, form).unwrap();
            let through = dy.f32().iter().zip(up.f32()).map(|(d, u)| d * u);
            let through =
                Tensor::from_f32(&[5, 35], &through.collect::<Vec<_>>(), &device).unwrap();
            let dgate = activation::backward(&through, &gate, None, kind).unwrap();
            for row in 0..5 {
                let (dgate, y) = (&dgate.f32()[row * 35..][..35], &y.f32()[row * 35..][..35]);
                let dup: Vec<f32> = dy.f32()[row * 35..]
                    .iter()
                    .zip(y)
                    .map(|(d, y)| d * y)
                    .collect();
                assert_eq!(
                    bits(&dx.f32()[row * 70..][..70]),
                    bits(&[dgate, &dup].concat())
                );
            }
        }
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let x = random(&[37, 54], 1, device).unwrap();
            let y = forward(&x, Form::Erf).unwrap();
            let dx = backward(&y, &x, Form::Erf).unwrap();
            vec![y, dx]
        });
    }

    #[test]
    fn bf16_has_the_bits_of_the_same_numbers_in_f32_rounded() {
        for (device, form) in devices()
            .iter()
            .flat_map(|d| [Form::Tanh, Form::Erf].map(|f| (d, f)))
        {
            for f in [5, 16, 27, 96] {
                let half = |x: &Tensor| stored_as(DType::Bf16, x);
                let x = half(&random(&[37, 2 * f], 1, device).unwrap());
                let dy = half(&random(&[37, f], 2, device).unwrap());
                let (y, dx) = (forward(&x, form).unwrap(), backward(&dy, &x, form).unwrap());
                let (x, dy) = (widened(&x), widened(&dy));
                let whole = forward(&x, form).unwrap();
                let dwhole = backward(&dy, &x, form).unwrap();
                assert!(y.bytes() == half(&whole).bytes(), "{device:?} {form:?} {f}");
                assert!(
                    dx.bytes() == half(&dwhole).bytes(),
                    "{device:?} {form:?} {f}"
                );
                // Must fail: not rounded.
                assert!(widened(&y).bytes() != whole.bytes());
            }
        }
    }

    #[test]
    fn types_that_differ_are_refused_by_name() {
        let device = Device::cpu();
        let tensor = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &device).unwrap();
        let (dy, x) = (tensor(&[2, 4], DType::Bf16), tensor(&[2, 8], DType::F32));
        let wrong = backward(&dy, &x, Form::Tanh);
        assert!(matches!(wrong, Err(Error::DType { name: "dy", .. })));
    }

    #[test]
    fn wrong_widths_are_refused_by_name() {
        let device = Device::cpu();
        let odd = random(&[2, 7], 1, &device).unwrap();
        let found = forward(&odd, Form::Tanh);
        assert!(matches!(
            found,
            Err(Error::Shape {
                name: "gate_up",
                ..
            })
        ));
        let x = random(&[2, 8], 1, &device).unwrap();
        let found = backward(&odd, &x, Form::Tanh);
        assert!(matches!(found, Err(Error::Shape { name: "dy", .. })));
    }
}
