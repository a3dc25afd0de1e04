//! Cross entropy on the CPU: rows in parallel, each slice of a row in one fixed vector order.

use super::shard::{Found, LossRows, Rows, Shard};
use crate::cpu::ROW_BLOCK;
use crate::cpu::activation::{Activation, Tanh};
use crate::cpu::math::exp_of_score;
use crate::cpu::simd::vector_fn;
use crate::{DType, Result, Tensor};
use rayon::prelude::*;

pub(super) fn statistics(
    Found {
        maxima,
        sums,
        target,
    }: Found<'_>,
    logits: &Tensor,
    targets: &Tensor,
    shard: Shard,
    slice: usize,
) -> Result<()> {
    let (isa, (n, rows)) = (logits.device().isa(), logits.rows_cols());
    let (first, real, slices) = (shard.first, shard.real(rows), rows / slice);
    // Row-major while rows are made, so that each task writes its own part.
    let mut by_row = Tensor::empty(&[n, 2 * slices], DType::F32, logits.device())?;
    let outs = (by_row.f32_mut().par_chunks_mut(2 * slices)).zip(target.f32_mut());
    let rows = logits.f32().par_chunks(rows).zip(targets.u32());
    outs.zip(rows)
        .with_min_len(ROW_BLOCK)
        .for_each(|((out, target), (x, id))| {
            let (maxima, sums) = out.split_at_mut(slices);
            for (s, (max, sum)) in maxima.iter_mut().zip(sums).enumerate() {
                let x = &x[real.min(s * slice)..real.min((s + 1) * slice)];
                (*max, *sum) = of_slice(isa, x);
            }
            let at = (*id as usize).checked_sub(first);
            *target = at.filter(|&i| i < real).map_or(0.0, |i| x[i]);
        });
    let by_row = by_row.f32();
    let by_slice = maxima.f32_mut().chunks_exact_mut(n);
    let by_slice = by_slice.zip(sums.f32_mut().chunks_exact_mut(n));
    for (s, (maxima, sums)) in by_slice.enumerate() {
        for (r, (max, sum)) in maxima.iter_mut().zip(sums).enumerate() {
            let row = &by_row[r * 2 * slices..][..2 * slices];
            (*max, *sum) = (row[s], row[slices + s]);
        }
    }
    Ok(())
}

vector_fn! {
    /// The largest and the sum of e^(x - largest); -inf and 0 if nothing is above -inf.
    fn of_slice<L>(x: &[f32]) -> (f32, f32) {
        let mut max = L::splat(f32::NEG_INFINITY);
        for x in x.chunks(16) {
            max = max.max(L::load_part(x, f32::NEG_INFINITY));
        }
        let max = max.largest();
        // -inf - -inf would be no number
        let from = L::splat(if max == f32::NEG_INFINITY { 0.0 } else { max });
        let mut sum = L::splat(0.0);
        for x in x.chunks(16) {
            sum = sum.add(exp_of_score(L::load_part(x, f32::NEG_INFINITY).sub(from)));
        }
        (max, sum.sum())
    }
}

pub(super) fn merge_maxima(max: &mut Tensor, maxima: &Tensor) {
    let max = max.f32_mut();
    max.fill(f32::NEG_INFINITY);
    for slice in maxima.f32().chunks_exact(max.len()) {
        for (max, x) in max.iter_mut().zip(slice) {
            *max = max.max(*x);
        }
    }
}

pub(super) fn rescale(sums: &mut Tensor, maxima: &Tensor, max: &Tensor) {
    let (isa, max) = (sums.device().isa(), max.f32());
    let slices = sums.f32_mut().chunks_exact_mut(max.len());
    for (sums, maxima) in slices.zip(maxima.f32().chunks_exact(max.len())) {
        rescale_slice(isa, sums, maxima, max);
    }
}

vector_fn! {
    /// sums times e^(maxima - max).
    fn rescale_slice<L>(sums: &mut [f32], maxima: &[f32], max: &[f32]) {
        let from = maxima.chunks(16).zip(max.chunks(16));
        for (sums, (maxima, max)) in sums.chunks_mut(16).zip(from) {
            let below = L::load_part(maxima, 0.0).sub(L::load_part(max, 0.0));
            L::load_part(sums, 0.0).mul(exp_of_score(below)).store_part(sums);
        }
    }
}

