//! Numbers rounded to those of a smaller format, kept as f32: to the nearest, ties to even. What is too
//! large becomes infinite, or NaN where the format has no infinity, as torch converts.
//!
//! | format | fraction bits | smallest normal | largest | too large from |
//! |---|---|---|---|---|
//! | `Bf16` | 7 | 2^-126 | 3.39e38 | 3.3961e38 |
//! | `F16` (IEEE binary16) | 10 | 2^-14 | 65504 | 65520 |
//! | `E4m3` (`float8_e4m3fn`) | 3 | 2^-6 | 448 | above 464, NaN |
//! | `E5m2` (`float8_e5m2`) | 2 | 2^-14 | 57344 | 61440 |
//!
//! Numbers below the smallest normal are multiples of it times 2^-fraction bits.
//! FP8: Micikevicius et al. 2022, arXiv:2209.05433.

mod cpu;

use crate::{DType, Result, Tensor};

/// A number format of at most 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
    /// 4 exponent bits, 3 fraction bits, no infinities.
    E4m3,
    /// 5 exponent bits, 2 fraction bits.
    E5m2,
}

impl Format {
    /// Largest finite number.
    pub fn largest(self) -> f32 {
        f32::from_bits(self.grid().largest)
    }

    fn grid(self) -> cpu::Grid {
        let (fraction, least, largest, beyond) = match self {
            // f32's own exponents: no number is below the smallest normal that f32 is not below
            Format::Bf16 => (7, 0.0, 0x7f7f_0000, INFINITE),
            Format::F16 => (10, 1.0 / 16384.0, 65504f32.to_bits(), INFINITE),
            Format::E4m3 => (3, 1.0 / 64.0, 448f32.to_bits(), NAN),
            Format::E5m2 => (2, 1.0 / 16384.0, 57344f32.to_bits(), INFINITE),
        };
        cpu::Grid {
            dropped: 23 - fraction,
            least: f32::to_bits(least),
            // a number above 2^23 steps of the grid has no bits for parts of a step
            steps: least * f32::from_bits((127 + 23 - fraction) << 23),
            largest,
            beyond,
        }
    }
}

const INFINITE: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;

/// Rounds every number in place.
/// # Errors
/// `DType` if x is not f32.
pub fn round(x: &mut Tensor, format: Format) -> Result<()> {
    x.expect("cast::round", "x", DType::F32)?;
    dispatch!(x.device().clone(), round(x, format.grid()));
    Ok(())
}

/// Returns the rounded numbers.
/// # Errors
/// `DType` if x is not f32, `Memory` if they do not fit.
pub fn rounded(x: &Tensor, format: Format) -> Result<Tensor> {
    x.expect("cast::rounded", "x", DType::F32)?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), rounded(&mut y, x, format.grid()));
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, bits};
    use crate::{Device, rng};

    const FORMATS: [Format; 4] = [Format::Bf16, Format::F16, Format::E4m3, Format::E5m2];

    /// By definition, in f64: the multiple of the step at |x| that is nearest.
    fn nearest(x: f32, fraction: i32, least: i32, largest: f64, has_infinity: bool) -> f64 {
        let wide = f64::from(x);
        if !wide.is_finite() {
            return if has_infinity { wide } else { f64::NAN };
        }
        let mut exponent = least;
        while wide.abs() >= 2f64.powi(exponent + 1) {
            exponent += 1;
        }
        let step = 2f64.powi(exponent - fraction);
        let near = (wide / step).round_ties_even() * step;
        if near.abs() <= largest {
            near
        } else if has_infinity {
            f64::INFINITY.copysign(wide)
        } else {
            f64::NAN
        }
    }

    /// Every exponent and sign with fractions around all halves that any format has, and random ones.
    fn patterns() -> Vec<f32> {
        let mut fractions = vec![0u32, 1, 2, 0x7f_ffff, 0x7f_fffe];
        for bit in 10..23 {
            for near in [-1i64, 0, 1] {
                for above in [0u32, 1, 2, 5] {
                    let at = i64::from(1u32 << bit) * (1 + 2 * i64::from(above)) + near;
                    fractions.extend(u32::try_from(at).ok().filter(|&at| at < 1 << 23));
                }
            }
        }
        let mut all = Vec::new();
        for top in 0..512u32 {
            all.extend(fractions.iter().map(|f| f32::from_bits(top << 23 | f)));
        }
        let mut more = vec![0f32; 100_000];
        rng::fill_normal(&mut more, 5, 0, 0, 1.0);
        all.extend(FORMATS.map(Format::largest));
        all.extend(more.iter().map(|x| x * x * x * 300.0));
        all
    }

    #[test]
    fn numbers_are_the_nearest_of_their_format_by_definition() {
        let x = patterns();
        let x = Tensor::from_f32(&[x.len()], &x, &Device::cpu()).unwrap();
        for (format, fraction, least, largest, has_infinity) in [
            (Format::Bf16, 7, -126, 255.0 * 2f64.powi(120), true),
            (Format::F16, 10, -14, 65504.0, true),
            (Format::E4m3, 3, -6, 448.0, false),
            (Format::E5m2, 2, -14, 57344.0, true),
        ] {
            let y = rounded(&x, format).unwrap();
            for (&x, &y) in x.f32().iter().zip(y.f32()) {
                let want = nearest(x, fraction, least, largest, has_infinity);
                let is_same = if want.is_nan() {
                    y.is_nan()
                } else {
                    f64::from(y).to_bits() == want.to_bits()
                };
                assert!(is_same, "{format:?} of {x:e}: {y:e}, want {want:e}");
            }
        }
    }

    #[test]
    fn rounding_again_in_place_or_elsewhere_changes_nothing() {
        let x = patterns();
        assert_same_bits(|device| {
            let x = Tensor::from_f32(&[x.len()], &x, device).unwrap();
            let all = FORMATS.map(|format| {
                let once = rounded(&x, format).unwrap();
                let mut again = once.try_clone().unwrap();
                round(&mut again, format).unwrap();
                assert!(bits(once.f32()) == bits(again.f32()), "{format:?}");
                let largest = format.largest();
                let finite = once.f32().iter().filter(|x| x.is_finite());
                assert_eq!(finite.copied().fold(0.0, f32::max), largest, "{format:?}");
                once
            });
            all.into()
        });
    }
}
