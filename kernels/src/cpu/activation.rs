//! Activation functions on 16 lanes, value and derivative, for the ops that use them.
//!
//! GELU, erf form: x Phi(x). For x <= 0, Phi(x) = exp(-x^2/2) m(-x), m the scaled tail (Mills' ratio over
//! sqrt(2 pi)); m(z) (z + 4) is a polynomial in t = (z - 4) / (z + 4), fitted here at Chebyshev
//! points of [0, 16] to 2e-8. Phi(x) = 1 - Phi(-x) above 0. Derivative: Phi(x) + x phi(x).
//! tanh: (1 - e) / (1 + e) of |x| with e = exp(-2 |x|), derivative 4 e / (1 + e)^2.
//! GELU, tanh form, and quick GELU: x logistic(u), derivative s + x s (1 - s) u'; SiLU, with u = x, so, too.

use super::math::{exp_of_score, logistic};
use super::simd::Lanes;

// 2 sqrt(2 / pi), and that times 0.044715
const LINEAR: f32 = 1.595_769;
const CUBIC: f32 = 0.071_354_82;
/// Factor of quick GELU, as OpenAI's CLIP has it.
const QUICK: f32 = 1.702;
/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;
/// Coefficients of m(z) (z + 4), highest power of t first.
const TAIL: [f32; 10] = [
    -0.000_127_656_2,
    0.000_183_680_69,
    0.001_563_671_4,
    -0.003_519_273_8,
    -0.007_523_376,
    0.060_406_268,
    -0.186_523_6,
    0.387_136_64,
    -0.607_896_57,
    0.755_285_14,
];

/// A function of one number and its derivative, lane by lane.
pub(crate) trait Activation {
    /// The value, and the derivative.
    fn both<L: Lanes>(x: L) -> (L, L);

    #[inline(always)]
    fn value<L: Lanes>(x: L) -> L {
        Self::both(x).0
    }

    #[inline(always)]
    fn derivative<L: Lanes>(x: L) -> L {
        Self::both(x).1
    }
}

pub(crate) struct GeluTanh;
pub(crate) struct GeluErf;
pub(crate) struct QuickGelu;
pub(crate) struct Silu;
pub(crate) struct Relu;
pub(crate) struct SquaredRelu;
pub(crate) struct Tanh;

/// Evaluates an expression with a curve's type for the kind of an activation.
macro_rules! by_kind {
    ($kind:expr, $curve:ident => $do:expr) => {{
        use $crate::cpu::activation;
        use $crate::descriptor::activation::Kind;
        macro_rules! with {
            ($type:ident) => {{
                type $curve = activation::$type;
                $do
            }};
        }
        match $kind {
            Kind::GeluTanh => with!(GeluTanh),
            Kind::GeluErf => with!(GeluErf),
            Kind::QuickGelu => with!(QuickGelu),
            Kind::Relu => with!(Relu),
            Kind::SquaredRelu => with!(SquaredRelu),
            Kind::Tanh => with!(Tanh),
        }
    }};
}
pub(crate) use by_kind;

impl Activation for GeluTanh {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        // Past 16 both are settled, and x^2 could overflow.
        let near = near(x);
        let square = near.mul(near);
        let (s, rest) =
            logistic_and_derivative(near.mul(square.fma(L::splat(CUBIC), L::splat(LINEAR))));
        let du = square.fma(L::splat(3.0 * CUBIC), L::splat(LINEAR));
        (x.mul(s), near.fma(rest.mul(du), s))
    }
}

impl Activation for GeluErf {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        let (share, bell) = normal(x);
        (x.mul(share), x.fma(bell.mul(L::splat(DENSITY)), share))
    }
}

impl Activation for QuickGelu {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        let (s, rest) = logistic_and_derivative(x.mul(L::splat(QUICK)));
        (x.mul(s), x.fma(rest.mul(L::splat(QUICK)), s))
    }
}

impl Activation for Silu {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        let s = logistic(x);
        let y = x.mul(s);
        (y, y.fma(L::splat(1.0).sub(s), s))
    }
}

impl Activation for Relu {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        let zero = L::splat(0.0);
        // NaN is not less than 0, so it propagates; the derivative is 0 at 0, as in torch.
        let derivative = zero.select_less(x, L::splat(1.0), zero);
        (x.select_less(zero, zero, x), derivative)
    }
}

impl Activation for SquaredRelu {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        let y = Relu::value(x);
        (y.mul(y), y.mul(L::splat(2.0)))
    }
}

impl Activation for Tanh {
    #[inline(always)]
    fn both<L: Lanes>(x: L) -> (L, L) {
        let (zero, one) = (L::splat(0.0), L::splat(1.0));
        let e = exp_of_score(x.select_less(zero, x, zero.sub(x)).mul(L::splat(2.0)));
        let y = one.sub(e).div(one.add(e));
        let derivative = logistic_and_derivative(x.mul(L::splat(2.0))).1;
        (
            x.select_less(zero, zero.sub(y), y),
            derivative.mul(L::splat(4.0)),
        )
    }
}

/// x from -16 to 16; NaN stays: max gives its second argument.
#[inline(always)]
fn near<L: Lanes>(x: L) -> L {
    L::splat(-16.0).max(L::splat(16.0).min(x))
}

/// s = logistic(u) and s (1 - s), neither with cancellation: e = exp(-|u|), and the two shares are
/// 1 / (1 + e) and e / (1 + e).
#[inline(always)]
fn logistic_and_derivative<L: Lanes>(u: L) -> (L, L) {
    let (zero, one) = (L::splat(0.0), L::splat(1.0));
    let e = exp_of_score(u.min(zero.sub(u)));
    let large = one.div(one.add(e));
    let small = e.mul(large);
    (u.select_less(zero, small, large), large.mul(small))
}

/// Phi(x) and exp(-x^2/2).
#[inline(always)]
fn normal<L: Lanes>(x: L) -> (L, L) {
    let (zero, one) = (L::splat(0.0), L::splat(1.0));
    // Past 16 both results are settled and x^2 could overflow.
    let near = near(x);
    let z = near.select_less(zero, zero.sub(near), near);
    let bell = exp_of_score(near.mul(near).mul(L::splat(-0.5)));
    let above = z.add(L::splat(4.0));
    let t = z.sub(L::splat(4.0)).div(above);
    let mut m = L::splat(TAIL[0]);
    for c in &TAIL[1..] {
        m = m.fma(t, L::splat(*c));
    }
    let tail = bell.mul(m).div(above);
    (x.select_less(zero, tail, one.sub(tail)), bell)
}