pub(super) fn backward(logits: &mut Tensor, of: Rows<'_>, shard: Shard) {
    let isa = logits.device().isa();
    let (_, rows) = logits.rows_cols();
    let (first, real) = (shard.first, shard.real(rows));
    let (max, sum) = (of.max.f32(), of.sum.f32());
    let (targets, weights) = (of.targets.u32(), of.weights.f32());
    let pull = of.pull.map(Tensor::f32);
    logits
        .f32_mut()
        .par_chunks_exact_mut(rows)
        .enumerate()
        .for_each(|(r, x)| {
            let (x, padding) = x.split_at_mut(real);
            padding.fill(0.0);
            let at = (targets[r] as usize)
                .checked_sub(first)
                .filter(|&i| i < real);
            let mut target = at.map(|i| [x[i]]);
            let by = target.map_or(1.0, |[y]| slope_of_cap(y, of.cap));
            let pull = pull.map(|pull| pull[r]);
            let weight = pull.map_or(weights[r], |pull| weights[r] + pull);
            match of.cap {
                0.0 => exponentials(isa, x, max[r], weight / sum[r]),
                cap => capped_exponentials(isa, x, max[r], weight / sum[r], cap),
            }
            if let (Some(i), Some(target)) = (at, &mut target) {
                // p - 1 before the weight: p near 1 would lose its last bits after it.
                exponentials(isa, target, max[r], 1.0);
                target[0] /= sum[r];
                let gradient = (target[0] - 1.0) * weights[r];
                x[i] = pull.map_or(gradient, |pull| gradient + target[0] * pull) * by;
            }
        });
}

/// Derivative of a capped logit by the logit; 1 without a cap.
fn slope_of_cap(y: f32, cap: f32) -> f32 {
    if cap == 0.0 {
        return 1.0;
    }
    let share = y / cap;
    1.0 - share * share
}

pub(super) fn cap(logits: &mut Tensor, cap: f32) {
    let isa = logits.device().isa();
    let chunks = logits.f32_mut().par_chunks_mut(CAPPED);
    chunks.for_each(|x| capped(isa, x, cap));
}

/// Logits per task of `cap`.
const CAPPED: usize = 1 << 12;

vector_fn! {
    /// x = cap tanh(x / cap).
    fn capped<L>(x: &mut [f32], cap: f32) {
        let cap = L::splat(cap);
        for x in x.chunks_mut(16) {
            Tanh::value(L::load_part(x, 0.0).div(cap)).mul(cap).store_part(x);
        }
    }
}

vector_fn! {
    /// As `exponentials`, times the derivatives of the cap.
    fn capped_exponentials<L>(x: &mut [f32], max: f32, factor: f32, cap: f32) {
        let (max, factor, cap) = (L::splat(max), L::splat(factor), L::splat(cap));
        let one = L::splat(1.0);
        for x in x.chunks_mut(16) {
            let y = L::load_part(x, 0.0);
            let share = y.div(cap);
            let slope = one.sub(share.mul(share));
            exp_of_score(y.sub(max)).mul(factor).mul(slope).store_part(x);
        }
    }
}

vector_fn! {
    fn exponentials<L>(x: &mut [f32], max: f32, factor: f32) {
        let (max, factor) = (L::splat(max), L::splat(factor));
        for x in x.chunks_mut(16) {
            exp_of_score(L::load_part(x, 0.0).sub(max)).mul(factor).store_part(x);
        }
    }
}

/// ln sum e^x of a row.
fn log_sum(max: f32, sum: f32) -> f64 {
    f64::from(max) + f64::from(sum).ln()
}

pub(super) fn losses(out: &mut Tensor, of: LossRows<'_>, run: usize) {
    let (max, sum, target) = (of.max.f32(), of.sum.f32(), of.target.f32());
    let counts = of.counts.map(Tensor::f32);
    let out = out.u32_mut().par_chunks_exact_mut(4).enumerate();
    out.for_each(|(number, out)| {
        let mut sums = [0.0_f64; 2];
        for i in number * run..(number + 1) * run {
            let weight = counts.map_or(1.0, |counts| f64::from(counts[i]));
            if weight > 0.0 {
                let log = log_sum(max[i], sum[i]);
                sums[0] += weight * (log - f64::from(target[i]));
                sums[1] += weight * (log * log);
            }
        }
        out.copy_from_slice(bytemuck::cast_slice(&sums));
    });
}

pub(super) fn pull(out: &mut Tensor, [max, sum, weights]: [&Tensor; 3], factor: f64) {
    let rows = max.f32().iter().zip(sum.f32()).zip(weights.f32());
    for (out, ((&max, &sum), &weight)) in out.f32_mut().iter_mut().zip(rows) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounds to f32, where gradients live"
        )]
        let slope = (factor * log_sum(max, sum) * f64::from(weight)) as f32;
        *out = slope;
    }
}
