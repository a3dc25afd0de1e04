//! Online softmax over a block's transposed scores, 32 query rows per key, between two products.

use super::alibi::AlibiLanes;
use super::tile::{Seen, TILE};
use crate::cpu::Isa;
use crate::cpu::activation::{Activation, Tanh};
use crate::cpu::element::Element;
use crate::cpu::math::exp_of_score;
use crate::cpu::output::Data;
use crate::cpu::simd::{Kernel, Lanes, run, vector_fn};

/// Terms of a block's scores beside the product.
#[derive(Clone, Copy)]
pub(super) struct Made<'a> {
    pub(super) scale: f32,
    /// Bound of the scores, which have no bias then; 0: none.
    pub(super) cap: f32,
    /// Linear biases, beside which there is neither a cap nor another bias, and the position of the first key.
    pub(super) alibi: Option<(&'a AlibiLanes, usize)>,
    /// Biases, and the index for (first row, first key); the next key is one index before.
    pub(super) bias: Option<(&'a [f32], usize)>,
    /// `None`: every row sees every key.
    pub(super) seen: Option<&'a Seen>,
}

/// cap tanh(score / cap), and its derivative.
#[inline(always)]
pub(super) fn capped<L: Lanes>(score: L, cap: f32) -> (L, L) {
    let cap = L::splat(cap);
    let (value, slope) = Tanh::both(score.div(cap));
    (value.mul(cap), slope)
}

vector_fn! {
    /// Converts products to scores, hidden ones to -infinity. max: `[32]`, raised to the largest; only the
    /// first `lanes` rows are worked on.
    pub(super) fn scores<L>(x: &mut [f32], max: &mut [f32], made: Made<'_>, lanes: usize) {
        let (scale, none) = (L::splat(made.scale), L::splat(f32::NEG_INFINITY));
        for lane in (0..lanes).step_by(16) {
            let mut most = L::load(&max[lane..]);
            let alibi = made.alibi.map(|(of, first)| of.loaded::<L>(lane, first));
            let starts = made.seen.map(|seen| L::load(&seen.starts[lane..]));
            let ends = made.seen.map(|seen| L::load(&seen.ends[lane..]));
            for (key, x) in x.chunks_exact_mut(TILE).enumerate() {
                let x = &mut x[lane..];
                let mut score = L::load(x);
                score = match (made.bias, alibi) {
                    (Some((bias, at)), _) => score.fma(scale, L::load(&bias[at - key + lane..])),
                    (None, Some(alibi)) => score.fma(scale, alibi.of_key(key)),
                    (None, None) if made.cap > 0.0 => capped(score.mul(scale), made.cap).0,
                    (None, None) => score.mul(scale),
                };
                if let (Some(starts), Some(ends)) = (starts, ends) {
                    let key = L::splat(key as f32);
                    score = key.select_less(starts, none, key.select_less(ends, score, none));
                }
                most = most.max(score);
                score.store(x);
            }
            most.store(&mut max[lane..]);
        }
    }
}

vector_fn! {
    /// Scores to e^(score - max); max: `[32]` before and now. sum: `[32]`, rescaled from the one to the other and
    /// continued. factors: `[32]`, by which all earlier sums must be multiplied. Returns whether one is not 1.
    pub(super) fn exponentials<L>(
        x: &mut [f32], before: &[f32], now: &[f32], sum: &mut [f32], factors: &mut [f32], lanes: usize,
    ) -> bool {
        let mut is_changed = false;
        for lane in (0..lanes).step_by(16) {
            // for a row without any key so far: -infinity minus -infinity would be NaN
            let max = L::splat(f32::MIN).max(L::load(&now[lane..]));
            let factor = exp_of_score(L::load(&before[lane..]).sub(max));
            factor.store(&mut factors[lane..]);
            is_changed |= factors[lane..lane + 16].iter().any(|&x| x != 1.0);
            let mut total = L::load(&sum[lane..]).mul(factor);
            for x in x.chunks_exact_mut(TILE) {
                let x = &mut x[lane..];
                let e = exp_of_score(L::load(x).sub(max));
                total = total.add(e);
                e.store(x);
            }
            total.store(&mut sum[lane..]);
        }
        is_changed
    }
}

vector_fn! {
    /// Multiplies each row of 32 of x with by: `[32]`. Results smaller than `least` are zeros: products of bf16 take
    /// subnormal sums for zeros, also those that add nothing, which not every layout makes.
    pub(super) fn times_each<L>(x: &mut [f32], by: &[f32], lanes: usize, least: f32) {
        let (zero, least) = (L::splat(0.0), L::splat(least));
        for lane in (0..lanes).step_by(16) {
            let by = L::load(&by[lane..]);
            for x in x.chunks_exact_mut(TILE) {
                let x = &mut x[lane..];
                let product = L::load(x).mul(by);
                let size = product.max(zero.sub(product));
                size.select_less(least, zero, product).store(x);
            }
        }
    }
}

vector_fn! {
    /// x = x * by.
    pub(super) fn times<L>(x: &mut [f32], by: &[f32]) {
        for (x, by) in x.chunks_mut(16).zip(by.chunks(16)) {
            L::load_part(x, 0.0).mul(L::load_part(by, 0.0)).store_part(x);
        }
    }
}

/// Per row: logsumexp, and dout . out.
#[derive(Clone, Copy)]
pub(super) struct OfRows<'a> {
    pub(super) lse: &'a [f32],
    pub(super) d: &'a [f32],
}

