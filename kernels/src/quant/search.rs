//! Searches of ggml for the scale of a group of numbers: some candidates around the obvious one, each refined by
//! weighted least squares; the one with the least error wins (`make_qkx2_quants` and `make_qx_quants` of
//! `ggml-quants.c`).

/// Most numbers of a group.
pub(super) const GROUP: usize = 32;

/// A group whose numbers are all below it is zero.
pub(super) const SMALLEST: f32 = 1e-15;

/// x rounded to a whole number, halves to even.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
pub(super) fn nearest(x: f32) -> i32 {
    x.round_ties_even() as i32
}

/// Candidates of a scale: `(first + step * number + highest) / range` for numbers up to `steps`.
#[derive(Clone, Copy)]
pub(super) struct Candidates {
    pub first: f32,
    pub step: f32,
    pub steps: u16,
}

/// Scale and minimum of a group, whose numbers are about scale * q - minimum.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub scale: f32,
    /// At least 0.
    pub minimum: f32,
    /// The search's q, which stay where a quantized scale is 0.
    pub q: [u8; GROUP],
}

/// The best scale and minimum for q in 0..=highest, by squared errors times `weights`.
pub(super) fn affine(x: &[f32], weights: &[f32], highest: u8, candidates: Candidates) -> Affine {
    let (mut low, mut high) = (x[0], x[0]);
    let (mut sum_w, mut sum_x) = (weights[0], weights[0] * x[0]);
    for (&x, &w) in x.iter().zip(weights).skip(1) {
        low = low.min(x);
        high = high.max(x);
        sum_w += w;
        sum_x += w * x;
    }
    low = low.min(0.0);
    if high == low {
        return Affine {
            scale: 0.0,
            minimum: -low,
            q: [0; GROUP],
        };
    }
    let highest = f32::from(highest);
    let level = |x: f32, inverse: f32| {
        let q = (inverse * (x - low)).round_ties_even();
        q.clamp(0.0, highest)
    };
    let mut best_inverse = highest / (high - low);
    let mut best = [1.0 / best_inverse, low];
    let mut least = 0.0;
    for (&x, &w) in x.iter().zip(weights) {
        let off = best[0] * level(x, best_inverse) + low - x;
        least += w * (off * off);
    }
    for number in 0..=candidates.steps {
        let moved = candidates.first + candidates.step * f32::from(number) + highest;
        let inverse = moved / (high - low);
        let (mut sum_q, mut sum_q2, mut sum_xq) = (0.0, 0.0, 0.0);
        for (&x, &w) in x.iter().zip(weights) {
            let q = level(x, inverse);
            sum_q += w * q;
            sum_q2 += w * q * q;
            sum_xq += w * q * x;
        }
        let determinant = sum_w * sum_q2 - sum_q * sum_q;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
        let mut minimum = (sum_q2 * sum_x - sum_q * sum_xq) / determinant;
        if minimum > 0.0 {
            minimum = 0.0;
            scale = sum_xq / sum_q2;
        }
        let mut error = 0.0;
        for (&x, &w) in x.iter().zip(weights) {
            let off = scale * level(x, inverse) + minimum - x;
            error += w * (off * off);
        }
        if error < least {
            least = error;
            best = [scale, minimum];
            best_inverse = inverse;
        }
    }
    let mut q = [0; GROUP];
    for (q, &x) in q.iter_mut().zip(x) {
        *q = to_level(level(x, best_inverse));
    }
    Affine {
        scale: best[0],
        minimum: -best[1],
        q,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the levels, which are few"
)]
fn to_level(x: f32) -> u8 {
    x as u8
}

/// Candidates on each side of the obvious scale.
const AROUND: i8 = 9;

/// Numbers of a group with a scale alone.
pub(super) const SMALL: usize = 16;

/// Scale of a group, whose numbers are about scale * (q - levels).
#[derive(Clone, Copy)]
pub(super) struct Symmetric {
    pub scale: f32,
    /// The search's q, which stay where a quantized scale is 0.
    pub q: [u8; SMALL],
}

/// The best scale for q in 0..2 * levels, by squared errors times x².
pub(super) fn symmetric(x: &[f32], levels: u8) -> Symmetric {
    let mut largest = 0.0_f32;
    for &x in x {
        if x.abs() > largest.abs() {
            largest = x;
        }
    }
    if largest.abs() < SMALLEST {
        return Symmetric {
            scale: 0.0,
            q: [0; SMALL],
        };
    }
    let levels = f32::from(levels);
    let level = |x: f32, inverse: f32| {
        let q = (inverse * x).round_ties_even();
        q.clamp(-levels, levels - 1.0)
    };
    let sums = |inverse: f32| {
        let (mut sum_xq, mut sum_q2) = (0.0, 0.0);
        for &x in x {
            let q = level(x, inverse);
            let w = x * x;
            sum_xq += w * x * q;
            sum_q2 += w * q * q;
        }
        [sum_xq, sum_q2]
    };
    let mut best_inverse = -levels / largest;
    let [sum_xq, sum_q2] = sums(best_inverse);
    let mut scale = if sum_q2 > 0.0 { sum_xq / sum_q2 } else { 0.0 };
    let mut best = scale * sum_xq;
    for number in (-AROUND..=AROUND).filter(|&number| number != 0) {
        let inverse = -(levels + 0.1 * f32::from(number)) / largest;
        let [sum_xq, sum_q2] = sums(inverse);
        if sum_q2 > 0.0 && sum_xq * sum_xq > best * sum_q2 {
            scale = sum_xq / sum_q2;
            best = scale * sum_xq;
            best_inverse = inverse;
        }
    }
    let mut q = [0; SMALL];
    for (q, &x) in q.iter_mut().zip(x) {
        *q = to_level(level(x, best_inverse) + levels);
    }
    Symmetric { scale, q }
}
