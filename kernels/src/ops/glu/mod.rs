//! Gated linear units: y = f(gate) * up. SwiGLU with f = SiLU; GeGLU with f = GELU, in erf form or in tanh form (T5 v1.1's
//! `gated-gelu`); gpt-oss's with clamped numbers and 1 + up. Paper: Shazeer 2020, arXiv:2002.05202. Gate and up are the halves of one row, as one product gives them.
//! All tensors of a call are f32 or all bf16, widened as they are read and rounded last: all computation is in f32.

mod cpu;
pub(super) mod cuda;
mod gate;
mod rows;

use crate::{Error, Result, Tensor};
pub use gate::Gate;

/// Returns y, of gate_up's type.
/// # Shapes
/// gate_up: `[.., 2f]`, first f gate, last f up -> y: `[n, f]` with leading dims flattened to n.
/// # Errors
/// `Shape` or `DType` if gate_up does not fit.
pub fn forward(gate_up: &Tensor, gate: Gate) -> Result<Tensor> {
    let (n, f) = halves("glu::forward", gate_up)?;
    let mut y = Tensor::empty(&[n, f], gate_up.dtype(), gate_up.device())?;
    dispatch!(gate_up.device(), forward(&mut y, gate_up, gate));
    Ok(y)
}

/// Returns the gradient of gate_up, with its dims and type.
/// # Shapes
/// dy: n * f elements with last dim f, of gate_up's type; gate_up: `[.., 2f]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(dy: &Tensor, gate_up: &Tensor, gate: Gate) -> Result<Tensor> {
    const OP: &str = "glu::backward";
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
    dispatch!(gate_up.device(), backward(&mut dx, dy, gate_up, gate));
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
        assert_same_bits, bits, devices, differences, error, extreme, random, stored_as, wide,
        widened,
    };
    use crate::{DType, Device, tolerance};

    const GATES: [Gate; 4] = [Gate::Silu, Gate::GeluTanh, Gate::GeluErf, Gate::Clamped];

    /// The function of up.
    fn upper(gate: Gate, up: f64) -> f64 {
        match gate {
            Gate::Clamped => up.clamp(-7.0, 7.0) + 1.0,
            Gate::Silu | Gate::GeluTanh | Gate::GeluErf => up,
        }
    }

    /// SiLU, GELU in tanh form, or the clamped function of a gate.
    fn function(gate: Gate, x: f64) -> f64 {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        match gate {
            Gate::Silu => x / (1.0 + (-x).exp()),
            Gate::GeluTanh => 0.5 * x * (1.0 + u.tanh()),
            Gate::Clamped => x.min(7.0) / (1.0 + (-1.702 * x.min(7.0)).exp()),
            Gate::GeluErf => unreachable!("compared with `activation`"),
        }
    }

    /// Rows of 2 * 7.
    fn reference(gate: Gate, x: &[f64]) -> Vec<f64> {
        let row = |x: &[f64]| -> Vec<f64> {
            (0..7)
                .map(|i| function(gate, x[i]) * upper(gate, x[7 + i]))
                .collect()
        };
        x.chunks(14).flat_map(row).collect()
    }

    #[test]
    fn forward_matches_f64_and_backward_matches_finite_differences() {
        let device = Device::cpu();
        for gate in [Gate::Silu, Gate::GeluTanh, Gate::Clamped] {
            let mut x = random(&[11, 14], 1, &device).unwrap();
            if gate == Gate::Clamped {
                // some beyond the bounds on either side
                x.f32_mut().iter_mut().for_each(|x| *x *= 6.0);
            }
            let dy = random(&[11, 7], 2, &device).unwrap();
            let (y, dx) = (forward(&x, gate).unwrap(), backward(&dy, &x, gate).unwrap());
            let (x, dy) = (wide(x.f32()), wide(dy.f32()));
            assert!(error(y.f32(), &reference(gate, &x)) < tolerance::elementwise(8));
            let want = differences(&x, 1e-5, |x| {
                let y = reference(gate, x);
                y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            });
            let bound = tolerance::elementwise(12) + tolerance::central_difference(1e-5);
            assert!(error(dx.f32(), &want) < bound);
            // Must fail: the input's gradient taken for the wrong element.
            let mut shifted = want;
            shifted.rotate_left(1);
            assert!(error(dx.f32(), &shifted) > bound);
            // Must fail: the halves swapped.
            let swapped = x.chunks(14).flat_map(|x| [&x[7..], &x[..7]].concat());
            let swapped: Vec<f64> = swapped.collect();
            assert!(error(y.f32(), &reference(gate, &swapped)) > tolerance::elementwise(8));
        }
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
        for (form, kind) in [
            (Gate::GeluTanh, Kind::GeluTanh),
            (Gate::GeluErf, Kind::GeluErf),
        ] {
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
        for gate in GATES {
            assert_same_bits(|device| {
                let x = random(&[37, 54], 1, device).unwrap();
                let y = forward(&x, gate).unwrap();
                let dx = backward(&y, &x, gate).unwrap();
                let far = extreme(&[7, 26], 2, true, device).unwrap();
                let far = [
                    forward(&far, gate).unwrap(),
                    backward(&random(&[7, 13], 3, device).unwrap(), &far, gate).unwrap(),
                ];
                let half = stored_as(DType::Bf16, &extreme(&[9, 34], 4, false, device).unwrap());
                let half_y = forward(&half, gate).unwrap();
                let half_dx = backward(&half_y, &half, gate).unwrap();
                let [far_y, far_dx] = far;
                vec![y, dx, far_y, far_dx, widened(&half_y), widened(&half_dx)]
            });
        }
    }

    #[test]
    fn bf16_has_the_bits_of_the_same_numbers_in_f32_rounded() {
        for (device, form) in devices().iter().flat_map(|d| GATES.map(|gate| (d, gate))) {
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
        let wrong = backward(&dy, &x, Gate::GeluTanh);
        assert!(matches!(wrong, Err(Error::DType { name: "dy", .. })));
        let (dy, x) = (tensor(&[2, 4], DType::F32), tensor(&[2, 8], DType::Bf16));
        let wrong = backward(&dy, &x, Gate::Silu);
        assert!(matches!(wrong, Err(Error::DType { name: "dy", .. })));
        let wrong = forward(&tensor(&[2, 8], DType::U32), Gate::Silu);
        assert!(matches!(
            wrong,
            Err(Error::DType {
                name: "gate_up",
                ..
            })
        ));
    }

    #[test]
    fn wrong_widths_are_refused_by_name() {
        let device = Device::cpu();
        let odd = random(&[2, 7], 1, &device).unwrap();
        let found = forward(&odd, Gate::GeluTanh);
        assert!(matches!(
            found,
            Err(Error::Shape {
                name: "gate_up",
                ..
            })
        ));
        let x = random(&[2, 8], 1, &device).unwrap();
        let found = backward(&odd, &x, Gate::GeluTanh);
        assert!(matches!(found, Err(Error::Shape { name: "dy", .. })));
    }
}