vector_fn! {
    /// Products to p = e^(score - lse), and dp = slope scale with slope = p (dp - d), 0 where hidden, times the cap's derivative.
    /// With sums by distance, indexed like the bias, adds the slopes to them.
    pub(super) fn slopes<L>(
        p: &mut [f32], dp: &mut [f32], of: OfRows<'_>, made: Made<'_>, sums: Option<&mut [f32]>,
    ) {
        let (scale, none) = (L::splat(made.scale), L::splat(f32::NEG_INFINITY));
        let zero = L::splat(0.0);
        let mut no_sums: [f32; 0] = [];
        let has_sums = sums.is_some();
        let sums = sums.unwrap_or(&mut no_sums);
        for lane in [0, 16] {
            let (lse, d) = (L::load(&of.lse[lane..]), L::load(&of.d[lane..]));
            let alibi = made.alibi.map(|(of, first)| of.loaded::<L>(lane, first));
            let starts = made.seen.map(|seen| L::load(&seen.starts[lane..]));
            let ends = made.seen.map(|seen| L::load(&seen.ends[lane..]));
            let both = p.chunks_exact_mut(TILE).zip(dp.chunks_exact_mut(TILE));
            for (key, (p, dp)) in both.enumerate() {
                let (p, dp) = (&mut p[lane..], &mut dp[lane..]);
                let mut score = L::load(p);
                let mut by = scale;
                score = match (made.bias, alibi) {
                    (Some((bias, at)), _) => score.fma(scale, L::load(&bias[at - key + lane..])),
                    (None, Some(alibi)) => score.fma(scale, alibi.of_key(key)),
                    (None, None) if made.cap > 0.0 => {
                        let (score, slope) = capped(score.mul(scale), made.cap);
                        by = slope.mul(scale);
                        score
                    }
                    (None, None) => score.mul(scale),
                };
                let mut slope = L::load(dp).sub(d);
                if let (Some(starts), Some(ends)) = (starts, ends) {
                    let key = L::splat(key as f32);
                    score = key.select_less(starts, none, key.select_less(ends, score, none));
                    slope = key.select_less(starts, zero, key.select_less(ends, slope, zero));
                }
                let e = exp_of_score(score.sub(lse));
                e.store(p);
                slope = e.mul(slope);
                if let (true, Some((_, at))) = (has_sums, made.bias) {
                    let sums = &mut sums[at - key + lane..];
                    L::load(sums).add(slope).store(sums);
                }
                slope.mul(by).store(dp);
            }
        }
    }
}

pub(super) fn dot(isa: Isa, x: Data<'_>, y: &[f32]) -> f32 {
    match x {
        Data::F32(x) => run::<Dot, _>(isa, (x, y)),
        Data::Bf16(x) => run::<Dot, _>(isa, (x, y)),
    }
}

struct Dot;

impl<E: Element> Kernel<(&[E], &[f32])> for Dot {
    type Out = f32;

    #[inline(always)]
    fn run<L: Lanes>((x, y): (&[E], &[f32])) -> f32 {
        let mut sum = L::splat(0.0);
        for (x, y) in x.chunks(16).zip(y.chunks(16)) {
            sum = E::load_part::<L>(x).fma(L::load_part(y, 0.0), sum);
        }
        sum.sum()
    }
}

vector_fn! {
    /// right = older + right.
    pub(super) fn merge<L>(right: &mut [f32], older: &[f32]) {
        for (right, older) in right.chunks_mut(16).zip(older.chunks(16)) {
            L::load_part(older, 0.0).add(L::load_part(right, 0.0)).store_part(right);
        }
    }
}
