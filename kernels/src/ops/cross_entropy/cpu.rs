//! Cross entropy on the CPU: rows in parallel, each slice of a row in one fixed vector order.

use crate::cpu::ROW_BLOCK;
use crate::cpu::math::exp_of_score;
use crate::cpu::simd::vector_fn;
use crate::{DType, Result, Tensor};
use rayon::prelude::*;

/// Ids of the shard that are not padding, at most `rows`.
fn real(rows: usize, first: usize, vocab: usize) -> usize {
    vocab.saturating_sub(first).min(rows)
}

pub(super) fn row_max(max: &mut Tensor, logits: &Tensor, first: usize, vocab: usize) {
    let isa = logits.device().isa();
    let (_, rows) = logits.rows_cols();
    let real = real(rows, first, vocab);
    let x = logits.f32().par_chunks(rows * ROW_BLOCK);
    max.f32_mut()
        .par_chunks_mut(ROW_BLOCK)
        .zip(x)
        .for_each(|(max, x)| {
            for (max, x) in max.iter_mut().zip(x.chunks_exact(rows)) {
                *max = largest(isa, &x[..real]);
            }
        });
}

vector_fn! {
    fn largest<L>(x: &[f32]) -> f32 {
        let mut max = L::splat(f32::NEG_INFINITY);
        for x in x.chunks(16) {
            max = max.max(L::load_part(x, f32::NEG_INFINITY));
        }
        max.largest()
    }
}

pub(super) fn row_sums(
    (sums, target): (&mut Tensor, &mut Tensor),
    logits: &Tensor,
    (max, targets): (&Tensor, &Tensor),
    (first, vocab): (usize, usize),
    slice: usize,
) -> Result<()> {
    let isa = logits.device().isa();
    let (n, rows) = logits.rows_cols();
    let real = real(rows, first, vocab);
    let (x, max, targets) = (logits.f32(), max.f32(), targets.u32());
    let slices = rows / slice;
    // Row-major while rows are made, so that each task writes its own part.
    let mut by_row = Tensor::empty(&[n, slices], DType::F32, logits.device())?;
    let outs = by_row
        .f32_mut()
        .par_chunks_mut(slices)
        .zip(target.f32_mut());
    outs.enumerate()
        .with_min_len(ROW_BLOCK)
        .for_each(|(r, (sums, target))| {
            let x = &x[r * rows..(r + 1) * rows];
            for (s, sum) in sums.iter_mut().enumerate() {
                *sum = exp_sum(
                    isa,
                    &x[real.min(s * slice)..real.min((s + 1) * slice)],
                    max[r],
                );
            }
            let at = (targets[r] as usize)
                .checked_sub(first)
                .filter(|&i| i < real);
            *target = at.map_or(0.0, |i| x[i]);
        });
    let by_row = by_row.f32();
    for (s, sums) in sums.f32_mut().chunks_exact_mut(n).enumerate() {
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = by_row[r * slices + s];
        }
    }
    Ok(())
}

vector_fn! {
    fn exp_sum<L>(x: &[f32], max: f32) -> f32 {
        let mut sum = L::splat(0.0);
        for x in x.chunks(16) {
            sum = sum.add(exp_of_score(L::load_part(x, f32::NEG_INFINITY).sub(L::splat(max))));
        }
        sum.sum()
    }
}

pub(super) fn backward(
    logits: &mut Tensor,
    (max, sum): (&Tensor, &Tensor),
    (targets, weights, pull): (&Tensor, &Tensor, Option<&Tensor>),
    (first, vocab): (usize, usize),
) {
    let isa = logits.device().isa();
    let (_, rows) = logits.rows_cols();
    let real = real(rows, first, vocab);
    let (max, sum) = (max.f32(), sum.f32());
    let (targets, weights) = (targets.u32(), weights.f32());
    let pull = pull.map(Tensor::f32);
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
            let pull = pull.map(|pull| pull[r]);
            let weight = pull.map_or(weights[r], |pull| weights[r] + pull);
            probabilities(isa, x, max[r], sum[r], weight);
            if let (Some(i), Some(target)) = (at, &mut target) {
                // p - 1 before the weight: p near 1 would lose its last bits after it.
                probabilities(isa, target, max[r], sum[r], 1.0);
                let gradient = (target[0] - 1.0) * weights[r];
                x[i] = pull.map_or(gradient, |pull| gradient + target[0] * pull);
            }
        });
}

vector_fn! {
    fn probabilities<L>(x: &mut [f32], max: f32, sum: f32, weight: f32) {
        let (max, sum, weight) = (L::splat(max), L::splat(sum), L::splat(weight));
        for x in x.chunks_mut(16) {
            let p = exp_of_score(L::load_part(x, 0.0).sub(max)).div(sum);
            p.mul(weight).store_part(x);
        }
    }
}
