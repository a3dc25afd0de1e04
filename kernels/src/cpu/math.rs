//! exp and the logistic function on 16 lanes, to about 1 ulp, the same bits on every instruction set.
//!
//! exp(x) = 2^n e^r, n = round(x / ln 2), r = x - n ln 2 in two pieces (Cody & Waite 1980), e^r by a polynomial of
//! degree 7 on |r| <= ln 2 / 2. We differ from libm: results under the smallest normal (x < -87.33) are 0, and x
//! above 88 counts as 88, which a softmax never reaches and where a logistic function has saturated.

use super::simd::{Lanes, NEAREST};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
// High part has 15 zero low bits, so n * LN2_HIGH is exact for |n| <= 128.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
const LOWEST: f32 = -87.336_54;
const HIGHEST: f32 = 88.0;

/// Returns e^x, lane by lane; e^88 for x above 88.
#[inline(always)]
pub(crate) fn exp_of_score<L: Lanes>(x: L) -> L {
    let clamped = L::splat(HIGHEST).min(L::splat(LOWEST).max(x));
    let shifted = clamped.mul(L::splat(LOG2_E)).add(L::splat(NEAREST));
    let n = shifted.sub(L::splat(NEAREST));
    let r = n.fma(L::splat(-LN2_HIGH), clamped);
    let r = n.fma(L::splat(-LN2_LOW), r);
    let value = polynomial(r).mul(shifted.pow2());
    x.select_less(L::splat(LOWEST), L::splat(0.0), value)
}

/// e^r, |r| <= ln 2 / 2.
#[inline(always)]
fn polynomial<L: Lanes>(r: L) -> L {
    let mut p = L::splat(1.0 / 5040.0);
    for c in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = p.fma(r, L::splat(c));
    }
    p
}

/// Returns 1 / (1 + e^-x), lane by lane.
#[inline(always)]
pub(crate) fn logistic<L: Lanes>(x: L) -> L {
    let (zero, one) = (L::splat(0.0), L::splat(1.0));
    let value = one.div(one.add(exp_of_score(zero.sub(x))));
    // e^x all but itself: under the smallest normal
    x.select_less(L::splat(LOWEST), zero, value)
}

/// Returns ln(x) of a normal number above 0, within 1e-14 before it is rounded; infinity and NaN stay. It is the same on
/// every device and with every C library: ln(2^n m) = n ln 2 + 2 artanh((m - 1) / (m + 1)), in plain operations of f64.
#[expect(clippy::cast_possible_truncation, reason = "rounded once")]
pub(crate) fn natural_log(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits >= f32::INFINITY.to_bits() {
        return x;
    }
    let mut n = f64::from(bits >> 23) - 127.0;
    let mut m = f64::from(f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000));
    if m > std::f64::consts::SQRT_2 {
        (m, n) = (m * 0.5, n + 1.0);
    }
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut series = 1.0 / 19.0;
    for odd in [17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * square + 1.0 / odd;
    }
    (n * std::f64::consts::LN_2 + 2.0 * s * series) as f32
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "tests round f64 to f32")]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::cpu::simd::vector_fn;

    vector_fn! {
        fn exps<L>(x: &[f32]) -> Vec<f32> {
            x.chunks(16).flat_map(|c| exp_of_score(L::load_part(c, 0.0)).to_array()).collect()
        }
    }

    fn inputs() -> Vec<f32> {
        (-880_000..880_001_i32)
            .step_by(7)
            .map(|i| f64::from(i) * 1e-4)
            .map(|x| x as f32)
            .collect()
    }

    #[test]
    fn exp_is_within_two_ulp_of_f64() {
        let x = inputs();
        let mut worst = 0.0_f64;
        for (x, y) in x.iter().zip(exps(Isa::detect(), &x)) {
            let want = f64::from(*x).exp();
            if want < f64::from(f32::MIN_POSITIVE) {
                assert!((0.0..=1.2e-38).contains(&y), "{x} {y}");
                continue;
            }
            let ulp = (want as f32).next_up() as f64 - f64::from(want as f32);
            worst = worst.max((f64::from(y) - want).abs() / ulp);
        }
        println!("worst error of exp: {worst} ulp");
        assert!(worst < 2.0, "{worst} ulp");
    }

    #[test]
    fn exp_has_the_same_bits_on_every_instruction_set() {
        let mut x = inputs();
        x.extend([f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0, 1e-40]);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let same = exps(isa, &x)
                .iter()
                .zip(exps(Isa::Portable, &x))
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{isa:?}");
        }
    }

    #[test]
    fn logarithms_are_those_of_f64_rounded() {
        let mut x = f32::MIN_POSITIVE;
        while x.is_finite() {
            assert_eq!(natural_log(x), f64::from(x).ln() as f32, "{x}");
            x *= 1.000_37;
        }
        assert_eq!(natural_log(f32::INFINITY), f32::INFINITY);
        assert!(natural_log(f32::NAN).is_nan());
    }

    #[test]
    fn exp_keeps_the_special_values() {
        let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
        let y = exps(Isa::detect(), &x);
        assert!(y[0].is_nan());
        let most = 88.0_f64.exp();
        assert!((f64::from(y[1]) / most - 1.0).abs() < 1e-6, "{}", y[1]);
        assert_eq!(&y[2..5], &[0.0, 1.0, 1.0]);
    }
}
